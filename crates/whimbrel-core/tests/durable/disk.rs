//! A log in memory: the durable part, and the part that would be lost in a crash.

#![allow(dead_code, reason = "each test target uses its part")]

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::Profile;
use whimbrel_core::store::{Batch, BatchNo, Disk, Fetched, LogState, Restoring, StreamName, StreamState, Write};
use whimbrel_core::{Broker, Input, Limits};
use whimbrel_event::{Tick, Time};

use crate::common::{Edges, Rig, START};

/// One write, kept.
#[derive(Debug, Clone)]
pub enum Kept {
    Record(StreamName, Tick, Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Forget(Vec<u8>),
    Chop(StreamName, Tick),
    Reserve(Tick),
}

/// The durable part of the log.
#[derive(Debug, Default, Clone)]
pub struct Durable {
    pub streams: BTreeMap<StreamName, BTreeMap<Tick, Vec<u8>>>,
    pub map: BTreeMap<Vec<u8>, Vec<u8>>,
    pub last: BTreeMap<StreamName, Tick>,
    pub chopped: BTreeMap<StreamName, Tick>,
    pub reserved: Tick,
}

impl Durable {
    /// The writes of a core, batch by batch, as they are taken; and the last batch.
    pub fn taken(core: &mut Broker) -> Option<(BatchNo, Vec<Kept>)> {
        let writes = kept(&core.batch()?);
        Some((core.submitted(), writes))
    }

    /// The core that resumes with the durable part.
    pub fn core(&self, limits: &Limits, seed: u64, now: Time) -> Broker {
        restoring(self).finish(limits.clone(), seed, now, &self.state()).expect("what was written makes sense")
    }

    pub fn apply(&mut self, write: Kept) {
        match write {
            Kept::Record(stream, tick, body) => {
                let last = self.last.insert(stream, tick).unwrap_or_default();
                assert!(tick > last, "ticks of {stream:?} increase: {tick} after {last}");
                self.streams.entry(stream).or_default().insert(tick, body);
            }
            Kept::Put(key, value) => drop(self.map.insert(key, value)),
            Kept::Forget(key) => drop(self.map.remove(&key)),
            Kept::Chop(stream, upto) => {
                self.chopped.insert(stream, upto);
                let is_its = |name: &StreamName| match (*name, stream) {
                    (StreamName::Filter { pubend, .. }, StreamName::Events(its)) => pubend == its,
                    _ => *name == stream,
                };
                let its = self.streams.iter_mut().filter(|(name, _)| is_its(name));
                its.for_each(|(_, records)| records.retain(|tick, _| *tick > upto));
            }
            Kept::Reserve(upto) => self.reserved = self.reserved.max(upto),
        }
    }

    pub fn events(&self) -> usize {
        let events = self.streams.iter().filter(|(name, _)| matches!(name, StreamName::Events(_)));
        events.map(|(_, records)| records.len()).sum()
    }

    /// Filter records.
    pub fn filters(&self) -> usize {
        let filters = self.streams.iter().filter(|(name, _)| matches!(name, StreamName::Filter { .. }));
        filters.map(|(_, records)| records.len()).sum()
    }

    /// Keys that begin with a message.
    pub fn keys(&self, message: u8) -> usize {
        self.map.keys().filter(|key| key[0] == message).count()
    }

