//! Inversion of arithmetic: from an interval of an expression's results to an interval of its only
//! field.

use crate::selector::{Field, Literal, Operand, Operation};

/// Upper bound of rounding errors, relative to the largest number involved, with a wide margin: one
/// operation errs by at most 2^-53.
const SLACK: f64 = 1e-12;

/// Results too small for a double become zero; they are far below this.
const TINY: f64 = 1e-300;

/// Numbers outside of these bounds are not inverted, so that no step comes near overflow or
/// underflow.
const SIZES: core::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// For an `operand` with exactly one field, joined with literals by arithmetic: that field, and an
/// interval that contains each of its values for which the result is in `interval`. Each step
/// widens the interval by more than the effects of rounding, overflow of integers to doubles, and
/// truncating division.
pub(super) fn invert(operand: &Operand, interval: (f64, f64)) -> Option<(&Field, (f64, f64))> {
    match operand {
        Operand::Field(field) => Some((field, interval)),
        Operand::Literal(_) => None,
        Operand::Negate(inner) => invert(inner, (-interval.1, -interval.0)),
        Operand::Arithmetic { op, left, right } => match (literal(left), literal(right)) {
            (None, Some(k)) => invert(left, step(*op, k, interval)?),
            (Some(k), None) => invert(right, mirrored(*op, k, interval)?),
            _ => None,
        },
    }
}

fn literal(operand: &Operand) -> Option<f64> {
    match operand {
        Operand::Literal(Literal::Integer(value)) => Some(*value as f64),
        Operand::Literal(Literal::Double(value)) => Some(*value),
        _ => None,
    }
}

/// The interval of x for which `x op k` is in the interval.
fn step(op: Operation, k: f64, interval: (f64, f64)) -> Option<(f64, f64)> {
    if k != 0.0 && !SIZES.contains(&k.abs()) {
        return None;
    }
    let ends = [interval.0, interval.1].map(|end| {
        let x = match op {
            Operation::Add => end - k,
            Operation::Subtract => end + k,
            Operation::Multiply => end / k,
            Operation::Divide | Operation::DivideWhole => end * k,
        };
        let scale = end.abs().max(k.abs()).max(x.abs());
        let slack = match op {
            Operation::Add | Operation::Subtract => scale * SLACK,
            Operation::Multiply => scale.max(x.abs()) * SLACK + TINY / k.abs(),
            Operation::Divide => scale * SLACK + TINY * k.abs(),
            // Integers are truncated towards zero: by less than one, which before the division is
            // less than k.
            Operation::DivideWhole => scale * SLACK + k.abs() * (1.0 + TINY),
        };
        (end, x, slack)
    });
    let scales = matches!(op, Operation::Multiply | Operation::Divide | Operation::DivideWhole);
    if k == 0.0 && scales {
        return None;
    }
    let falls = k < 0.0 && scales;
    let [low, high] = if falls { [ends[1], ends[0]] } else { ends };
    Some((widened(low, false)?, widened(high, true)?))
}

/// The interval of x for which `k op x` is in the interval.
fn mirrored(op: Operation, k: f64, interval: (f64, f64)) -> Option<(f64, f64)> {
    match op {
        Operation::Add | Operation::Multiply => step(op, k, interval),
        // k - x is in the interval exactly if x - k is in its mirror image.
        Operation::Subtract => step(op, k, (-interval.1, -interval.0)),
        Operation::Divide | Operation::DivideWhole => None,
    }
}

/// An end moved outwards. An infinite end stays; `None` for one that is too large, or small but not
/// zero.
fn widened((end, x, slack): (f64, f64, f64), up: bool) -> Option<f64> {
    if end.is_infinite() {
        return Some(if up { f64::INFINITY } else { f64::NEG_INFINITY });
    }
    let is_sized = |value: f64| value == 0.0 || SIZES.contains(&value.abs());
    if !is_sized(end) || !is_sized(x) || !slack.is_finite() {
        return None;
    }
    Some(if up { x + slack } else { x - slack })
}
