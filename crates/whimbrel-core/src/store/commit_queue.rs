//! Events, answers and requests that wait for a batch to be durable, in the order of acceptance.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{Event, HostId, Qos, Tick};

use super::{BatchNo, SessionNo};
use crate::api::{Accepted, Link};
use crate::stream::EventOrigin;
use crate::subscription::{Asked, Written, WrittenEnd};

/// Entries above which clients' publishes are no longer accepted.
pub(crate) const COMMIT_QUEUE_MAX: usize = 65_536;

/// Bytes of waiting events above which clients' publishes are no longer accepted.
pub(crate) const COMMIT_QUEUE_BYTES_MAX: usize = 16 << 20;

/// The receiver of an answer: a link, and the number of its attachment to a session, since links
/// are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recipient {
    pub(crate) link: Link,
    pub(crate) attachment: u32,
}

/// An answer to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// [`crate::Output::accepted`].
    Accepted { tag: u16, qos: Qos, result: Accepted },
    /// A publish repeats an accepted one, by its number, or else by its tag.
    Repeat { tag: u16, qos: Qos, number: Option<u64> },
    /// [`crate::Output::completed`].
    Completed { tag: u16, known: bool },
    /// [`crate::Output::release`].
    Release { tag: u16, known: bool },
}

/// An event that has its tick and was not passed on yet.
#[derive(Debug)]
pub(crate) struct HeldEvent {
    pub(crate) event: Event,
    /// The event becomes the topic's retained message.
    pub(crate) retain: bool,
    /// The event is logged: it waits for its own batch, and not only for those before it.
    pub(crate) is_logged: bool,
    /// The publishing session. It may have ended since, and another may have its place.
    pub(crate) from: EventOrigin,
    /// The number of that session, if it is remembered.
    pub(crate) session: SessionNo,
    /// For a logged event: its publisher's own number for it, with the publisher's client id.
    pub(crate) number: Option<(Box<str>, u64)>,
    /// The publisher's link, and the tag under which acceptance is told.
    pub(crate) answer: Option<(Recipient, u16)>,
}

/// An action that waits for a batch to be durable.
#[derive(Debug)]
pub(crate) enum Wait {
    /// An event is passed on, and its publisher answered.
    Event(Box<HeldEvent>),
    /// A client is answered.
    Answer(Recipient, Answer),
    /// Subscriptions are made.
    Written(Box<Written>),
    /// Subscriptions have ended.
    WrittenEnd(Box<WrittenEnd>),
    /// A request that came after one of these is handled.
    Asked(Box<Asked>),
    /// A delivery at [`Qos::ExactlyOnce`] may be sent.
    Hand {
        /// The session's place; valid only if its number is still this one.
        session: u32,
        number: SessionNo,
        tag: u16,
    },
    /// The receipt of such a delivery is durable: the client is told to forget the tag.
    Received {
        whom: Recipient,
        /// As in [`Wait::Hand`].
        session: u32,
        number: SessionNo,
        tag: u16,
    },
    /// A client's link is uncorked: it may be told again.
    Uncork(Recipient),
    /// The handover of the session at that place, if it still has that number, to another broker is
    /// durable, with all that its client did.
    Gave { session: u32, number: SessionNo },
    /// Another broker is told, under the number of its request, that a client's session has ended,
    /// and what the client published last.
    TellEnded { to: HostId, number: u64, client: Box<str> },
    /// Ticks up to this one are reserved.
    Reserved(Tick),
    /// Another broker is told of its retention hold.
    Grant(HostId),
    /// The changed interest of another broker is put in force: this process is the owner.
    Interest(HostId),
    /// Incarnations of this broker up to this one, of which others have heard, are outbid: this
    /// process is the owner.
    Outbid(u64),
    /// SUBSCRIBEs that other brokers know of may be answered: the positions from which other
    /// brokers' logs count for them are durable.
    Covered,
}

impl Wait {
    /// The attachment that counts it among its answers.
    pub(crate) fn whom(&self) -> Option<Recipient> {
        match self {
            Wait::Event(held) => held.answer.map(|(whom, _)| whom),
            Wait::Answer(whom, _) | Wait::Uncork(whom) | Wait::Received { whom, .. } => Some(*whom),
            Wait::Written(written) => Some(written.whom()),
            Wait::WrittenEnd(written) => Some(written.whom()),
            Wait::Asked(asked) => Some(asked.whom()),
            Wait::Hand { .. } | Wait::Gave { .. } | Wait::TellEnded { .. } => None,
            Wait::Reserved(_) | Wait::Grant(_) | Wait::Interest(_) | Wait::Outbid(_) | Wait::Covered => None,
        }
    }

    /// Whether it is the answer of a refused event.
    fn is_refusal(&self) -> bool {
        matches!(self, Wait::Answer(_, Answer::Accepted { result: Accepted::Refused(_), .. }))
    }

    fn weight(&self) -> usize {
        match self {
            Wait::Event(held) => held.event.weight(),
            _ => 0,
        }
    }
}

/// Entries that wait for batches, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue {
    /// Batch numbers never descend.
    entries: VecDeque<(BatchNo, Wait)>,
    bytes: usize,
    committed: BatchNo,
}

impl CommitQueue {
    /// The last durable batch.
    pub(crate) fn committed(&self) -> BatchNo {
        self.committed
    }

