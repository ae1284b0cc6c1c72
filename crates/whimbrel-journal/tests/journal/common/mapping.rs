//! A map under a workload that is derived from a seed, beside a stream of something else, and what
//! it must hold.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    Map, MapOptions, Need, Piece, ReadBuffer, ReadError, Refused, RestoreError, Stepped, Storage, Stream, Ticket,
    Wanted,
};

use super::{id, payload};

pub const SEED: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

/// What the workload is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many keys there may be.
    pub keys: u64,
    /// See [`MapOptions::clean_min`].
    pub clean_min: u64,
    /// Of a hundred things, how many concern the other stream.
    pub others: u32,
    /// How many of the ticks of the other stream are usually left when it is chopped.
    pub lag: u64,
}

/// Few keys, cleaned all the time.
pub const HASTY: Shape = Shape { keys: 24, clean_min: 3000, others: 30, lag: 200 };

/// What must be there after a submission: of each key a number that makes its value and the length
/// of that, and the last tick of the other stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub values: BTreeMap<Vec<u8>, Vec<u8>>,
    pub other: u64,
}

/// Keys of different lengths, also one that is the beginning of another.
pub fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes()[7 - (number % 3) as usize..].to_vec();
    key.extend_from_slice(&b"a topic filter"[..number as usize % 14]);
    key
}

/// The streams of the map and of something else.
pub fn streams(journal: &mut Stepped<'_, Twin>) -> Option<[Stream; 2]> {
    let map = journal.log.open_stream(id(100)).ok()?.0;
    Some([map, journal.log.open_stream(id(101)).ok()?.0])
}

/// Keys with values.
pub type Given = Vec<(Vec<u8>, Vec<u8>)>;

/// The map in a stream, and its values in the order in which they were given.
pub fn try_restore<S: Storage>(
    journal: &Stepped<'_, S>,
    stream: Stream,
    clean_min: u64,
) -> Result<(Map, Given), RestoreError> {
    let mut given = Vec::new();
    let mut sink = |key: &[u8], value: &[u8]| given.push((key.to_vec(), value.to_vec()));
    let map =
        Map::restore(journal, stream, MapOptions { seed: SEED, clean_min }, &mut ReadBuffer::default(), &mut sink)?;
    Ok((map, given))
}

pub fn restore<S: Storage>(
    journal: &Stepped<'_, S>,
    stream: Stream,
    clean_min: u64,
) -> (Map, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (map, given) = try_restore(journal, stream, clean_min).expect("the map is whole");
    let values: BTreeMap<_, _> = given.iter().cloned().collect();
    assert_eq!(values.len(), given.len(), "no key is given twice");
    let info = map.info();
    assert_eq!(info.keys, values.len());
    assert!(info.live <= info.held);
    (map, values)
}

/// Cleans as the driver does after each submission; returns after all of it is durable.
pub fn clean(journal: &mut Stepped<'_, Twin>, map: &mut Map) {
    loop {
        map.clean(&mut journal.log);
        journal.settle();
        let Some(wanted) = map.wanted() else { break };
        map.take(Piece::read(journal, map.stream(), wanted, &mut ReadBuffer::default()));
    }
}

/// One thing of a submission.
#[derive(Clone, Debug)]
enum Deed {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Append(u64, usize),
    Chop(u64),
}

pub struct Mapping<'a> {
    pub journal: Stepped<'a, Twin>,
    pub map: Map,
    pub held: Held,
    /// What must be there when everything up to a ticket is; what was superseded by a commit is
    /// forgotten.
    pub history: VecDeque<(Ticket, Held)>,
    pub refused: BTreeMap<&'static str, u64>,
    shape: Shape,
    other: Stream,
    wanted: Option<Wanted>,
}

