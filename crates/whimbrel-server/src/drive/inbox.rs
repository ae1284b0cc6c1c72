//! Input that waits for the machine, in the order in which it is handled.
//!
//! One connection's input must not keep the others' waiting, whatever its size. It is cut into
//! pieces, and each round takes at most one piece of a connection. A connection's own pieces stay
//! in their order, because each goes into a later round than the one before. This is fair queueing
//! by rounds (J. Nagle, RFC 970) with pieces that are bounded and count alike.

use std::collections::VecDeque;

use whimbrel_core::{Channel, PeerLink};
use whimbrel_mqtt::ConnId;

use super::port;

/// Bytes of one connection that the machine handles before it looks whether other input waits: 20
/// to 100 µs of work for small messages.
pub(super) const PIECE: usize = 16 << 10;

/// Pieces that wait at most, together at most 16 MiB. A thread with more input waits for the
/// machine itself.
const PIECES_MAX: usize = 1024;

/// Rounds that a connection may be ahead before nothing more is read from it: the pieces of one
/// full read.
const ROUNDS_AHEAD: u64 = 4;

/// The source of an input. What is said of connections here holds for links to other brokers too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A client's connection.
    Conn(ConnId),
    /// A link to another broker.
    Link(PeerLink),
}

/// Input from a connection's task to the machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// At most [`PIECE`] bytes, with a link's channel.
    Bytes(Option<Channel>, Vec<u8>),
    /// Little is left to be written.
    Drained,
    /// The bytes that the machine asked to read out have been read: all that the connection had
    /// sent (`is_whole`), or the most that may be.
    ReadOut { is_whole: bool },
    /// Bytes unsent in a channel of a link: fewer than when last told.
    Room(Channel, usize),
    /// Packets of a link that were sent since the last count, and those that were lost.
    Packets(u32, u32),
    /// The task ends; `tell` the broker unless it knows.
    Gone { tell: bool },
}

/// One connection's input for one round.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) source: Source,
    pub(super) input: Input,
    /// The piece is a whole input, not a part of one.
    pub(super) whole: bool,
    /// The connection's task reads on once this has been handled, and has to be woken.
    pub(super) held: bool,
}

impl Piece {
    /// Bytes of the piece.
    pub(super) fn len(&self) -> usize {
        match &self.input {
            Input::Bytes(_, bytes) => bytes.len(),
            Input::Drained | Input::ReadOut { .. } | Input::Room(..) | Input::Packets(..) | Input::Gone { .. } => 0,
        }
    }
}

/// One connection's place in the inbox, kept by its task.
#[derive(Debug)]
pub(super) struct Line {
    source: Source,
    /// The first round that the connection's next piece may go into.
    next: u64,
    /// The connection is too far ahead.
    held: bool,
    /// Epoch of the brake in which the connection was turned away, see [`super::brake::Brake`].
    parked: u64,
}

impl Line {
    pub(super) fn new(source: Source) -> Line {
        Line { source, next: 0, held: false, parked: 0 }
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// The brake's epoch for this connection.
    pub(super) fn parked(&mut self) -> &mut u64 {
        &mut self.parked
    }

    /// Whether more may be read, now that all rounds before `front` have been taken.
    pub(super) fn may_read(&mut self, front: u64) -> bool {
        self.held &= self.next > front;
        !self.held
    }
}

/// The inbox has no room: the machine has to take input first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Rounds of pieces.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    rounds: VecDeque<Vec<Piece>>,
    /// Number of the first round that has not been taken.
    front: u64,
    pieces: usize,
    /// No input is taken for a while. There is room for all new input, as nothing more is read.
    is_closed: bool,
}

impl Inbox {
    /// Stops the taking of input, or allows it again. Meanwhile there is always room: for what has
    /// been read already, one read for each thread, and for the end of each connection.
    pub(super) fn close(&mut self, is_closed: bool) {
        self.is_closed = is_closed;
    }

    /// Number of pieces that wait.
    pub(super) fn len(&self) -> usize {
        self.pieces
    }

    /// Number of rounds taken so far, which is the number of the next.
    pub(super) fn front(&self) -> u64 {
        self.front
    }

