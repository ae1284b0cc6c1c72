//! A cache of answers to questions for other brokers' logs, at the brokers that they pass. A
//! question for the same part is answered from here, and waits if such an answer is under way. So
//! events that many brokers behind one link have missed are read once from the log, and cross that
//! link once.
//!
//! A kept answer has all events of a part of the log for certain filters that its asker may carry.
//! It is given only to brokers that may carry no more than that one, and is true for every such
//! broker with a retention hold on the log. A broker that is not sure of its
//! hold, as it has no recent grant, asks the log itself ([`ReadAsk::may_be_kept`]). Parts that were
//! given up or cannot be read differ between brokers, and are not kept.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::{AcceptedEvent, DomainLabel, Domains, EventId, HostId, PubendId, Tick, Time};
use whimbrel_selector::{TopicFilter, TopicName};
use whimbrel_wire::{BrokerMessage, MESSAGE_BYTES_MAX, MessageFrame, ReadAsk, ReadTold, compact};

use super::lend::{is_wanted, wanted};
use super::{DomainPlace, Sender};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::store::FilterEntries;

/// Most bytes of kept answers.
pub const KEPT_BYTES_MAX: usize = 8 << 20;

/// Most kept answers.
pub const KEPT_MAX: usize = 256;

/// How long an answer is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(30);

/// How long questions wait for an answer that is under way to another one; they are repeated after
/// a quarter of a second.
const MERGE_FOR: Duration = Duration::from_millis(200);

/// Most questions whose answers are expected to pass.
const OPEN_MAX: usize = 256;

/// Most questions that wait for one answer.
const WAITING_MAX: usize = 64;

/// Most bytes of all waiting questions.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of a question above which it is passed on without a look.
const QUESTION_BYTES_MAX: usize = 16 << 10;

/// Most bytes that the number of another question can add to an answer.
const NUMBER_BYTES_MAX: usize = 10;

/// A question that has been passed on.
#[derive(Debug)]
struct OpenQuestion {
    by: HostId,
    /// The domains of that broker: of events in others its answer says nothing.
    domains: Domains,
    number: u64,
    pubend: PubendId,
    after: Tick,
    upto: Tick,
    entries: FilterEntries,
    at: Time,
    /// Questions that its answer will answer as well.
    waiting: Vec<WaitingQuestion>,
}

/// A question that waits for the answer to another one.
#[derive(Debug)]
struct WaitingQuestion {
    by: Sender,
    number: u64,
    hops: u8,
    at: Time,
    /// A [`ReadAsk`].
    body: Box<[u8]>,
}

/// An answer that has passed.
#[derive(Debug)]
struct PassedAnswer {
    pubend: PubendId,
    after: Tick,
    upto: Tick,
    entries: FilterEntries,
    /// As of the question.
    domains: Domains,
    at: Time,
    /// The incarnation of the broker with the log.
    incarnation: u64,
    /// A [`ReadTold`].
    body: Box<[u8]>,
}

impl PassedAnswer {
    fn cost(&self) -> usize {
        let entries =
            self.entries.iter().map(|(filter, selector)| filter.len() + selector.as_ref().map_or(0, |it| it.len()));
        size_of::<PassedAnswer>() + self.body.len() + entries.sum::<usize>()
    }
}

/// Questions and answers that have passed lately, oldest first.
#[derive(Debug, Default)]
pub(super) struct Passing {
    open: VecDeque<OpenQuestion>,
    kept: VecDeque<PassedAnswer>,
    bytes: usize,
}

/// Whether `wide` covers each entry of `narrow`. May be false where it does.
fn covers(wide: &FilterEntries, narrow: &[(&str, Option<&str>)]) -> bool {
    let wants = |(filter, selector): &(&str, Option<&str>)| {
        wide.iter().any(|(other, condition)| {
            (condition.is_none() || condition.as_deref() == *selector)
                && TopicFilter::checked(other).covers(TopicFilter::checked(filter))
        })
    };
    narrow.iter().all(wants)
}

