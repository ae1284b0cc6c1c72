//! Compiled selectors: prefix code over numbered fields.

use crate::facts::{Facts, FieldId, Fields};
use crate::like;
use crate::number::{arithmetic, compare, holds, number, order};
use crate::selector::{Comparison, Condition, Field, Literal, Operand, Operation, Pattern, Piece};
use crate::subject::{Datum, Number};

/// One operation; its operands follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// All conditions up to `end`.
    And {
        end: u32,
    },
    /// At least one of the conditions up to `end`.
    Or {
        end: u32,
    },
    /// The negation of the next condition.
    Not,
    /// The next two conditions, compared.
    Same {
        unequal: bool,
    },
    Constant(Option<bool>),
    Test(FieldId),
    Integer {
        op: Comparison,
        field: FieldId,
        value: i64,
    },
    Double {
        op: Comparison,
        field: FieldId,
        value: f64,
    },
    Text {
        unequal: bool,
        length: u16,
        field: FieldId,
        at: u32,
    },
    /// As `Text`, for at most [`SHORT`] bytes, which are stored here, followed by zeros.
    Short {
        unequal: bool,
        length: u8,
        field: FieldId,
        bytes: [u8; SHORT],
    },
    Boolean {
        unequal: bool,
        value: bool,
        field: FieldId,
    },
    /// Followed by this number of pieces.
    Like {
        field: FieldId,
        pieces: u32,
    },
    PieceText {
        length: u16,
        at: u32,
    },
    PieceOne,
    PieceRun,
    /// Followed by this number of choices, sorted.
    In {
        field: FieldId,
        choices: u32,
    },
    Choice {
        length: u16,
        at: u32,
    },
    IsNull(FieldId),
    Within(u32),
    /// The next two operands, compared.
    Compare(Comparison),
    LiteralInteger(i64),
    LiteralDouble(f64),
    LiteralText {
        length: u16,
        at: u32,
    },
    LiteralBoolean(bool),
    Get(FieldId),
    Negate,
    Arithmetic(Operation),
}

/// Longest text in an operation, bytes.
const SHORT: usize = 8;

/// A compiled selector.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    ops: Box<[Op]>,
    /// All its texts, concatenated.
    text: Box<str>,
}

impl Program {
    /// Compiles `condition`; the fields and fences in it are in use until [`Program::release`].
    pub(crate) fn compile(condition: &Condition, fields: &mut Fields) -> Program {
        let mut compiler = Compiler { fields, ops: Vec::new(), text: String::new() };
        compiler.condition(condition);
        Program { ops: compiler.ops.into(), text: compiler.text.into() }
    }

    /// Ends the uses of fields and fences.
    pub(crate) fn release(&self, fields: &mut Fields) {
        for op in &self.ops {
            match *op {
                Op::Test(field)
                | Op::Integer { field, .. }
                | Op::Double { field, .. }
                | Op::Text { field, .. }
                | Op::Short { field, .. }
                | Op::Boolean { field, .. }
                | Op::Like { field, .. }
                | Op::In { field, .. }
                | Op::IsNull(field)
                | Op::Get(field) => fields.release(field),
                Op::Within(fence) => fields.release_fence(fence),
                _ => {}
            }
        }
    }

    /// The operations, and the texts that they refer to.
    pub(crate) fn code(&self) -> (&[Op], &str) {
        (&self.ops, &self.text)
    }

    /// Whether the selector is true, and the number of steps of the evaluation.
    #[inline]
    pub(crate) fn is_true(&self, facts: &Facts<'_>) -> (bool, u64) {
        is_true(&self.ops, &self.text, facts)
    }

    /// The first operation. Programs are far apart in memory: before several are evaluated, reading
    /// their first operations lets the cache misses overlap.
    #[inline]
    pub(crate) fn first(&self) -> Op {
        self.ops[0]
    }

    /// The three-valued result; `None` is unknown.
    pub(crate) fn value(&self, facts: &Facts<'_>) -> Option<bool> {
        Run { ops: &self.ops, text: &self.text, facts, at: 0, steps: 0 }.condition(false)
    }
}

/// Whether a selector is true, and the number of steps of the evaluation.
#[inline]
pub(crate) fn is_true(ops: &[Op], text: &str, facts: &Facts<'_>) -> (bool, u64) {
    let mut run = Run { ops, text, facts, at: 0, steps: 0 };
    let value = run.condition(true);
    (value == Some(true), run.steps)
}

