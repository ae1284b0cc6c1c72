//! Number literals, as in the Java Language Specification, sections 3.10.1 and 3.10.2.

use super::error::excerpt;
use super::lexer::Kind;

/// Reads a number without sign.
///
/// # Errors
/// The mistake.
pub(super) fn parse(run: &str) -> Result<Kind<'static>, String> {
    let lower = run.to_ascii_lowercase();
    let (radix, digits) = match (lower.get(..2), lower.get(2..)) {
        (Some("0x"), Some(digits)) => (16, digits),
        (Some("0b"), Some(digits)) => (2, digits),
        _ => (10, lower.as_str()),
    };
    let digits = without_underscores(digits, radix).ok_or_else(|| malformed(run))?;
    if radix == 16 && digits.contains(['p', '.']) {
        return hexadecimal_double(&digits).map_or_else(|| Err(malformed(run)), |value| finite(run, value));
    }
    let integer = digits.strip_suffix('l').unwrap_or(&digits);
    if !integer.is_empty() && integer.chars().all(|c| c.is_digit(radix)) {
        return parse_integer(run, integer, radix);
    }
    if radix != 10 {
        return Err(malformed(run));
    }
    let double = digits.strip_suffix(['f', 'd']).unwrap_or(&digits);
    double.parse().map_or_else(|_| Err(malformed(run)), |value| finite(run, value))
}

fn malformed(run: &str) -> String {
    format!("{} is no number", excerpt(run))
}

fn finite(run: &str, value: f64) -> Result<Kind<'static>, String> {
    if value.is_finite() { Ok(Kind::Double(value)) } else { Err(format!("{} is too large for a double", excerpt(run))) }
}

fn parse_integer(run: &str, digits: &str, radix: u32) -> Result<Kind<'static>, String> {
    let octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    if octal && digits.contains(['8', '9']) {
        return Err(format!(
            "a number that begins with 0 is octal, and {} has other digits; leave out the 0",
            excerpt(run)
        ));
    }
    let radix = if octal { 8 } else { radix };
    match u64::from_str_radix(digits, radix) {
        Ok(value) if value <= 1 << 63 => Ok(Kind::Integer(value)),
        _ if radix == 10 => digits.parse().map_or_else(|_| Err(malformed(run)), |value| finite(run, value)),
        _ => finite(run, scaled(digits.bytes(), radix.trailing_zeros(), 0)),
    }
}

/// Removes underscores, which Java allows between digits only.
fn without_underscores(digits: &str, radix: u32) -> Option<String> {
    let mut last = None;
    let mut inside = false;
    for c in digits.chars() {
        if c == '_' {
            inside = inside || last.is_some_and(|last: char| last.is_digit(radix));
            if !inside {
                return None;
            }
            continue;
        }
        if inside && !c.is_digit(radix) {
            return None;
        }
        (last, inside) = (Some(c), false);
    }
    (!inside).then(|| digits.replace('_', ""))
}

/// `<hex>[.<hex>]p<exponent>`
fn hexadecimal_double(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.split_once('p')?;
    let exponent = exponent.strip_suffix(['f', 'd']).unwrap_or(exponent);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str, radix: u32| text.chars().all(|c| c.is_digit(radix));
    let magnitude = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if (whole.is_empty() && fraction.is_empty()) || magnitude.is_empty() {
        return None;
    }
    if !are_digits(whole, 16) || !are_digits(fraction, 16) || !are_digits(magnitude, 10) {
        return None;
    }
    // Beyond this bound the result is 0 or infinite for any mantissa, which has at most 8 KB.
    let magnitude: i64 = magnitude.parse().unwrap_or(i64::MAX).min(1 << 20);
    let exponent = if exponent.starts_with('-') { -magnitude } else { magnitude };
    let fraction_digits = i64::try_from(fraction.len()).ok()?;
    Some(scaled(whole.bytes().chain(fraction.bytes()), 4, exponent - 4 * fraction_digits))
}

/// Digits of `bits` bits each, times 2 to the `exponent`. Rounded to nearest once, and a second
/// time if the result is subnormal.
fn scaled(digits: impl Iterator<Item = u8>, bits: u32, mut exponent: i64) -> f64 {
    let mut value = 0_u64;
    for digit in digits {
        let digit = u64::from(char::from(digit).to_digit(16).unwrap_or(0));
        if value >> (63 - bits) == 0 {
            value = value << bits | digit;
        } else {
            // A digit too far right to change the value, but a digit other than 0 decides on which
            // side of a half the value is.
            value |= u64::from(digit != 0);
            exponent += i64::from(bits);
        }
    }
    let mut result = value as f64;
    while exponent != 0 && result != 0.0 && result.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        result *= 2_f64.powi(i32::try_from(step).unwrap_or(0));
        exponent -= step;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_decimal_hexadecimal_octal_or_binary() {
        for (text, value) in [
            ("0", 0),
            ("42", 42),
            ("42L", 42),
            ("42l", 42),
            ("1_000__000", 1_000_000),
            ("017", 15),
            ("0_17", 15),
            ("0x1F", 31),
            ("0Xff_ffL", 65_535),
            ("0b101", 5),
            ("0B1_1", 3),
            ("9223372036854775807", i64::MAX as u64),
            ("9223372036854775808", 1 << 63),
        ] {
            assert_eq!(parse(text), Ok(Kind::Integer(value)), "{text}");
        }
    }

    #[test]
    fn doubles_have_a_dot_an_exponent_or_a_suffix() {
        for (text, value) in [
            ("7.", 7.0),
            (".5", 0.5),
            ("7E3", 7000.0),
            ("7e-3", 0.007),
            ("7.5e+3", 7500.0),
            ("1f", 1.0),
            ("2D", 2.0),
            ("0f", 0.0),
            ("00.5", 0.5),
            ("1_0.2_5", 10.25),
            ("0x1p4", 16.0),
            ("0x1.8p1", 3.0),
            ("0x.8P+1d", 1.0),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x10000000000000801p0", 18_446_744_073_709_555_712.0),
            ("1e-400", 0.0),
        ] {
            assert_eq!(parse(text), Ok(Kind::Double(value)), "{text}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_doubles() {
        for (text, value) in [
            ("9223372036854775809", 9_223_372_036_854_775_808.0),
            ("100000000000000000000", 1e20),
            ("0xFFFFFFFFFFFFFFFF", 18_446_744_073_709_551_615.0),
            ("01777777777777777777777", 18_446_744_073_709_551_615.0),
        ] {
            assert_eq!(parse(text), Ok(Kind::Double(value)), "{text}");
        }
        assert_eq!(parse(&format!("0b1{}", "0".repeat(64))), Ok(Kind::Double(18_446_744_073_709_551_616.0)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "5x", "0x", "0xg", "0b", "0b2", "08", "09L", "1_", "1_.5", "1._5", "1e", "1e+", "1e_5", "1_e5", "1.2.3",
            "5LL", "5.L", "0x_1", "0x1.8", "0xp1", "0x1p", "0x1pf", "1e999", "0x1p1024", "1fd", "_1",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
        assert!(parse("08").unwrap_err().contains("octal"));
        assert!(parse("1e999").unwrap_err().contains("too large"));
        assert!(parse(&"9".repeat(400)).unwrap_err().contains("too large"));
    }
}
