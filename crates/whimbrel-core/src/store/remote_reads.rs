//! Reads from other brokers' logs: each part of a stream is asked for once for all cursors in
//! catch-up there, and kept for a while.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{Event, HostId, PubendId, Tick, Time};

use super::DurableNo;

/// Most open questions for one stream.
const QUESTIONS_MAX: usize = 4;

/// Most subscriptions that one question is for.
pub(crate) const REMOTE_MEMBERS_MAX: usize = 4096;

/// First interval after which a question is repeated; it doubles each time.
const AGAIN: Duration = Duration::from_millis(250);

/// The longest interval.
const AGAIN_MAX: Duration = Duration::from_secs(4);

/// Most bytes of parts that are kept.
const SLICES_BYTES: usize = 16 << 20;

/// Most parts that are kept.
const SLICES_MAX: usize = 256;

/// A part of another broker's stream that was read.
#[derive(Debug)]
pub(crate) struct RemoteSlice {
    pubend: PubendId,
    after: Tick,
    pub(crate) upto: Tick,
    /// Up to where events may have been given up early.
    pub(crate) released: Tick,
    /// Ranges, without their first ticks, that cannot be read.
    pub(crate) lost: Vec<(Tick, Tick)>,
    pub(crate) events: Vec<Event>,
    /// Subscriptions for which all wanted events of the part are here, with their cursors.
    members: CursorMembers,
    bytes: usize,
}

/// A question that was asked.
#[derive(Debug)]
struct OpenQuestionPart {
    number: u64,
    pubend: PubendId,
    after: Tick,
    upto: Tick,
    members: CursorMembers,
    entries: FilterEntries,
    is_strict: bool,
    at: Time,
    pause: Duration,
}

/// Durable subscriptions, with their cursors.
pub(crate) type CursorMembers = BTreeMap<DurableNo, u32>;

/// Topic filters and selectors.
pub(crate) type FilterEntries = Vec<(Box<str>, Option<Box<str>>)>;

/// A question to be sent, for the first time or again.
pub(crate) struct NextQuestion<'a> {
    pub(crate) number: u64,
    pub(crate) pubend: PubendId,
    pub(crate) after: Tick,
    pub(crate) upto: Tick,
    pub(crate) entries: &'a FilterEntries,
    /// The answer must tell of each event that is not there any more.
    pub(crate) is_strict: bool,
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct ToldPart {
    pub(crate) upto: Tick,
    pub(crate) released: Tick,
    pub(crate) lost: Vec<(Tick, Tick)>,
    pub(crate) events: Vec<Event>,
}

/// Cursors that wait for parts of other brokers' streams, open questions, and parts that were read.
#[derive(Debug, Default)]
pub(crate) struct RemoteReads {
    /// Subscriptions that wait, by stream, with their cursors.
    waiting: BTreeMap<PubendId, CursorMembers>,
    asked: Vec<OpenQuestionPart>,
    /// Oldest first.
    slices: VecDeque<RemoteSlice>,
    bytes: usize,
    last: u64,
    /// Length of the part that the last answer covered, in ticks.
    span: u64,
}

impl RemoteReads {
    /// Sets the first number of questions: late answers to those of earlier incarnations must not
    /// match.
    pub(crate) fn number_from(&mut self, incarnation: u64) {
        self.last = self.last.max(incarnation);
    }

    /// The part of a stream behind a tick, if it was read for a subscription.
    pub(crate) fn slice(&self, pubend: PubendId, after: Tick, number: DurableNo) -> Option<&RemoteSlice> {
        let is_it = |slice: &&RemoteSlice| {
            slice.pubend == pubend && slice.after <= after && after < slice.upto && slice.members.contains_key(&number)
        };
        self.slices.iter().rev().find(is_it)
    }

    /// Adds a subscription that waits for a part of a stream.
    pub(crate) fn wait(&mut self, pubend: PubendId, number: DurableNo, cursor: u32) {
        self.waiting.entry(pubend).or_default().insert(number, cursor);
    }

    /// Removes a subscription that waits.
    pub(crate) fn leave(&mut self, pubend: PubendId, number: DurableNo) {
        if let Some(waiting) = self.waiting.get_mut(&pubend) {
            waiting.remove(&number);
            if waiting.is_empty() {
                self.waiting.remove(&pubend);
            }
        }
    }

    /// Whether any subscription waits for a part of a stream.
    pub(crate) fn is_awaited(&self, pubend: PubendId) -> bool {
        self.waiting.contains_key(&pubend)
    }