impl<'a> Mapping<'a> {
    /// Nothing if the journal takes no streams.
    pub fn new(mut journal: Stepped<'a, Twin>, shape: Shape) -> Option<Mapping<'a>> {
        let [stream, other] = streams(&mut journal)?;
        let (map, values) = restore(&journal, stream, shape.clean_min);
        let last = journal.log.info(other).map_or(0, |info| info.last.max(info.chopped));
        let held = Held { values, other: last };
        // The births of the streams change nothing of what is held.
        let history = VecDeque::from([(Ticket(0), held.clone())]);
        Some(Mapping { journal, map, held, history, refused: BTreeMap::new(), shape, other, wanted: None })
    }

    /// Does one random thing.
    pub fn step(&mut self, rng: &mut fastrand::Rng) {
        match rng.u32(0..100) {
            0..50 => self.submit(rng),
            50..60 => self.map.clean(&mut self.journal.log),
            60..70 => self.read(rng.u32(0..20) == 0),
            70..90 => drop(self.journal.write()),
            _ => drop(self.journal.chore()),
        }
    }

    /// Asks what is to be read, or reads it.
    pub fn read(&mut self, fails: bool) {
        let Some(wanted) = self.wanted.take() else {
            self.wanted = self.map.wanted();
            return;
        };
        let piece = Piece::read(&self.journal, self.map.stream(), wanted, &mut ReadBuffer::default());
        self.map.take(if fails { Err(ReadError::Moved) } else { piece });
        assert!(self.map.info().memory < 100_000);
    }

    /// Submits several things together.
    fn submit(&mut self, rng: &mut fastrand::Rng) {
        let mut deeds = Vec::new();
        let mut other = self.held.other;
        for _ in 0..rng.u32(1..5) {
            deeds.push(self.deed(&mut other, rng));
        }
        let mut need = Need { streams: 2, ..Need::default() };
        for deed in &deeds {
            match deed {
                Deed::Put(key, value) => need.put(key.len(), value.len()),
                Deed::Remove(key) => need.put(key.len(), 0),
                Deed::Append(_, bytes) => need.record(*bytes),
                Deed::Chop(_) => need.changes += 1,
            }
        }
        if let Err(error) = self.journal.log.require(need) {
            let name = match error {
                Refused::Busy => "busy",
                Refused::Full => "full",
                Refused::Poisoned(_) => "poisoned",
                other => panic!("{other}"),
            };
            *self.refused.entry(name).or_default() += 1;
            return;
        }
        deeds.into_iter().for_each(|deed| self.perform(deed));
        self.history.push_back((self.journal.log.accepted(), self.held.clone()));
        let sure = self.journal.log.committed();
        while self.history.get(1).is_some_and(|(ticket, _)| *ticket <= sure) {
            self.history.pop_front();
        }
        if rng.bool() {
            self.map.clean(&mut self.journal.log);
        }
    }

    fn deed(&self, other: &mut u64, rng: &mut fastrand::Rng) -> Deed {
        let Shape { keys, others, lag, .. } = self.shape;
        if rng.u32(0..100) < others {
            if rng.u32(0..6) > 0 {
                *other += rng.u64(1..10);
                return Deed::Append(*other, rng.usize(0..700));
            }
            let lag = if rng.u32(0..12) == 0 { rng.u64(0..50) } else { rng.u64(0..lag) };
            return Deed::Chop(other.saturating_sub(lag));
        }
        // Some keys are hot.
        let key = key(if rng.u32(0..4) == 0 { rng.u64(0..keys) } else { rng.u64(0..keys / 4) });
        if rng.u32(0..7) < 5 {
            Deed::Put(key, payload(rng.u64(0..1000), rng.u64(..), rng.usize(0..300)))
        } else {
            Deed::Remove(key)
        }
    }

    fn perform(&mut self, deed: Deed) {
        let log = &mut self.journal.log;
        let outcome = match &deed {
            Deed::Put(key, value) => self.map.put(log, key, value),
            Deed::Remove(key) => self.map.remove(log, key),
            Deed::Append(tick, bytes) => log.append(self.other, *tick, &[&payload(101, *tick, *bytes)]),
            Deed::Chop(upto) => log.chop(self.other, *upto),
        };
        outcome.expect("what is required is not refused");
        match deed {
            Deed::Put(key, value) => drop(self.held.values.insert(key, value)),
            Deed::Remove(key) => drop(self.held.values.remove(&key)),
            Deed::Append(tick, _) => self.held.other = tick,
            Deed::Chop(_) => {}
        }
    }

    /// What may be found after a crash now: after the last submission that is committed as a whole,
    /// or after a later one.
    pub fn possible(&self) -> Vec<Held> {
        let sure = self.journal.log.committed();
        let first = self.history.iter().rposition(|(ticket, _)| *ticket <= sure).expect("the first is committed");
        self.history.range(first..).map(|(_, held)| held.clone()).collect()
    }
}
