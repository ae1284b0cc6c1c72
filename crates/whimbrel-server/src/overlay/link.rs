//! One task per link: reads, and writes output that could not be written at once.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::{Connection, ConnectionError, ReadDatagram, ReadError, RecvStream, SendStream, VarInt};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};
use whimbrel_core::{Channel, HangUp};

use super::beat::Beat;
use super::channel;
use super::counts::LinkCounts;
use super::port::Port;
use super::{Inlet, Opened, Uplink};

/// Bytes read at once from a stream. One buffer per thread.
const READ_MAX: usize = 64 << 10;

/// Chunks of each stream that one link may be read before other tasks have their turn.
const CHUNKS_PER_TURN: usize = 4;

/// Datagrams that one link may be read before other tasks have their turn.
const DATAGRAMS_PER_TURN: usize = 16;

/// Time after the end of one stream in which the others are read on. A broker that closes a link
/// ends all of them; bytes still in flight arrive by then.
const ENDS: Duration = Duration::from_secs(5);

/// The connection's packets are counted while something is read, at most once in this time: less
/// often where little is sent.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// Packets that are sent between two counts, at least, unless some are lost.
const COUNT_PACKETS_MIN: u64 = 50;

thread_local! {
    static CHUNK: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_MAX].into_boxed_slice());
}

/// The streams of both ends, at the places of their channels. The urgent ones come later.
pub(super) struct Streams {
    sending: [Option<SendStream>; Channel::STREAMS],
    receiving: [Option<RecvStream>; Channel::STREAMS],
}

/// Opens this end's streams and awaits the other end's, but the urgent ones.
///
/// # Errors
/// The connection has ended, or the other end opened another stream.
pub(super) async fn open_streams(connection: &Connection) -> Result<Streams, ConnectionError> {
    let (mut sending, mut receiving) = ([const { None }; Channel::STREAMS], [const { None }; Channel::STREAMS]);
    for channel in channel::AT_ONCE {
        let mut stream = connection.open_uni().await?;
        // It fails only for a stream that has ended, which the write reports.
        let _ = stream.set_priority(channel::priority(channel));
        if stream.write_all(&[channel::number(channel)]).await.is_err() {
            return Err(ended(connection));
        }
        sending[channel as usize] = Some(stream);
    }
    for _ in channel::AT_ONCE {
        let mut stream = connection.accept_uni().await?;
        let mut number = [0];
        if stream.read_exact(&mut number).await.is_err() {
            return Err(ended(connection));
        }
        let channel = channel::AT_ONCE.get(usize::from(number[0])).map(|channel| *channel as usize);
        match channel.map(|channel| &mut receiving[channel]) {
            Some(slot @ None) => *slot = Some(stream),
            _ => return Err(ended(connection)),
        }
    }
    Ok(Streams { sending, receiving })
}

/// Closes the connection, unless it has ended. Returns why it has ended.
fn ended(connection: &Connection) -> ConnectionError {
    connection.close(VarInt::from_u32(channel::MISUSED), b"a stream that is none of those of a link");
    connection.close_reason().unwrap_or(ConnectionError::LocallyClosed)
}

/// What a link's task does after its turn.
enum Turn {
    /// Another turn, once other tasks have had theirs.
    Another,
    /// The link has ended.
    Ended,
}

/// Serves a link until it ends. Returns why this broker's core has let go of it, if it has.
pub(super) async fn run(
    uplink: Arc<dyn Uplink>,
    (connection, streams): (Connection, Streams),
    counts: Arc<LinkCounts>,
    beat: Arc<Beat>,
    (dialed, name): (bool, Option<String>),
) -> Option<HangUp> {
    let Streams { sending, mut receiving } = streams;
    let port = Arc::new(Port::new(connection.clone(), sending, counts.clone(), beat));
    let opened = Opened { port: &port, dialed, name: name.as_deref(), address: connection.remote_address() };
    let mut inlet = uplink.opened(&opened);
    let mut datagram = pin!(connection.read_datagram());
    let mut urgent = pin!(async {
        let mut stream = connection.accept_uni().await?;
        let mut number = [0];
        let is_read = stream.read_exact(&mut number).await.is_ok();
        if is_read && number[0] == channel::number(Channel::Urgent) { Ok(stream) } else { Err(ended(&connection)) }
    });
    let (has_ended, ends) = ([false; Channel::STREAMS], None);
    let mut reader = Reader {
        connection: &connection,
        port: &port,
        counts: &counts,
        has_ended,
        has_datagrams: true,
        awaits_urgent: true,
        packets: PacketCount::new(),
        ends,
    };
    let turn = |cx: &mut Context<'_>| {
        if reader.awaits_urgent
            && let Poll::Ready(stream) = urgent.as_mut().poll(cx)
        {
            reader.awaits_urgent = false;
            receiving[Channel::Urgent as usize] = stream.ok();
        }
        reader.take_turn(&mut receiving, datagram.as_mut(), &mut *inlet, cx)
    };
    let mut turn = turn;
    while let Turn::Another = poll_fn(&mut turn).await {
        yield_now().await;
    }
    connection.close(VarInt::from_u32(channel::MISUSED), b"the streams of a link have ended");
    drop(inlet);
    port.hung_up()
}

