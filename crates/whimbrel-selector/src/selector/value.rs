//! Intermediate results of the parser: values and conditions, checked as far as the text alone
//! allows, with constants folded.

use core::cmp::Ordering;

use super::OPERATIONS_MAX;
use super::error::Problem;
use super::expr::{Comparison, Condition, Field, Literal, Operand, Operation};

/// The type of an operand, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Unknown: a field.
    Any,
    /// A number or NULL.
    Number,
    /// Text.
    Text,
    /// A boolean.
    Boolean,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::Any => "a field",
            Type::Number => "a number",
            Type::Text => "text",
            Type::Boolean => "a boolean",
        }
    }
}

/// An intermediate result.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A [`Field::Header`] represents NULL. A field that must be a number has a unary plus.
    Operand(Operand, Type),
    /// Not yet in canonical form.
    Condition(Condition),
}

/// A part of the text with its value and range of bytes.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) what: What,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The number of nested operations of an operand.
    height: usize,
}

fn null() -> Operand {
    Operand::Field(Field::Header("NULL".into()))
}

fn is_null(operand: &Operand) -> bool {
    matches!(operand, Operand::Field(Field::Header(_)))
}

impl Value {
    pub(super) fn field(field: Field, start: usize, end: usize) -> Value {
        Value { what: What::Operand(Operand::Field(field), Type::Any), start, end, height: 0 }
    }

    pub(super) fn literal(literal: Literal, start: usize, end: usize) -> Value {
        let kind = match literal {
            Literal::Integer(_) | Literal::Double(_) => Type::Number,
            Literal::Text(_) => Type::Text,
            Literal::Boolean(_) => Type::Boolean,
        };
        Value { what: What::Operand(Operand::Literal(literal), kind), start, end, height: 0 }
    }

    pub(super) fn condition(condition: Condition, start: usize, end: usize) -> Value {
        Value { what: What::Condition(condition), start, end, height: 0 }
    }

    pub(super) fn problem(&self, cause: impl Into<String>) -> Problem {
        Problem::new(self.start, self.end, cause)
    }

    /// Converts the value to a condition.
    pub(super) fn into_condition(self) -> Result<Condition, Problem> {
        let cause = match self.what {
            What::Condition(condition) => return Ok(condition),
            What::Operand(Operand::Literal(Literal::Boolean(value)), _) => return Ok(Condition::Constant(value)),
            What::Operand(Operand::Field(Field::Header(_)), Type::Any) => return Ok(Condition::Unknown),
            What::Operand(Operand::Field(field), Type::Any) => return Ok(Condition::Test(field)),
            What::Operand(_, Type::Text) => {
                "text is no condition; compare it with something, or write a name in double quotes, or without"
            }
            What::Operand(..) => "a number is no condition; compare it with something",
        };
        Err(Problem::new(self.start, self.end, cause))
    }

    /// Converts the value to the field of an `IN`, `LIKE` or `IS NULL`.
    pub(super) fn into_field(self, asked_by: &str) -> Result<Field, Problem> {
        match self.what {
            What::Operand(Operand::Field(field), Type::Any) => Ok(field),
            _ => Err(self.problem(format!("only a name or json('...') may stand before {asked_by}"))),
        }
    }

    /// Converts the value to a side of an arithmetic operation; `role` names the operation.
    fn into_number(self, role: &str) -> Result<(Operand, usize), Problem> {
        let found = match self.what {
            What::Operand(operand, Type::Any | Type::Number) => return Ok((operand, self.height)),
            What::Operand(_, found) => found.name(),
            What::Condition(_) => "a condition",
        };
        Err(Problem::new(self.start, self.end, format!("{role} needs numbers, this is {found}")))
    }

    /// `+self` or `-self`.
    pub(super) fn signed(self, negative: bool, start: usize) -> Result<Value, Problem> {
        let end = self.end;
        let (operand, height) = self.into_number(if negative { "-" } else { "+" })?;
        let number = |operand, height| Value { what: What::Operand(operand, Type::Number), start, end, height };
        if !negative || is_null(&operand) {
            return Ok(number(operand, height));
        }
        Ok(match operand {
            Operand::Literal(Literal::Integer(value)) => {
                let negated = value.checked_neg().map_or_else(|| double(-(value as f64)), Literal::Integer);
                number(Operand::Literal(negated), 0)
            }
            Operand::Literal(Literal::Double(value)) => number(Operand::Literal(double(-value)), 0),
            operand => {
                let value = number(Operand::Negate(Box::new(operand)), height + 1);
                value.check_height()?;
                value
            }
        })
    }

