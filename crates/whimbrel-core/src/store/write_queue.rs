//! Batches that the driver has not taken yet.

use std::collections::VecDeque;
use std::ops::Range;

use whimbrel_event::{Event, Tick};

use super::{StreamName, Write};

/// Waiting bytes above which clients' publishes are no longer accepted.
pub(crate) const WRITE_QUEUE_BYTES_MAX: usize = 2 << 20;

/// Bytes above which a batch without an event should be ended.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Taken bytes in front of waiting ones above which the waiting ones are moved to the front.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// The place of a batch in the order since the core began: 1, 2, 3, …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchNo(pub u64);

/// A range of [`WriteQueue::bytes`], counted from the first byte that was ever in it.
type Span = Range<u64>;

#[derive(Debug)]
enum Op {
    Event { pubend: u8, event: Event },
    Record { stream: StreamName, tick: Tick, body: Span },
    Put { key: Span, value: Span },
    Forget { key: Span },
    Chop { stream: StreamName, upto: Tick },
    Reserve { upto: Tick },
}

#[derive(Debug)]
struct BatchHead {
    number: BatchNo,
    ops: usize,
    /// Bytes of events, records, keys and values.
    weight: usize,
    has_event: bool,
}

/// Batches in the order in which they were made; additions belong to the next one until
/// [`WriteQueue::seal`].
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    batches: VecDeque<BatchHead>,
    ops: VecDeque<Op>,
    bytes: Vec<u8>,
    /// The offset of `bytes[0]` in a [`Span`].
    base: u64,
    /// The number of the last batch.
    last: u64,
    /// The number of the last batch that was taken.
    taken: u64,
    /// Bytes of the batches that were not taken.
    weight: usize,
    open_ops: usize,
    open_weight: usize,
    open_event: bool,
    /// The log has failed: nothing is taken any more.
    is_closed: bool,
}

impl BatchNo {
    /// Stands for a batch that is never durable: the log has failed.
    pub(crate) const NEVER: BatchNo = BatchNo(u64::MAX);
}

impl WriteQueue {
    /// The last batch that was made and not refused.
    pub(crate) fn last(&self) -> BatchNo {
        self.batches.back().map_or(BatchNo(self.taken), |head| head.number)
    }

    /// The batch that the next addition belongs to.
    pub(crate) fn next(&self) -> BatchNo {
        BatchNo(self.last + 1)
    }

    /// Seals the open batch if it is large: additions that belong together must be between two
    /// calls.
    pub(crate) fn seal_large(&mut self) {
        if self.open_weight > BATCH_BYTES_MAX {
            self.seal();
        }
    }

