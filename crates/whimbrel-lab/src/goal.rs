//! Goals of figures.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bench::report::number;

/// The relative difference that "about" allows.
const ABOUT: f64 = 0.1;

/// The difference from a computed percentage that "near" allows, in points.
const POINTS: f64 = 2.0;

/// The direction of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// Exactly.
    #[serde(rename = "=")]
    Exactly,
    /// Within 10 % of the value.
    #[serde(rename = "±10%")]
    About,
    /// Percentages: within 2 points of the value.
    #[serde(rename = "±2")]
    Near,
    /// No goal: the figure stands beside others.
    #[serde(rename = "-")]
    Shown,
}

/// A bound for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The direction.
    pub op: Op,
    /// The bound.
    pub value: f64,
}

impl Goal {
    /// At most `value`.
    pub const fn at_most(value: f64) -> Goal {
        Goal { op: Op::AtMost, value }
    }

    /// At least `value`.
    pub const fn at_least(value: f64) -> Goal {
        Goal { op: Op::AtLeast, value }
    }

    /// Exactly `value`.
    pub const fn exactly(value: f64) -> Goal {
        Goal { op: Op::Exactly, value }
    }

    /// Within 10 % of `value`.
    pub const fn about(value: f64) -> Goal {
        Goal { op: Op::About, value }
    }

    /// Within 2 points of `value`, both percentages.
    pub const fn near(value: f64) -> Goal {
        Goal { op: Op::Near, value }
    }

    /// No goal.
    pub const SHOWN: Goal = Goal { op: Op::Shown, value: 0.0 };

    /// Whether a figure that is known to lie from `low` to `high` may meet the goal; for an exact
    /// figure they are equal.
    pub fn is_met(self, [low, high]: [f64; 2]) -> bool {
        let around = |slack: f64| low <= self.value + slack && high >= self.value - slack;
        match self.op {
            Op::AtMost => low <= self.value,
            Op::AtLeast => high >= self.value,
            Op::Exactly => around(0.0),
            Op::About => around((self.value * ABOUT).abs()),
            Op::Near => around(POINTS),
            Op::Shown => true,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = number(self.value);
        match self.op {
            Op::AtMost => write!(f, "≤ {value}"),
            Op::AtLeast => write!(f, "≥ {value}"),
            Op::Exactly => write!(f, "= {value}"),
            Op::About => write!(f, "{value} ±10%"),
            Op::Near => write!(f, "{value} ±2"),
            Op::Shown => write!(f, "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_part_of_what_meets_a_goal() {
        let exact = |goal: Goal, figure: f64| goal.is_met([figure; 2]);
        assert!(exact(Goal::at_most(2.0), 2.0) && !exact(Goal::at_most(2.0), 2.1));
        assert!(exact(Goal::at_least(2.0), 2.0) && !exact(Goal::at_least(2.0), 1.9));
        assert!(exact(Goal::exactly(1.0), 1.0) && !exact(Goal::exactly(1.0), 0.99) && !exact(Goal::exactly(1.0), 1.01));
        assert!(exact(Goal::about(2.0), 1.81) && exact(Goal::about(2.0), 2.19));
        assert!(!exact(Goal::about(2.0), 1.79) && !exact(Goal::about(2.0), 2.21));
        assert!(exact(Goal::near(-5.0), -7.0) && !exact(Goal::near(-5.0), -2.9));
        assert!(exact(Goal::SHOWN, 7.0));
        assert!(Goal::about(2.0).is_met([0.0, 9.0]) && Goal::at_most(0.0).is_met([0.0, 1.0]));
    }
}
