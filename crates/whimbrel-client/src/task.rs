//! The two tasks of a connection: one reads, one writes and keeps it alive.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use whimbrel_mqtt::codec::{Packet, decode, frame};

use crate::protocol::{Arrival, Shared};
use crate::{Error, Event};

/// Bytes per read.
const READ_MAX: usize = 64 << 10;

/// Capacity, in bytes, above which an empty outbound buffer is freed.
const SPARE_MAX: usize = 64 << 10;

/// Bytes per write: over WebSocket each write is a message, and brokers limit its size.
const WRITE_MAX: usize = 64 << 10;

/// Writes in pieces of [`WRITE_MAX`], and flushes.
pub(crate) async fn write_pieces(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    for piece in bytes.chunks(WRITE_MAX) {
        to.write_all(piece).await?;
    }
    to.flush().await
}

/// Reads until the connection is over, and then sends [`Event::Disconnected`].
pub(crate) async fn read(
    shared: Arc<Shared>,
    mut from: impl AsyncRead + Unpin,
    early: Vec<u8>,
    max_packet: u32,
    events: mpsc::Sender<Arrival>,
) {
    let reason = match read_all(&shared, &mut from, early, max_packet, &events).await {
        Ok(()) => Error::Closed,
        Err(error) => error,
    };
    shared.end(reason.clone());
    let reason = shared.with(|state| state.over.clone()).unwrap_or(reason);
    // The receiver is gone if the application has dropped its [`crate::Events`].
    let _ = events.send(Event::Disconnected { reason }.into()).await;
}

async fn read_all(
    shared: &Shared,
    from: &mut (impl AsyncRead + Unpin),
    mut bytes: Vec<u8>,
    max_packet: u32,
    events: &mpsc::Sender<Arrival>,
) -> Result<(), Error> {
    loop {
        let mut used = 0;
        while let Some(cut) = frame(&bytes[used..], max_packet as usize)? {
            let arrival = shared.handle(decode(shared.version, cut.first_byte, cut.body)?)?;
            if let Some(arrival) = arrival
                && events.send(arrival).await.is_err()
            {
                return Ok(());
            }
            used += cut.whole.len();
        }
        bytes.drain(..used);
        bytes.reserve(READ_MAX.saturating_sub(bytes.len()).max(1024));
        let over = async {
            loop {
                let notified = shared.space.notified();
                if shared.with(|state| state.over.is_some()) {
                    return;
                }
                notified.await;
            }
        };
        tokio::select! {
            read = from.read_buf(&mut bytes) => if read? == 0 { return Ok(()) },
            () = over => return Ok(()),
        }
        if bytes.is_empty() && bytes.capacity() > READ_MAX {
            bytes = Vec::new();
        }
    }
}

/// Writes until the connection is over.
pub(crate) async fn write(shared: Arc<Shared>, mut to: impl AsyncWrite + Unpin, keep_alive: Duration) {
    if let Err(error) = write_all(&shared, &mut to, keep_alive).await {
        shared.end(error);
    }
    // The broker may have closed the connection already.
    let _ = to.shutdown().await;
}

async fn write_all(shared: &Shared, to: &mut (impl AsyncWrite + Unpin), keep_alive: Duration) -> Result<(), Error> {
    let mut spare = Vec::new();
    loop {
        let (mut bytes, over) = shared.with(|state| (std::mem::replace(&mut state.out, spare), state.over.is_some()));
        if !bytes.is_empty() {
            write_pieces(to, &bytes).await?;
            bytes.clear();
            shared.space.notify_waiters();
        } else if over {
            return Ok(());
        } else if keep_alive.is_zero() {
            shared.work.notified().await;
        } else if tokio::time::timeout(keep_alive, shared.work.notified()).await.is_err() {
            if shared.with(|state| std::mem::replace(&mut state.ping_outstanding, true)) {
                return Err(Error::Timeout);
            }
            shared.send(&Packet::PingReq, None)?;
        }
        spare = if bytes.capacity() > SPARE_MAX { Vec::new() } else { bytes };
    }
}