/// Packets of a connection, sent and lost, as last counted.
struct PacketCount {
    at: Instant,
    sent: u64,
    lost: u64,
}

impl PacketCount {
    fn new() -> PacketCount {
        PacketCount { at: Instant::now(), sent: 0, lost: 0 }
    }

    /// Packets that were sent and lost since the last count, if it is time for one.
    fn take(&mut self, connection: &Connection) -> Option<(u32, u32)> {
        if self.at.elapsed() < COUNT_EVERY {
            return None;
        }
        self.at = Instant::now();
        let path = connection.stats().path;
        // Another path begins anew.
        let [sent, lost] = [(path.sent_packets, self.sent), (path.lost_packets, self.lost)]
            .map(|(now, before)| now.checked_sub(before).unwrap_or(now));
        if sent < COUNT_PACKETS_MIN && lost == 0 {
            return None;
        }
        (self.sent, self.lost) = (path.sent_packets, path.lost_packets);
        Some((u32::try_from(sent).unwrap_or(u32::MAX), u32::try_from(lost).unwrap_or(u32::MAX)))
    }
}

/// The reading side of a link.
struct Reader<'a> {
    connection: &'a Connection,
    port: &'a Port,
    counts: &'a LinkCounts,
    /// Streams that have been read to their end.
    has_ended: [bool; Channel::STREAMS],
    has_datagrams: bool,
    /// The other end has not begun its urgent stream.
    awaits_urgent: bool,
    packets: PacketCount,
    /// When the link ends even if bytes are missing; set when one of the streams has ended.
    ends: Option<Pin<Box<Sleep>>>,
}

impl<'a> Reader<'a> {
    fn take_turn(
        &mut self,
        streams: &mut [Option<RecvStream>; Channel::STREAMS],
        mut datagram: Pin<&mut ReadDatagram<'a>>,
        inlet: &mut dyn Inlet,
        cx: &mut Context<'_>,
    ) -> Poll<Turn> {
        for _ in 0..CHUNKS_PER_TURN {
            // The core takes no further input of this link.
            if self.port.hung_up().is_some() {
                return Poll::Ready(Turn::Ended);
            }
            self.port.poll(cx, |channel, unsent| inlet.room(channel, unsent));
            let mut has_read = false;
            for (place, (channel, stream)) in channel::STREAMS.into_iter().zip(&mut *streams).enumerate() {
                let Some(stream) = stream.as_mut().filter(|_| !self.has_ended[place]) else { continue };
                if !inlet.may_read() {
                    return Poll::Pending;
                }
                match self.read(channel, stream, inlet, cx) {
                    Poll::Ready(Ok(true)) => has_read = true,
                    Poll::Ready(_) => self.has_ended[place] = true,
                    Poll::Pending => {}
                }
            }
            if self.is_over(streams, cx) {
                return Poll::Ready(Turn::Ended);
            }
            has_read |= self.read_datagrams(datagram.as_mut(), inlet, cx);
            if let Some((sent, lost)) = self.packets.take(self.connection) {
                inlet.packets(sent, lost);
            }
            if !has_read {
                return Poll::Pending;
            }
        }
        Poll::Ready(Turn::Another)
    }

    /// Whether nothing more is to be read. Streams end one by one, and bytes of one stream may
    /// arrive after the end of another.
    fn is_over(&mut self, streams: &[Option<RecvStream>; Channel::STREAMS], cx: &mut Context<'_>) -> bool {
        if self.has_ended.contains(&true) {
            let ends = self.ends.get_or_insert_with(|| Box::pin(sleep(ENDS)));
            let have_all = streams.iter().zip(self.has_ended).all(|(stream, has_ended)| has_ended || stream.is_none());
            return have_all || ends.as_mut().poll(cx).is_ready();
        }
        false
    }

    /// Hands at most [`DATAGRAMS_PER_TURN`] datagrams to the machine. Returns whether there were
    /// any.
    fn read_datagrams(
        &mut self,
        mut datagram: Pin<&mut ReadDatagram<'a>>,
        inlet: &mut dyn Inlet,
        cx: &mut Context<'_>,
    ) -> bool {
        let mut has_read = false;
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.has_datagrams {
                break;
            }
            match datagram.as_mut().poll(cx) {
                Poll::Ready(Ok(bytes)) => {
                    has_read = true;
                    self.counts.received(Channel::Datagram, bytes.len());
                    inlet.bytes(Channel::Datagram, &bytes);
                    datagram.set(self.connection.read_datagram());
                }
                // The connection is lost; bytes of the streams that have arrived are read to the
                // end.
                Poll::Ready(Err(_)) => self.has_datagrams = false,
                Poll::Pending => break,
            }
        }
        has_read
    }

    /// Hands one chunk to the machine; `false` at the end of the stream.
    fn read(
        &self,
        channel: Channel,
        stream: &mut RecvStream,
        inlet: &mut dyn Inlet,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, ReadError>> {
        CHUNK.with_borrow_mut(|chunk| {
            stream.poll_read(cx, chunk).map_ok(|bytes| {
                if bytes > 0 {
                    self.counts.received(channel, bytes);
                    inlet.bytes(channel, &chunk[..bytes]);
                }
                bytes > 0
            })
        })
    }
}
