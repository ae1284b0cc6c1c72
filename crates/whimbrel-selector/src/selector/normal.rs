//! The canonical form of conditions, apart from comparisons, which the parser makes canonical one
//! by one.

use super::expr::{Condition, Field, Operand};

/// The canonical form of `condition`, or of its negation.
///
/// The condition may break the rules of [`Condition`] as follows: any condition may be negated, and
/// `And` and `Or` may have any number of operands, including others of the same kind.
pub(super) fn normalize(condition: Condition, negated: bool) -> Condition {
    match condition {
        Condition::Constant(value) => Condition::Constant(value != negated),
        Condition::Unknown => Condition::Unknown,
        Condition::Not(inner) => normalize(*inner, !negated),
        Condition::And(parts) => join(parts, !negated, negated),
        Condition::Or(parts) => join(parts, negated, negated),
        Condition::Same { left, right, unequal } => same(*left, *right, unequal != negated),
        leaf if negated => Condition::Not(Box::new(leaf)),
        leaf => leaf,
    }
}

/// The conjunction (else disjunction) of `parts`, each negated if `negated`.
fn join(parts: Box<[Condition]>, conjunction: bool, negated: bool) -> Condition {
    let mut joined = Vec::with_capacity(parts.len());
    for part in parts.into_vec() {
        match normalize(part, negated) {
            Condition::Constant(value) if value == conjunction => {}
            constant @ Condition::Constant(_) => return constant,
            Condition::And(inner) if conjunction => joined.extend(inner.into_vec()),
            Condition::Or(inner) if !conjunction => joined.extend(inner.into_vec()),
            other => joined.push(other),
        }
    }
    joined.sort_unstable();
    joined.dedup();
    if joined.len() > 1 {
        return if conjunction { Condition::And(joined.into()) } else { Condition::Or(joined.into()) };
    }
    joined.pop().unwrap_or(Condition::Constant(conjunction))
}

/// `left = right`, or `<>`. Negating a side negates the equality of truth values; an unknown side
/// makes it unknown.
fn same(left: Condition, right: Condition, mut unequal: bool) -> Condition {
    let mut strip = |side: Condition| match normalize(side, false) {
        Condition::Not(inner) => {
            unequal = !unequal;
            *inner
        }
        other => other,
    };
    let (left, right) = (strip(left), strip(right));
    match (left, right) {
        (Condition::Unknown, _) | (_, Condition::Unknown) => Condition::Unknown,
        (Condition::Constant(value), other) | (other, Condition::Constant(value)) => normalize(other, value == unequal),
        (left, right) => {
            let (left, right) = if left <= right { (left, right) } else { (right, left) };
            Condition::Same { left: Box::new(left), right: Box::new(right), unequal }
        }
    }
}

/// Calls `visit` with each leaf, left to right.
pub(super) fn for_each_leaf<'c>(condition: &'c Condition, visit: &mut dyn FnMut(&'c Condition)) {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => parts.iter().for_each(|part| for_each_leaf(part, visit)),
        Condition::Not(inner) => for_each_leaf(inner, visit),
        Condition::Same { left, right, .. } => {
            for_each_leaf(left, visit);
            for_each_leaf(right, visit);
        }
        leaf => visit(leaf),
    }
}

/// Whether `test` is true for a field in the condition.
pub(super) fn any_field(condition: &Condition, test: &dyn Fn(&Field) -> bool) -> bool {
    let mut found = false;
    for_each_leaf(condition, &mut |leaf| {
        found = found
            || match leaf {
                Condition::Test(field) | Condition::IsNull(field) => test(field),
                Condition::Like { field, .. } | Condition::In { field, .. } => test(field),
                Condition::Compare { left, right, .. } => {
                    any_operand_field(left, test) || any_operand_field(right, test)
                }
                _ => false,
            };
    });
    found
}

fn any_operand_field(operand: &Operand, test: &dyn Fn(&Field) -> bool) -> bool {
    match operand {
        Operand::Literal(_) => false,
        Operand::Field(field) => test(field),
        Operand::Negate(inner) => any_operand_field(inner, test),
        Operand::Arithmetic { left, right, .. } => any_operand_field(left, test) || any_operand_field(right, test),
    }
}
