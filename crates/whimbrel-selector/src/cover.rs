//! Covering: whether one selector being true implies that another is true, or that another is not.

use core::cmp::Ordering;

use crate::number::order;
use crate::selector::{Comparison, Condition, Field, Literal, Operand, Piece, Selector};
use crate::subject::Number;

/// The most ways for a selector to be true that are considered; a selector with more covers, and is
/// covered by, only an equal one.
const WAYS_MAX: usize = 64;

/// The most pairs of ways of two selectors that are compared; selectors with more exclude nothing.
const PAIRS_MAX: usize = 256;

/// A condition without AND, OR and NOT, and its value.
type Leaf<'c> = (&'c Condition, bool);

impl Selector {
    /// Whether every event for which `other` is true makes this selector true. `true` is certain;
    /// `false` may only mean that it could not be shown. Costs at most 64 times the length of both
    /// selectors multiplied.
    ///
    /// ```
    /// use whimbrel_selector::Selector;
    ///
    /// let wide = Selector::parse("speed > 50")?;
    /// let narrow = Selector::parse("speed BETWEEN 60 AND 70 AND line IN ('N56', '175')")?;
    /// assert!(wide.covers(&narrow) && !narrow.covers(&wide));
    /// # Ok::<(), whimbrel_selector::SelectorError>(())
    /// ```
    pub fn covers(&self, other: &Selector) -> bool {
        if self == other {
            return true;
        }
        let Some(ways) = ways(other.condition(), true) else { return false };
        ways.iter().all(|leaves| match Known::new(leaves) {
            Some(known) => known.shows(self.condition(), true),
            // This way is impossible.
            None => true,
        })
    }

    /// Whether no event makes both selectors true. `true` is certain; `false` may only mean that it
    /// could not be shown. Costs at most 256 times the length of both selectors multiplied.
    ///
    /// ```
    /// use whimbrel_selector::Selector;
    ///
    /// let slow = Selector::parse("speed < 50")?;
    /// let fast = Selector::parse("speed BETWEEN 60 AND 70 AND line IN ('N56', '175')")?;
    /// assert!(slow.excludes(&fast) && fast.excludes(&slow) && !slow.excludes(&slow));
    /// # Ok::<(), whimbrel_selector::SelectorError>(())
    /// ```
    pub fn excludes(&self, other: &Selector) -> bool {
        let (Some(mine), Some(others)) = (ways(self.condition(), true), ways(other.condition(), true)) else {
            return false;
        };
        if mine.len() * others.len() > PAIRS_MAX {
            return false;
        }
        mine.iter().all(|one| others.iter().all(|two| opposed(one, two)))
    }
}

/// Whether two ways exclude each other.
fn opposed(one: &[Leaf<'_>], two: &[Leaf<'_>]) -> bool {
    let both = [one, two].concat();
    match Known::new(&both) {
        Some(known) => both.iter().any(|(leaf, value)| known.shows(leaf, !value)),
        None => true,
    }
}

/// The ways in which `condition` can have `value`: in each way all leaves have the given values.
/// Ways may be too weak, never too strong. `None` if there are more than [`WAYS_MAX`]. The depth of
/// recursion is at most that of a selector ([`crate::DEPTH_MAX`]).
fn ways(condition: &Condition, value: bool) -> Option<Vec<Vec<Leaf<'_>>>> {
    match (condition, value) {
        (Condition::Constant(constant), _) => Some(if *constant == value { vec![Vec::new()] } else { Vec::new() }),
        (Condition::Unknown, _) => Some(Vec::new()),
        (Condition::Not(inner), _) => ways(inner, !value),
        (Condition::And(parts), true) | (Condition::Or(parts), false) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                let of_part = ways(part, value)?;
                if all.len() * of_part.len() > WAYS_MAX {
                    return None;
                }
                let mut joined = Vec::with_capacity(all.len() * of_part.len());
                for way in &all {
                    joined.extend(of_part.iter().map(|more| [&way[..], &more[..]].concat()));
                }
                all = joined;
            }
            Some(all)
        }
        (Condition::And(parts), false) | (Condition::Or(parts), true) => {
            let mut any = Vec::new();
            for part in parts {
                any.extend(ways(part, value)?);
                if any.len() > WAYS_MAX {
                    return None;
                }
            }
            Some(any)
        }
        (leaf, _) => Some(vec![vec![(leaf, value)]]),
    }
}