struct Compiler<'f> {
    fields: &'f mut Fields,
    ops: Vec<Op>,
    text: String,
}

impl Compiler<'_> {
    fn text(&mut self, text: &str) -> (u32, u16) {
        let at = self.text.len() as u32;
        self.text.push_str(text);
        // A selector has at most 8 KB, so that the length of its texts fits.
        (at, u16::try_from(text.len()).expect("a selector is at most 8 KB"))
    }

    fn field(&mut self, field: &Field) -> FieldId {
        self.fields.retain(field)
    }

    /// The depth of recursion is at most that of a selector ([`crate::DEPTH_MAX`]).
    fn condition(&mut self, condition: &Condition) {
        match condition {
            Condition::Constant(value) => self.ops.push(Op::Constant(Some(*value))),
            Condition::Unknown => self.ops.push(Op::Constant(None)),
            Condition::Test(field) => {
                let op = Op::Test(self.field(field));
                self.ops.push(op);
            }
            Condition::Compare { op, left, right } => self.compare(*op, left, right),
            Condition::Same { left, right, unequal } => {
                self.ops.push(Op::Same { unequal: *unequal });
                self.condition(left);
                self.condition(right);
            }
            Condition::Like { field, pattern } => self.like(field, pattern),
            Condition::In { field, list } => {
                let op = Op::In { field: self.field(field), choices: list.len() as u32 };
                self.ops.push(op);
                for text in list {
                    let (at, length) = self.text(text);
                    self.ops.push(Op::Choice { at, length });
                }
            }
            Condition::IsNull(field) => {
                let op = Op::IsNull(self.field(field));
                self.ops.push(op);
            }
            Condition::Within(fence) => {
                let op = Op::Within(self.fields.retain_fence(fence));
                self.ops.push(op);
            }
            Condition::And(parts) => self.several(parts, |end| Op::And { end }),
            Condition::Or(parts) => self.several(parts, |end| Op::Or { end }),
            Condition::Not(part) => {
                self.ops.push(Op::Not);
                self.condition(part);
            }
        }
    }

    fn several(&mut self, parts: &[Condition], op: impl Fn(u32) -> Op) {
        let start = self.ops.len();
        self.ops.push(op(0));
        parts.iter().for_each(|part| self.condition(part));
        self.ops[start] = op(self.ops.len() as u32);
    }

    fn like(&mut self, field: &Field, pattern: &Pattern) {
        let op = Op::Like { field: self.field(field), pieces: pattern.0.len() as u32 };
        self.ops.push(op);
        for piece in &pattern.0 {
            let op = match piece {
                Piece::Text(text) => {
                    let (at, length) = self.text(text);
                    Op::PieceText { length, at }
                }
                Piece::AnyOne => Op::PieceOne,
                Piece::AnyRun => Op::PieceRun,
            };
            self.ops.push(op);
        }
    }

    /// Compiles a comparison: one operation for a field and a literal, otherwise the comparison and
    /// both operands.
    fn compare(&mut self, op: Comparison, left: &Operand, right: &Operand) {
        let unequal = op == Comparison::Unequal;
        let fused = match (left, right) {
            (Operand::Field(field), Operand::Literal(literal)) => match literal {
                Literal::Integer(value) => Some(Op::Integer { op, field: self.field(field), value: *value }),
                Literal::Double(value) => Some(Op::Double { op, field: self.field(field), value: *value }),
                Literal::Text(text) if text.len() <= SHORT => {
                    let mut bytes = [0; SHORT];
                    bytes[..text.len()].copy_from_slice(text.as_bytes());
                    Some(Op::Short { unequal, length: text.len() as u8, field: self.field(field), bytes })
                }
                Literal::Text(text) => {
                    let (at, length) = self.text(text);
                    Some(Op::Text { unequal, length, field: self.field(field), at })
                }
                Literal::Boolean(value) => Some(Op::Boolean { unequal, value: *value, field: self.field(field) }),
            },
            _ => None,
        };
        match fused {
            Some(op) => self.ops.push(op),
            None => {
                self.ops.push(Op::Compare(op));
                self.operand(left);
                self.operand(right);
            }
        }
    }

    /// The depth of recursion is at most that of a selector ([`crate::DEPTH_MAX`]).
    fn operand(&mut self, operand: &Operand) {
        let op = match operand {
            Operand::Literal(Literal::Integer(value)) => Op::LiteralInteger(*value),
            Operand::Literal(Literal::Double(value)) => Op::LiteralDouble(*value),
            Operand::Literal(Literal::Text(text)) => {
                let (at, length) = self.text(text);
                Op::LiteralText { length, at }
            }
            Operand::Literal(Literal::Boolean(value)) => Op::LiteralBoolean(*value),
            Operand::Field(field) => Op::Get(self.field(field)),
            Operand::Negate(_) => Op::Negate,
            Operand::Arithmetic { op, .. } => Op::Arithmetic(*op),
        };
        self.ops.push(op);
        match operand {
            Operand::Negate(inner) => self.operand(inner),
            Operand::Arithmetic { left, right, .. } => {
                self.operand(left);
                self.operand(right);
            }
            Operand::Literal(_) | Operand::Field(_) => {}
        }
    }
}

