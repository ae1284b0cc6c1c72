//! What is to be written, until the driver takes it.

use std::collections::VecDeque;
use std::ops::Range;

use whimbrel_event::{Event, Tick};

use super::{StreamName, Write};

/// Bytes that wait to be taken, above which no more is accepted from clients.
pub(crate) const WRITE_QUEUE_BYTES_MAX: usize = 2 << 20;

/// Bytes above which a batch without an event should be ended.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Bytes that were taken and lie before those that were not, above which they are moved together.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// The place of a batch in the order of all of them since the core began: 1, 2, 3, …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchNo(pub u64);

/// A range of [`WriteQueue::bytes`], counted from the first byte that ever was in it.
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

/// Atoms in the order in which they were made; what is added belongs to the next one until
/// [`WriteQueue::seal`].
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    batches: VecDeque<BatchHead>,
    ops: VecDeque<Op>,
    bytes: Vec<u8>,
    /// What `bytes[0]` is counted as.
    base: u64,
    /// The number of the last batch.
    last: u64,
    /// The number of the last batch that was taken.
    taken: u64,
    /// Of the batches that were not taken.
    weight: usize,
    open_ops: usize,
    open_weight: usize,
    open_event: bool,
    /// Nothing is taken any more.
    is_closed: bool,
}

impl BatchNo {
    /// What is never durable: the log has failed.
    pub(crate) const NEVER: BatchNo = BatchNo(u64::MAX);
}

impl WriteQueue {
    /// The last batch that was made and not refused.
    pub(crate) fn last(&self) -> BatchNo {
        self.batches.back().map_or(BatchNo(self.taken), |head| head.number)
    }

    /// The batch that what is added now will belong to.
    pub(crate) fn next(&self) -> BatchNo {
        BatchNo(self.last + 1)
    }

    /// What was added so far is a batch if it is large: what belongs together must be added between
    /// two calls.
    pub(crate) fn seal_large(&mut self) {
        if self.open_weight > BATCH_BYTES_MAX {
            self.seal();
        }
    }

    /// More waits to be taken than should.
    pub(crate) fn is_congested(&self) -> bool {
        self.weight > WRITE_QUEUE_BYTES_MAX
    }

    /// All batches have been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Something was added since the last batch was made.
    pub(crate) fn is_open(&self) -> bool {
        self.open_ops > 0
    }

    fn add(&mut self, op: Op, weight: usize) {
        self.ops.push_back(op);
        self.open_ops += 1;
        self.open_weight += weight;
    }

    /// Appends what `write` writes.
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

    /// Adds another record; gives its bytes.
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

    /// Gives up a part of a stream, before everything that waits if that `is_urgent`: then nothing
    /// of it may need it.
    pub(crate) fn chop(&mut self, stream: StreamName, upto: Tick, is_urgent: bool) {
        if is_urgent && !self.is_closed {
            // Nobody waits for it: it counts as what was taken before it.
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

    /// What was added since the last time is a batch; without any, there is none, and the last one
    /// is given.
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

    /// Whether the driver has taken that batch, or it was dropped before.
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

    /// The log has failed: what waits is dropped, and so is everything that comes.
    pub(crate) fn close(&mut self) {
        let WriteQueue { last, taken, base, .. } = *self;
        *self = WriteQueue { is_closed: true, last, taken, base, ..WriteQueue::default() };
    }

    /// Gives the memory of taken bytes to what comes.
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

    /// Drops the batches with events that were not taken, and tells which, ascending.
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
    /// Where its bytes begin, if it has some.
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
    /// Its place in the order of all.
    pub fn number(&self) -> BatchNo {
        self.head.number
    }

    /// Whether it appends an event.
    pub fn has_event(&self) -> bool {
        self.head.has_event
    }

    /// What it writes, in order.
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