/// An end of an interval; `None` means that it is unbounded.
#[derive(Clone, Copy)]
struct End {
    at: Number,
    included: bool,
}

/// The known interval of an operand that is certainly a number.
struct Interval<'c> {
    of: &'c Operand,
    low: Option<End>,
    high: Option<End>,
}

/// The conclusions from given values of some leaves.
struct Known<'c> {
    leaves: &'c [Leaf<'c>],
    intervals: Vec<Interval<'c>>,
}

impl<'c> Known<'c> {
    /// `None` if the leaves contradict each other.
    fn new(leaves: &'c [Leaf<'c>]) -> Option<Self> {
        let mut known = Known { leaves, intervals: Vec::new() };
        // A true comparison shows that the operand is a number. A false one shows this only of
        // arithmetic, which is NULL for values that are not numbers; of a field it shows something
        // once the field is known to be a number.
        for certain in [true, false] {
            for (leaf, value) in leaves {
                let Some((of, op, limit)) = numeric(leaf) else { continue };
                let is_number = *value || !matches!(of, Operand::Field(_));
                if certain == is_number && (certain || known.interval(of).is_some()) {
                    known.narrow(of, op, limit, *value);
                }
            }
        }
        let contradicts = |interval: &Interval<'_>| match (interval.low, interval.high) {
            (Some(low), Some(high)) => match order(low.at, high.at) {
                Ordering::Less => false,
                Ordering::Equal => !(low.included && high.included),
                Ordering::Greater => true,
            },
            _ => false,
        };
        let is_opposed =
            |(leaf, value): &Leaf<'_>| leaves.iter().any(|(other, opposite)| other == leaf && opposite != value);
        (!known.intervals.iter().any(contradicts) && !leaves.iter().any(is_opposed)).then_some(known)
    }

    fn interval(&self, of: &Operand) -> Option<&Interval<'c>> {
        self.intervals.iter().find(|interval| interval.of == of)
    }

    fn narrow(&mut self, of: &'c Operand, op: Comparison, limit: Number, value: bool) {
        let place = match self.intervals.iter().position(|interval| interval.of == of) {
            Some(place) => place,
            None => {
                self.intervals.push(Interval { of, low: None, high: None });
                self.intervals.len() - 1
            }
        };
        let interval = &mut self.intervals[place];
        let end = |included| Some(End { at: limit, included });
        let (low, high) = match (op, value) {
            (Comparison::Equal, true) | (Comparison::Unequal, false) => (end(true), end(true)),
            (Comparison::Equal, false) | (Comparison::Unequal, true) => (None, None),
            (Comparison::Less, true) | (Comparison::AtLeast, false) => (None, end(false)),
            (Comparison::AtMost, true) | (Comparison::Greater, false) => (None, end(true)),
            (Comparison::Greater, true) | (Comparison::AtMost, false) => (end(false), None),
            (Comparison::AtLeast, true) | (Comparison::Less, false) => (end(true), None),
        };
        let tighter = |old: Option<End>, new: Option<End>, side: Ordering| match (old, new) {
            (Some(old), Some(new)) => {
                let by = order(new.at, old.at);
                Some(if by == side || (by == Ordering::Equal && !new.included) { new } else { old })
            }
            (old, new) => old.or(new),
        };
        interval.low = tighter(interval.low, low, Ordering::Greater);
        interval.high = tighter(interval.high, high, Ordering::Less);
    }

    /// Whether `condition` certainly is `value`. The depth of recursion is at most that of a
    /// selector ([`crate::DEPTH_MAX`]).
    fn shows(&self, condition: &Condition, value: bool) -> bool {
        match (condition, value) {
            (Condition::Constant(constant), _) => *constant == value,
            (Condition::Unknown, _) => false,
            (Condition::Not(inner), _) => self.shows(inner, !value),
            (Condition::And(parts), true) | (Condition::Or(parts), false) => {
                parts.iter().all(|part| self.shows(part, value))
            }
            (Condition::And(parts), false) | (Condition::Or(parts), true) => {
                parts.iter().any(|part| self.shows(part, value))
            }
            (leaf, _) => self.leaves.contains(&(leaf, value)) || self.shows_leaf(leaf, value),
        }
    }

    fn shows_leaf(&self, leaf: &Condition, value: bool) -> bool {
        if let Some((of, op, limit)) = numeric(leaf) {
            return self.interval(of).is_some_and(|interval| interval.shows(op, limit, value));
        }
        match leaf {
            Condition::IsNull(field) => !value && self.leaves.iter().any(|(known, _)| needs(known, field)),
            Condition::Compare { op, left: Operand::Field(field), right: Operand::Literal(Literal::Text(text)) } => {
                let equal = (*op == Comparison::Equal) == value;
                self.texts(field).is_some_and(|texts| texts.iter().all(|known| (**known == **text) == equal))
            }
            Condition::In { field, list } => self
                .texts(field)
                .is_some_and(|texts| texts.iter().all(|known| list.iter().any(|text| **text == **known) == value)),
            Condition::Like { field, pattern } => match &*pattern.0 {
                // Text that is one of several, or begins with a longer prefix.
                [Piece::Text(begin), Piece::AnyRun] => {
                    let of_texts = self
                        .texts(field)
                        .is_some_and(|texts| texts.iter().all(|known| known.starts_with(&**begin) == value));
                    of_texts || (value && self.begins(field, begin))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The texts of which a field certainly is one.
    fn texts(&self, field: &Field) -> Option<Vec<&'c str>> {
        self.leaves.iter().find_map(|leaf| match leaf {
            (Condition::In { field: known, list }, true) if known == field => {
                Some(list.iter().map(|text| &**text).collect())
            }
            (
                Condition::Compare {
                    op: Comparison::Equal,
                    left: Operand::Field(known),
                    right: Operand::Literal(Literal::Text(text)),
                },
                true,
            ) if known == field => Some(vec![&**text]),
            _ => None,
        })
    }

    fn begins(&self, field: &Field, begin: &str) -> bool {
        self.leaves.iter().any(|leaf| match leaf {
            (Condition::Like { field: known, pattern }, true) if known == field => {
                matches!(pattern.0.first(), Some(Piece::Text(text)) if text.starts_with(begin))
            }
            _ => false,
        })
    }
}

impl Interval<'_> {
    fn shows(&self, op: Comparison, limit: Number, value: bool) -> bool {
        // The interval lies below the limit, or touches it with an end that is not included; or
        // above it.
        let side = |end: Option<End>, side: Ordering, touching: bool| {
            end.is_some_and(|end| match order(end.at, limit) {
                Ordering::Equal => touching || !end.included,
                other => other == side,
            })
        };
        let below = |touching| side(self.high, Ordering::Less, touching);
        let above = |touching| side(self.low, Ordering::Greater, touching);
        match (op, value) {
            (Comparison::Equal, true) | (Comparison::Unequal, false) => below(true) && above(true),
            (Comparison::Equal, false) | (Comparison::Unequal, true) => below(false) || above(false),
            (Comparison::Less, true) | (Comparison::AtLeast, false) => below(false),
            (Comparison::AtMost, true) | (Comparison::Greater, false) => below(true),
            (Comparison::Greater, true) | (Comparison::AtMost, false) => above(false),
            (Comparison::AtLeast, true) | (Comparison::Less, false) => above(true),
        }
    }
}

/// A comparison of an operand with a number.
fn numeric(leaf: &Condition) -> Option<(&Operand, Comparison, Number)> {
    let Condition::Compare { op, left, right: Operand::Literal(limit) } = leaf else { return None };
    match limit {
        Literal::Integer(limit) => Some((left, *op, Number::Integer(*limit))),
        Literal::Double(limit) => Some((left, *op, Number::Double(*limit))),
        Literal::Text(_) | Literal::Boolean(_) => None,
    }
}

/// Whether a leaf that is true or false shows that the field is present.
fn needs(leaf: &Condition, field: &Field) -> bool {
    fn has(operand: &Operand, field: &Field) -> bool {
        match operand {
            Operand::Literal(_) => false,
            Operand::Field(known) => known == field,
            Operand::Negate(inner) => has(inner, field),
            Operand::Arithmetic { left, right, .. } => has(left, field) || has(right, field),
        }
    }
    match leaf {
        Condition::Test(known) | Condition::Like { field: known, .. } | Condition::In { field: known, .. } => {
            known == field
        }
        Condition::Compare { left, right, .. } => has(left, field) || has(right, field),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(wide: &str, narrow: &str) -> bool {
        let parse = |text| Selector::parse(text).expect("a good selector");
        parse(wide).covers(&parse(narrow))
    }

    #[test]
    fn what_is_implied_is_covered() {
        for (wide, narrow) in [
            ("", "x = 1"),
            ("x > 5", "x > 5"),
            ("x > 5", "x >= 6"),
            ("x >= 5", "x > 5"),
            ("x <> 5", "x > 5"),
            ("x > 5", "x > 5 AND y = 'a'"),
            ("x > 5 OR y = 'a'", "x = 7"),
            ("x > 5", "x = 7 OR x = 9"),
            ("NOT (x > 5)", "x < 3"),
            ("y IN ('a', 'b', 'c')", "y = 'a' OR y = 'c'"),
            ("y LIKE 'ab%'", "y LIKE 'abc%'"),
            ("y LIKE 'ab%'", "y IN ('abc', 'abd')"),
            ("y <> 'a'", "y = 'b'"),
            ("y IS NOT NULL", "y <> 'b'"),
            ("x * 2 + y > 5", "x * 2 + y > 6"),
            ("x > 0", "x > 5 AND x < 3"),
            ("within('a') OR x > 1", "within('a') AND z = 1"),
            ("x <= 9007199254740993", "x <= 9007199254740992"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
    }

    fn excludes(one: &str, two: &str) -> bool {
        let parse = |text| Selector::parse(text).expect("a good selector");
        let answer = parse(one).excludes(&parse(two));
        assert_eq!(answer, parse(two).excludes(&parse(one)), "{one} and {two} are asked either way");
        answer
    }

    #[test]
    fn what_cannot_be_true_at_once_is_excluded() {
        for (one, two) in [
            ("x < 5", "x >= 5"),
            ("x = 5", "x > 4 AND x < 5"),
            ("x BETWEEN 0 AND 9", "x BETWEEN 10 AND 19"),
            ("x BETWEEN 0 AND 9 OR x BETWEEN 20 AND 29", "x BETWEEN 10 AND 19 OR x = 30"),
            ("y = 'a'", "y IN ('b', 'c')"),
            ("y = 'a'", "NOT y = 'a'"),
            ("y LIKE 'a%'", "y = 'b'"),
            ("x IS NULL", "x = 5"),
            ("within('a')", "NOT within('a') AND x = 1"),
            ("x * 2 > 6", "x * 2 <= 6"),
            ("FALSE", "x = 1"),
        ] {
            assert!(excludes(one, two), "{one} excludes {two}");
        }
    }

    #[test]
    fn what_may_be_true_at_once_is_not_excluded() {
        for (one, two) in [
            ("x < 5", "x >= 4"),
            ("x = 5", "x = '5'"),
            ("x < 5", "y > 5"),
            ("x BETWEEN 0 AND 9 OR y = 'a'", "x BETWEEN 10 AND 19"),
            ("y LIKE 'a%'", "y LIKE '%b'"),
            ("y = 'a'", "y IN ('b', 'a')"),
            ("x IS NULL", "y = 5"),
            ("within('a')", "within('b')"),
            ("", "x = 1"),
        ] {
            assert!(!excludes(one, two), "{one} does not exclude {two}");
        }
    }

    #[test]
    fn what_is_not_implied_is_not_covered() {
        for (wide, narrow) in [
            ("x = 1", ""),
            ("x > 5", "x >= 5"),
            ("x >= 6", "x > 5"),
            ("x <= 5", "NOT (x > 5)"),
            ("x > 5", "x > 5 OR y = 'a'"),
            ("y = 'a'", "y IN ('a', 'b')"),
            ("y LIKE 'abc%'", "y LIKE 'ab%'"),
            ("y LIKE 'ab%c'", "y LIKE 'ab%'"),
            ("x <= 9007199254740992", "x <= 9007199254740993"),
            ("x = 5", "x = '5'"),
            ("within('a')", "within('b')"),
            ("y IS NOT NULL", "x = 1 OR y = 2"),
        ] {
            assert!(!covers(wide, narrow), "{wide} does not cover {narrow}");
        }
    }
}
