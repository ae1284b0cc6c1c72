//! Base64 with the alphabet for URLs and file names (RFC 4648, section 5), without padding.

use super::InvalidToken;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(6));
    for group in bytes.chunks(3) {
        let bits = group.iter().zip([16, 8, 0]).fold(0, |bits, (&byte, shift)| bits | u32::from(byte) << shift);
        for shift in [18, 12, 6, 0].into_iter().take(group.len() + 1) {
            text.push(char::from(ALPHABET[(bits >> shift) as usize & 63]));
        }
    }
    text
}

/// The bytes of this text. Surplus bits at its end, too few for a byte, must be zero, as [`encode`]
/// leaves them.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, InvalidToken> {
    let mut bytes = Vec::with_capacity(text.len() * 6 / 8);
    let (mut bits, mut count) = (0u32, 0);
    for (at, &character) in text.as_bytes().iter().enumerate() {
        bits = bits << 6 | u32::from(value(character).ok_or(InvalidToken::NotBase64(at))?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    match (count, bits) {
        (0..6, 0) => Ok(bytes),
        (0..6, _) => Err(InvalidToken::Altered),
        _ => Err(InvalidToken::Truncated),
    }
}

fn value(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_hold() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Ok(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
        assert_eq!(decode("-_8"), Ok(vec![0xfb, 0xff]));
    }

    #[test]
    fn text_that_encodes_nothing_is_refused() {
        for (text, error) in [
            ("Zg==", InvalidToken::NotBase64(2)),
            ("+/8", InvalidToken::NotBase64(0)),
            ("Zm 9v", InvalidToken::NotBase64(2)),
            ("Zé", InvalidToken::NotBase64(1)),
            ("Zm9vY", InvalidToken::Truncated),
            ("Zh", InvalidToken::Altered),
        ] {
            assert_eq!(decode(text), Err(error), "{text}");
        }
    }
}
