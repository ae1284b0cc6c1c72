//! Framing, and the field types of packets.

use super::{DecodeError, EncodeError, ReasonCode};

/// The largest remaining length that four bytes can encode.
pub const REMAINING_LENGTH_MAX: usize = 268_435_455;

/// The largest packet, bytes: first byte, four bytes of length, the body.
pub const PACKET_MAX: usize = REMAINING_LENGTH_MAX + 5;

/// The longest string or binary field, bytes.
pub const BINARY_MAX: usize = u16::MAX as usize;

/// The largest subscription identifier; the smallest is 1.
pub const SUBSCRIPTION_ID_MAX: u32 = 268_435_455;

const TRUNCATED: DecodeError = DecodeError::malformed("the packet ends within a field");
const LONG_VARIABLE_INTEGER: DecodeError = DecodeError::malformed("a variable byte integer has more than four bytes");
const PADDED_VARIABLE_INTEGER: DecodeError =
    DecodeError::malformed("a variable byte integer has more bytes than it needs");
const OVERSIZE: DecodeError =
    DecodeError { reason: ReasonCode::PACKET_TOO_LARGE, cause: "the packet is larger than the maximum packet size" };

/// One packet in a byte stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Packet type and flags.
    pub first_byte: u8,
    /// Everything after the remaining length.
    pub body: &'a [u8],
    /// The whole packet, to be consumed from the stream.
    pub whole: &'a [u8],
}

/// Cuts the first packet off a byte stream; `None` if it is not complete yet.
///
/// # Errors
/// When the length is malformed, or the packet will have more than `max` bytes; both as soon as the
/// length shows it.
#[inline]
pub fn frame(bytes: &[u8], max: usize) -> Result<Option<Frame<'_>>, DecodeError> {
    let [first_byte, rest @ ..] = bytes else { return Ok(None) };
    let Some((length, width)) = variable_integer(rest)? else { return Ok(None) };
    let header = 1 + width;
    let len = header + length as usize;
    if len > max {
        return Err(OVERSIZE);
    }
    Ok(bytes.get(..len).map(|whole| Frame { first_byte: *first_byte, body: &whole[header..], whole }))
}

/// A variable byte integer and its width in bytes; `None` if `bytes` end within it.
#[inline]
fn variable_integer(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match bytes.first() {
        Some(&byte) if byte < 0x80 => Ok(Some((u32::from(byte), 1))),
        Some(_) => long_variable_integer(bytes),
        None => Ok(None),
    }
}

fn long_variable_integer(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return if byte == 0 && i > 0 { Err(PADDED_VARIABLE_INTEGER) } else { Ok(Some((value, i + 1))) };
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(LONG_VARIABLE_INTEGER) }
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn variable_integer(&mut self) -> Result<u32, DecodeError> {
        let (value, width) = variable_integer(self.rest)?.ok_or(TRUNCATED)?;
        self.rest = &self.rest[width..];
        Ok(value)
    }

    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Reads a string; `cause` is the error for one that is not well-formed.
    pub(crate) fn text(&mut self, cause: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        match core::str::from_utf8(bytes) {
            Ok(text) if !bytes.contains(&0) => Ok(text),
            _ => Err(DecodeError::malformed(cause)),
        }
    }

    /// Checks that no byte is left.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::malformed("bytes follow after the end of the packet"))
        }
    }
}

/// Destination of encoded fields: a counter or a buffer. One function writes to both, so that size
/// and content cannot differ.
pub(crate) trait Sink {
    fn bytes(&mut self, bytes: &[u8]);

    /// Called for a field that is too long to encode. Only the counting pass uses it, and no other
    /// pass follows it then.
    fn overlong(&mut self) {}