    pub fn state(&self) -> LogState {
        let mut events = [StreamState::default(); 8];
        for (index, state) in (0..).zip(&mut events) {
            let name = StreamName::Events(index);
            let get = |ticks: &BTreeMap<StreamName, Tick>| ticks.get(&name).copied().unwrap_or_default();
            *state = StreamState { last: get(&self.last), chopped: get(&self.chopped) };
        }
        LogState { reserved: self.reserved, events }
    }
}

/// The writes of a batch, kept.
pub fn kept(batch: &Batch<'_>) -> Vec<Kept> {
    let writes = batch.writes().map(|write| match write {
        Write::Event { pubend, tick, event } => {
            Kept::Record(StreamName::Events(pubend), tick, Write::event_parts(event).concat())
        }
        Write::Record { stream, tick, body } => Kept::Record(stream, tick, body.to_vec()),
        Write::Put { key, value } => Kept::Put(key.to_vec(), value.to_vec()),
        Write::Forget { key } => Kept::Forget(key.to_vec()),
        Write::Chop { stream, upto } => Kept::Chop(stream, upto),
        Write::Reserve { upto } => Kept::Reserve(upto),
    });
    writes.collect()
}

/// A rig whose core has a log.
pub struct Logged {
    pub rig: Rig,
    pub disk: Durable,
    pending: VecDeque<(BatchNo, Vec<Kept>)>,
    limits: Limits,
    /// Which topics are logged.
    pub profiles: Vec<Profile>,
    seed: u64,
    /// Events and filter records read from the log.
    pub read: (usize, usize),
    /// Filter records cannot be read.
    pub damaged: bool,
    /// Batches that have become durable.
    pub committed: usize,
}

impl Logged {
    pub fn new() -> Logged {
        Logged::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Logged {
        let disk = Durable::default();
        let rig = open(&disk, &limits, &[], 7, START);
        let (pending, profiles) = (VecDeque::new(), Vec::new());
        Logged { rig, disk, pending, limits, profiles, seed: 7, read: (0, 0), damaged: false, committed: 0 }
    }

    /// The driver takes the pending writes.
    pub fn submit(&mut self) {
        let core = &mut self.rig.core;
        core.flush(self.rig.now);
        while let Some((number, writes)) = Durable::taken(core) {
            self.pending.push_back((number, writes));
        }
    }

    /// This many batches become durable.
    pub fn commit_some(&mut self, batches: usize) {
        self.submit();
        let mut upto = None;
        for _ in 0..batches {
            let Some((number, writes)) = self.pending.pop_front() else { break };
            writes.into_iter().for_each(|write| self.disk.apply(write));
            upto = Some(number);
            self.committed += 1;
        }
        if let Some(upto) = upto {
            self.rig.input(Input::Committed { upto });
        }
        self.rig.advance(Duration::ZERO);
    }

    /// Everything becomes durable, and pending reads are served, until nothing more happens.
    pub fn settle(&mut self) {
        loop {
            self.commit_some(usize::MAX);
            if !self.serve() && self.pending.is_empty() && self.rig.core.batch().is_none() {
                return;
            }
        }
    }

    /// Serves pending reads; tells whether there were any.
    pub fn serve(&mut self) -> bool {
        let mut any = false;
        while let Some(fetch) = self.rig.core.fetch() {
            any = true;
            let records = self.disk.streams.get(&fetch.stream).into_iter().flatten();
            let wanted = records.filter(|(tick, _)| **tick > fetch.after && **tick <= fetch.upto);
            // A few at a time, so that reading continues.
            let mut found: Vec<_> = wanted.take(4).map(|(tick, body)| (*tick, body.as_slice())).collect();
            let mut upto = fetch.upto;
            if found.len() == 4 {
                found.pop();
                upto = found[2].0;
            }
            let is_filter = matches!(fetch.stream, StreamName::Filter { .. });
            let read = if is_filter { &mut self.read.1 } else { &mut self.read.0 };
            *read += found.len();
            let lost = (is_filter && self.damaged).then_some((fetch.after, upto));
            if lost.is_some() {
                found.clear();
            }
            let fetched = Fetched { number: fetch.number, records: &found, upto, lost };
            self.rig.core.handle(self.rig.now, Input::Fetched(fetched), &mut self.rig.edges);
            self.rig.advance(Duration::ZERO);
        }
        any
    }

    /// Lets time pass, with everything that happens in it.
    pub fn advance(&mut self, span: Duration) {
        let end = self.rig.now.after(span);
        loop {
            self.settle();
            let next = self.rig.core.next_deadline().filter(|(at, _)| *at <= end);
            let Some((at, _)) = next else { break };
            self.rig.advance(at.since(self.rig.now));
        }
        self.rig.advance(end.since(self.rig.now));
        self.settle();
    }

    /// The process dies, and another resumes with the durable part.
    pub fn crash(&mut self) {
        self.pending.clear();
        self.seed += 1;
        let now = self.rig.now.after(Duration::from_millis(50));
        self.rig = open(&self.disk, &self.limits, &self.profiles, self.seed, now);
    }

    /// The process is lost with its disk, and another resumes with a copy that was made some time
    /// ago.
    pub fn go_on_from(&mut self, copy: &Durable) {
        self.pending.clear();
        self.seed += 1;
        let now = self.rig.now.after(Duration::from_millis(50));
        self.disk = copy.clone();
        let mut restoring = restoring(copy);
        restoring.mark_as_copy();
        self.rig = finish(restoring, copy, &self.limits, (self.seed, now));
    }

    pub fn full(&mut self, disk: Disk) {
        self.rig.input(Input::Disk(disk));
    }
}

fn open(disk: &Durable, limits: &Limits, profiles: &[Profile], seed: u64, now: Time) -> Rig {
    let mut restoring = restoring(disk);
    restoring.set_profiles(profiles.to_vec());
    finish(restoring, disk, limits, (seed, now))
}

pub fn restoring(disk: &Durable) -> Restoring {
    let mut restoring = Restoring::default();
    for (key, value) in &disk.map {
        restoring.entry(key, value).expect("entries that were written can be read");
    }
    restoring
}

fn finish(restoring: Restoring, disk: &Durable, limits: &Limits, (seed, now): (u64, Time)) -> Rig {
    let core = restoring.finish(limits.clone(), seed, now, &disk.state()).expect("what was written makes sense");
    Rig { core, now, edges: Edges::default() }
}
