//! The format of a map's record: a varint, length of the key × 4 + kind; the key; the value to the
//! end of the record.

use crate::wire::{Bytes, VARINT_MAX, put_varint};

/// Kinds of records. The other two are for later versions.
const PUT: u64 = 0;
const REMOVE: u64 = 1;

/// Most bytes before the key.
pub const RECORD_HEAD: usize = VARINT_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub key: &'a [u8],
    /// `None`: the key was removed.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Encodes the bytes before the key.
    pub(super) fn head(self, out: &mut Vec<u8>) {
        let kind = if self.value.is_some() { PUT } else { REMOVE };
        out.clear();
        put_varint(out, (self.key.len() as u64) << 2 | kind);
    }

    /// Parses a record. `None`: its kind is unknown, or it is malformed.
    pub(super) fn parse(record: &'a [u8]) -> Option<Record<'a>> {
        let mut bytes = Bytes(record);
        let head = bytes.varint()?;
        let key = bytes.take(usize::try_from(head >> 2).ok()?)?;
        match head & 3 {
            PUT => Some(Record { key, value: Some(bytes.0) }),
            REMOVE if bytes.is_empty() => Some(Record { key, value: None }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_others_are_not_understood() {
        for key in [vec![], b"key".to_vec(), vec![7; 70_000]] {
            for value in [None, Some(&b""[..]), Some(b"value")] {
                let record = Record { key: &key, value };
                let mut bytes = Vec::new();
                record.head(&mut bytes);
                assert!(bytes.len() <= RECORD_HEAD);
                bytes.extend_from_slice(&key);
                bytes.extend_from_slice(value.unwrap_or_default());
                assert_eq!(Record::parse(&bytes), Some(record));
            }
        }
        assert_eq!(Record::parse(b""), None);
        assert_eq!(Record::parse(&[5 << 2, b'k']), None, "the key is cut");
        assert_eq!(Record::parse(&[1 << 2 | 1, b'k', b'v']), None, "a removal has no value");
        assert_eq!(Record::parse(&[1 << 2 | 2, b'k']), None);
        assert_eq!(Record::parse(&[1 << 2 | 3, b'k']), None);
    }
}
