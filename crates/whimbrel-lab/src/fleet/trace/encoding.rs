//! Text in the encodings of recordings.

use std::borrow::Cow;

/// The characters of the bytes 0x80 to 0x9f in windows-1252. The rest of it is ISO 8859-1, whose
/// characters have the numbers of their bytes. Unassigned bytes are control characters, as in the
/// WHATWG's standard.
const WINDOWS_1252: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2c6}', '\u{2030}',
    '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}',
    '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}',
    '\u{17e}', '\u{178}',
];

/// The bytes in which the encoding of an XML document is declared, at most.
const DECLARATION_MAX: usize = 256;

/// The text of an XML document: UTF-8, UTF-16 with a byte order mark, or the encoding of its
/// declaration (XML 1.0, 4.3.3).
///
/// # Errors
/// Tells the mistake: an encoding other than these, ISO 8859-1 and windows-1252, or bytes that are
/// not as declared.
pub fn xml(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    if let Some(text) = utf_16(bytes) {
        return text.map(Cow::Owned);
    }
    let declared = declared(bytes).unwrap_or_else(|| "utf-8".to_owned());
    match &*declared {
        "utf-8" | "us-ascii" | "ascii" => {
            let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
            Ok(text.trim_start_matches('\u{feff}').into())
        }
        "iso-8859-1" | "latin1" | "windows-1252" | "cp1252" => {
            Ok(Cow::Owned(bytes.iter().map(|&byte| single(byte)).collect()))
        }
        _ => Err(format!("its encoding {declared:?} is not supported; save it as UTF-8")),
    }
}

fn single(byte: u8) -> char {
    match byte {
        0x80..0xa0 => WINDOWS_1252[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// The encoding in an XML declaration, in lower case.
fn declared(bytes: &[u8]) -> Option<String> {
    let head = bytes.strip_prefix(b"<?xml")?;
    let head: String = head.iter().take(DECLARATION_MAX).map(|&byte| char::from(byte)).collect();
    let (head, _) = head.split_once("?>")?;
    let value = head.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    value[1..].split_once(quote).map(|(name, _)| name.to_ascii_lowercase())
}

/// The text after a byte order mark of UTF-16, if there is one.
pub fn utf_16(bytes: &[u8]) -> Option<Result<String, String>> {
    let (rest, unit): (_, fn([u8; 2]) -> u16) = match bytes {
        [0xff, 0xfe, rest @ ..] => (rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => (rest, u16::from_be_bytes),
        _ => return None,
    };
    let (pairs, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() {
        return Some(Err("it is UTF-16 and ends in the middle of a character".to_owned()));
    }
    let text: Result<String, _> = char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect();
    Some(text.map_err(|_| "it begins as UTF-16 and is none further on".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_tells_the_encoding() {
        for (bytes, text) in [
            (&b"<a/>"[..], Ok("<a/>")),
            (b"\xef\xbb\xbf<a/>", Ok("<a/>")),
            (
                b"<?xml version='1.0' encoding='ISO-8859-1'?>\xdf\x80",
                Ok("<?xml version='1.0' encoding='ISO-8859-1'?>\u{df}\u{20ac}"),
            ),
            (b"<?xml encoding = \"windows-1252\" ?>\xe9", Ok("<?xml encoding = \"windows-1252\" ?>\u{e9}")),
            (b"<?xml encoding='UTF-8'?>\xc3\x9f", Ok("<?xml encoding='UTF-8'?>\u{df}")),
            (b"\xff\xfe<\0\xdf\0", Ok("<\u{df}")),
            (b"\xfe\xff\0<\0\xdf", Ok("<\u{df}")),
            (b"\xdf", Err("not UTF-8")),
            (b"<?xml encoding='EBCDIC'?>", Err("its encoding \"ebcdic\" is not supported; save it as UTF-8")),
            (b"\xff\xfe<", Err("ends in the middle")),
            (b"\xff\xfe\0\xd8", Err("none further on")),
        ] {
            match (xml(bytes), text) {
                (Ok(read), Ok(text)) => assert_eq!(read, text),
                (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
                (read, _) => panic!("{bytes:02x?}: {read:?}"),
            }
        }
    }
}