    /// `left op right`.
    pub(super) fn arithmetic(left: Value, op: Operation, right: Value) -> Result<Value, Problem> {
        let (start, end) = (left.start, right.end);
        let (left, left_height) = left.into_number(op.as_str())?;
        let (right, right_height) = right.into_number(op.as_str())?;
        let (operand, height) = match calculate(op, &left, &right) {
            Some(folded) => (folded, 0),
            None => {
                // Sums and products are the same in either order.
                let commutes = matches!(op, Operation::Add | Operation::Multiply) && left_height + right_height == 0;
                let swap = commutes && sorts_behind(&left, &right);
                let (left, right) = if swap { (right, left) } else { (left, right) };
                let (left, right) = (Box::new(left), Box::new(right));
                (Operand::Arithmetic { op, left, right }, left_height.max(right_height) + 1)
            }
        };
        let value = Value { what: What::Operand(operand, Type::Number), start, end, height };
        value.check_height()?;
        Ok(value)
    }

    fn check_height(&self) -> Result<(), Problem> {
        if self.height <= OPERATIONS_MAX {
            return Ok(());
        }
        Err(self.problem(format!("more than {OPERATIONS_MAX} operations that need each other's results")))
    }

    /// A side of a comparison.
    fn into_side(self) -> (Operand, Type) {
        match self.what {
            What::Operand(field @ Operand::Field(_), Type::Number) if !is_null(&field) => {
                let (left, right) = (Box::new(field), Box::new(Operand::Literal(Literal::Integer(0))));
                (Operand::Arithmetic { op: Operation::Add, left, right }, Type::Number)
            }
            What::Operand(operand, kind) => (operand, kind),
            What::Condition(_) => (null(), Type::Boolean),
        }
    }
}

/// The order of operands: literals last, otherwise by [`Ord`].
fn sorts_behind(left: &Operand, right: &Operand) -> bool {
    match (left, right) {
        (Operand::Literal(_), Operand::Literal(_)) => left > right,
        (Operand::Literal(_), _) => true,
        (_, Operand::Literal(_)) => false,
        _ => left > right,
    }
}

/// Normalises the sign of zero: no operation of the language distinguishes the two.
pub(super) fn double(value: f64) -> Literal {
    Literal::Double(value + 0.0)
}

fn divides(op: Operation) -> bool {
    matches!(op, Operation::Divide | Operation::DivideWhole)
}

/// The result, if the text alone determines it and it can be written.
fn calculate(op: Operation, left: &Operand, right: &Operand) -> Option<Operand> {
    let is_zero = |literal: &Literal| matches!(literal, Literal::Integer(0)) || *literal == Literal::Double(0.0);
    match (left, right) {
        _ if is_null(left) || is_null(right) => Some(null()),
        (_, Operand::Literal(divisor)) if divides(op) && is_zero(divisor) => Some(null()),
        (Operand::Literal(left), Operand::Literal(right)) => calculate_literals(op, left, right).map(Operand::Literal),
        _ => None,
    }
}

fn calculate_literals(op: Operation, left: &Literal, right: &Literal) -> Option<Literal> {
    if let (&Literal::Integer(a), &Literal::Integer(b)) = (left, right) {
        let exact = match op {
            Operation::Add => a.checked_add(b),
            Operation::Subtract => a.checked_sub(b),
            Operation::Multiply => a.checked_mul(b),
            Operation::Divide => a.checked_rem(b).filter(|rest| *rest == 0).and_then(|_| a.checked_div(b)),
            Operation::DivideWhole => a.checked_div(b),
        };
        if let Some(exact) = exact {
            return Some(Literal::Integer(exact));
        }
    }
    let (a, b) = (as_double(left)?, as_double(right)?);
    let result = match op {
        Operation::Add => a + b,
        Operation::Subtract => a - b,
        Operation::Multiply => a * b,
        Operation::Divide | Operation::DivideWhole => a / b,
    };
    result.is_finite().then(|| double(result))
}

