//! One task per link: reads, and writes output that could not be written at once.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::{Connection, ConnectionError, ReadDatagram, SendStream, VarInt};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, sleep_until};
use whimbrel_core::{Channel, HangUp};

use super::channel;
use super::counts::LinkCounts;
use super::intake::{Intake, IntakeRead, Misuse, NextArrival, next_arrival};
use super::output::{Beat, Port, PortPlan};
use super::{Inlet, Opened, Uplink};

/// Bytes read at once from a stream, or decompressed at once. One buffer per thread.
const READ_MAX: usize = 64 << 10;

/// Chunks of each stream that one link may be read before other tasks have their turn.
const CHUNKS_PER_TURN: usize = 4;

/// Datagrams that one link may be read before other tasks have their turn.
const DATAGRAMS_PER_TURN: usize = 16;

/// Time after the end of one stream in which the others are read on, and a successor is awaited. A
/// broker that closes a link ends all of them; bytes still in flight arrive by then.
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
    receiving: [Intake; Channel::STREAMS],
}

/// Opens this end's streams and awaits the other end's, but the urgent ones.
///
/// # Errors
/// The connection has ended, or the other end opened another stream.
pub(super) async fn open_streams(connection: &Connection) -> Result<Streams, ConnectionError> {
    let (mut sending, mut receiving) = ([const { None }; Channel::STREAMS], [const { None }; Channel::STREAMS]);
    for channel in channel::FIRST_STREAMS {
        let mut stream = connection.open_uni().await?;
        // It fails only for a stream that has ended, which the write reports.
        let _ = stream.set_priority(channel::priority(channel));
        if stream.write_all(&[channel::number(channel)]).await.is_err() {
            return Err(ended(connection));
        }
        sending[channel as usize] = Some(stream);
    }
    for _ in channel::FIRST_STREAMS {
        let mut stream = connection.accept_uni().await?;
        let mut number = [0];
        if stream.read_exact(&mut number).await.is_err() {
            return Err(ended(connection));
        }
        let channel = channel::FIRST_STREAMS.get(usize::from(number[0])).map(|channel| *channel as usize);
        match channel.map(|channel| &mut receiving[channel]) {
            Some(slot @ None) => *slot = Some(stream),
            _ => return Err(ended(connection)),
        }
    }
    let receiving = channel::STREAMS.map(|channel| Intake::new(channel, receiving[channel as usize].take()));
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

/// How a link has ended, as far as this broker has ended it.
pub(super) struct EndedLink {
    /// Why its core has let go of the link.
    pub(super) hung_up: Option<HangUp>,
    /// What its driver does not put up with.
    pub(super) misuse: Option<Misuse>,
}

/// Serves a link until it ends.
pub(super) async fn run(
    uplink: Arc<dyn Uplink>,
    (connection, streams): (Connection, Streams),
    counts: Arc<LinkCounts>,
    beat: Arc<Beat>,
    plan: PortPlan,
    (dialed, name): (bool, Option<String>),
) -> EndedLink {
    let Streams { sending, mut receiving } = streams;
    let port = Arc::new(Port::new(connection.clone(), sending, counts.clone(), beat, plan));
    let opened = Opened { port: &port, dialed, name: name.as_deref(), address: connection.remote_address() };
    let mut inlet = uplink.opened(&opened);
    let mut datagram = pin!(connection.read_datagram());
    let mut reader = Reader {
        connection: &connection,
        port: &port,
        counts: &counts,
        has_datagrams: true,
        packets: PacketCount::new(),
        arrival: Some(next_arrival(&connection)),
        ends: None,
        pause: None,
    };
    let mut turn = |cx: &mut Context<'_>| reader.take_turn(&mut receiving, datagram.as_mut(), &mut *inlet, cx);
    let misuse = loop {
        match poll_fn(&mut turn).await {
            Ok(Turn::Another) => yield_now().await,
            Ok(Turn::Ended) => break None,
            Err(misuse) => break Some(misuse),
        }
    };
    let why = misuse.map_or("the streams of a link have ended", |Misuse(why)| why);
    port.close(why);
    drop(inlet);
    EndedLink { hung_up: port.hung_up(), misuse }
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

    /// Whether it is time for another count.
    fn is_due(&self) -> bool {
        self.at.elapsed() >= COUNT_EVERY
    }

    /// Packets that were sent and lost since the last count, of those that the connection has sent
    /// and lost; `None`: they are too few to tell.
    fn take(&mut self, all_sent: u64, all_lost: u64) -> Option<(u32, u32)> {
        self.at = Instant::now();
        // Another path begins anew.
        let [sent, lost] =
            [(all_sent, self.sent), (all_lost, self.lost)].map(|(now, before)| now.checked_sub(before).unwrap_or(now));
        if sent < COUNT_PACKETS_MIN && lost == 0 {
            return None;
        }
        (self.sent, self.lost) = (all_sent, all_lost);
        Some((u32::try_from(sent).unwrap_or(u32::MAX), u32::try_from(lost).unwrap_or(u32::MAX)))
    }
}

/// The reading side of a link.
struct Reader<'a> {
    connection: &'a Connection,
    port: &'a Port,
    counts: &'a LinkCounts,
    has_datagrams: bool,
    packets: PacketCount,
    /// The next stream of the other end; `None`: the connection is lost.
    arrival: Option<NextArrival<'a>>,
    /// When the link ends even if bytes are missing; set while one of the streams has ended.
    ends: Option<Pin<Box<Sleep>>>,
    /// The link's cap lets no events through before it is over.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<'a> Reader<'a> {
    fn take_turn(
        &mut self,
        intakes: &mut [Intake; Channel::STREAMS],
        mut datagram: Pin<&mut ReadDatagram<'a>>,
        inlet: &mut dyn Inlet,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Turn, Misuse>> {
        for _ in 0..CHUNKS_PER_TURN {
            // The core takes no further input of this link.
            if self.port.hung_up().is_some() {
                return Poll::Ready(Ok(Turn::Ended));
            }
            let capped_until = self.port.poll(cx, |channel, unsent| inlet.room(channel, unsent));
            self.pause(capped_until, cx);
            self.take_arrivals(intakes, cx)?;
            let mut has_read = false;
            for intake in &mut *intakes {
                if intake.is_done() {
                    continue;
                }
                if !inlet.may_read() {
                    return Poll::Pending;
                }
                if let Poll::Ready(read) = self.read(intake, inlet, cx) {
                    has_read |= read? != IntakeRead::Ended;
                }
            }
            if self.is_over(intakes, cx)? {
                return Poll::Ready(Ok(Turn::Ended));
            }
            has_read |= self.read_datagrams(datagram.as_mut(), inlet, cx);
            if self.packets.is_due() {
                let path = self.connection.stats().path;
                if let Some((sent, lost)) = self.packets.take(path.sent_packets, path.lost_packets) {
                    inlet.packets(sent, lost);
                }
            }
            if !has_read {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(Turn::Another))
    }

    /// Has this task woken when the link's cap lets events through again.
    fn pause(&mut self, until: Option<Instant>, cx: &mut Context<'_>) {
        self.pause = until.map(|until| Box::pin(sleep_until(until.into())));
        if let Some(pause) = &mut self.pause
            && pause.as_mut().poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
    }

    /// Takes the streams of the other end that have arrived: few, as each has to be one that may
    /// be opened.
    fn take_arrivals(&mut self, intakes: &mut [Intake], cx: &mut Context<'_>) -> Result<(), Misuse> {
        while let Some(arrival) = &mut self.arrival
            && let Poll::Ready(arrived) = arrival.as_mut().poll(cx)
        {
            let arrived = arrived?;
            self.arrival = arrived.is_some().then(|| next_arrival(self.connection));
            if let Some(arrived) = arrived {
                Intake::arrive(intakes, arrived)?;
            }
        }
        Ok(())
    }

    /// Whether nothing more is to be read. Streams end one by one, and bytes of one stream may
    /// arrive after the end of another, as may its successor.
    fn is_over(&mut self, intakes: &mut [Intake], cx: &mut Context<'_>) -> Result<bool, Misuse> {
        if intakes.iter().any(Intake::has_ended) {
            // Those that have arrived since the other streams have been read.
            self.take_arrivals(intakes, cx)?;
        }
        if !intakes.iter().any(Intake::has_ended) {
            self.ends = None;
            return Ok(false);
        }
        let ends = self.ends.get_or_insert_with(|| Box::pin(sleep(ENDS)));
        Ok(intakes.iter().all(Intake::is_done) || ends.as_mut().poll(cx).is_ready())
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

    /// Hands one chunk to the machine.
    fn read(
        &self,
        intake: &mut Intake,
        inlet: &mut dyn Inlet,
        cx: &mut Context<'_>,
    ) -> Poll<Result<IntakeRead, Misuse>> {
        CHUNK.with_borrow_mut(|chunk| {
            let channel = intake.channel();
            intake.read(cx, chunk).map_ok(|read| {
                if let IntakeRead::Bytes(bytes @ 1..) = read {
                    self.counts.received(channel, bytes);
                    inlet.bytes(channel, &chunk[..bytes]);
                }
                read
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_told_when_they_are_many_or_some_are_lost() {
        let mut count = PacketCount::new();
        assert!(!count.is_due());
        let taken: Vec<_> = [(49, 0), (50, 0), (99, 0), (99, 1), (160, 1), (7, 0), (60, 2)]
            .map(|(sent, lost)| count.take(sent, lost))
            .into();
        assert_eq!(taken, [None, Some((50, 0)), None, Some((49, 1)), Some((61, 0)), None, Some((60, 1))]);
    }
}