impl Passing {
    fn forget_old(&mut self, now: Time) {
        while self.kept.front().is_some_and(|kept| now.since(kept.at) >= KEPT_FOR)
            || self.bytes > KEPT_BYTES_MAX
            || self.kept.len() > KEPT_MAX
        {
            self.bytes -= self.kept.pop_front().map_or(0, |kept| kept.cost());
        }
        while self.open.front().is_some_and(|open| now.since(open.at) >= KEPT_FOR) || self.open.len() > OPEN_MAX {
            self.open.pop_front();
        }
    }

    /// The kept answer that has the beginning of the part asked for.
    fn find(&self, ask: &ReadAsk<'_>, domains: &Domains, is_any: bool) -> Option<&PassedAnswer> {
        let has_begin = |kept: &&PassedAnswer| {
            let is_inside = kept.pubend == ask.pubend && kept.after <= ask.after && ask.after < kept.upto;
            is_inside && domains.is_within(&kept.domains)
        };
        self.kept.iter().rev().filter(has_begin).find(|kept| is_any || covers(&kept.entries, &ask.entries))
    }

    /// The tick up to which a question must be passed on: the start of the first later part that is
    /// kept or under way to another broker.
    fn lacks_upto(&self, now: Time, ask: &ReadAsk<'_>) -> Tick {
        let inside = |pubend, after| pubend == ask.pubend && ask.after < after && after < ask.upto;
        let kept = self.kept.iter().filter(|kept| inside(kept.pubend, kept.after));
        let kept = kept.filter(|kept| covers(&kept.entries, &ask.entries)).map(|kept| kept.after);
        let open = self.open.iter().filter(|open| inside(open.pubend, open.after) && now.since(open.at) < MERGE_FOR);
        let open = open.filter(|open| covers(&open.entries, &ask.entries)).map(|open| open.after);
        kept.chain(open).fold(ask.upto, Tick::min)
    }

    /// Records a question that is passed on: its answer may pass here.
    fn record_question(&mut self, now: Time, by: HostId, domains: Domains, ask: &ReadAsk<'_>) {
        self.forget_old(now);
        let known = self.open.iter().position(|open| (open.by, open.number) == (by, ask.number));
        let known = known.and_then(|at| self.open.remove(at));
        let waiting = known.map_or(Vec::new(), |open| open.waiting);
        let entries = ask.entries.iter().map(|(filter, selector)| ((*filter).into(), selector.map(Into::into)));
        let ReadAsk { number, pubend, after, upto, .. } = *ask;
        let entries = entries.collect();
        self.open.push_back(OpenQuestion { by, domains, number, pubend, after, upto, entries, at: now, waiting });
    }

    /// Whether a question can wait for an answer under way that has the beginning of its part; then
    /// it does.
    fn merge(&mut self, now: Time, (by, hops, domains): (Sender, u8, &Domains), ask: &ReadAsk<'_>) -> bool {
        let is_same = |open: &&mut OpenQuestion| {
            open.pubend == ask.pubend
                && (open.after..open.upto).contains(&ask.after)
                && now.since(open.at) < MERGE_FOR
                && open.waiting.len() < WAITING_MAX
                && domains.is_within(&open.domains)
                && covers(&open.entries, &ask.entries)
        };
        // A question that was passed on, or has waited, does not wait when it is repeated.
        let mut is_again = self.open.iter().any(|open| (open.by, open.number) == (by.host, ask.number));
        let mut bytes = 0;
        for open in &mut self.open {
            let before = open.waiting.len();
            open.waiting.retain(|waiting| (waiting.by, waiting.number) != (by, ask.number));
            is_again |= open.waiting.len() < before;
            bytes += open.waiting.iter().map(|waiting| waiting.body.len()).sum::<usize>();
        }
        if is_again || bytes >= WAITING_BYTES_MAX {
            return false;
        }
        let Some(open) = self.open.iter_mut().find(is_same) else { return false };
        let mut body = Vec::new();
        BrokerMessage::ReadAsk(ask.clone()).encode(&mut body);
        open.waiting.push(WaitingQuestion { by, number: ask.number, hops, at: now, body: body.into() });
        true
    }