/// One evaluation.
struct Run<'r, 'f> {
    ops: &'r [Op],
    text: &'r str,
    facts: &'r Facts<'f>,
    at: usize,
    steps: u64,
}

impl<'r> Run<'r, '_> {
    fn text(&self, at: u32, length: u16) -> &'r str {
        &self.text[at as usize..at as usize + usize::from(length)]
    }

    fn next(&mut self) -> Op {
        let op = self.ops[self.at];
        self.at += 1;
        self.steps += 1;
        op
    }

    /// Evaluates the condition at `at` and moves `at` past it. With `only_true`, the result for a
    /// condition that is not true may be false or unknown. The depth of recursion is at most that
    /// of a selector ([`crate::DEPTH_MAX`]).
    fn condition(&mut self, only_true: bool) -> Option<bool> {
        match self.next() {
            Op::And { end } => self.several(end, true, only_true),
            Op::Or { end } => self.several(end, false, only_true),
            Op::Not => self.condition(false).map(|value| !value),
            Op::Same { unequal } => {
                let (left, right) = (self.condition(false), self.condition(false));
                Some((left? == right?) != unequal)
            }
            Op::Constant(value) => value,
            Op::Test(field) => known(self.facts.value(field), |value| value.boolean() == Some(true)),
            Op::Integer { op, field, value } => known(self.facts.value(field), |known| {
                known.number().is_some_and(|known| holds(op, order(known, Number::Integer(value))))
            }),
            Op::Double { op, field, value } => known(self.facts.value(field), |known| {
                known.number().is_some_and(|known| holds(op, order(known, Number::Double(value))))
            }),
            Op::Text { unequal, length, field, at } => known(self.facts.value(field), |known| {
                known.text().is_some_and(|known| (known == self.text(at, length)) != unequal)
            }),
            Op::Short { unequal, length, field, bytes } => known(self.facts.value(field), |known| {
                known.text().is_some_and(|known| (known.as_bytes() == &bytes[..usize::from(length)]) != unequal)
            }),
            Op::Boolean { unequal, value, field } => {
                known(self.facts.value(field), |known| known.boolean().is_some_and(|known| (known == value) != unequal))
            }
            Op::Like { field, pieces } => {
                let pattern = &self.ops[self.at..self.at + pieces as usize];
                self.at += pieces as usize;
                let Datum::Null = self.facts.value(field) else {
                    let text = self.facts.value(field).text();
                    return Some(text.is_some_and(|text| self.like(pattern, text)));
                };
                None
            }
            Op::In { field, choices } => {
                let list = &self.ops[self.at..self.at + choices as usize];
                self.at += choices as usize;
                self.steps += u64::from(choices.ilog2());
                known(self.facts.value(field), |known| known.text().is_some_and(|known| self.is_one_of(list, known)))
            }
            Op::IsNull(field) => Some(self.facts.value(field) == Datum::Null),
            Op::Within(fence) => self.facts.is_inside(fence),
            Op::Compare(op) => {
                let (left, right) = (self.operand(), self.operand());
                compare(op, left, right)
            }
            other => unreachable!("{other:?} does not begin a condition"),
        }
    }

    /// Evaluates the conditions up to `end`, joined by AND (`all`) or OR.
    fn several(&mut self, end: u32, all: bool, only_true: bool) -> Option<bool> {
        let mut result = Some(all);
        while self.at < end as usize {
            match self.condition(only_true) {
                Some(value) if value == all => {}
                Some(_) => {
                    self.at = end as usize;
                    return Some(!all);
                }
                None if all && only_true => {
                    self.at = end as usize;
                    return None;
                }
                None => result = None,
            }
        }
        result
    }

    fn is_one_of(&self, list: &[Op], text: &str) -> bool {
        let order = |op: &Op| match *op {
            Op::Choice { length, at } => self.text(at, length).cmp(text),
            _ => unreachable!("choices follow IN"),
        };
        list.binary_search_by(order).is_ok()
    }

    /// The depth of recursion is at most that of a selector ([`crate::DEPTH_MAX`]).
    fn operand(&mut self) -> Datum<'r> {
        match self.next() {
            Op::LiteralInteger(value) => Datum::Integer(value),
            Op::LiteralDouble(value) => Datum::Double(value),
            Op::LiteralText { length, at } => Datum::Text(self.text(at, length)),
            Op::LiteralBoolean(value) => Datum::Boolean(value),
            Op::Get(field) => self.facts.value(field),
            Op::Negate => {
                let value = self.operand();
                number(value.number().map(|value| match value {
                    Number::Integer(value) => {
                        value.checked_neg().map_or(Number::Double(-(value as f64)), Number::Integer)
                    }
                    Number::Double(value) => Number::Double(-value),
                }))
            }
            Op::Arithmetic(op) => {
                let (left, right) = (self.operand(), self.operand());
                let both = left.number().zip(right.number());
                number(both.and_then(|(left, right)| arithmetic(op, left, right)))
            }
            other => unreachable!("{other:?} does not begin an operand"),
        }
    }

    /// Greedy: each run of pieces between two `%` is matched at its first occurrence, which leaves
    /// most room for the rest. Costs at most pieces times characters.
    fn like(&mut self, pattern: &[Op], text: &str) -> bool {
        let mut parts = pattern.split(|op| *op == Op::PieceRun);
        let first = parts.next().expect("splitting gives at least one part");
        let Some(mut rest) = self.begins(first, text) else { return false };
        let Some(mut part) = parts.next() else { return rest.is_empty() };
        for next in parts {
            let Some(behind) = self.find(part, rest) else { return false };
            rest = behind;
            part = next;
        }
        // The last part must be at the very end.
        let characters = part.iter().map(|piece| self.characters(piece)).sum::<usize>();
        let start = match characters {
            0 => Some(rest.len()),
            n => rest.char_indices().rev().nth(n - 1).map(|(at, _)| at),
        };
        self.steps += characters as u64;
        start.is_some_and(|at| self.begins(part, &rest[at..]).is_some_and(str::is_empty))
    }

    /// The rest of `text` after the first occurrence of `pieces`, which have no `%`.
    fn find<'t>(&mut self, pieces: &[Op], text: &'t str) -> Option<&'t str> {
        if let [Op::PieceText { length, at }] = *pieces {
            self.steps += 1 + text.len() as u64 / 16;
            let part = self.text(at, length);
            return text.find(part).map(|at| &text[at + part.len()..]);
        }
        let pieces = pieces.iter().flat_map(|piece| match *piece {
            Op::PieceText { length, at } => self.text(at, length).chars().map(Some).collect(),
            _ => vec![None],
        });
        let (found, steps) = like::find(&pieces.collect::<Vec<_>>(), text);
        self.steps += steps;
        found
    }

    fn characters(&self, piece: &Op) -> usize {
        match *piece {
            Op::PieceText { length, at } => self.text(at, length).chars().count(),
            _ => 1,
        }
    }

    /// The rest of `text` after pieces without `%`, if it begins with them.
    fn begins<'t>(&mut self, pieces: &[Op], text: &'t str) -> Option<&'t str> {
        let mut rest = text;
        for piece in pieces {
            match *piece {
                Op::PieceText { length, at } => {
                    self.steps += 1 + u64::from(length) / 16;
                    rest = rest.strip_prefix(self.text(at, length))?;
                }
                _ => {
                    self.steps += 1;
                    rest = &rest[rest.chars().next()?.len_utf8()..];
                }
            }
        }
        Some(rest)
    }
}

/// Unknown for NULL, otherwise the result of `test`.
#[inline]
fn known<'d>(value: Datum<'d>, test: impl FnOnce(Datum<'d>) -> bool) -> Option<bool> {
    if value == Datum::Null { None } else { Some(test(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_sixteen_bytes() {
        assert_eq!(size_of::<Op>(), 16);
    }
}
