//! Numbers as bytes. All fixed numbers are little endian.

use crc32fast::Hasher;

/// Most bytes of a variable-length number.
pub(crate) const VARINT_MAX: usize = 10;

/// The first input of a checksum: it ties bytes to one use of one segment of one journal, so that
/// bytes from an earlier use of the file are not taken for valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(journal: u64, segment: u64) -> Salt {
        let mut hasher = Hasher::new();
        hasher.update(&journal.to_le_bytes());
        hasher.update(&segment.to_le_bytes());
        Salt(hasher.finalize())
    }

    /// The checksum of these bytes, in order.
    pub(crate) fn sum(self, parts: &[&[u8]]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

/// Appends a number, seven bits per byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number of bytes that [`put_varint`] appends.
pub(crate) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads numbers and bytes in order. `None` means that there are too few bytes, or that they are
/// malformed.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for index in 0..VARINT_MAX {
            let byte = *self.take(1)?.first()?;
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_MAX - 1 && bits > 1 {
                return None;
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn small(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            assert_eq!(out.len(), varint_len(number), "{number}");
            let mut bytes = Bytes(&out);
            assert_eq!((bytes.varint(), bytes.is_empty()), (Some(number), true));
            assert_eq!(Bytes(&out[..out.len() - 1]).varint(), None);
        }
        assert_eq!(Bytes(&[0xff; 11]).varint(), None, "more than 64 bits");
        let last = |byte| Bytes(&[[0x80; VARINT_MAX - 1].as_slice(), &[byte]].concat()).varint();
        assert_eq!([0, 1, 2, 0x7e].map(last), [Some(0), Some(1 << 63), None, None]);
    }
}
