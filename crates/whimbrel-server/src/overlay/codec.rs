//! Compression of the streams of thin links: one zstd frame for each stream, flushed after each
//! block, so that the other end can read a block once it has all of its bytes.
//!
//! Events of a link resemble each other more than the parts of one event do, so what pays is the
//! history that a context keeps over blocks; a context of its own for each event would find little.

use tokio::sync::OwnedSemaphorePermit;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, ErrorCode, InBuffer, OutBuffer, compress_bound};

/// Bytes that are compressed at once, at most. A block is all of its bytes or nothing to the other
/// end, so on a link of 1 Mbit/s a block of this size, at a ratio of 4, holds others up by 32 ms.
pub(super) const BLOCK_MAX: usize = 16 << 10;

/// The level with the least work. Level 3 leaves more bytes of telemetry, not fewer: a test of
/// fleet positions had 16.0 % at level 1 and 17.1 % at level 3.
const LEVEL: i32 = 1;

/// Binary logarithm of the bytes of history: 64 KiB, which is hundreds of events.
const WINDOW_LOG: u32 = 16;

/// Binary logarithm of the entries of the table that finds what repeats; 4 bytes each.
const HASH_LOG: u32 = 14;

/// Bytes that a context which compresses has, at most; a test compares it with the library. One
/// that decompresses has less.
pub(super) const PACKER_BYTES_MAX: usize = 640 << 10;

/// Bytes beyond a block that its compressed form may have: the head of a frame and of blocks.
const HEADS_MAX: usize = 64;

/// Plain bytes after which it is judged whether compression pays.
const JUDGED: u64 = 128 << 10;

/// Compression pays if it saves at least one plain byte in this many.
const SAVES_ONE_IN: u64 = 10;

/// A stream that cannot be compressed, as there is no memory, or decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadStream;

/// A context that compresses one stream.
pub(super) struct Packer {
    context: CCtx<'static>,
    /// Plain and compressed bytes since it was last judged.
    judged: [u64; 2],
    pays: bool,
    /// Its place among the contexts of all links.
    _place: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("judged", &self.judged).field("pays", &self.pays).finish_non_exhaustive()
    }
}

impl Packer {
    /// A context for a new stream; `None`: there is no memory.
    pub(super) fn new(place: OwnedSemaphorePermit) -> Option<Packer> {
        let mut context = CCtx::try_create()?;
        let parameters = [
            CParameter::CompressionLevel(LEVEL),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::HashLog(HASH_LOG),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).ok()?;
        }
        Some(Packer { context, judged: [0; 2], pays: true, _place: place })
    }

    /// Adds the compressed form of a block of at most [`BLOCK_MAX`] bytes to `packed`.
    ///
    /// # Errors
    /// The library has no memory.
    pub(super) fn pack(&mut self, block: &[u8], packed: &mut Vec<u8>) -> Result<(), BadStream> {
        let began = packed.len();
        packed.resize(began + compress_bound(block.len()) + HEADS_MAX, 0);
        let mut output = OutBuffer::around_pos(&mut packed[..], began);
        let mut input = InBuffer::around(block);
        while input.pos() < block.len() {
            check(self.context.compress_stream(&mut output, &mut input))?;
        }
        // There is room for everything, so once is enough.
        let left = check(self.context.flush_stream(&mut output))?;
        let end = output.pos();
        packed.truncate(end);
        self.judge(block.len(), end - began);
        if left == 0 { Ok(()) } else { Err(BadStream) }
    }

    /// Adds the end of the stream to `packed`.
    ///
    /// # Errors
    /// The library has no memory.
    pub(super) fn end(&mut self, packed: &mut Vec<u8>) -> Result<(), BadStream> {
        let began = packed.len();
        packed.resize(began + HEADS_MAX, 0);
        let mut output = OutBuffer::around_pos(&mut packed[..], began);
        let left = check(self.context.end_stream(&mut output))?;
        let end = output.pos();
        packed.truncate(end);
        if left == 0 { Ok(()) } else { Err(BadStream) }
    }

    fn judge(&mut self, plain: usize, packed: usize) {
        let [all, rest] = &mut self.judged;
        (*all, *rest) = (*all + plain as u64, *rest + packed as u64);
        if *all >= JUDGED {
            self.pays = *rest <= *all - *all / SAVES_ONE_IN;
            self.judged = [0; 2];
        }
    }

    /// Whether compression has saved enough when it was last judged.
    pub(super) fn pays(&self) -> bool {
        self.pays
    }
}