    /// Leaves bytes of a connection, all or none. `begun`: earlier bytes of the same input have
    /// just been handled, so other connections go first.
    pub(super) fn leave_bytes(
        &mut self,
        line: &mut Line,
        channel: Option<Channel>,
        bytes: &[u8],
        begun: bool,
    ) -> Result<(), Full> {
        if !self.is_closed && self.pieces + bytes.len().div_ceil(PIECE) > PIECES_MAX {
            return Err(Full);
        }
        line.next = line.next.max(self.front + u64::from(begun));
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(PIECE));
            let mut copy = port::fresh();
            copy.extend_from_slice(piece);
            line.held = behind.is_empty() && line.next + 1 >= self.front + ROUNDS_AHEAD;
            self.put(line, Input::Bytes(channel, copy), bytes.len() <= PIECE && !begun);
            rest = behind;
        }
        Ok(())
    }

    /// Leaves an input other than bytes.
    pub(super) fn leave(&mut self, line: &mut Line, input: Input) -> Result<(), Full> {
        if !self.is_closed && self.pieces >= PIECES_MAX {
            return Err(Full);
        }
        line.next = line.next.max(self.front);
        self.put(line, input, true);
        Ok(())
    }

    fn put(&mut self, line: &mut Line, input: Input, whole: bool) {
        let round = (line.next - self.front) as usize;
        while self.rounds.len() <= round {
            self.rounds.push_back(Vec::new());
        }
        // Every later piece of a held connection is marked too: the last of them wakes the task.
        self.rounds[round].push(Piece { source: line.source, input, whole, held: line.held });
        self.pieces += 1;
        line.next += 1;
    }

    /// The next round; empty if nothing waits.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        while let Some(round) = self.rounds.pop_front() {
            self.front += 1;
            if !round.is_empty() {
                self.pieces -= round.len();
                return round;
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: usize = 64 << 10;

    fn number(source: Source) -> u32 {
        match source {
            Source::Conn(ConnId(number)) | Source::Link(PeerLink(number)) => number,
        }
    }

    fn numbered(from: u8, len: usize) -> Vec<u8> {
        (0..len).map(|at| from.wrapping_add((at / PIECE) as u8)).collect()
    }

    /// The next round as connections and first bytes.
    fn round(inbox: &mut Inbox) -> Vec<(u32, u8)> {
        let first = |input| match input {
            Input::Bytes(_, bytes) => bytes[0],
            Input::Drained | Input::ReadOut { .. } => 100,
            Input::Room(..) | Input::Packets(..) => 102,
            Input::Gone { .. } => 101,
        };
        inbox.take().into_iter().map(|piece| (number(piece.source), first(piece.input))).collect()
    }

    #[test]
    fn small_inputs_come_between_the_pieces_of_a_long_one() {
        let (mut flood, mut calm) = (Line::new(Source::Conn(ConnId(1))), Line::new(Source::Conn(ConnId(2))));
        let mut inbox = Inbox::default();
        inbox.leave_bytes(&mut flood, None, &numbered(0, 3 * PIECE), false).expect("room");
        inbox.leave_bytes(&mut calm, None, b"x", false).expect("room");
        assert_eq!(round(&mut inbox), [(1, 0), (2, b'x')]);
        inbox.leave_bytes(&mut calm, None, b"y", false).expect("room");
        assert_eq!(round(&mut inbox), [(1, 1), (2, b'y')]);
        assert_eq!(round(&mut inbox), [(1, 2)]);
        assert_eq!((round(&mut inbox), inbox.len()), (vec![], 0));
    }

    #[test]
    fn what_is_left_of_a_handled_input_comes_after_the_others() {
        let (mut flood, mut calm) = (Line::new(Source::Conn(ConnId(1))), Line::new(Source::Conn(ConnId(2))));
        let mut inbox = Inbox::default();
        inbox.leave_bytes(&mut calm, None, b"x", false).expect("room");
        inbox.leave_bytes(&mut flood, None, &numbered(5, 2 * PIECE), true).expect("room");
        assert_eq!(round(&mut inbox), [(2, b'x')]);
        assert_eq!(round(&mut inbox), [(1, 5)]);
        assert_eq!(round(&mut inbox), [(1, 6)]);
    }

    #[test]
    fn only_inputs_of_one_piece_are_whole() {
        let mut line = Line::new(Source::Conn(ConnId(1)));
        let mut inbox = Inbox::default();
        inbox.leave_bytes(&mut line, None, &[0; PIECE], false).expect("room");
        inbox.leave_bytes(&mut line, None, &[0; PIECE + 1], false).expect("room");
        inbox.leave_bytes(&mut line, None, &[0; 1], true).expect("the rest of what has been begun");
        inbox.leave(&mut line, Input::Drained).expect("room");
        let whole: Vec<bool> = (0..5).map(|_| inbox.take()[0].whole).collect();
        assert_eq!(whole, [true, false, false, false, true]);
    }

    #[test]
    fn inputs_of_one_connection_keep_their_order() {
        let mut line = Line::new(Source::Conn(ConnId(1)));
        let mut inbox = Inbox::default();
        let mut found = Vec::new();
        inbox.leave_bytes(&mut line, None, &numbered(0, 2 * PIECE + 1), false).expect("room");
        found.extend(round(&mut inbox));
        inbox.leave_bytes(&mut line, None, &numbered(3, 1), false).expect("room");
        inbox.leave(&mut line, Input::Drained).expect("room");
        found.extend(round(&mut inbox));
        inbox.leave_bytes(&mut line, None, &numbered(4, PIECE + 1), true).expect("room");
        inbox.leave(&mut line, Input::Gone { tell: true }).expect("room");
        while inbox.len() > 0 {
            found.extend(round(&mut inbox));
        }
        assert_eq!(found.iter().map(|(_, first)| *first).collect::<Vec<_>>(), [0, 1, 2, 3, 100, 4, 5, 101]);
    }

    #[test]
    fn a_connection_that_is_far_ahead_is_read_again_once_all_of_it_has_been_taken() {
        let mut line = Line::new(Source::Conn(ConnId(1)));
        let mut inbox = Inbox::default();
        inbox.leave_bytes(&mut line, None, &[0; READ - PIECE], false).expect("room");
        assert!(line.may_read(inbox.front()));
        inbox.leave_bytes(&mut line, None, &[0; 1], false).expect("room");
        while inbox.len() > 0 {
            assert!(!line.may_read(inbox.front()));
            let round = inbox.take();
            assert_eq!(round.iter().any(|piece| piece.held), inbox.len() == 0, "the last piece wakes the task");
        }
        assert!(line.may_read(inbox.front()));
    }

    #[test]
    fn a_closed_inbox_has_room_for_what_has_been_read() {
        let mut inbox = Inbox::default();
        let mut lines: Vec<Line> = (0..=PIECES_MAX as u32).map(|id| Line::new(Source::Conn(ConnId(id)))).collect();
        for line in &mut lines[1..] {
            inbox.leave(line, Input::Drained).expect("room");
        }
        assert_eq!(inbox.leave_bytes(&mut lines[0], None, &[0; READ], false), Err(Full));
        inbox.close(true);
        assert_eq!(inbox.leave_bytes(&mut lines[0], None, &[0; READ], false), Ok(()));
        inbox.close(false);
        assert_eq!(inbox.leave(&mut lines[0], Input::Gone { tell: true }), Err(Full));
    }

    #[test]
    fn a_full_inbox_takes_all_of_an_input_or_nothing() {
        let mut inbox = Inbox::default();
        let mut lines: Vec<Line> = (0..PIECES_MAX as u32).map(|id| Line::new(Source::Conn(ConnId(id)))).collect();
        for line in &mut lines[1..] {
            inbox.leave(line, Input::Drained).expect("room");
        }
        assert_eq!(inbox.leave_bytes(&mut lines[0], None, &[0; PIECE + 1], false), Err(Full));
        assert_eq!(inbox.len(), PIECES_MAX - 1);
        inbox.leave_bytes(&mut lines[0], None, &[0; PIECE], false).expect("room for one piece");
        assert_eq!(inbox.leave(&mut lines[0], Input::Drained), Err(Full));
        inbox.take();
        inbox.leave(&mut lines[0], Input::Drained).expect("room");
    }
}
