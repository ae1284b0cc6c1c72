//! A workload that is derived from a seed, and a model of what a journal must hold after it.

use std::collections::BTreeMap;

use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{Options, ReadBuffer, ReadError, Refused, Stepped, Storage, Stream, StreamId, Ticket, Wanted};

pub const SMALL: Options = Options { segment_bytes: 64 << 10, batch_bytes: 4096, max_bytes: 1 << 20 };

pub fn id(number: u64) -> StreamId {
    StreamId { kind: 1, id: number }
}

/// How the sectors in flight fare: all alike, or each for itself.
pub fn fates(rng: &mut fastrand::Rng) -> impl FnMut() -> Fate + use<> {
    let mut rng = rng.fork();
    let style = rng.u32(0..4);
    move || match (style, rng.u32(0..3)) {
        (0, _) | (3, 0) => Fate::Old,
        (1, _) | (3, 1) | (2, 1..) => Fate::New,
        _ => Fate::Garbage,
    }
}

/// The payload of a record: tells which one it is, and its length differs.
pub fn payload(stream: u64, tick: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (stream.wrapping_mul(31).wrapping_add(tick.wrapping_mul(7)).wrapping_add(i as u64)) as u8)
        .collect()
}

/// Everything in a stream, read with this budget.
pub fn try_read_all<S: Storage>(
    journal: &Stepped<'_, S>,
    stream: Stream,
    budget: usize,
) -> Result<Vec<(u64, Vec<u8>)>, ReadError> {
    let mut records = Vec::new();
    let mut buffer = ReadBuffer::default();
    let mut from = Some(0);
    while let Some(next) = from {
        let wanted = Wanted { from: next, to: u64::MAX, budget };
        let given = records.len();
        from = journal.read(stream, wanted, &mut buffer, &mut |tick, bytes| records.push((tick, bytes.to_vec())))?;
        assert!(from.is_none() || records.len() > given || from > Some(next), "reading goes on");
    }
    Ok(records)
}

pub fn read_all<S: Storage>(journal: &Stepped<'_, S>, stream: Stream) -> Vec<(u64, Vec<u8>)> {
    try_read_all(journal, stream, usize::MAX).expect("the stream is whole")
}

/// What a stream must hold after all operations up to some ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub records: BTreeMap<u64, Vec<u8>>,
    pub last: u64,
    pub chopped: u64,
    pub reserved: u64,
}

/// An operation that was accepted.
#[derive(Clone, Debug)]
pub enum Done {
    Born(u64),
    Append(u64, u64, Vec<u8>),
    Chop(u64, u64),
    Reserve(u64, u64),
    Remove(u64),
}

pub fn apply(models: &mut BTreeMap<u64, Model>, done: &Done) {
    match done {
        Done::Born(stream) => {
            models.insert(*stream, Model::default());
        }
        Done::Append(stream, tick, bytes) => {
            let model = models.get_mut(stream).expect("it was born");
            model.records.insert(*tick, bytes.clone());
            model.last = *tick;
        }
        Done::Chop(stream, upto) => {
            let model = models.get_mut(stream).expect("it was born");
            model.chopped = model.chopped.max(*upto);
            let chopped = model.chopped;
            model.records.retain(|tick, _| *tick > chopped);
        }
        Done::Reserve(stream, upto) => {
            let model = models.get_mut(stream).expect("it was born");
            model.reserved = model.reserved.max(*upto);
        }
        Done::Remove(stream) => {
            models.remove(stream);
        }
    }
}

/// What a journal holds, in the form of the model. Panics if it cannot be read.
pub fn look<S: Storage>(journal: &Stepped<'_, S>) -> BTreeMap<u64, Model> {
    let streams: Vec<_> = journal.log.streams().collect();
    let seen = streams.into_iter().filter_map(|(id, stream)| {
        let info = journal.log.info(stream)?;
        assert_eq!(info.stopped, None);
        let records = read_all(journal, stream).into_iter().collect();
        Some((id.id, Model { records, last: info.last, chopped: info.chopped, reserved: info.reserved }))
    });
    seen.collect()
}