/// A context that decompresses one stream.
///
/// Bytes can decompress to thousands of times their size: what a call hands on is bounded by its
/// output buffer, and what the context holds by the history that it accepts.
pub(super) struct Unpacker {
    context: DCtx<'static>,
    /// The stream's frame has ended.
    has_ended: bool,
    /// The context may have output without further input.
    holds: bool,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl Unpacker {
    /// A context for a new stream; `None`: there is no memory.
    pub(super) fn new() -> Option<Unpacker> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        Some(Unpacker { context, has_ended: false, holds: false })
    }

    /// Whether the context may have output without further input.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Whether the stream's frame has ended: nothing is missing.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Decompresses into `plain` as far as it goes. Returns the bytes of `packed` that were used
    /// and the plain bytes.
    ///
    /// # Errors
    /// The bytes are no such stream, ask for more history than [`WINDOW_LOG`], or go on after its
    /// end.
    pub(super) fn unpack(&mut self, packed: &[u8], plain: &mut [u8]) -> Result<(usize, usize), BadStream> {
        if self.has_ended {
            return if packed.is_empty() { Ok((0, 0)) } else { Err(BadStream) };
        }
        let room = plain.len();
        let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(plain));
        self.has_ended = check(self.context.decompress_stream(&mut output, &mut input))? == 0;
        self.holds = output.pos() == room && !self.has_ended;
        Ok((input.pos(), output.pos()))
    }
}

