//! How the stream of a channel is followed by another one, compressed or plain, while the link
//! goes on.
//!
//! The other end reads a successor only after the end of its predecessor, so the bytes that its
//! core gets are the same, in the same order. A broker allows one stream more than a link has
//! channels: a neighbour that does not know successors never allows one, and none follows before
//! the one before it has been taken up.

use quinn::SendStream;
use whimbrel_core::Channel;

use super::pipe::{Broken, Pipe};
use crate::overlay::channel;
use crate::overlay::codec::{BLOCK_MAX, BadStream, Packer};

/// Blocks that are compressed at once; after that other tasks have their turn. A quarter of a MiB
/// takes about a millisecond.
const BLOCKS_PER_FLUSH: usize = 16;

/// A stream that is to follow the present one.
#[derive(Debug)]
struct NextStream {
    stream: SendStream,
    packer: Option<Packer>,
}

/// What an outlet has, beside its stream, since that was first followed by another one.
#[derive(Debug)]
pub(super) struct Succession {
    channel: Channel,
    /// Compresses the present stream; `None`: it is plain.
    packer: Option<Packer>,
    /// Compressed bytes, one block at most and the end of a stream, and how many of them are
    /// written.
    staged: Vec<u8>,
    written: usize,
    /// Plain bytes for which they stand: these count as unsent until all of them are written.
    covers: usize,
    next: Option<NextStream>,
    /// The predecessor: it has ended, and the other end may not have all of it.
    former: Option<SendStream>,
    /// Plain bytes that have been compressed since the last look.
    plain: u64,
}

/// What a flush has done.
#[derive(Default)]
pub(super) struct Flushed {
    /// Bytes that QUIC was given.
    pub(super) given: usize,
    /// Plain bytes of which the other end gets everything.
    pub(super) plain: usize,
    /// The rest is for the present stream, which is plain.
    pub(super) is_plain: bool,
}

impl Succession {
    /// Of a channel with a plain stream.
    pub(super) fn new(channel: Channel) -> Succession {
        let (staged, written, covers, plain) = (Vec::new(), 0, 0, 0);
        Succession { channel, packer: None, staged, written, covers, next: None, former: None, plain }
    }

    /// Whether the present stream is compressed.
    pub(super) fn is_packed(&self) -> bool {
        self.packer.is_some()
    }

    /// Whether compression of the present stream has saved enough; so if it is plain.
    pub(super) fn pays(&self) -> bool {
        self.packer.as_ref().is_none_or(Packer::pays)
    }

    /// Whether the present stream is about to be followed by another one.
    pub(super) fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    /// Whether there is something to write beside the outlet's unsent bytes.
    pub(super) fn has_output(&self) -> bool {
        self.next.is_some() || self.written < self.staged.len()
    }

    /// Plain bytes that have been compressed since the last call.
    pub(super) fn take_plain(&mut self) -> u64 {
        std::mem::take(&mut self.plain)
    }

    /// The predecessor of the present stream.
    pub(super) fn former(&self) -> Option<&SendStream> {
        self.former.as_ref()
    }

    /// Has the present stream followed by another one, once all that is compressed is written.
    ///
    /// # Errors
    /// The library has no memory.
    pub(super) fn follow(&mut self, stream: SendStream, packer: Option<Packer>) -> Result<(), BadStream> {
        if let Some(packer) = &mut self.packer {
            packer.end(&mut self.staged)?;
        }
        self.next = Some(NextStream { stream, packer });
        Ok(())
    }

