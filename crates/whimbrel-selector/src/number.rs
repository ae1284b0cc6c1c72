//! Numbers and comparisons as selectors define them.

use core::cmp::Ordering;

use crate::selector::{Comparison, Operation};
use crate::subject::{Datum, Number};

/// Whether `op` holds for two values with that order.
#[inline]
pub(crate) fn holds(op: Comparison, order: Ordering) -> bool {
    match op {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::Unequal => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::AtMost => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::AtLeast => order != Ordering::Less,
    }
}

/// The order of two numbers by their exact values.
#[inline]
pub(crate) fn order(left: Number, right: Number) -> Ordering {
    match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => left.cmp(&right),
        (Number::Double(left), Number::Double(right)) => left.partial_cmp(&right).expect("doubles are never NaN"),
        (Number::Integer(left), Number::Double(right)) => mixed(left, right),
        (Number::Double(left), Number::Integer(right)) => mixed(right, left).reverse(),
    }
}

impl Number {
    /// The order of two numbers by their exact values, integers and doubles alike.
    pub fn order(self, other: Number) -> Ordering {
        order(self, other)
    }
}

fn mixed(integer: i64, double: f64) -> Ordering {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if double >= TWO_63 {
        return Ordering::Less;
    }
    if double < -TWO_63 {
        return Ordering::Greater;
    }
    // In range, so that only the fraction is lost in the conversion.
    let whole = double.trunc();
    integer.cmp(&(whole as i64)).then_with(|| whole.partial_cmp(&double).expect("doubles are never NaN"))
}

/// Compares two values; see [`crate::Condition::Compare`].
pub(crate) fn compare(op: Comparison, left: Datum<'_>, right: Datum<'_>) -> Option<bool> {
    if left == Datum::Null || right == Datum::Null {
        return None;
    }
    if let Some((left, right)) = left.number().zip(right.number()) {
        return Some(holds(op, order(left, right)));
    }
    let equal = match (left.boolean().zip(right.boolean()), left.text().zip(right.text())) {
        (Some((left, right)), _) => left == right,
        (None, Some((left, right))) => left == right,
        (None, None) => return Some(false),
    };
    Some(match op {
        Comparison::Equal => equal,
        Comparison::Unequal => !equal,
        _ => false,
    })
}

/// Calculates; see [`Operation`]; `None` if the result is not a number.
pub(crate) fn arithmetic(op: Operation, left: Number, right: Number) -> Option<Number> {
    if let (Number::Integer(left), Number::Integer(right)) = (left, right) {
        let exact = match op {
            Operation::Add => left.checked_add(right),
            Operation::Subtract => left.checked_sub(right),
            Operation::Multiply => left.checked_mul(right),
            Operation::Divide | Operation::DivideWhole if right == 0 => return None,
            Operation::Divide => {
                left.checked_rem(right).filter(|rest| *rest == 0).and_then(|_| left.checked_div(right))
            }
            Operation::DivideWhole => left.checked_div(right),
        };
        if let Some(value) = exact {
            return Some(Number::Integer(value));
        }
    }
    let (left, right) = (double(left), double(right));
    let value = match op {
        Operation::Add => left + right,
        Operation::Subtract => left - right,
        Operation::Multiply => left * right,
        Operation::Divide | Operation::DivideWhole if right == 0.0 => return None,
        Operation::Divide | Operation::DivideWhole => left / right,
    };
    (!value.is_nan()).then_some(Number::Double(value))
}

/// The nearest double.
#[inline]
pub(crate) fn double(number: Number) -> f64 {
    match number {
        Number::Integer(value) => value as f64,
        Number::Double(value) => value,
    }
}

/// A number as a value; NULL for `None`.
pub(crate) fn number(value: Option<Number>) -> Datum<'static> {
    match value {
        None => Datum::Null,
        Some(Number::Integer(value)) => Datum::Integer(value),
        Some(Number::Double(value)) => Datum::Double(value),
    }
}
