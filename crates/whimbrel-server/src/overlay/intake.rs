//! The incoming streams of one link: each channel's present one, and its successor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use quinn::{Connection, ReadError, ReadExactError, RecvStream};
use whimbrel_core::Channel;

use super::channel;
use super::codec::Unpacker;

/// Compressed bytes that are read at once from a stream.
const PACKED_MAX: usize = 16 << 10;

/// How the other end has broken the protocol of streams, in words for its operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Misuse(pub(super) &'static str);

const UNKNOWN: Misuse = Misuse("a stream that is none of those of a link");
const UNNAMED: Misuse = Misuse("a stream that ends before it tells its channel");
const TWICE: Misuse = Misuse("two successors of a stream at once");
const GARBAGE: Misuse = Misuse("a compressed stream that cannot be read");
const CUT: Misuse = Misuse("a compressed stream that ends within a block");
const NO_MEMORY: Misuse = Misuse("no memory for another compressed stream");

/// What reading a channel has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntakeRead {
    /// Bytes of the channel; zero where a compressed stream has none yet.
    Bytes(usize),
    /// The stream has ended or is lost.
    Ended,
}

/// A stream of the other end.
#[derive(Debug)]
struct IntakeStream {
    stream: RecvStream,
    unpacking: Option<Box<Unpacking>>,
}

/// The compressed bytes of a stream.
#[derive(Debug)]
struct Unpacking {
    unpacker: Unpacker,
    packed: Vec<u8>,
    /// How many of them have been decompressed.
    used: usize,
}

impl IntakeStream {
    fn new(stream: RecvStream, is_packed: bool) -> Result<IntakeStream, Misuse> {
        let unpacking = if is_packed {
            let unpacker = Unpacker::new().ok_or(NO_MEMORY)?;
            Some(Box::new(Unpacking { unpacker, packed: Vec::new(), used: 0 }))
        } else {
            None
        };
        Ok(IntakeStream { stream, unpacking })
    }

    /// Whether a compressed stream that has been read to its end lacks something.
    fn is_cut(&self) -> bool {
        self.unpacking.as_ref().is_some_and(|unpacking| !unpacking.unpacker.has_ended())
    }

    /// Reads into `chunk` what there is; 0: no bytes yet. `None`: the end of the stream.
    fn read(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<Result<Option<usize>, Unreadable>> {
        let Some(unpacking) = &mut self.unpacking else {
            let bytes = ready!(self.stream.poll_read(cx, chunk)).map_err(|_| Unreadable::Lost)?;
            return Poll::Ready(Ok((bytes > 0).then_some(bytes)));
        };
        let Unpacking { unpacker, packed, used } = &mut **unpacking;
        if *used == packed.len() && !unpacker.holds() {
            packed.resize(PACKED_MAX, 0);
            let read = self.stream.poll_read(cx, packed);
            *used = 0;
            packed.truncate(if let Poll::Ready(Ok(bytes)) = read { bytes } else { 0 });
            if ready!(read).map_err(|_| Unreadable::Lost)? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
        let unpacked = unpacker.unpack(&packed[*used..], chunk);
        let (taken, bytes) = unpacked.map_err(|_| Unreadable::Misused(GARBAGE))?;
        *used += taken;
        Poll::Ready(Ok(Some(bytes)))
    }
}

/// Why a stream is not read on.
enum Unreadable {
    /// It was reset, or the connection is lost.
    Lost,
    Misused(Misuse),
}

/// The incoming streams of one channel.
#[derive(Debug)]
pub(super) struct Intake {
    channel: Channel,
    present: Option<IntakeStream>,
    next: Option<(RecvStream, bool)>,
    /// The present stream has been read to its end, or is lost.
    has_ended: bool,
    is_lost: bool,
}

impl Intake {
    /// A channel with its first stream; without one it begins later.
    pub(super) fn new(channel: Channel, stream: Option<RecvStream>) -> Intake {
        let present = stream.map(|stream| IntakeStream { stream, unpacking: None });
        Intake { channel, present, next: None, has_ended: false, is_lost: false }
    }

    /// The channel.
    pub(super) fn channel(&self) -> Channel {
        self.channel
    }

    /// Whether its stream has ended, and no successor is known.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether there is nothing more to read, as far as it is known.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended || self.present.is_none()
    }

    /// Reads into `chunk` what there is.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<Result<IntakeRead, Misuse>> {
        let Some(present) = self.present.as_mut().filter(|_| !self.has_ended) else { return Poll::Pending };
        match ready!(present.read(cx, chunk)) {
            Ok(Some(bytes)) => return Poll::Ready(Ok(IntakeRead::Bytes(bytes))),
            Ok(None) => self.has_ended = true,
            Err(Unreadable::Lost) => (self.has_ended, self.is_lost) = (true, true),
            Err(Unreadable::Misused(misuse)) => return Poll::Ready(Err(misuse)),
        }
        // A successor is read in the next round.
        Poll::Ready(self.take_up().map(|is_taken| if is_taken { IntakeRead::Bytes(0) } else { IntakeRead::Ended }))
    }