    /// Keeps an answer that passes or is for this broker. Returns the questions that waited for it.
    fn keep(
        &mut self,
        now: Time,
        by: HostId,
        from: Sender,
        (told, body): (&ReadTold<'_>, &[u8]),
    ) -> Vec<WaitingQuestion> {
        let is_it = |open: &OpenQuestion| (open.by, open.number, open.pubend.host()) == (by, told.number, from.host);
        let Some(open) = self.open.iter().position(is_it).and_then(|at| self.open.remove(at)) else {
            return Vec::new();
        };
        let OpenQuestion { domains, pubend, after, upto, entries, mut waiting, .. } = open;
        let is_whole = told.released == Tick(0) && told.lost.is_empty() && told.upto > after;
        if is_whole && body.len() + NUMBER_BYTES_MAX <= MESSAGE_BYTES_MAX {
            let is_it = |kept: &PassedAnswer| {
                let is_same = kept.pubend == pubend && kept.after == after && kept.entries == entries;
                is_same && kept.domains.is_within(&domains)
            };
            if let Some(known) = self.kept.iter().position(is_it).and_then(|at| self.kept.remove(at)) {
                self.bytes -= known.cost();
            }
            let upto = told.upto.min(upto);
            let kept = PassedAnswer {
                pubend,
                after,
                upto,
                entries,
                domains,
                at: now,
                incarnation: from.incarnation,
                body: body.into(),
            };
            self.bytes += kept.cost();
            self.kept.push_back(kept);
        }
        self.forget_old(now);
        // Older ones have been repeated by now.
        waiting.retain(|waiting| now.since(waiting.at) < MERGE_FOR);
        waiting
    }
}

impl Overlay {
    fn send_on(&mut self, now: Time, message: &MessageFrame<'_>, out: &mut dyn Output) -> bool {
        self.net.pass_on_message(now, message, out)
    }
}

impl Broker {
    /// Passes a message on, unless it is a question that is answered here, now or within a moment.
    pub(super) fn pass_message(&mut self, now: Time, message: &MessageFrame<'_>, out: &mut dyn Output) {
        let by = Sender { host: message.from, incarnation: message.incarnation };
        if message.kind == BrokerMessage::READ_ASK
            && message.body.len() <= QUESTION_BYTES_MAX
            && let Ok(BrokerMessage::ReadAsk(ask)) = BrokerMessage::decode(message.kind, message.body)
            && ask.pubend.host() == message.to
        {
            return self.pass_question(now, (by, message.hops, true), &ask, out);
        }
        if message.kind == BrokerMessage::READ_TOLD
            && let Ok(BrokerMessage::ReadTold(told)) = BrokerMessage::decode(message.kind, message.body)
        {
            self.answer_passes(now, message.to, by, (&told, message.body), out);
        }
        self.overlay.send_on(now, message, out);
    }

    /// Answers a question, of this broker or another one, from a kept answer; or lets it wait for
    /// an answer under way; or passes it on to the log, up to the next part that is kept or under
    /// way.
    pub(super) fn pass_question(
        &mut self,
        now: Time,
        (by, hops, may_wait): (Sender, u8, bool),
        ask: &ReadAsk<'_>,
        out: &mut dyn Output,
    ) {
        let mut ask = ask.clone();
        if ask.entries.iter().all(|(filter, _)| TopicFilter::new(filter).is_ok()) {
            if ask.may_be_kept && self.answer_kept(now, by, &ask, out) {
                return;
            }
            let overlay = &mut self.overlay;
            let domains = overlay.net.domains().of(by.host);
            if ask.may_be_kept {
                if may_wait && overlay.logs.passing.merge(now, (by, hops, &domains), &ask) {
                    overlay.stats.reads_merged += 1;
                    return;
                }
                ask.upto = overlay.logs.passing.lacks_upto(now, &ask);
            }
            overlay.logs.passing.record_question(now, by.host, domains, &ask);
        }
        let to = ask.pubend.host();
        if self.overlay.net.host() == by.host {
            self.send_to(now, to, (&BrokerMessage::ReadAsk(ask), false), out);
            return;
        }
        let mut body = Vec::new();
        let kind = BrokerMessage::ReadAsk(ask).encode(&mut body);
        let Sender { host: from, incarnation } = by;
        let label = DomainLabel::ANY;
        let message = MessageFrame { to, hops, is_bulk: false, from, incarnation, kind, label, body: &body };
        self.overlay.send_on(now, &message, out);
    }