    #[inline]
    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    #[inline]
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    fn variable_integer(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    #[inline]
    fn binary(&mut self, bytes: &[u8]) {
        match u16::try_from(bytes.len()) {
            Ok(len) => self.u16(len),
            Err(_) => self.overlong(),
        }
        self.bytes(bytes);
    }

    #[inline]
    fn text(&mut self, text: &str) {
        self.binary(text.as_bytes());
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn u8(&mut self, value: u8) {
        self.push(value);
    }
}

/// Counts the bytes that would be written.
#[derive(Default)]
pub(crate) struct Counter {
    len: usize,
    overlong: bool,
}

impl Sink for Counter {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
    }

    fn overlong(&mut self) {
        self.overlong = true;
    }
}

/// A sequence of fields.
pub(crate) trait Fields {
    fn write(&self, sink: &mut impl Sink);

    /// The number of bytes that [`Fields::write`] writes.
    fn encoded_len(&self) -> Result<u32, EncodeError> {
        let mut counter = Counter::default();
        self.write(&mut counter);
        if counter.overlong {
            return Err(EncodeError::FieldTooLong);
        }
        match u32::try_from(counter.len) {
            Ok(len) if len as usize <= REMAINING_LENGTH_MAX => Ok(len),
            _ => Err(EncodeError::PacketTooLarge),
        }
    }
}

/// Writes the length of `fields` and then `fields`, the form of a property section.
#[inline]
pub(crate) fn write_with_length(fields: &impl Fields, sink: &mut impl Sink) {
    let mut counter = Counter::default();
    fields.write(&mut counter);
    if counter.overlong || counter.len > REMAINING_LENGTH_MAX {
        sink.overlong();
    }
    sink.variable_integer(counter.len as u32);
    fields.write(sink);
}

/// Bytes of a packet whose remaining length is `len`.
pub(crate) fn packet_len(len: u32) -> usize {
    let width = match len {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    };
    1 + width + len as usize
}

/// Appends a whole packet; returns where its body begins in `out`.
#[inline]
pub(crate) fn append_packet(first_byte: u8, body: &impl Fields, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
    let len = body.encoded_len()?;
    out.reserve(packet_len(len));
    out.push(first_byte);
    out.variable_integer(len);
    let start = out.len();
    body.write(out);
    debug_assert_eq!(out.len() - start, len as usize, "what was counted is what was written");
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_cut_off_only_when_it_is_complete() {
        let bytes = [0xc0, 0, 0x30, 3, 0, 1, b'a'];
        assert_eq!(frame(&bytes, 10), Ok(Some(Frame { first_byte: 0xc0, body: &[], whole: &bytes[..2] })));
        for end in 2..bytes.len() {
            assert_eq!(frame(&bytes[2..end], 10), Ok(None));
        }
        assert_eq!(
            frame(&bytes[2..], 10),
            Ok(Some(Frame { first_byte: 0x30, body: &[0, 1, b'a'], whole: &bytes[2..] }))
        );
    }

    #[test]
    fn an_oversize_packet_is_refused_before_it_has_arrived() {
        assert_eq!(frame(&[0x30, 9], 10), Err(OVERSIZE));
        assert_eq!(frame(&[0x30, 8], 10), Ok(None));
        assert_eq!(frame(&[0x30, 0xff, 0xff, 0xff, 0x7f], 1 << 20), Err(OVERSIZE));
    }

    #[test]
    fn lengths_are_minimal_and_at_most_four_bytes() {
        assert_eq!(frame(&[0x30, 0x80, 0x00], 10), Err(PADDED_VARIABLE_INTEGER));
        assert_eq!(frame(&[0x30, 0xff, 0xff, 0xff, 0xff], 10), Err(LONG_VARIABLE_INTEGER));
        assert_eq!(frame(&[0x30, 0xff, 0xff, 0xff], 10), Ok(None));
    }

    #[test]
    fn integers_of_every_width_survive_the_way_there_and_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455] {
            let mut bytes = Vec::new();
            bytes.variable_integer(value);
            assert_eq!(packet_len(value), 1 + bytes.len() + value as usize);
            assert_eq!(Reader::new(&bytes).variable_integer(), Ok(value));
        }
    }
}
