//! The outages of consoles: the mobility model of the simulations ([`whimbrel_sim::mobility`]) with
//! its defaults, in the recording's time.

use std::time::Duration;

use whimbrel_sim::mobility::{Mobility, Node, State};
use whimbrel_sim::random::Random;

/// The shortest outage in real time: a shorter one would not be noticed.
const SHORTEST: Duration = Duration::from_millis(20);

/// One console's times with and without a signal, alternately and without end.
pub struct Outages {
    node: Node,
    speed_up: f64,
}

impl Outages {
    /// The times of a console, by its number, in a replay that is `speed_up` times as fast as
    /// recorded.
    pub fn new(seed: u64, console: u64, speed_up: f64) -> Outages {
        let mut random = Random::new(seed);
        let random = Random::new(random.next().wrapping_add(console));
        // There is one broker, and so no other to hand over to.
        let mobility = Mobility { graceful_rate: 0.0, brokers: 1, ..Mobility::default() };
        let node = Node::new(mobility, 0, random).expect("the model's defaults are possible");
        Outages { node, speed_up }
    }
}

impl Iterator for Outages {
    /// How long it has a signal, and how long it has none after that.
    type Item = (Duration, Duration);

    fn next(&mut self) -> Option<(Duration, Duration)> {
        let (up, down) = (self.node.next()?, self.node.next()?);
        debug_assert!(up.state == State::Connected && down.state == State::SignalDown);
        Some((up.duration.div_f64(self.speed_up), down.duration.div_f64(self.speed_up).max(SHORTEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_away_for_the_models_part_of_time_and_faster_replays_have_shorter_outages() {
        let model = Mobility::default();
        for speed_up in [1.0, 10.0] {
            let times: Vec<(Duration, Duration)> = Outages::new(1, 7, speed_up).take(100_000).collect();
            let up: f64 = times.iter().map(|(up, _)| up.as_secs_f64()).sum();
            let down: f64 = times.iter().map(|(_, down)| down.as_secs_f64()).sum();
            let (mean, expected) = (down / times.len() as f64, model.mean_outage.as_secs_f64() / speed_up);
            assert!((mean / expected - 1.0).abs() < 0.02, "{mean} s where {expected} s are expected");
            let part = down / (up + down);
            assert!((part / model.fraction_down - 1.0).abs() < 0.02, "{part} of the time");
        }
    }

    #[test]
    fn consoles_differ_and_a_seed_gives_the_same_again() {
        let first = |console| Outages::new(1, console, 10.0).next();
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(4));
    }
}
