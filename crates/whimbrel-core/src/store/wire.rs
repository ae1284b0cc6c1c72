//! Encoding of numbers and texts in the log's map. Fixed-size numbers are little endian.

use core::time::Duration;

/// Most bytes of a variable-length number.
const VARINT_MAX: usize = 10;

/// Appends a number in groups of seven bits, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the length of bytes, and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a duration in milliseconds.
pub(crate) fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    put_varint(out, u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
}

/// Reads a duration in milliseconds.
pub(crate) fn duration(bytes: &mut ByteReader<'_>) -> Option<Duration> {
    let millis = bytes.varint()?;
    Some(if millis == u64::MAX { Duration::MAX } else { Duration::from_millis(millis) })
}

/// Reads values in sequence. `None` means that there are too few bytes, or that they are not valid.
#[derive(Clone, Copy)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for index in 0..VARINT_MAX {
            let byte = self.u8()?;
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

    /// Reads a length, and the bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?.try_into().ok()?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    /// Reads all that is left as text.
    pub(crate) fn rest(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.take(self.0.len())?).ok()
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// A value of the map.
pub(crate) trait MapValue<'a>: Sized {
    /// The version that is written.
    const VERSION: u8 = 1;

    fn put(&self, out: &mut Vec<u8>);

    /// Reads what [`MapValue::put`] has written, without the version byte.
    fn read(bytes: &mut ByteReader<'a>) -> Option<Self>;

    /// Reads the form of an earlier version, without the version byte.
    fn read_older(_version: u8, _bytes: &mut ByteReader<'a>) -> Option<Self> {
        None
    }

    /// Writes the version byte and the value.
    fn put_versioned(&self, out: &mut Vec<u8>) {
        out.push(Self::VERSION);
        self.put(out);
    }

    /// Reads a whole value; `None` if it is not valid, or its version is not known.
    fn read_versioned(value: &'a [u8]) -> Option<Self> {
        let mut bytes = ByteReader(value);
        let version = bytes.u8()?;
        let read =
            if version == Self::VERSION { Self::read(&mut bytes) } else { Self::read_older(version, &mut bytes) }?;
        bytes.end()?;
        Some(read)
    }
}