    /// Whether more than [`WRITE_QUEUE_BYTES_MAX`] wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.weight > WRITE_QUEUE_BYTES_MAX
    }

    /// Whether all batches were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether there are additions since the last batch.
    pub(crate) fn is_open(&self) -> bool {
        self.open_ops > 0
    }

    fn add(&mut self, op: Op, weight: usize) {
        self.ops.push_back(op);
        self.open_ops += 1;
        self.open_weight += weight;
    }

    /// Appends the bytes that `write` writes.
    fn span(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.base + self.bytes.len() as u64;
        write(&mut self.bytes);
        start..self.base + self.bytes.len() as u64
    }

    pub(crate) fn event(&mut self, pubend: u8, event: Event) {
        let weight = event.packed().as_bytes().len();
        self.add(Op::Event { pubend, event }, weight);
        self.open_event = true;
    }

    /// Adds a record that is not an event; returns its bytes.
    pub(crate) fn record(&mut self, stream: StreamName, tick: Tick, body: impl FnOnce(&mut Vec<u8>)) -> usize {
        let body = self.span(body);
        let weight = (body.end - body.start) as usize;
        self.add(Op::Record { stream, tick, body }, weight);
        weight
    }

    pub(crate) fn put(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>)) {
        let (key, value) = (self.span(key), self.span(value));
        let weight = (value.end - key.start) as usize;
        self.add(Op::Put { key, value }, weight);
    }

    pub(crate) fn forget(&mut self, key: impl FnOnce(&mut Vec<u8>)) {
        let key = self.span(key);
        let weight = (key.end - key.start) as usize;
        self.add(Op::Forget { key }, weight);
    }

    /// Gives up a part of a stream. If `is_urgent`, before all waiting batches, none of which may
    /// need that part then.
    pub(crate) fn chop(&mut self, stream: StreamName, upto: Tick, is_urgent: bool) {
        if is_urgent && !self.is_closed {
            // No batch of its own: it counts as part of the last taken one.
            self.ops.push_front(Op::Chop { stream, upto });
            self.batches.push_front(BatchHead { number: BatchNo(self.taken), ops: 1, weight: 0, has_event: false });
        } else {
            self.add(Op::Chop { stream, upto }, 0);
            self.seal();
        }
    }

    pub(crate) fn reserve(&mut self, upto: Tick) {
        self.add(Op::Reserve { upto }, 0);
    }

    /// Seals the additions since the last call as a batch, and returns the last one; without
    /// additions there is no new one.
    pub(crate) fn seal(&mut self) -> BatchNo {
        let ops = core::mem::take(&mut self.open_ops);
        if self.is_closed {
            if ops > 0 {
                self.close();
                return BatchNo::NEVER;
            }
            return BatchNo(0);
        }
        if ops > 0 {
            self.last += 1;
            let (weight, has_event) = (core::mem::take(&mut self.open_weight), core::mem::take(&mut self.open_event));
            self.weight += weight;
            self.batches.push_back(BatchHead { number: BatchNo(self.last), ops, weight, has_event });
        }
        self.last()
    }

    /// The oldest batch that was not taken.
    pub(crate) fn batch(&self) -> Option<Batch<'_>> {
        assert_eq!(self.open_ops, 0, "batches are taken between two inputs");
        self.batches.front().map(|head| Batch { write_queue: self, head })
    }

    /// Whether the driver has taken a batch, or it was dropped before.
    pub(crate) fn is_taken(&self, batch: BatchNo) -> bool {
        self.batches.front().is_none_or(|oldest| batch < oldest.number)
    }

    /// The driver has taken the oldest batch.
    pub(crate) fn take(&mut self) -> BatchNo {
        let head = self.batches.pop_front().expect("a batch that was shown");
        self.ops.drain(..head.ops);
        self.weight -= head.weight;
        self.taken = head.number.0;
        self.tidy();
        head.number
    }

    /// The log has failed: drops waiting batches, and all later additions.
    pub(crate) fn close(&mut self) {
        let WriteQueue { last, taken, base, .. } = *self;
        *self = WriteQueue { is_closed: true, last, taken, base, ..WriteQueue::default() };
    }

    /// Makes the memory of taken bytes free for new ones.
    fn tidy(&mut self) {
        if self.batches.is_empty() && self.open_ops == 0 {
            self.base += self.bytes.len() as u64;
            self.bytes.clear();
        } else if self.bytes.len() > TAKEN_BYTES_MAX {
            let first = self.ops.iter().find_map(Op::begins).unwrap_or(self.base + self.bytes.len() as u64);
            let taken = (first - self.base) as usize;
            if taken > TAKEN_BYTES_MAX {
                self.bytes.drain(..taken);
                self.base = first;
            }
        }
    }

    /// Drops the batches with events that were not taken, and returns which, ascending.
    pub(crate) fn refuse_events(&mut self) -> Vec<BatchNo> {
        let mut refused = Vec::new();
        let mut ops = core::mem::take(&mut self.ops);
        let (all, kept) = (core::mem::take(&mut self.batches), &mut self.batches);
        for head in all {
            let its = ops.drain(..head.ops);
            if head.has_event {
                refused.push(head.number);
                self.weight -= head.weight;
            } else {
                self.ops.extend(its);
                kept.push_back(head);
            }
        }
        self.tidy();
        refused
    }

    fn bytes(&self, span: &Span) -> &[u8] {
        &self.bytes[(span.start - self.base) as usize..(span.end - self.base) as usize]
    }
}

impl Op {
    /// Where its bytes begin, if it has any.
    fn begins(&self) -> Option<u64> {
        match self {
            Op::Put { key: span, .. } | Op::Forget { key: span } | Op::Record { body: span, .. } => Some(span.start),
            Op::Event { .. } | Op::Chop { .. } | Op::Reserve { .. } => None,
        }
    }
}

/// Writes that are durable together or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    write_queue: &'a WriteQueue,
    head: &'a BatchHead,
}

impl<'a> Batch<'a> {
    /// Its place in the order of all batches.
    pub fn number(&self) -> BatchNo {
        self.head.number
    }

    /// Whether it appends an event.
    pub fn has_event(&self) -> bool {
        self.head.has_event
    }

    /// Its writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = Write<'a>> + use<'a> {
        let write_queue = self.write_queue;
        write_queue.ops.iter().take(self.head.ops).map(move |op| match op {
            Op::Event { pubend, event } => {
                let event = event.packed();
                Write::Event { pubend: *pubend, tick: event.id().tick, event }
            }
            Op::Record { stream, tick, body } => {
                Write::Record { stream: *stream, tick: *tick, body: write_queue.bytes(body) }
            }
            Op::Put { key, value } => Write::Put { key: write_queue.bytes(key), value: write_queue.bytes(value) },
            Op::Forget { key } => Write::Forget { key: write_queue.bytes(key) },
            Op::Chop { stream, upto } => Write::Chop { stream: *stream, upto: *upto },
            Op::Reserve { upto } => Write::Reserve { upto: *upto },
        })
    }
}
