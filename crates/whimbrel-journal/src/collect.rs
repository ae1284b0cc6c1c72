//! Operations collected for the next commit, and the changes that a commit makes.

use crate::frame::{Kind, SECTION_ROOM, Section};
use crate::types::{StreamId, Tick};
use crate::wire::{Bytes, put_varint, varint_len};

/// Section bodies kept for the next batch so that it need not allocate; their capacity together is
/// at most two batches.
const POOL_MAX: usize = 64;

/// A change by a control entry, in force once the entry is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Born { stream: u32, id: StreamId },
    Chop { stream: u32, upto: Tick },
    Reserve { stream: u32, upto: Tick },
    Remove { stream: u32 },
}

impl Effect {
    fn fields(self) -> (u64, u32, [u64; 2]) {
        match self {
            Effect::Born { stream, id } => (0, stream, [u64::from(id.kind), id.id]),
            Effect::Chop { stream, upto } => (1, stream, [upto, 0]),
            Effect::Reserve { stream, upto } => (2, stream, [upto, 0]),
            Effect::Remove { stream } => (3, stream, [0, 0]),
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        let (operation, stream, fields) = self.fields();
        put_varint(out, u64::from(stream) << 2 | operation);
        fields.iter().for_each(|field| put_varint(out, *field));
    }

    fn cost(self) -> usize {
        let (_, stream, fields) = self.fields();
        varint_len(u64::from(stream) << 2) + fields.iter().map(|field| varint_len(*field)).sum::<usize>()
    }

    /// Decodes the entries of a control section. The checksum was right, so that only a defect can
    /// make this fail.
    pub(crate) fn decode(body: &[u8]) -> Vec<Effect> {
        let mut bytes = Bytes(body);
        let mut effects = Vec::new();
        while !bytes.is_empty() {
            effects.push(Effect::get(&mut bytes).expect("a whole control section is as it was written"));
        }
        effects
    }

    fn get(bytes: &mut Bytes) -> Option<Effect> {
        let tag = bytes.varint()?;
        let stream = u32::try_from(tag >> 2).ok()?;
        let [a, b] = [bytes.varint()?, bytes.varint()?];
        Some(match tag & 3 {
            0 => Effect::Born { stream, id: StreamId { kind: u32::try_from(a).ok()?, id: b } },
            1 => Effect::Chop { stream, upto: a },
            2 => Effect::Reserve { stream, upto: a },
            _ => Effect::Remove { stream },
        })
    }
}

/// Operations that will be committed together.
#[derive(Debug, Default)]
pub(crate) struct Collect {
    pub sections: Vec<Section>,
    pub effects: Vec<Effect>,
    /// Upper bound of the bytes of the record sections in the frame.
    pub bytes: usize,
    /// Bytes of one copy of the effects.
    pub control: usize,
    /// The last operation in the batch.
    pub upto: u64,
    pool: Vec<Vec<u8>>,
}

impl Collect {
    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.effects.is_empty()
    }

    /// Opens a section and returns its index.
    pub(crate) fn open(&mut self, kind: Kind, stream: u32, after: Tick) -> u32 {
        let body = self.pool.pop().unwrap_or_default();
        self.sections.push(Section::new(kind, stream, after, body));
        self.bytes += SECTION_ROOM;
        (self.sections.len() - 1) as u32
    }

    pub(crate) fn change(&mut self, effect: Effect) {
        self.control += effect.cost();
        self.effects.push(effect);
    }

    /// The bytes that this effect needs.
    pub(crate) fn cost_of(effect: Effect) -> usize {
        effect.cost()
    }

    /// Adds the control entries as sections, in two copies: their loss would concern every stream.
    pub(crate) fn close(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let mut body = Vec::with_capacity(self.control);
        self.effects.iter().for_each(|effect| effect.put(&mut body));
        self.sections.push(Section::own(Kind::Control, body.clone()));
        self.sections.push(Section::own(Kind::Control, body));
    }

    /// Empties the batch, and keeps up to `keep` bytes of its memory.
    pub(crate) fn clear(&mut self, keep: usize) {
        let mut kept: usize = self.pool.iter().map(Vec::capacity).sum();
        for section in self.sections.drain(..) {
            let mut body = section.body;
            if self.pool.len() < POOL_MAX && kept + body.capacity() <= keep {
                kept += body.capacity();
                body.clear();
                self.pool.push(body);
            }
        }
        self.effects.clear();
        (self.bytes, self.control) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> Vec<Effect> {
        let numbers = [0, 1, 127, 128, 1 << 20, u64::MAX];
        let streams = [0, 31, 32, u32::MAX];
        let pairs = streams.iter().flat_map(|stream| numbers.map(|number| (*stream, number)));
        let effects = pairs.flat_map(|(stream, number)| {
            let id = StreamId { kind: stream, id: number };
            [
                Effect::Born { stream, id },
                Effect::Chop { stream, upto: number },
                Effect::Reserve { stream, upto: number },
                Effect::Remove { stream },
            ]
        });
        effects.collect()
    }

    #[test]
    fn an_effect_takes_the_bytes_that_were_reckoned_and_comes_back() {
        for effect in effects() {
            let mut bytes = Vec::new();
            effect.put(&mut bytes);
            assert_eq!((bytes.len(), Effect::decode(&bytes)), (Collect::cost_of(effect), vec![effect]));
        }
    }

    #[test]
    fn the_control_sections_are_two_and_take_what_was_reckoned_for_each() {
        let mut collect = Collect::default();
        collect.close();
        assert!(collect.is_empty() && collect.sections.is_empty());
        effects().into_iter().for_each(|effect| collect.change(effect));
        assert!(!collect.is_empty());
        collect.close();
        let bodies: Vec<_> = collect.sections.iter().map(|section| &section.body).collect();
        assert_eq!(bodies.iter().map(|body| body.len()).collect::<Vec<_>>(), [collect.control; 2]);
        assert_eq!((bodies[0], Effect::decode(bodies[0])), (bodies[1], effects()));
    }

    #[test]
    fn memory_is_kept_up_to_a_bound() {
        let mut collect = Collect::default();
        for _ in 0..2 * POOL_MAX {
            collect.open(Kind::Fresh, 1, 0);
            collect.sections.last_mut().expect("one was opened").body.reserve_exact(100);
        }
        assert_eq!(collect.bytes, 2 * POOL_MAX * SECTION_ROOM);
        collect.clear(1050);
        assert_eq!((collect.pool.len(), collect.bytes, collect.control, collect.is_empty()), (10, 0, 0, true));
        for _ in 0..2 * POOL_MAX {
            collect.open(Kind::Fresh, 1, 0);
        }
        collect.clear(usize::MAX);
        assert_eq!(collect.pool.len(), POOL_MAX);
        assert!(collect.pool.iter().all(Vec::is_empty));
    }
}
