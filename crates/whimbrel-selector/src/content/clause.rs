//! Necessary conditions for a selector to be true: clauses of points and ranges.
//!
//! Every event for which a selector is true satisfies at least one of its clauses. The reverse need
//! not hold, because the selector's program decides about the candidates of the index. So a clause
//! may be too weak, never too strong.

use smallvec::{SmallVec, smallvec};

use whimbrel_event::Seeded;

use super::axis::{Kind, Point, Uses};
use super::invert::invert;
use crate::facts::{FieldId, Fields};
use crate::selector::{Comparison, Condition, Field, Literal, Operand, Pattern, Piece};

/// The most clauses that AND may make of two operands with several clauses each; beyond that, only
/// the better operand's clauses are kept.
const PRODUCT_MAX: usize = 16;

/// The most clauses with ranges of one selector. Longer lists of alternatives are found by points
/// only, or by required fields.
const RANGED_MAX: usize = 64;

/// The most clauses of one selector. One with more is evaluated for every event under its filter.
const CLAUSES_MAX: usize = 512;

/// The most points, and the most ranges, that a clause keeps. Further ones are not selective enough
/// to be worth their memory.
const TERMS_MAX: usize = 8;

/// Integers below this are exactly doubles, and the doubles next to them are not integers.
pub(super) const EXACT: f64 = 9_007_199_254_740_992.0;

/// A closed interval of one field's values, with ends rounded to the nearest double, so that no
/// value between the exact ends is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) field: FieldId,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Points and ranges that must all hold; a clause without any always holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause {
    pub(super) points: SmallVec<[Point; 3]>,
    /// One per field.
    pub(super) ranges: SmallVec<[Range; 3]>,
    /// A field that must be present: for clauses without points and ranges.
    pub(super) present: Option<FieldId>,
    /// From a negated comparison, beside a range: the field is not a number.
    odd: bool,
    /// The selector is true where the ranges hold, provided that the event's numbers are doubles.
    /// Never with points, because they are hashes.
    pub(super) decides: bool,
}

impl Default for Clause {
    fn default() -> Self {
        let (points, ranges) = (SmallVec::new(), SmallVec::new());
        Clause { points, ranges, present: None, odd: false, decides: false }
    }
}

impl Clause {
    fn says_nothing(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty() && self.present.is_none()
    }

    /// The conjunction of both; `None` if it is impossible.
    fn and(mut self, other: &Clause) -> Option<Clause> {
        let both = &mut self;
        both.decides &= other.decides;
        for point in &other.points {
            if both.points.len() < TERMS_MAX && !both.points.contains(point) {
                both.points.push(*point);
            }
        }
        for range in &other.ranges {
            let has_room = both.ranges.len() < TERMS_MAX;
            match both.ranges.iter_mut().find(|known| known.field == range.field) {
                None if has_room => both.ranges.push(*range),
                None => both.decides = false,
                Some(known) => {
                    (known.low, known.high) = (known.low.max(range.low), known.high.min(range.high));
                    if known.low > known.high {
                        return None;
                    }
                }
            }
        }
        both.present = both.present.or(other.present);
        Some(self)
    }
}

type Clauses = Vec<Clause>;

/// The clauses of a selector: one of them holds whenever `condition` is true.
pub(super) fn clauses(condition: &Condition, fields: &Fields, uses: &mut Uses, hasher: &Seeded) -> Clauses {
    let mut clauses = Extract { fields, uses, hasher }.when(condition, true);
    if clauses.len() > RANGED_MAX {
        clauses.iter_mut().for_each(|clause| {
            clause.present = clause.present.or(clause.ranges.first().map(|range| range.field));
            clause.ranges.clear();
            clause.decides = false;
        });
    }
    if clauses.len() > CLAUSES_MAX || clauses.iter().any(Clause::says_nothing) {
        return vec![Clause::default()];
    }
    clauses
}

struct Extract<'f> {
    fields: &'f Fields,
    uses: &'f mut Uses,
    hasher: &'f Seeded,
}

