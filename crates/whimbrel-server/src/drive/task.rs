//! One task per connection: reads, and writes output that could not be written at once.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use whimbrel_mqtt::READ_OUT_BYTES;

use super::hub::Hub;
use super::inbox::Line;
use super::port::{Next, Port};

/// Bytes read at once. One buffer per thread, so an idle connection owns none.
const READ_MAX: usize = 64 << 10;

/// Time for the peer to end the connection after it got the last bytes.
const PARTING: Duration = Duration::from_secs(1);

thread_local! {
    static CHUNK: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_MAX].into_boxed_slice());
}

/// Chunks that one connection may be read before other connections have their turn.
const CHUNKS_PER_TURN: usize = 4;

/// What a connection's task does after its turn.
enum After {
    /// Another turn, once other tasks have had theirs and the runtime has polled for more of them.
    Another,
    /// Another turn, but not before this: the publisher runs ahead of the clock.
    Held(Instant),
    /// The connection ends: the machine has let go of it, or its peer has (`peer_ended`).
    Nothing { peer_ended: bool },
}

/// Result of reading one chunk.
enum Read {
    /// Nothing to read now; the task is woken when there is.
    Idle,
    /// A chunk was read that did not fill the buffer: probably all there was.
    Some,
    /// A chunk was read that filled the buffer.
    Full,
    /// The peer has ended the connection.
    Ended,
}

/// Reads one chunk and hands it to the machine, unless the machine has enough of this connection.
fn read_chunk<R: AsyncRead + Unpin>(
    (hub, port): (&Hub, &Port),
    line: &mut Line,
    from: &mut R,
    cx: &mut Context<'_>,
) -> Read {
    if port.is_paused() || !hub.may_read(line) {
        return Read::Idle;
    }
    CHUNK.with_borrow_mut(|chunk| {
        let mut buffer = ReadBuf::new(chunk);
        match Pin::new(from).poll_read(cx, &mut buffer) {
            Poll::Pending => Read::Idle,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                hub.bytes(line, None, buffer.filled());
                if buffer.remaining() == 0 { Read::Full } else { Read::Some }
            }
            Poll::Ready(_) => Read::Ended,
        }
    })
}

/// Reads what the peer has already sent, if the machine asks for it: up to [`READ_OUT_BYTES`], even
/// if the connection is paused. Returns whether the peer has ended the connection.
fn read_out<R: AsyncRead + Unpin>(
    (hub, port): (&Hub, &Port),
    line: &mut Line,
    from: &mut R,
    cx: &mut Context<'_>,
) -> bool {
    // Input read while the brake is on would only wait in the inbox: the task is woken when the
    // brake is let go.
    if !port.is_to_be_read_out() || !hub.may_read(line) || !port.take_read_out() {
        return false;
    }
    let mut left = READ_OUT_BYTES;
    while left > 0 && !port.is_closing() {
        let bytes = CHUNK.with_borrow_mut(|chunk| {
            let most = left.min(chunk.len());
            let mut buffer = ReadBuf::new(&mut chunk[..most]);
            let read = Pin::new(&mut *from).poll_read(cx, &mut buffer).map(|read| read.map(|()| buffer.filled().len()));
            if let Poll::Ready(Ok(1..)) = read {
                hub.bytes(line, None, buffer.filled());
            }
            read
        });
        match bytes {
            Poll::Pending => break,
            Poll::Ready(Ok(bytes)) if bytes > 0 => left -= bytes,
            Poll::Ready(_) => return true,
        }
    }
    hub.read_out(line, left > 0);
    false
}