    /// Writes what is compressed to the present stream, and compresses what `waits` while there is
    /// room for it, at most `most` bytes.
    ///
    /// Nothing is compressed before there is room: all that was given while the path was full goes
    /// together, so the blocks are as large as the path is slow (rate times wait), and each one is
    /// better compressed. Where there is room, an event goes at once, in a block of its own.
    ///
    /// # Errors
    /// The link has ended, or the library has no memory.
    pub(super) fn flush(
        &mut self,
        stream: &mut SendStream,
        waits: &[u8],
        pipe: &mut Pipe<'_, '_>,
        most: usize,
    ) -> Result<Flushed, Broken> {
        let mut flushed = Flushed::default();
        for left in (0..=BLOCKS_PER_FLUSH).rev() {
            let staged = &self.staged[self.written..];
            let given = pipe.write(stream, &staged[..staged.len().min(most - flushed.given)])?;
            flushed.given += given;
            self.written += given;
            if self.written < self.staged.len() {
                return Ok(flushed);
            }
            flushed.plain += std::mem::take(&mut self.covers);
            self.staged.clear();
            self.written = 0;
            if !self.take_up(stream, pipe)? {
                return Ok(flushed);
            }
            let rest = &waits[flushed.plain..];
            let Some(packer) = &mut self.packer else {
                flushed.is_plain = true;
                self.staged = Vec::new();
                return Ok(flushed);
            };
            if rest.is_empty() || flushed.given == most {
                return Ok(flushed);
            }
            if left == 0 {
                break;
            }
            let block = &rest[..rest.len().min(BLOCK_MAX)];
            packer.pack(block, &mut self.staged).map_err(|_| pipe.fail())?;
            self.covers = block.len();
            self.plain += block.len() as u64;
            pipe.counts.packed(block.len(), self.staged.len());
        }
        pipe.cx.waker().wake_by_ref();
        Ok(flushed)
    }

