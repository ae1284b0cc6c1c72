//! The names of events, parsed without the broker's code: a check must not share the broker's
//! mistakes.

/// The digits of a name, by their values.
const DIGITS: &[u8] = b"ghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdef-_";

/// The stream and the tick in a `w-id`, or in the form before 0.2, hexadecimal and decimal; `None`:
/// the text is not a name.
pub fn event_name(text: &str) -> Option<(u64, u64)> {
    let (stream, tick) = text.split_once(':')?;
    if let Some(name) = number(stream).zip(number(tick)) {
        return Some(name);
    }
    let is_plain = |text: &str, digit: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(digit);
    let is_old = is_plain(stream, u8::is_ascii_hexdigit) && is_plain(tick, u8::is_ascii_digit);
    u64::from_str_radix(stream, 16).ok().zip(tick.parse().ok()).filter(|_| is_old)
}

fn number(text: &str) -> Option<u64> {
    if text.len() != 11 {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, digit| {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        number.checked_mul(64)?.checked_add(value as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::event_name;

    #[test]
    fn a_name_is_two_numbers_of_eleven_digits() {
        assert_eq!(event_name("gggggggggWe:v__________"), Some((0xabc, u64::MAX)));
        assert_eq!(event_name("abc:1"), Some((0xabc, 1)), "of 0.1");
        for text in [
            "",
            "+abc:1",
            "abc:-1",
            ":",
            "gggggggggWe",
            "gggggggggWe:gggggggggW",
            "wgggggggggg:ggggggggggg",
            "gggg gggggg:ggggggggggg",
        ] {
            assert_eq!(event_name(text), None, "{text}");
        }
    }
}