impl Extract<'_> {
    /// The clauses of `condition` being `value`. The depth of recursion is at most that of a
    /// selector ([`crate::DEPTH_MAX`]).
    fn when(&mut self, condition: &Condition, value: bool) -> Clauses {
        match condition {
            Condition::Constant(constant) if *constant == value => vec![Clause { decides: true, ..Clause::default() }],
            Condition::Constant(_) | Condition::Unknown => Vec::new(),
            Condition::Not(inner) => self.when(inner, !value),
            Condition::And(parts) if value => self.all(parts, value),
            Condition::Or(parts) if !value => self.all(parts, value),
            Condition::And(parts) | Condition::Or(parts) => {
                parts.iter().flat_map(|part| self.when(part, value)).collect()
            }
            Condition::Test(field) if value => self.flag(field, Kind::Boolean, true),
            Condition::Compare { op, left, right } => self.compare(*op, left, right, value, condition),
            Condition::Like { field, pattern } if value => self.like(field, pattern),
            Condition::In { field, list } if value => {
                list.iter().flat_map(|text| self.text(field, Kind::Text, text.as_bytes())).collect()
            }
            Condition::IsNull(_) if value => vec![Clause::default()],
            Condition::Within(fence) if value => {
                let fence = self.fields.fence(fence).expect("retained by the program");
                only(Point::fence(fence, self.hasher))
            }
            other => self.present(other),
        }
    }

    fn all(&mut self, parts: &[Condition], value: bool) -> Clauses {
        let mut all = vec![Clause { decides: true, ..Clause::default() }];
        for part in parts {
            all = product(all, self.when(part, value));
        }
        all
    }

    fn id(&self, field: &Field) -> FieldId {
        self.fields.find_field(field).expect("retained by the program")
    }

    /// A clause with a field that must be present for the condition to be true or false.
    fn present(&self, condition: &Condition) -> Clauses {
        let needed = strict(condition);
        let present = needed.iter().map(|field| self.id(field)).find(|id| id.is_attribute() || id.is_json());
        vec![Clause { present, ..Clause::default() }]
    }

    fn flag(&self, field: &Field, kind: Kind, value: bool) -> Clauses {
        only(Point::flag(self.id(field), kind, value, self.hasher))
    }

    fn number(&self, field: &Field, value: f64) -> Clauses {
        only(Point::number(self.id(field), value, self.hasher))
    }

    fn text(&self, field: &Field, kind: Kind, text: &[u8]) -> Clauses {
        only(Point::text(self.id(field), kind, text, self.hasher))
    }

    fn range(&self, field: &Field, (low, high): (f64, f64)) -> Clauses {
        if low > high {
            return Vec::new();
        }
        vec![Clause { ranges: smallvec![Range { field: self.id(field), low, high }], ..Clause::default() }]
    }

    /// A range with one end of a field itself, without that end if it is `open`.
    fn half(&self, field: &Field, (low, high): (f64, f64), open: bool) -> Clauses {
        let end = if low.is_finite() { low } else { high };
        // Larger integers are rounded to the double next to them, which must not be left out.
        if end.abs() >= EXACT {
            return self.range(field, (low, high));
        }
        let (low, high) = match open {
            true if low.is_finite() => (low.next_up(), high),
            true => (low, high.next_down()),
            false => (low, high),
        };
        let mut clauses = self.range(field, (low, high));
        clauses.iter_mut().for_each(|clause| clause.decides = true);
        clauses
    }

    /// The field is present and not a number, but may be a boolean.
    fn odd(&self, field: &Field) -> Clauses {
        let mut clauses = self.flag(field, Kind::NotNumber, true);
        clauses.iter_mut().for_each(|clause| clause.odd = true);
        clauses
    }

    fn compare(&mut self, op: Comparison, left: &Operand, right: &Operand, value: bool, whole: &Condition) -> Clauses {
        let Operand::Literal(literal) = right else { return self.present(whole) };
        let limit = match literal {
            Literal::Integer(limit) => *limit as f64,
            Literal::Double(limit) => *limit,
            Literal::Text(text) => {
                return match left {
                    Operand::Field(field) if value && op == Comparison::Equal => {
                        self.text(field, Kind::Text, text.as_bytes())
                    }
                    _ => self.present(whole),
                };
            }
            Literal::Boolean(wanted) => {
                return match left {
                    Operand::Field(field) if value => {
                        self.flag(field, Kind::Boolean, *wanted == (op == Comparison::Equal))
                    }
                    _ => self.present(whole),
                };
            }
        };
        let interval = match (op, value) {
            (Comparison::Equal, true) | (Comparison::Unequal, false) => (limit, limit),
            (Comparison::Equal, false) | (Comparison::Unequal, true) => return self.present(whole),
            (Comparison::Less | Comparison::AtMost, true) | (Comparison::Greater | Comparison::AtLeast, false) => {
                (f64::NEG_INFINITY, limit)
            }
            (Comparison::Less | Comparison::AtMost, false) | (Comparison::Greater | Comparison::AtLeast, true) => {
                (limit, f64::INFINITY)
            }
        };
        match left {
            Operand::Field(field) => {
                let is_point = interval.0 == interval.1;
                let strict = matches!(op, Comparison::Less | Comparison::Greater) == value;
                let mut clauses = if is_point { self.number(field, limit) } else { self.half(field, interval, strict) };
                if !value {
                    // Only a comparison of numbers is negated by the opposite comparison; one with
                    // text is false either way.
                    clauses.extend(self.odd(field));
                }
                clauses
            }
            // Arithmetic is NULL for values that are not numbers, and then the comparison is
            // neither true nor false.
            arithmetic => match invert(arithmetic, interval) {
                Some((field, interval)) => self.range(field, interval),
                None => self.present(whole),
            },
        }
    }

    fn like(&mut self, field: &Field, pattern: &Pattern) -> Clauses {
        match &*pattern.0 {
            [] => self.text(field, Kind::Text, b""),
            [Piece::Text(text)] => self.text(field, Kind::Text, text.as_bytes()),
            [Piece::Text(text), ..] => {
                let (kind, length) = self.uses.prefix(self.id(field), text.len());
                self.text(field, kind, &text.as_bytes()[..length])
            }
            _ => {
                let present = Some(self.id(field));
                vec![Clause { present, ..Clause::default() }]
            }
        }
    }
}

