//! The processor time of a core's operations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// CPU time of each operation, of a broker process as a whole: its sockets, its journal and its
/// core. [`Costs::FREE`]: no operation takes any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// An event is accepted from a publisher and logged, and its publisher is answered.
    pub publish: Duration,
    /// An event is sent over one link.
    pub forward: Duration,
    /// An event arrives over a link, and its filter record is logged.
    pub receive: Duration,
    /// An event is delivered to one subscriber.
    pub deliver: Duration,
    /// A position that a subscriber acknowledges is taken, and logged.
    pub acknowledge: Duration,
}

impl Costs {
    /// Processors that are infinitely fast.
    pub const FREE: Costs = Costs {
        publish: Duration::ZERO,
        forward: Duration::ZERO,
        receive: Duration::ZERO,
        deliver: Duration::ZERO,
        acknowledge: Duration::ZERO,
    };

    /// The names of the operations, in the order of [`Costs::all`].
    pub const NAMES: [&'static str; 5] = ["publish", "forward", "receive", "deliver", "acknowledge"];

    /// The cost of each operation.
    pub fn all(&self) -> [Duration; 5] {
        [self.publish, self.forward, self.receive, self.deliver, self.acknowledge]
    }

    /// The costs with each operation's cost multiplied by its factor.
    pub fn scaled(&self, factors: [f64; 5]) -> Costs {
        let of = |at: usize| self.all()[at].mul_f64(factors[at]);
        Costs { publish: of(0), forward: of(1), receive: of(2), deliver: of(3), acknowledge: of(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_scaled_by_its_own_factor() {
        let micros = Duration::from_micros;
        let costs = Costs {
            publish: micros(10),
            forward: micros(20),
            receive: micros(30),
            deliver: micros(40),
            acknowledge: micros(50),
        };
        assert_eq!(costs.scaled([1.0, 2.0, 0.0, 1.0, 3.0]).all(), [10, 40, 0, 40, 150].map(micros));
    }
}