    /// Goes on with the successor, if there is one. Its number goes first, beyond all room: the
    /// predecessor must not end long before the other end knows of it. Returns whether it may be
    /// written to.
    fn take_up(&mut self, stream: &mut SendStream, pipe: &mut Pipe<'_, '_>) -> Result<bool, Broken> {
        let Some(next) = &mut self.next else { return Ok(true) };
        let number = channel::successor(self.channel, next.packer.is_some());
        if pipe.write(&mut next.stream, &[number])? == 0 {
            return Ok(false);
        }
        if let Some(NextStream { stream: next, packer }) = self.next.take() {
            let mut former = std::mem::replace(stream, next);
            // It fails for a stream that the other end has stopped, which the next write reports.
            let _ = former.finish();
            (self.former, self.packer) = (Some(former), packer);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use tokio::sync::Semaphore;

    use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};

    use super::super::outlet::Outlet;
    use super::super::window::PathGauge;
    use super::*;
    use crate::identity::credentials;
    use crate::overlay::counts::LinkCounts;
    use crate::overlay::endpoint::transport;
    use crate::overlay::intake::{Intake, IntakeRead, next_arrival};

    /// Two ends of a connection as links have them, and what keeps it up.
    async fn connected() -> (Connection, Connection, [Endpoint; 2]) {
        let (known, transport) =
            (credentials::of_development().expect("there is randomness"), Arc::new(transport(Default::default())));
        let at: SocketAddr = ([127, 0, 0, 1], 0).into();
        let crypto = QuicServerConfig::try_from(known.server.clone()).expect("they are of use for QUIC");
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(transport.clone());
        let server = Endpoint::server(server, at).expect("a free port");
        let crypto = QuicClientConfig::try_from(known.client.clone()).expect("they are of use for QUIC");
        let mut client = ClientConfig::new(Arc::new(crypto));
        client.transport_config(transport);
        let dialing = Endpoint::client(at).expect("a free port");
        let address = server.local_addr().expect("it is bound");
        let dialed = dialing.connect_with(client, address, "broker.whimbrel").expect("it can be dialled");
        let (from, to) = tokio::join!(dialed, async { server.accept().await.expect("a connection").await });
        (from.expect("it is let in"), to.expect("it is let in"), [dialing, server])
    }

    /// Awaits the first streams, and reads the reliable one and its successors up to a number of
    /// bytes. Returns these, and how many streams have followed.
    async fn receive(connection: Connection, len: usize) -> (Vec<u8>, usize) {
        let mut opened = Vec::new();
        for _ in channel::FIRST_STREAMS {
            let mut stream = connection.accept_uni().await.expect("the connection is up");
            stream.read_exact(&mut [0]).await.expect("its number");
            opened.push(stream);
        }
        let first = Some(opened.remove(1));
        let mut intakes = [Intake::new(Channel::Reliable, first), Intake::new(Channel::Urgent, None)];
        let (mut arrival, mut bytes, mut chunk, mut streams) =
            (next_arrival(&connection), Vec::new(), vec![0; 5_000], 0);
        poll_fn(|cx| {
            loop {
                while let Poll::Ready(arrived) = arrival.as_mut().poll(cx) {
                    Intake::arrive(&mut intakes, arrived.expect("a sound stream").expect("the connection is up"))
                        .expect("one that may follow");
                    (arrival, streams) = (next_arrival(&connection), streams + 1);
                }
                match intakes[0].read(cx, &mut chunk) {
                    Poll::Ready(Ok(IntakeRead::Bytes(read))) => bytes.extend_from_slice(&chunk[..read]),
                    Poll::Ready(Ok(IntakeRead::Ended)) => {}
                    Poll::Ready(Err(misuse)) => panic!("{misuse:?}"),
                    Poll::Pending if bytes.len() == len => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        (bytes, streams)
    }

    /// Streams follow each other as fast as the other end allows, at whichever bytes, compressed
    /// and plain in turn, and with however much room: the channel's bytes stay as they are.
    #[tokio::test]
    async fn a_channel_has_the_same_bytes_however_its_streams_follow_each_other() {
        const ALL: usize = 4 << 20;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (connection, other, _endpoints) = connected().await;
        // Those of the other channels take their places.
        let mut opened = Vec::new();
        for channel in channel::FIRST_STREAMS {
            let mut stream = connection.open_uni().await.expect("the connection is up");
            stream.write_all(&[channel::number(channel)]).await.expect("the connection is up");
            opened.push(stream);
        }
        let mut outlet = Outlet::new(Channel::Reliable, Some(opened.remove(1)));
        let mut urgent = Outlet::new(Channel::Urgent, None);
        let (counts, gauge) = (LinkCounts::new("other".into(), connection.clone()), PathGauge::of(&connection));
        let packers = Arc::new(Semaphore::new(2));
        let received = tokio::spawn(receive(other, ALL));
        let (mut sent, mut followed) = (Vec::<u8>::with_capacity(ALL), 0);
        let mut step = |cx: &mut Context<'_>| {
            let mut pipe = Pipe { connection: &connection, gauge: &gauge, counts: &counts, cx };
            let len = random.usize(..60_000).min(ALL - sent.len());
            let bytes: Vec<u8> =
                (0..len).map(|at| if at % 3 == 0 { random.u8(..4) } else { (at >> 4) as u8 }).collect();
            outlet.push(&bytes);
            sent.extend_from_slice(&bytes);
            outlet.flush(&mut pipe, random.usize(..90_000)).expect("the link is up");
            if random.u8(..4) == 0 && !outlet.is_changing() && urgent.open_early(&mut pipe).expect("the link is up") {
                // No place where the context of the stream before has not gone yet.
                let place = if outlet.is_packed() { None } else { packers.clone().try_acquire_owned().ok() };
                if (outlet.is_packed() || place.is_some())
                    && let Poll::Ready(stream) = pipe.open(Channel::Reliable)
                {
                    outlet
                        .succession()
                        .follow(stream.expect("the link is up"), place.and_then(Packer::new))
                        .expect("memory");
                    followed += 1;
                }
            }
            outlet.unsent() == 0 && !outlet.is_changing() && sent.len() == ALL
        };
        while !poll_fn(|cx| Poll::Ready(step(cx))).await {
            tokio::task::yield_now().await;
        }
        let (bytes, streams) = received.await.expect("it is read");
        assert!(bytes == sent, "seed {seed}: {} of {} bytes", bytes.len(), sent.len());
        println!("{followed} streams have followed");
        assert!(followed > 10 && streams <= followed + 1, "seed {seed}: {followed}, {streams} arrived");
    }
}