    /// Answers a question from a kept answer, if there is one. If there is no room on the path, the
    /// question will be repeated; the log could not answer there either.
    fn answer_kept(&mut self, now: Time, by: Sender, ask: &ReadAsk<'_>, out: &mut dyn Output) -> bool {
        let is_any = fault!(self, KeptForAll);
        let overlay = &mut self.overlay;
        overlay.logs.passing.forget_old(now);
        let domains = overlay.net.domains().of(by.host);
        let Some(kept) = overlay.logs.passing.find(ask, &domains, is_any) else { return false };
        let (body, at, upto) = (kept.body.clone(), kept.at, kept.upto.min(ask.upto));
        let log = Sender { host: kept.pubend.host(), incarnation: kept.incarnation };
        let Ok(BrokerMessage::ReadTold(mut told)) = BrokerMessage::decode(BrokerMessage::READ_TOLD, &body) else {
            return false;
        };
        let mut entries = wanted(&ask.entries);
        let is_told = |(tick, bytes): &(Tick, &[u8])| {
            // Invalid events are left in: the asker refuses them.
            let makes_sense = |accepted: &AcceptedEvent<'_>| TopicName::new(accepted.event.topic).is_ok();
            let accepted = compact::read(bytes, EventId { pubend: ask.pubend, tick: *tick }).ok().filter(makes_sense);
            let is_inside = *tick > ask.after && *tick <= upto;
            is_inside && accepted.is_none_or(|accepted| is_wanted(&mut entries, accepted))
        };
        told.events.retain(is_told);
        // The log knows what to tell in place of events that the asker is not to get from here.
        let Some(label) = self.label_for(by.host, &told) else { return false };
        let overlay = &mut self.overlay;
        (told.number, told.upto) = (ask.number, upto);
        // The kept events age.
        told.now = told.now.saturating_add(u64::try_from(now.since(at).as_nanos()).unwrap_or(u64::MAX));
        let count = told.events.len() as u64;
        let is_own = by.host == overlay.net.host();
        let is_told = is_own || {
            let mut body = Vec::new();
            let kind = BrokerMessage::ReadTold(told.clone()).encode(&mut body);
            let (to, from, incarnation) = (by.host, log.host, log.incarnation);
            let label = DomainLabel::checked(&label);
            let message = MessageFrame { to, hops: 0, is_bulk: true, from, incarnation, kind, label, body: &body };
            overlay.net.send_as(now, &message, out)
        };
        if is_told {
            overlay.stats.reads_kept += 1;
            overlay.stats.events_kept += count;
        }
        if is_own {
            self.read_told(now, log, &told);
        }
        true
    }

    /// The label of all events of an answer; `None` if it has no path to the asker over brokers
    /// that may carry them.
    fn label_for(&mut self, asker: HostId, told: &ReadTold<'_>) -> Option<Box<str>> {
        let net = &mut self.overlay.net;
        let labels = told.events.iter().map(|(_, bytes)| compact::label(bytes)).filter(|label| !label.is_any());
        let joined = labels.clone().try_fold(Box::<str>::default(), |joined, label| {
            let is_joined = *joined == *label.as_str();
            if is_joined { Some(joined) } else { DomainLabel::checked(&joined).joined(label) }
        });
        let joined =
            joined.filter(|joined| joined.is_empty() || net.domains().reaches(DomainLabel::checked(joined), asker));
        if joined.is_none() {
            net.domains().record_refusal(DomainPlace::KeptRead);
        }
        joined
    }

    /// Handles an answer, for this broker or another: it is kept, and the questions that waited for
    /// it are answered.
    pub(super) fn answer_passes(
        &mut self,
        now: Time,
        to: HostId,
        log: Sender,
        (told, body): (&ReadTold<'_>, &[u8]),
        out: &mut dyn Output,
    ) {
        for WaitingQuestion { by, hops, body, .. } in self.overlay.logs.passing.keep(now, to, log, (told, body)) {
            if let Ok(BrokerMessage::ReadAsk(ask)) = BrokerMessage::decode(BrokerMessage::READ_ASK, &body) {
                self.pass_question(now, (by, hops, false), &ask, out);
            }
        }
    }
}