fn as_double(literal: &Literal) -> Option<f64> {
    match *literal {
        Literal::Integer(value) => Some(value as f64),
        Literal::Double(value) => Some(value),
        Literal::Text(_) | Literal::Boolean(_) => None,
    }
}

/// `left op right`.
pub(super) fn compare(op: Comparison, left: Value, right: Value) -> Result<Condition, Problem> {
    let (start, end) = (left.start, right.end);
    if op.is_ordering() {
        for side in [&left, &right] {
            let found = match side.what {
                What::Operand(_, kind @ (Type::Text | Type::Boolean)) => kind.name(),
                What::Condition(_) => "a condition",
                What::Operand(..) => continue,
            };
            return Err(side.problem(format!("{} compares numbers, this is {found}", op.as_str())));
        }
    }
    if matches!(left.what, What::Condition(_)) || matches!(right.what, What::Condition(_)) {
        return same(op, left, right);
    }
    let ((left, left_type), (right, right_type)) = (left.into_side(), right.into_side());
    if left_type != right_type && left_type != Type::Any && right_type != Type::Any {
        let cause = format!("{} never compares with {}", left_type.name(), right_type.name());
        return Err(Problem::new(start, end, cause));
    }
    Ok(comparison(op, left, right))
}

/// Compares two conditions, or a condition and a value that can be one.
fn same(op: Comparison, left: Value, right: Value) -> Result<Condition, Problem> {
    for side in [&left, &right] {
        if let What::Operand(_, kind @ (Type::Number | Type::Text)) = side.what {
            return Err(
                side.problem(format!("a condition is compared with conditions and booleans, this is {}", kind.name()))
            );
        }
    }
    let (left, right) = (Box::new(left.into_condition()?), Box::new(right.into_condition()?));
    Ok(Condition::Same { left, right, unequal: op == Comparison::Unequal })
}

/// A comparison in canonical form.
fn comparison(op: Comparison, left: Operand, right: Operand) -> Condition {
    if is_null(&left) || is_null(&right) {
        return Condition::Unknown;
    }
    let swap = match (&left, &right) {
        (Operand::Literal(left), Operand::Literal(right)) => return Condition::Constant(holds(op, left, right)),
        (Operand::Literal(_), _) => true,
        (_, Operand::Literal(_)) => false,
        _ => left > right,
    };
    let (op, left, right) = if swap { (op.mirrored(), right, left) } else { (op, left, right) };
    match (left, right) {
        (Operand::Field(field), Operand::Literal(Literal::Boolean(value))) => {
            if value == (op == Comparison::Equal) {
                Condition::Test(field)
            } else {
                let right = Operand::Literal(Literal::Boolean(false));
                Condition::Compare { op: Comparison::Equal, left: Operand::Field(field), right }
            }
        }
        (left, Operand::Literal(Literal::Double(value))) => {
            let right = Operand::Literal(exact_integer(value).map_or(Literal::Double(value), Literal::Integer));
            Condition::Compare { op, left, right }
        }
        (left, right) => Condition::Compare { op, left, right },
    }
}

/// The integer with the same value.
fn exact_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value)).then_some(value as i64)
}

/// Whether a comparison of literals of one type is true.
fn holds(op: Comparison, left: &Literal, right: &Literal) -> bool {
    let order = match (left, right) {
        (&Literal::Integer(a), &Literal::Double(b)) => order_exactly(a, b),
        (&Literal::Double(a), &Literal::Integer(b)) => order_exactly(b, a).reverse(),
        _ => left.cmp(right),
    };
    match op {
        Comparison::Equal => order.is_eq(),
        Comparison::Unequal => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::AtLeast => order.is_ge(),
    }
}

/// Compares without rounding the integer to a double, which beyond 2^53 would make different
/// numbers equal.
fn order_exactly(integer: i64, double: f64) -> Ordering {
    if let Some(floor) = exact_integer(double.floor()) {
        return integer.cmp(&floor).then(if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Less });
    }
    if double > 0.0 { Ordering::Less } else { Ordering::Greater }
}
