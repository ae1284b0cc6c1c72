//! Reads of the own log by other brokers. A question names a part of a stream and an interest; the
//! answer has the wanted events, and states that there are no others.
//!
//! A question is answered in one bulk message, which gives way to other traffic. The asker repeats
//! its questions, so a question that cannot be answered is dropped, and each asker has a few at
//! most.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::{AcceptedEvent, DomainLabel, Event, HostId, Tick, Time};
use whimbrel_net::Net;
use whimbrel_selector::{Compiled, Selector, TopicFilter, TopicName};
use whimbrel_wire::{BrokerMessage, READ_LOST_MAX, ReadAsk, ReadTold, compact};

use super::borrow::{Foresight, NextWanted};
use super::{DomainPlace, Due, Sender};
use crate::api::Output;
use crate::broker::Broker;
use crate::content::Content;
use crate::store::{LENDER, StreamName, WantedPart};

/// Most questions that are being answered.
pub const QUESTIONS_MAX: usize = 128;

/// Most questions of one broker.
pub const QUESTIONS_EACH: usize = whimbrel_event::HOST_RELIABLE_MAX as usize;

/// Bytes of events after which an answer ends; it has at least one event if there is one.
pub const ANSWER_BYTES: usize = 256 << 10;

/// Most events of one answer.
const ANSWER_EVENTS: usize = 4096;

/// Pause before an answer for which there was no room is sent again.
const AGAIN: Duration = Duration::from_millis(50);

/// Most repetitions; after that the asker must repeat its question.
const TRIES: u32 = 40;

/// A topic filter that was checked, and a selector.
pub(super) type CheckedInterest = (Box<str>, Option<Compiled>);

/// The valid entries of a question, with compiled selectors.
pub(super) fn wanted(entries: &[(&str, Option<&str>)]) -> Vec<CheckedInterest> {
    let entries = entries.iter().filter(|(filter, _)| TopicFilter::new(filter).is_ok());
    // A selector that is not understood lets every event through: too many rather than too few.
    let compiled = |text: &str| Selector::parse_canonical(text).ok().map(|selector| Compiled::new(&selector));
    entries.map(|(filter, selector)| ((*filter).into(), selector.and_then(compiled))).collect()
}

/// Whether an event matches one of the entries. Its topic must have been checked.
pub(super) fn is_wanted(entries: &mut [CheckedInterest], accepted: AcceptedEvent<'_>) -> bool {
    let topic = TopicName::checked(accepted.event.topic);
    entries.iter_mut().any(|(filter, selector)| {
        TopicFilter::checked(filter).matches(topic)
            && selector.as_mut().is_none_or(|selector| selector.value(Content(&accepted)) == Some(true))
    })
}

/// A question for a part of an own stream.
#[derive(Debug)]
struct LogQuestion {
    from: HostId,
    number: u64,
    own: usize,
    /// The tick without which it begins.
    after: Tick,
    /// The tick up to which it has been read.
    at: Tick,
    upto: Tick,
    /// The wanted entries, and the knowledge of events that may match.
    entries: Vec<CheckedInterest>,
    known: Foresight,
    released: Tick,
    lost: Vec<(Tick, Tick)>,
    /// The packed events found, one behind the other; their ticks and ends.
    bytes: Vec<u8>,
    found: Vec<(Tick, usize)>,
    /// The ticks of events with the retain mark.
    retained: Vec<Tick>,
    /// The label of all events found.
    label: Box<str>,
    /// The next event has no path to the asker over brokers that may carry it: the answer ends
    /// before it.
    is_cut_off: bool,
    is_read: bool,
    tries: u32,
}

impl LogQuestion {
    fn is_full(&self) -> bool {
        self.bytes.len() >= ANSWER_BYTES || self.found.len() >= ANSWER_EVENTS || self.lost.len() >= READ_LOST_MAX
    }

