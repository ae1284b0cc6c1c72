//! Selectors as simulated clients use them: a few forms over the user properties that clients here
//! send, and their meaning. It is written from the standard's truth tables and shares no code with
//! the broker.

use std::fmt;

use mqtt_protocol_core::mqtt::packet::Property;

use crate::random::Random;
use crate::speech::Message;

/// The user property that carries a selector.
pub const NAME: &str = "w-selector";

/// A selector. Numbers are compared with property values, all of which are decimal numbers below
/// 100 here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Choice {
    /// `fuel` is present and greater.
    More(u64),
    /// `fuel` is present and not less: unknown is not true, negated or not.
    NotLess(u64),
    /// The first `line` is this number.
    Line(u64),
    /// There is no `line`.
    NoLine,
    /// `fuel` is in a range, or `line` is smaller: one may be unknown if the other is true.
    Either(u64, u64, u64),
    /// Both are present, and their sum is greater.
    Sum(u64),
}

impl Choice {
    /// Draws a selector.
    pub fn draw(random: &mut Random) -> Choice {
        let number = random.below(100);
        match random.below(6) {
            0 => Choice::More(number),
            1 => Choice::NotLess(number),
            2 => Choice::Line(number % 10),
            3 => Choice::NoLine,
            4 => Choice::Either(number / 2, number, random.below(50)),
            _ => Choice::Sum(number),
        }
    }

    /// Parses the text that [`Choice`] prints; `None` for any other text.
    pub fn parse(text: &str) -> Option<Choice> {
        let number = |text: &str| text.parse().ok();
        Some(match text.split(' ').collect::<Vec<_>>()[..] {
            ["fuel", ">", n] => Choice::More(number(n)?),
            ["NOT", "(fuel", "<", n] => Choice::NotLess(number(n.strip_suffix(')')?)?),
            ["line", "=", n] => Choice::Line(number(n.strip_prefix('\'')?.strip_suffix('\'')?)?),
            ["line", "IS", "NULL"] => Choice::NoLine,
            ["fuel", "BETWEEN", a, "AND", b, "OR", "line", "<", n] => {
                Choice::Either(number(a)?, number(b)?, number(n)?)
            }
            ["fuel", "+", "line", ">", n] => Choice::Sum(number(n)?),
            _ => return None,
        })
    }

    /// Whether the selector wants a message.
    pub fn wants(self, message: &Message) -> bool {
        let (fuel, line) = (value(message, "fuel"), value(message, "line"));
        match self {
            Choice::More(n) => fuel.is_some_and(|fuel| fuel > n),
            Choice::NotLess(n) => fuel.is_some_and(|fuel| fuel >= n),
            Choice::Line(n) => line == Some(n),
            Choice::NoLine => line.is_none(),
            Choice::Either(a, b, n) => {
                fuel.is_some_and(|fuel| (a..=b).contains(&fuel)) || line.is_some_and(|line| line < n)
            }
            Choice::Sum(n) => fuel.zip(line).is_some_and(|(fuel, line)| fuel + line > n),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::More(n) => write!(f, "fuel > {n}"),
            Choice::NotLess(n) => write!(f, "NOT (fuel < {n})"),
            Choice::Line(n) => write!(f, "line = '{n}'"),
            Choice::NoLine => f.write_str("line IS NULL"),
            Choice::Either(a, b, n) => write!(f, "fuel BETWEEN {a} AND {b} OR line < {n}"),
            Choice::Sum(n) => write!(f, "fuel + line > {n}"),
        }
    }
}

/// The number in the first user property of a name.
fn value(message: &Message, name: &str) -> Option<u64> {
    let mut values = message.properties.iter().filter_map(|property| match property {
        Property::UserProperty(pair) if pair.key() == name => Some(pair.val()),
        _ => None,
    });
    values.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let choice = Choice::draw(&mut random);
            assert_eq!(Choice::parse(&choice.to_string()), Some(choice), "{choice}");
        }
        assert_eq!(Choice::parse("fuel < 7"), None);
    }
}