    /// Goes on with the successor if it is there and its predecessor has been read to the end.
    /// Returns whether it is so.
    fn take_up(&mut self) -> Result<bool, Misuse> {
        if !self.has_ended || self.is_lost {
            return Ok(false);
        }
        let Some((stream, is_packed)) = self.next.take() else { return Ok(false) };
        if self.present.as_ref().is_some_and(IntakeStream::is_cut) {
            return Err(CUT);
        }
        // The predecessor's context goes before there is another one.
        self.present = None;
        self.present = Some(IntakeStream::new(stream, is_packed)?);
        self.has_ended = false;
        Ok(true)
    }

    /// Takes a stream of the other end that has arrived.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    pub(super) fn arrive(intakes: &mut [Intake], arrived: Arrived) -> Result<(), Misuse> {
        let Arrived { stream, number } = arrived;
        let succeeds = channel::succeeds(number);
        let channel = match succeeds {
            Some((channel, _)) => channel,
            None if number == channel::number(Channel::Urgent) => Channel::Urgent,
            None => return Err(UNKNOWN),
        };
        let intake = intakes.iter_mut().find(|intake| intake.channel == channel).ok_or(UNKNOWN)?;
        let Some((_, is_packed)) = succeeds else {
            if intake.present.is_some() {
                return Err(UNKNOWN);
            }
            intake.present = Some(IntakeStream { stream, unpacking: None });
            return Ok(());
        };
        if intake.next.is_some() {
            return Err(TWICE);
        }
        intake.next = Some((stream, is_packed));
        intake.take_up().map(drop)
    }
}

/// A stream of the other end, with the number that is its first byte.
#[derive(Debug)]
pub(super) struct Arrived {
    stream: RecvStream,
    number: u8,
}

/// The next stream of the other end; `None`: the connection is lost.
pub(super) type NextArrival<'a> = Pin<Box<dyn Future<Output = Result<Option<Arrived>, Misuse>> + Send + 'a>>;

/// Awaits the next stream of the other end. One that arrives while the number of another one is
/// awaited waits for that, which is on its way: numbers are sent when streams are opened.
pub(super) fn next_arrival(connection: &Connection) -> NextArrival<'_> {
    Box::pin(async {
        let Ok(mut stream) = connection.accept_uni().await else { return Ok(None) };
        let mut number = [0];
        match stream.read_exact(&mut number).await {
            Ok(()) => Ok(Some(Arrived { stream, number: number[0] })),
            Err(ReadExactError::FinishedEarly(_) | ReadExactError::ReadError(ReadError::Reset(_))) => Err(UNNAMED),
            Err(ReadExactError::ReadError(_)) => Ok(None),
        }
    })
}