fn check(result: Result<usize, ErrorCode>) -> Result<usize, BadStream> {
    result.map_err(|_| BadStream)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::sync::Semaphore;

    use super::*;

    fn packer() -> Packer {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
        Packer::new(place).expect("memory")
    }

    fn json(from: usize, count: usize) -> Vec<u8> {
        let event = |at: usize| {
            let (bus, lat, speed) = (at * 7_919 % 400, at * 104_729 % 10_000, at * 31 % 600);
            format!(
                "{{\"vehicle\":\"bus-{bus}\",\"lat\":52.{lat:04},\"speed\":{}.{},\"t\":{at}}}",
                speed / 10,
                speed % 10
            )
        };
        (from..from + count).flat_map(|at| event(at).into_bytes()).collect()
    }

    /// Bytes without any pattern that compression finds.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// Decompresses what arrives in pieces of these sizes, a chunk of `room` bytes at a time.
    fn unpack(unpacker: &mut Unpacker, packed: &[u8], pieces: &[usize], room: usize) -> Result<Vec<u8>, BadStream> {
        let (mut plain, mut chunk, mut at) = (Vec::new(), vec![0; room], 0);
        let mut sizes = pieces.iter().cycle();
        while at < packed.len() || unpacker.holds() {
            let end = packed.len().min(at + sizes.next().expect("there are pieces"));
            let (used, bytes) = unpacker.unpack(&packed[at..end], &mut chunk)?;
            at += used;
            plain.extend_from_slice(&chunk[..bytes]);
        }
        Ok(plain)
    }

    proptest! {
        /// Streams of a channel, plain and compressed in turn: whatever the blocks are and however
        /// the bytes are cut on their way, the channel has the same bytes, and after each block
        /// nothing of it is missing.
        #[test]
        fn bytes_are_the_same_however_they_are_cut_and_streams_change(
            streams in vec(vec(vec(any::<u8>(), 0..600), 0..6), 1..6),
            repeats in 1..40_usize,
            pieces in vec(1..3_000_usize, 1..6),
            room in 1..70_000_usize,
        ) {
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for (number, blocks) in streams.iter().enumerate() {
                if number % 2 == 0 {
                    sent.extend(blocks.concat());
                    received.extend(blocks.concat());
                    continue;
                }
                let (mut packer, mut unpacker) = (packer(), Unpacker::new().expect("memory"));
                for block in blocks {
                    let block: Vec<u8> = block.repeat(repeats).into_iter().take(BLOCK_MAX).collect();
                    let mut packed = Vec::new();
                    packer.pack(&block, &mut packed).expect("memory");
                    sent.extend(&block);
                    received.extend(unpack(&mut unpacker, &packed, &pieces, room).expect("a sound stream"));
                    prop_assert!(sent == received, "a block is there as soon as its bytes are");
                    prop_assert!(!unpacker.has_ended());
                }
                let mut packed = Vec::new();
                packer.end(&mut packed).expect("memory");
                received.extend(unpack(&mut unpacker, &packed, &pieces, room).expect("a sound stream"));
                prop_assert!(unpacker.has_ended());
            }
            prop_assert!(sent == received);
        }

        /// No bytes of the other end lead to more than an error.
        #[test]
        fn garbage_is_an_error_or_bytes(head in 0..200_usize, garbage in vec(any::<u8>(), 1..3_000), at in 0..3_000_usize) {
            let mut packed = Vec::new();
            packer().pack(&json(0, 100), &mut packed).expect("memory");
            packed.truncate(head);
            packed.extend(&garbage);
            let at = at % packed.len();
            packed[at] ^= 0x55;
            let (mut unpacker, mut chunk) = (Unpacker::new().expect("memory"), vec![0; 4_096]);
            let mut rest = &packed[..];
            while let Ok((used, bytes)) = unpacker.unpack(rest, &mut chunk) {
                rest = &rest[used..];
                if rest.is_empty() && bytes < chunk.len() {
                    break;
                }
            }
            prop_assert!(unpacker.context.sizeof() <= PACKER_BYTES_MAX);
        }
    }

    #[test]
    fn events_become_much_smaller_and_noise_does_not_pay() {
        let mut packer = packer();
        let (mut plain, mut packed) = (0, Vec::new());
        for block in json(0, 10_000).chunks(BLOCK_MAX) {
            plain += block.len();
            packer.pack(block, &mut packed).expect("memory");
        }
        println!("{plain} bytes of events become {}", packed.len());
        assert!(packed.len() * 3 < plain, "{} of {plain}", packed.len());
        assert!(packer.pays());
        for block in noise(2 * JUDGED as usize).chunks(BLOCK_MAX) {
            packer.pack(block, &mut packed).expect("memory");
        }
        assert!(!packer.pays());
    }

    #[test]
    fn contexts_have_less_memory_than_is_said() {
        let (mut packer, mut unpacker) = (packer(), Unpacker::new().expect("memory"));
        for block in json(0, 10_000).chunks(BLOCK_MAX) {
            let mut packed = Vec::new();
            packer.pack(block, &mut packed).expect("memory");
            unpack(&mut unpacker, &packed, &[1_200], 64 << 10).expect("a sound stream");
        }
        let (packer, unpacker) = (packer.context.sizeof(), unpacker.context.sizeof());
        println!("a context has {packer} bytes to compress, {unpacker} to decompress");
        assert!(packer <= PACKER_BYTES_MAX && unpacker <= PACKER_BYTES_MAX);
    }

    #[test]
    fn more_history_than_a_context_has_is_refused() {
        let mut packer = packer();
        packer.context.set_parameter(CParameter::WindowLog(WINDOW_LOG + 1)).expect("a context that is new");
        let mut packed = Vec::new();
        packer.pack(&json(0, 100), &mut packed).expect("memory");
        let mut unpacker = Unpacker::new().expect("memory");
        assert_eq!(unpack(&mut unpacker, &packed, &[1_200], 64 << 10), Err(BadStream));
    }

    #[test]
    fn nothing_may_follow_the_end() {
        let (mut packer, mut unpacker) = (packer(), Unpacker::new().expect("memory"));
        let mut packed = Vec::new();
        packer.pack(b"last", &mut packed).expect("memory");
        packer.end(&mut packed).expect("memory");
        assert_eq!(unpack(&mut unpacker, &packed, &[1], 64), Ok(b"last".to_vec()));
        assert_eq!(unpacker.unpack(b"", &mut [0; 8]), Ok((0, 0)));
        assert_eq!(unpacker.unpack(b"more", &mut [0; 8]), Err(BadStream));
    }
}