/// A journal under a workload, with the list of what was accepted.
pub struct Work<'a, S = Twin> {
    pub journal: Stepped<'a, S>,
    pub done: Vec<(Ticket, Done)>,
    streams: BTreeMap<u64, Stream>,
    next: BTreeMap<u64, u64>,
    /// Operations refused for want of space.
    pub full: u64,
}

impl<'a, S: Storage> Work<'a, S> {
    pub fn new(journal: Stepped<'a, S>) -> Work<'a, S> {
        let streams: BTreeMap<_, _> = journal.log.streams().map(|(id, stream)| (id.id, stream)).collect();
        let next = streams
            .iter()
            .filter_map(|(id, stream)| journal.log.info(*stream).map(|info| (*id, info.last.max(info.chopped))))
            .collect();
        Work { journal, done: Vec::new(), streams, next, full: 0 }
    }

    /// Does one random thing.
    pub fn step(&mut self, rng: &mut fastrand::Rng) {
        let stream = rng.u64(0..4);
        match rng.u32(0..100) {
            0..60 => self.append(stream, rng.u64(1..1000), rng.usize(0..900)),
            60..70 => self.chop(stream, rng),
            70..74 => self.reserve(stream, rng.u64(0..100_000)),
            74..75 => self.remove(stream),
            75..93 => drop(self.journal.write()),
            _ => drop(self.journal.chore()),
        }
    }

    fn note<T>(&mut self, outcome: Result<T, Refused>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(Refused::Full) => {
                self.full += 1;
                None
            }
            Err(Refused::Busy | Refused::Poisoned(_) | Refused::NotIncreasing { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    pub fn stream(&mut self, number: u64) -> Option<Stream> {
        if let Some(stream) = self.streams.get(&number) {
            return Some(*stream);
        }
        let outcome = self.journal.log.open_stream(id(number));
        let (stream, ticket) = self.note(outcome)?;
        self.streams.insert(number, stream);
        self.next.insert(number, 0);
        self.done.push((ticket, Done::Born(number)));
        Some(stream)
    }

    pub fn append(&mut self, number: u64, step: u64, length: usize) {
        let Some(stream) = self.stream(number) else { return };
        let tick = self.next[&number] + step;
        let bytes = payload(number, tick, length);
        let (front, back) = bytes.split_at(length / 2);
        let outcome = self.journal.log.append(stream, tick, &[front, back]);
        if let Some(ticket) = self.note(outcome) {
            self.next.insert(number, tick);
            self.done.push((ticket, Done::Append(number, tick, bytes)));
        }
    }

    fn chop(&mut self, number: u64, rng: &mut fastrand::Rng) {
        let Some(stream) = self.stream(number) else { return };
        // One stream is slow: it pins old segments.
        let next = self.next[&number];
        let upto = if number == 0 { next / 8 } else { next.saturating_sub(rng.u64(0..20_000)) + rng.u64(0..50) };
        let before = self.journal.log.accepted();
        let outcome = self.journal.log.chop(stream, upto);
        if let Some(ticket) = self.note(outcome)
            && ticket > before
        {
            self.next.insert(number, next.max(upto));
            self.done.push((ticket, Done::Chop(number, upto)));
        }
    }

    fn reserve(&mut self, number: u64, ahead: u64) {
        let Some(stream) = self.stream(number) else { return };
        let upto = self.next[&number] + ahead;
        let before = self.journal.log.accepted();
        let outcome = self.journal.log.reserve(stream, upto);
        if let Some(ticket) = self.note(outcome)
            && ticket > before
        {
            self.done.push((ticket, Done::Reserve(number, upto)));
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(stream) = self.streams.get(&number).copied() else { return };
        let outcome = self.journal.log.remove(stream);
        if let Some(ticket) = self.note(outcome) {
            self.streams.remove(&number);
            self.done.push((ticket, Done::Remove(number)));
        }
    }

    /// What must be there when everything up to this ticket is.
    pub fn model(&self, base: &BTreeMap<u64, Model>, upto: Ticket) -> BTreeMap<u64, Model> {
        let mut models = base.clone();
        self.done.iter().take_while(|(ticket, _)| *ticket <= upto).for_each(|(_, done)| apply(&mut models, done));
        models
    }
}