    /// Takes the wanted events, as far as there is room, and as one message can have them. Returns
    /// the number of events examined.
    fn take(&mut self, events: &[Event], net: &mut Net, is_blind: bool) -> usize {
        for (looked_at, event) in (1..).zip(events) {
            let tick = event.id().tick;
            if !is_wanted(&mut self.entries, event.packed().unpack()) {
                continue;
            }
            let label = event.packed().domains();
            if !label.is_any() && !is_blind {
                if !net.domains().may_carry(label, self.from) {
                    // To the asker it is silence.
                    net.domains().record_refusal(DomainPlace::LogRead);
                    continue;
                }
                let joined = DomainLabel::checked(&self.label).joined(label);
                let joined = joined.filter(|joined| net.domains().reaches(DomainLabel::checked(joined), self.from));
                match joined {
                    Some(joined) => self.label = joined,
                    None => {
                        net.domains().record_refusal(DomainPlace::LogRead);
                        (self.at, self.is_cut_off) = (Tick(tick.0 - 1), true);
                        return looked_at;
                    }
                }
            }
            if self.is_full() {
                self.at = Tick(tick.0 - 1);
                return looked_at;
            }
            compact::write(&event.packed().unpack(), &mut self.bytes);
            self.found.push((tick, self.bytes.len()));
            self.retained.extend(event.packed().retain().then_some(tick));
        }
        events.len()
    }
}

/// The questions of other brokers, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Lending {
    questions: VecDeque<LogQuestion>,
    is_due: bool,
}

impl Broker {
    /// Accepts a question of another broker for a part of an own log.
    pub(super) fn read_asked(&mut self, now: Time, from: Sender, ask: &ReadAsk<'_>) {
        let own = self.streams.own_reliable(ask.pubend).filter(|_| self.has_log());
        let questions = &self.overlay.logs.lending.questions;
        let of_asker = questions.iter().filter(|question| question.from == from.host);
        let is_known = of_asker.clone().any(|question| question.number == ask.number);
        let Some(own) = own.filter(|_| !is_known) else { return };
        if of_asker.count() >= QUESTIONS_EACH || questions.len() >= QUESTIONS_MAX {
            return;
        }
        let passed = self.streams.logged().positions()[own];
        let chopped = self.store.release.chopped[own];
        let upto = ask.upto.min(passed);
        if ask.after >= upto {
            return;
        }
        let released = self.given_up((from.host, own), (ask.after, upto));
        let is_gone = ask.is_strict && ask.after < chopped;
        let released = if is_gone { released.max(chopped.min(upto)) } else { released };
        let at = ask.after.max(chopped.min(upto));
        let (entries, known) = (wanted(&ask.entries), self.foresee((from.host, own), at, &ask.entries));
        let overlay = &mut self.overlay;
        overlay.logs.lending.questions.push_back(LogQuestion {
            from: from.host,
            number: ask.number,
            own,
            after: at,
            at,
            upto,
            entries,
            known,
            released,
            lost: Vec::new(),
            bytes: Vec::new(),
            found: Vec::new(),
            retained: Vec::new(),
            label: Box::default(),
            is_cut_off: false,
            is_read: false,
            tries: 0,
        });
        overlay.stats.reads_asked += 1;
        self.lend_soon(now);
    }

    /// The tick up to which a part of an own stream may lack events under the broker's retention
    /// hold, as they were given up early; zero if it lacks none.
    fn given_up(&self, (to, own): (HostId, usize), (after, upto): (Tick, Tick)) -> Tick {
        let forfeited =
            self.store.holds_given.of.get(&to).map_or(Tick(0), |hold_given| hold_given.record.forfeited[own]);
        let early = self.store.release.early[own].max(forfeited);
        if after < early { early.min(upto) } else { Tick(0) }
    }

    /// Sets the timer for the next turn of the questions.
    pub(crate) fn lend_soon(&mut self, at: Time) {
        let overlay = &mut self.overlay;
        if !core::mem::replace(&mut overlay.logs.lending.is_due, true) {
            overlay.set_timer(at, Due::Lend);
        }
    }

