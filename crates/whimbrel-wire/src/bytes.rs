//! Numbers, texts and lists as bytes.
//!
//! A varint has seven bits per byte, lowest first; the highest bit is set if more bytes follow. It
//! takes no more bytes than needed (LEB128). Ids and times have eight bytes, little endian, as they
//! would take nine as varints.

use whimbrel_event::{EventId, HostId, PubendId, Tick};

use crate::Invalid;

/// Bytes of the longest varint.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// The rest of the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Invalid> {
        let (here, rest) = self.0.split_at_checked(bytes).ok_or(Invalid::Truncated)?;
        self.0 = rest;
        Ok(here)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let (here, rest) = self.0.split_first_chunk().ok_or(Invalid::Truncated)?;
        self.0 = rest;
        Ok(*here)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Invalid> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A byte that is 0 or 1.
    pub(crate) fn bool(&mut self, what: &'static str) -> Result<bool, Invalid> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Invalid::Form(what)),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Invalid> {
        let mut value = 0;
        for at in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if at == VARINT_BYTES_MAX - 1 && bits > 1 {
                return Err(Invalid::Number);
            }
            value |= bits << (7 * at);
            if byte < 0x80 {
                return if byte == 0 && at > 0 { Err(Invalid::Number) } else { Ok(value) };
            }
        }
        Err(Invalid::Number)
    }

    /// A varint that fits into another type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, Invalid> {
        T::try_from(self.varint()?).map_err(|_| Invalid::Range(what))
    }

    pub(crate) fn zigzag(&mut self) -> Result<i64, Invalid> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Invalid> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn tick(&mut self) -> Result<Tick, Invalid> {
        Ok(Tick(self.u64()?))
    }

    pub(crate) fn host(&mut self) -> Result<HostId, Invalid> {
        let bits = self.u64()?;
        let host = HostId::new(bits);
        if host.as_u64() == bits { Ok(host) } else { Err(Invalid::Form("a host id")) }
    }

    pub(crate) fn event_id(&mut self) -> Result<EventId, Invalid> {
        Ok(EventId { pubend: PubendId(self.u64()?), tick: self.tick()? })
    }

    /// Bytes behind a varint of their number.
    pub(crate) fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], Invalid> {
        let length = self.small(what)?;
        self.part(length, max, what)
    }

    fn part(&mut self, length: usize, max: usize, what: &'static str) -> Result<&'a [u8], Invalid> {
        if length > max { Err(Invalid::TooMany(what)) } else { self.take(length) }
    }

    /// As [`Reader::bytes`], or `None`. The number before them is one greater than their length; 0
    /// is `None`.
    pub(crate) fn maybe_bytes(&mut self, max: usize, what: &'static str) -> Result<Option<&'a [u8]>, Invalid> {
        match self.small::<usize>(what)? {
            0 => Ok(None),
            length => self.part(length - 1, max, what).map(Some),
        }
    }

    pub(crate) fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, Invalid> {
        text(self.bytes(max, what)?, what)
    }

    pub(crate) fn name(&mut self) -> Result<&'a str, Invalid> {
        let name = self.text(crate::NAME_BYTES_MAX, "a broker's name")?;
        if crate::is_name(name) { Ok(name) } else { Err(Invalid::Text("a broker's name")) }
    }

    /// A list behind the number of its entries, each of which takes at least one byte; so the
    /// allocation is bounded by the input.
    pub(crate) fn list<T>(
        &mut self,
        max: usize,
        what: &'static str,
        mut entry: impl FnMut(&mut Self) -> Result<T, Invalid>,
    ) -> Result<Vec<T>, Invalid> {
        let count: usize = self.small(what)?;
        if count > max {
            return Err(Invalid::TooMany(what));
        }
        if count > self.0.len() {
            return Err(Invalid::Truncated);
        }
        // Grows with the entries read, so that a count alone allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }
}

pub(crate) fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, Invalid> {
    core::str::from_utf8(bytes).map_err(|_| Invalid::Text(what))
}

/// The varint of `value`, and the number of bytes of the array that it takes.
#[inline]
pub(crate) fn varint(mut value: u64) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut at = 0;
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    (bytes, at + 1)
}

/// Number of bytes that [`varint`] takes for a length.
pub(crate) fn length_bytes(length: usize) -> usize {
    varint(length as u64).1
}

/// Writes at the end of a buffer.
pub(crate) trait Put {
    fn put_varint(&mut self, value: u64);
    fn put_zigzag(&mut self, value: i64);
    fn put_u64(&mut self, value: u64);
    fn put_event_id(&mut self, id: EventId);
    fn put_bytes(&mut self, bytes: &[u8], max: usize, what: &'static str);
    fn put_maybe_bytes(&mut self, bytes: Option<&[u8]>, max: usize, what: &'static str);
    fn put_name(&mut self, name: &str);
    fn put_list<T>(&mut self, list: &[T], max: usize, what: &'static str, entry: impl FnMut(&mut Self, &T));
}

impl Put for Vec<u8> {
    #[inline]
    fn put_varint(&mut self, value: u64) {
        let (bytes, count) = varint(value);
        self.extend_from_slice(&bytes[..count]);
    }

    fn put_zigzag(&mut self, value: i64) {
        self.put_varint((value << 1 ^ value >> 63) as u64);
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_event_id(&mut self, id: EventId) {
        self.put_u64(id.pubend.0);
        self.put_u64(id.tick.0);
    }

    fn put_bytes(&mut self, bytes: &[u8], max: usize, what: &'static str) {
        assert!(bytes.len() <= max, "{what} has at most {max} bytes");
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    fn put_maybe_bytes(&mut self, bytes: Option<&[u8]>, max: usize, what: &'static str) {
        let Some(bytes) = bytes else { return self.push(0) };
        assert!(bytes.len() <= max, "{what} has at most {max} bytes");
        self.put_varint(bytes.len() as u64 + 1);
        self.extend_from_slice(bytes);
    }

    fn put_name(&mut self, name: &str) {
        assert!(crate::is_name(name), "a broker's name was checked where it was configured");
        self.put_bytes(name.as_bytes(), crate::NAME_BYTES_MAX, "a broker's name");
    }

    fn put_list<T>(&mut self, list: &[T], max: usize, what: &'static str, mut entry: impl FnMut(&mut Self, &T)) {
        assert!(list.len() <= max, "there are at most {max} of {what}");
        self.put_varint(list.len() as u64);
        for each in list {
            entry(self, each);
        }
    }
}