    pub(crate) fn commit(&mut self, upto: BatchNo) {
        assert!(upto >= self.committed, "commits are told in order");
        self.committed = upto;
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.entries.len() > COMMIT_QUEUE_MAX || self.bytes > COMMIT_QUEUE_BYTES_MAX
    }

    /// The topics of waiting logged events that become retained messages.
    pub(crate) fn retained(&self) -> BTreeSet<String> {
        let topic = |(_, wait): &'_ (BatchNo, Wait)| match wait {
            Wait::Event(held) if held.retain && held.is_logged => Some(held.event.topic().to_owned()),
            _ => None,
        };
        self.entries.iter().filter_map(topic).collect()
    }

    /// The batch that the newest entry waits for; [`BatchNo`] 0 if there is none.
    pub(crate) fn last(&self) -> BatchNo {
        self.entries.back().map_or(BatchNo(0), |(last, _)| *last)
    }

    /// Whether other brokers wait for answers.
    pub(crate) fn has_broker_waits(&self) -> bool {
        self.entries.iter().any(|(_, wait)| matches!(wait, Wait::Gave { .. } | Wait::TellEnded { .. }))
    }

    /// Adds an entry that waits for `batch` and for everything before it.
    pub(crate) fn push(&mut self, batch: BatchNo, wait: Wait) {
        let batch = batch.max(self.last());
        self.bytes += wait.weight();
        self.entries.push_back((batch, wait));
    }

    /// Whether the oldest entry need not wait any more.
    pub(crate) fn is_due(&self) -> bool {
        self.entries.front().is_some_and(|(batch, _)| *batch <= self.committed)
    }

    /// Takes the oldest entry, if it need not wait any more.
    pub(crate) fn pop(&mut self) -> Option<Wait> {
        let (_, wait) = self.is_due().then(|| self.entries.pop_front()).flatten()?;
        self.bytes -= wait.weight();
        Some(wait)
    }

    /// Gives each entry that waits for a refused batch to `refuse`, in order: logged events whose
    /// own batch is in `refused` (ascending) and will never be durable, and all answers. What
    /// `refuse` returns keeps the entry's place, so that a client's answers stay in order; a
    /// refusal comes before all entries if nothing of its client is before it, and need not wait.
    /// Entries behind a refused event wait for the last batch before it that is not refused.
    pub(crate) fn refuse(&mut self, refused: &[BatchNo], mut refuse: impl FnMut(BatchNo, Wait) -> Option<Wait>) {
        let (mut last, mut waiting, mut at_once) = (BatchNo(0), BTreeSet::new(), VecDeque::new());
        for (batch, wait) in core::mem::take(&mut self.entries) {
            let is_refused = refused.binary_search(&batch).is_ok();
            last = if is_refused { last } else { batch };
            let wait = match wait {
                Wait::Event(held) if is_refused && held.is_logged => {
                    let wait = Wait::Event(held);
                    self.bytes -= wait.weight();
                    refuse(batch, wait)
                }
                Wait::Event(held) => Some(Wait::Event(held)),
                answer => refuse(batch, answer),
            };
            let Some(wait) = wait else { continue };
            match wait.whom().map(|whom| whom.link) {
                Some(link) if wait.is_refusal() && !waiting.contains(&link) => at_once.push_back((BatchNo(0), wait)),
                link => {
                    waiting.extend(link);
                    self.entries.push_back((last, wait));
                }
            }
        }
        at_once.append(&mut self.entries);
        self.entries = at_once;
    }

    /// Takes out all entries whose batch is not durable.
    pub(crate) fn take_unknown(&mut self) -> Vec<Wait> {
        let due = self.entries.partition_point(|(batch, _)| *batch <= self.committed);
        let unknown = self.entries.split_off(due);
        self.bytes -= unknown.iter().map(|(_, wait)| wait.weight()).sum::<usize>();
        unknown.into_iter().map(|(_, wait)| wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Refusal;

    fn answer(link: u32, tag: u16, result: Accepted) -> Wait {
        Wait::Answer(
            Recipient { link: Link(link), attachment: 1 },
            Answer::Accepted { tag, qos: Qos::AtLeastOnce, result },
        )
    }

    fn tag(wait: Option<Wait>) -> Option<u16> {
        match wait {
            Some(Wait::Answer(_, Answer::Accepted { tag, .. })) => Some(tag),
            None => None,
            other => panic!("no answer: {other:?}"),
        }
    }

    #[test]
    fn a_refusal_waits_only_for_what_its_client_waits_for() {
        let mut queue = CommitQueue::default();
        // The batch of the first is in flight; those of the others will never be written.
        queue.push(BatchNo(1), answer(1, 10, Accepted::Routed { matched: true }));
        for (batch, link, tag) in [(2, 1, 11), (3, 2, 20), (4, 2, 21)] {
            queue.push(BatchNo(batch), answer(link, tag, Accepted::Routed { matched: true }));
        }
        let refused = [2, 3, 4].map(BatchNo);
        queue.refuse(&refused, |batch, wait| match wait {
            Wait::Answer(whom, Answer::Accepted { tag, qos, .. }) if batch > BatchNo(1) => {
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result: Accepted::Refused(Refusal::LogFull) }))
            }
            other => Some(other),
        });
        assert_eq!([tag(queue.pop()), tag(queue.pop()), tag(queue.pop())], [Some(20), Some(21), None]);
        queue.commit(BatchNo(1));
        assert_eq!([tag(queue.pop()), tag(queue.pop()), tag(queue.pop())], [Some(10), Some(11), None]);
    }
}