    /// Gives each question a turn: one part of the log is examined, or the answer is sent.
    pub(super) fn lend(&mut self, now: Time, out: &mut dyn Output) {
        self.overlay.logs.lending.is_due = false;
        let mut is_stuck = false;
        let mut has_more = false;
        for _ in 0..self.overlay.logs.lending.questions.len() {
            let Some(mut question) = self.overlay.logs.lending.questions.pop_front() else { break };
            if !question.is_read {
                has_more |= self.read_for(&mut question);
            }
            if question.is_read {
                // The asker asks again, until there is a path for the first event.
                let is_empty = question.found.is_empty() && question.at <= question.after;
                if question.is_cut_off && is_empty {
                    continue;
                }
                if self.tell_read(now, &question, out) || question.tries >= TRIES {
                    continue;
                }
                question.tries += 1;
                is_stuck = true;
            }
            self.overlay.logs.lending.questions.push_back(question);
        }
        if has_more {
            self.lend_soon(now);
        } else if is_stuck {
            self.lend_soon(now + AGAIN);
        }
    }

    /// Examines the next part of the log for a question, or requests that it be read. Returns
    /// whether more can be examined now.
    fn read_for(&mut self, question: &mut LogQuestion) -> bool {
        let stream = StreamName::Events(question.own as u8);
        if question.at >= question.upto {
            question.is_read = true;
            return false;
        }
        let part = (question.at, question.upto);
        // More may have been given up since the question was accepted; parts read since then lack
        // that.
        let released = self.given_up((question.from, question.own), part);
        question.released = released.max(question.released);
        let (after, upto, bytes) = match self.look_ahead_for(&mut question.known, part) {
            NextWanted::Unknown => return false,
            NextWanted::Nothing(upto) => {
                question.at = upto;
                question.is_read = upto >= question.upto;
                return !question.is_read;
            }
            NextWanted::Something { after, upto, bytes } => (after, upto, bytes),
        };
        let Some(slice) = self.store.reads.slice(stream, after) else {
            self.store.reads.ask(LENDER, WantedPart { stream, after, upto, bytes });
            return false;
        };
        let end = slice.upto.min(upto);
        let first = slice.events.partition_point(|event| event.id().tick <= after);
        let events = slice.events[first..].iter().take_while(|event| event.id().tick <= end);
        // Cheap: events are handles.
        let events: Vec<Event> = events.filter(|event| question.known.wants(event.id().tick)).cloned().collect();
        let lost = slice.lost.map(|(from, to)| (from.max(after), to.min(end))).filter(|(from, to)| from < to);
        question.lost.extend(lost.filter(|lost| question.known.wants_any(*lost)));
        question.known.record_found(events.len());
        question.at = end;
        let is_blind = fault!(self, LogReadLeavesDomain);
        let looked_at = question.take(&events, &mut self.overlay.net, is_blind);
        question.is_read = question.at >= question.upto || question.is_full() || question.is_cut_off;
        self.overlay.stats.events_looked_at += looked_at as u64;
        !question.is_read
    }

    fn tell_read(&mut self, now: Time, question: &LogQuestion, out: &mut dyn Output) -> bool {
        let mut begins = 0;
        let event = |(tick, ends): &(Tick, usize)| {
            let bytes = &question.bytes[begins..*ends];
            begins = *ends;
            (*tick, bytes)
        };
        let events: Vec<(Tick, &[u8])> = question.found.iter().map(event).collect();
        let count = events.len() as u64;
        let (number, released, upto, lost) = (question.number, question.released, question.at, question.lost.clone());
        let retained = question.retained.clone();
        let told = ReadTold { number, now: now.as_nanos(), upto, released, lost, events, retained };
        let (to, label) = (question.from, DomainLabel::checked(&question.label));
        let is_told = self.overlay.send_within(now, to, label, &BrokerMessage::ReadTold(told), true, out);
        if is_told {
            self.overlay.stats.events_lent += count;
        }
        is_told
    }
}