    /// Subscriptions that wait for a stream, and are not part of an open question.
    pub(crate) fn unasked(&self, pubend: PubendId) -> Vec<(DurableNo, u32)> {
        let is_asked = |number: &DurableNo| {
            self.asked.iter().any(|asked| asked.pubend == pubend && asked.members.contains_key(number))
        };
        let all = self.waiting.get(&pubend).into_iter().flatten();
        all.filter(|(number, _)| !is_asked(number)).map(|(number, cursor)| (*number, *cursor)).collect()
    }

    /// Subscriptions with a part that reaches up to `at`: they are about to need the next one.
    pub(crate) fn followers(&self, pubend: PubendId, at: Tick) -> CursorMembers {
        let reaches = |slice: &&RemoteSlice| slice.pubend == pubend && slice.after < at && at <= slice.upto;
        let members = self.slices.iter().filter(reaches).flat_map(|slice| &slice.members);
        members.map(|(number, cursor)| (*number, *cursor)).collect()
    }

    /// Whether one more question may be asked of a stream.
    pub(crate) fn has_place(&self, pubend: PubendId) -> bool {
        self.asked.iter().filter(|asked| asked.pubend == pubend).count() < QUESTIONS_MAX
    }

    /// Most ticks between the positions of subscriptions that share a question.
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Adds a question.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        (pubend, after, upto): (PubendId, Tick, Tick),
        members: CursorMembers,
        (entries, is_strict): (FilterEntries, bool),
    ) {
        assert!(after < upto && !members.is_empty(), "a question is for something, and for somebody");
        self.last += 1;
        let number = self.last;
        self.asked.push(OpenQuestionPart {
            number,
            pubend,
            after,
            upto,
            members,
            entries,
            is_strict,
            at: now,
            pause: AGAIN,
        });
    }

    /// Gives the due questions of one stream to `ask`; returns when the next one is due.
    pub(crate) fn due(&mut self, now: Time, pubend: PubendId, mut ask: impl FnMut(NextQuestion<'_>)) -> Option<Time> {
        let Self { asked, waiting, .. } = self;
        // The subscriptions that a question was for may have left.
        let waiting = waiting.get(&pubend);
        asked.retain(|one| {
            let is_awaited = |waiting: &CursorMembers| one.members.keys().any(|member| waiting.contains_key(member));
            one.pubend != pubend || waiting.is_some_and(is_awaited)
        });
        let of_stream = |one: &&mut OpenQuestionPart| one.pubend == pubend;
        for one in asked.iter_mut().filter(of_stream).filter(|one| one.at <= now) {
            let OpenQuestionPart { number, pubend, after, upto, .. } = *one;
            ask(NextQuestion { number, pubend, after, upto, entries: &one.entries, is_strict: one.is_strict });
            one.at = now + one.pause;
            one.pause = (one.pause * 2).min(AGAIN_MAX);
        }
        asked.iter().filter(|one| one.pubend == pubend).map(|one| one.at).min()
    }

    /// Keeps the answer of a host; returns the stream, and the cursors that can read on. `None` if
    /// the question is not open.
    pub(crate) fn keep(&mut self, from: HostId, number: u64, told: ToldPart) -> Option<(PubendId, Vec<u32>)> {
        let at = self.asked.iter().position(|asked| asked.number == number && asked.pubend.host() == from)?;
        let OpenQuestionPart { pubend, after, upto, .. } = self.asked[at];
        if told.upto <= after {
            return None;
        }
        let members = self.asked.remove(at).members;
        self.span = told.upto.0 - after.0;
        let waiting = self.waiting.get(&pubend);
        let cursors = members.keys().filter_map(|number| waiting?.get(number).copied()).collect();
        let bytes = size_of::<RemoteSlice>() + told.events.iter().map(Event::weight).sum::<usize>();
        let ToldPart { upto: read, released, lost, events } = told;
        let upto = read.min(upto);
        self.bytes += bytes;
        self.slices.push_back(RemoteSlice { pubend, after, upto, released, lost, events, members, bytes });
        while (self.bytes > SLICES_BYTES || self.slices.len() > SLICES_MAX) && self.slices.len() > 1 {
            self.bytes -= self.slices.pop_front().map_or(0, |slice| slice.bytes);
        }
        Some((pubend, cursors))
    }

    /// The stream of an open question.
    pub(crate) fn stream_of(&self, number: u64) -> Option<PubendId> {
        self.asked.iter().find(|asked| asked.number == number).map(|asked| asked.pubend)
    }

    /// Drops the questions and the waiting subscriptions of a host that has ended.
    pub(crate) fn give_up(&mut self, host: HostId) {
        self.asked.retain(|asked| asked.pubend.host() != host);
        self.waiting.retain(|pubend, _| pubend.host() != host);
    }
}
