//! One stream of another node, as a receiver knows it: what is known without a hole, and what has
//! arrived ahead of a hole.

use std::collections::BTreeMap;

use whimbrel_event::{EventId, Reliability, Tick, Time};
use whimbrel_wire::{Part, RANGES_MAX, Range};

/// Most events and silences ahead of a hole.
const AHEAD_MAX: usize = 65_536;

/// An event as a node has received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its id.
    pub id: EventId,
    /// When it arrived. Events behind a hole are delivered later, in the order of the stream.
    pub arrived: Time,
    /// Its age at that time as the network layer tells it, microseconds.
    pub age_us: u64,
    /// It answers a nack.
    pub is_answer: bool,
    /// Its topic.
    pub topic: Box<str>,
    /// Its payload.
    pub payload: Box<[u8]>,
}

/// A range of ticks, up to the key under which it is kept, with at most one event at its end.
struct Piece {
    after: Tick,
    event: Option<Delivered>,
}

/// The knowledge of one stream.
#[derive(Default)]
pub struct Reception {
    /// The version of the own interest that silence was told for last; 0: the stream has not begun.
    told: u64,
    /// The tick from which that version is in force.
    since: Tick,
    /// Everything up to here is known.
    known: Tick,
    /// By their last ticks.
    ahead: BTreeMap<Tick, Piece>,
    /// Ranges that the stream's broker no longer has.
    pub lost: u64,
}

impl Reception {
    /// Takes an event that was matched against `version` of the own interest; `previous` is the
    /// tick before it that was sent to this node. Returns the events that can be delivered.
    pub fn on_event(&mut self, event: Delivered, version: u64, previous: Tick) -> Vec<Delivered> {
        let tick = event.id.tick;
        let is_believed = self.told > 0 && (version >= self.told || tick <= self.since);
        let after = if is_believed { previous } else { Tick(tick.0 - 1) };
        // A hole in a stream of best effort stays.
        let is_reliable = event.id.pubend.reliability() == Reliability::Reliable;
        let after = if is_reliable { after } else { after.min(self.known) };
        self.learn(after, tick, Some(event));
        self.deliver()
    }

    /// Takes silence for `version` of the own interest, which began with version `began`. Returns
    /// the events that can be delivered.
    pub fn on_silence(&mut self, part: &Part, version: u64, began: u64) -> Vec<Delivered> {
        if version < self.told.max(began) || part.upto < part.after {
            return Vec::new();
        }
        let mut after = part.after;
        if self.told < began {
            self.known = self.known.max(part.begin);
            after = after.max(part.since);
        }
        (self.told, self.since) = (version, part.since);
        self.lost += u64::from(part.lost && part.upto > self.known);
        if after < part.upto {
            self.learn(after, part.upto, None);
        }
        self.deliver()
    }

    fn learn(&mut self, after: Tick, upto: Tick, event: Option<Delivered>) {
        if upto <= self.known {
            return;
        }
        let piece = self.ahead.entry(upto).or_insert(Piece { after, event: None });
        piece.after = piece.after.min(after);
        piece.event = piece.event.take().or(event);
        assert!(self.ahead.len() <= AHEAD_MAX, "a hole is repaired before that");
    }

    fn deliver(&mut self) -> Vec<Delivered> {
        let mut delivered = Vec::new();
        if self.told == 0 {
            return delivered;
        }
        for _ in 0..AHEAD_MAX {
            let next = self.ahead.iter().find(|(_, piece)| piece.after <= self.known);
            let Some(upto) = next.map(|(upto, _)| *upto) else { break };
            let behind = self.ahead.split_off(&Tick(upto.0 + 1));
            let begun = core::mem::replace(&mut self.ahead, behind);
            let known = self.known;
            self.known = upto.max(known);
            delivered.extend(begun.into_values().filter_map(|piece| piece.event).filter(|event| event.id.tick > known));
        }
        delivered
    }

    /// The first holes, to be asked for. `version` is that of the own interest.
    pub fn holes(&self, version: u64) -> Vec<Range> {
        let mut holes = Vec::new();
        let mut known = self.known;
        for (upto, piece) in self.ahead.iter().filter(|_| self.told > 0) {
            if piece.after > known && holes.len() < RANGES_MAX {
                holes.push(Range { after: known, upto: piece.after, ends_in_data: true, version });
            }
            known = known.max(*upto);
        }
        holes
    }
}