/// Waits until a hold is over, or until the machine asks to read out.
async fn wait_held(port: &Port, until: Instant) {
    let mut sleep = pin!(sleep_until(until));
    poll_fn(|cx| {
        port.attend(cx.waker());
        if port.is_to_be_read_out() { Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
    })
    .await;
}

/// How a turn ends after a read; `None`: it goes on.
fn end_of_turn(port: &Port, read: Read) -> Option<Poll<After>> {
    if let Some(until) = port.take_hold() {
        return Some(Poll::Ready(After::Held(until)));
    }
    match read {
        Read::Ended => Some(Poll::Ready(After::Nothing { peer_ended: true })),
        Read::Idle => Some(Poll::Pending),
        Read::Full => Some(Poll::Ready(After::Another)),
        Read::Some => None,
    }
}

/// Takes turns until the connection ends. Returns whether the peer has ended it.
async fn take_turns(port: &Port, mut turn: impl FnMut(&mut Context<'_>) -> Poll<After>) -> bool {
    loop {
        match poll_fn(&mut turn).await {
            After::Another => yield_now().await,
            After::Held(until) => wait_held(port, until).await,
            After::Nothing { peer_ended } => return peer_ended,
        }
    }
}

/// Serves a plain TCP connection until it ends.
pub(super) async fn run_tcp(hub: Arc<Hub>, mut line: Line, port: Arc<Port>, mut read: OwnedReadHalf) {
    let turn = |cx: &mut Context<'_>| {
        port.attend(cx.waker());
        if read_out((&hub, &port), &mut line, &mut read, cx) {
            return Poll::Ready(After::Nothing { peer_ended: true });
        }
        for _ in 0..CHUNKS_PER_TURN {
            // A peer that reads nothing more may have sent its goodbye: its bytes are read to the
            // end.
            if port.poll_direct(cx) == Next::Drained {
                hub.drained(&mut line);
            }
            if port.is_closing() {
                return Poll::Ready(After::Nothing { peer_ended: false });
            }
            if let Some(end) = end_of_turn(&port, read_chunk((&hub, &port), &mut line, &mut read, cx)) {
                return end;
            }
        }
        Poll::Ready(After::Another)
    };
    let peer_ended = take_turns(&port, turn).await;
    let closing = port.is_closing();
    if closing && !peer_ended {
        let written = poll_fn(|cx| {
            port.attend(cx.waker());
            if port.poll_direct(cx) == Next::End { Poll::Ready(()) } else { Poll::Pending }
        });
        let _ = tokio::time::timeout_at(hub.linger_until(), written).await;
        port.finish();
        let _ = tokio::time::timeout(PARTING, discard(&mut read)).await;
    }
    hub.gone(line, !closing);
}

/// Serves a connection over any other byte stream until it ends.
pub(super) async fn run_stream<S>(hub: Arc<Hub>, mut line: Line, port: Arc<Port>, mut stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut unflushed = false;
    let turn = |cx: &mut Context<'_>| {
        port.attend(cx.waker());
        if read_out((&hub, &port), &mut line, &mut stream, cx) {
            return Poll::Ready(After::Nothing { peer_ended: true });
        }
        for _ in 0..CHUNKS_PER_TURN {
            // The bytes of a peer that reads nothing more are read to the end, here too.
            if write_out(&port, &mut stream, &mut unflushed, cx) == Next::Drained {
                hub.drained(&mut line);
            }
            if port.is_closing() {
                return Poll::Ready(After::Nothing { peer_ended: false });
            }
            if let Some(end) = end_of_turn(&port, read_chunk((&hub, &port), &mut line, &mut stream, cx)) {
                return end;
            }
        }
        Poll::Ready(After::Another)
    };
    let peer_ended = take_turns(&port, turn).await;
    let closing = port.is_closing();
    if !peer_ended {
        let last = async {
            poll_fn(|cx| {
                port.attend(cx.waker());
                if write_out(&port, &mut stream, &mut unflushed, cx) == Next::End {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            // The peer may be gone already, so a failure is ignored.
            let _ = stream.shutdown().await;
        };
        let _ = tokio::time::timeout_at(hub.linger_until(), last).await;
        let _ = tokio::time::timeout(PARTING, discard(&mut stream)).await;
    }
    hub.gone(line, !closing);
}

/// Discards input until the peer ends the connection. A socket that is closed with bytes unread is
/// reset, and the reset discards what the peer has not read yet: the goodbye.
async fn discard<R: AsyncRead + Unpin>(from: &mut R) {
    poll_fn(|cx| {
        CHUNK.with_borrow_mut(|chunk| {
            for _ in 0..CHUNKS_PER_TURN {
                let mut buffer = ReadBuf::new(chunk);
                match Pin::new(&mut *from).poll_read(cx, &mut buffer) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    })
    .await;
}

/// Writes pending output. Flushes a stream that may hold bytes back (`unflushed`), as one that
/// frames or encrypts does.
fn write_out<S: AsyncWrite + Unpin>(port: &Port, stream: &mut S, unflushed: &mut bool, cx: &mut Context<'_>) -> Next {
    let (wrote, next) = port.poll_write(|bytes| Pin::new(&mut *stream).poll_write(cx, bytes));
    *unflushed |= wrote;
    if *unflushed {
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => *unflushed = false,
            Poll::Pending => {}
            Poll::Ready(Err(_)) => return Next::End,
        }
    }
    next
}