/// A clause of one point.
fn only(point: Point) -> Clauses {
    vec![Clause { points: smallvec![point], ..Clause::default() }]
}

/// The conjunction. Clauses left over from negated comparisons are not multiplied but kept beside
/// the product, which matches more events but is short.
fn product(left: Clauses, right: Clauses) -> Clauses {
    let (mut odd, left): (Clauses, Clauses) = left.into_iter().partition(|clause| clause.odd);
    let (more, right): (Clauses, Clauses) = right.into_iter().partition(|clause| clause.odd);
    let several = left.len() > 1 && right.len() > 1;
    let mut both: Clauses = if several && left.len() * right.len() > PRODUCT_MAX {
        // An event that satisfies both satisfies each.
        let vague = |side: &Clauses| side.iter().any(|clause| clause.points.is_empty() && clause.ranges.is_empty());
        let mut better = if (vague(&left), left.len()) <= (vague(&right), right.len()) { left } else { right };
        better.iter_mut().for_each(|clause| clause.decides = false);
        better
    } else if let [only] = &*right {
        left.into_iter().filter_map(|left| left.and(only)).collect()
    } else {
        left.iter().flat_map(|left| right.iter().filter_map(|right| left.clone().and(right))).collect()
    };
    odd.extend(more);
    both.append(&mut odd);
    both
}

/// The fields without which the condition is unknown.
fn strict(condition: &Condition) -> Vec<&Field> {
    match condition {
        Condition::Test(field) | Condition::Like { field, .. } | Condition::In { field, .. } => vec![field],
        Condition::Compare { left, right, .. } => {
            let mut fields = Vec::new();
            operand_fields(left, &mut fields);
            operand_fields(right, &mut fields);
            fields
        }
        Condition::Same { left, right, .. } => {
            let mut fields = strict(left);
            fields.extend(strict(right));
            fields
        }
        Condition::Not(inner) => strict(inner),
        // IS NULL is never unknown, and one operand of AND or OR may decide.
        Condition::IsNull(_) | Condition::And(_) | Condition::Or(_) => Vec::new(),
        Condition::Constant(_) | Condition::Unknown | Condition::Within(_) => Vec::new(),
    }
}

fn operand_fields<'c>(operand: &'c Operand, fields: &mut Vec<&'c Field>) {
    match operand {
        Operand::Literal(_) => {}
        Operand::Field(field) => fields.push(field),
        Operand::Negate(inner) => operand_fields(inner, fields),
        Operand::Arithmetic { left, right, .. } => {
            operand_fields(left, fields);
            operand_fields(right, fields);
        }
    }
}
