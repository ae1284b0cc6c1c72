//! When mobile subscribers are connected: the mobility model of Farooq, Majumdar and Parsons (High
//! performance publish/subscribe middleware for mobile wireless networks, section 3).
//!
//! A [`Node`] stays connected for an exponential time. Then it either hands over gracefully (it
//! leaves one broker and is at once at the same or another one), or its signal is down for a time
//! of a given mean and coefficient of variation; with probability 0.9 it then returns in the same
//! cell, else in another. A node is an endless sequence of [`Stay`]s, all drawn from one seed.

use std::time::Duration;

use crate::random::Random;

/// How many of 1,000 outages end in the cell in which they began.
pub const SAME_CELL_PERMILLE: u64 = 900;

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// The parameters of outages and handovers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mobility {
    /// The mean time without signal.
    pub mean_outage: Duration,
    /// The coefficient of variation of the time without signal, at least 1: exponential at 1, else
    /// hyper-exponential of two phases that contribute equally to the mean.
    pub cv: f64,
    /// The fraction of all time without signal, at least 0 and below 1.
    pub fraction_down: f64,
    /// Graceful handovers per second of all time.
    pub graceful_rate: f64,
    /// The number of brokers, each with one cell; at least 1.
    pub brokers: usize,
}

/// The paper's default surroundings.
impl Default for Mobility {
    fn default() -> Self {
        Mobility {
            mean_outage: Duration::from_secs(12),
            cv: 1.0,
            fraction_down: 0.0742,
            graceful_rate: 0.000_309,
            brokers: 2,
        }
    }
}

/// Parameters that no node can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Impossible {
    /// There is no broker to be connected to.
    NoBroker,
    /// The fraction of time without signal is not in [0, 1), or a rate is negative, or no number.
    OutOfRange,
    /// The coefficient of variation is below 1, where there is no hyper-exponential distribution.
    Variation,
    /// Outages of zero length fill a part of the time.
    NoOutage,
    /// Outages and handovers leave no time to be connected.
    NoTimeConnected,
}

impl Mobility {
    /// The rate at which a node's signal goes down, per second of all time.
    pub fn outage_rate(&self) -> f64 {
        if self.fraction_down == 0.0 { 0.0 } else { self.fraction_down / self.mean_outage.as_secs_f64() }
    }

    /// The mean time between a node's requests to connect; `None` if it never moves.
    pub fn between_requests(&self) -> Option<Duration> {
        let rate = self.outage_rate() + self.graceful_rate;
        (rate > 0.0).then(|| Duration::from_nanos((SECOND / rate) as u64))
    }

    /// The mean time for which a node stays connected; `None` if it never moves. A cycle is one
    /// residence and, if it does not end in a handover, one outage. So residence = (1 - fraction
    /// down) / (rate of outages + rate of handovers).
    pub fn mean_residence(&self) -> Option<Duration> {
        Some(self.between_requests()?.mul_f64(1.0 - self.fraction_down))
    }

    /// # Errors
    /// When no node can be like that.
    fn check(&self) -> Result<(), Impossible> {
        let rates = (0.0..1.0).contains(&self.fraction_down) && (0.0..SECOND).contains(&self.graceful_rate);
        if self.brokers == 0 {
            Err(Impossible::NoBroker)
        } else if !rates {
            Err(Impossible::OutOfRange)
        } else if !(self.cv >= 1.0 && self.cv.is_finite()) {
            Err(Impossible::Variation)
        } else if self.fraction_down > 0.0 && self.mean_outage.is_zero() {
            Err(Impossible::NoOutage)
        } else if self.mean_residence().is_some_and(|mean| mean.is_zero()) {
            Err(Impossible::NoTimeConnected)
        } else {
            Ok(())
        }
    }
}

/// Whether a node is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The node is connected to the broker. If it was connected before, it has handed over
    /// gracefully, maybe to the same broker.
    Connected,
    /// The node has no signal.
    SignalDown,
}

/// A time in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Its length. A node that never moves stays for the longest representable time.
    pub duration: Duration,
    /// The state.
    pub state: State,
    /// The broker; while the signal is down, the last one.
    pub broker: usize,
}

/// One mobile node: an endless iterator.
#[derive(Clone, Debug)]
pub struct Node {
    mobility: Mobility,
    random: Random,
    broker: usize,
    state: State,
    /// Whether its first stay has been returned.
    begun: bool,
    mean_residence: Option<Duration>,
    /// How many of 2^32 residences end in a graceful handover.
    graceful: u64,
    /// How many of 2^32 outages are of the first phase; and the mean of each phase.
    phases: (u64, [Duration; 2]),
}

/// Probabilities are counted in parts of this whole.
const WHOLE: u64 = 1 << 32;

impl Node {
    /// A node that begins connected to `broker`.
    ///
    /// # Errors
    /// When no node can be like that.
    ///
    /// # Panics
    /// When there is no such broker.
    pub fn new(mobility: Mobility, broker: usize, random: Random) -> Result<Self, Impossible> {
        mobility.check()?;
        assert!(broker < mobility.brokers, "broker {broker} of {}", mobility.brokers);
        let (graceful, outages) = (mobility.graceful_rate, mobility.outage_rate());
        let square = mobility.cv * mobility.cv;
        let first = (1.0 + ((square - 1.0) / (square + 1.0)).sqrt()) / 2.0;
        let mean = |probability: f64| mobility.mean_outage.mul_f64(0.5 / probability);
        Ok(Node {
            mobility,
            random,
            broker,
            state: State::Connected,
            begun: false,
            mean_residence: mobility.mean_residence(),
            graceful: of_whole(if graceful > 0.0 { graceful / (graceful + outages) } else { 0.0 }),
            phases: (of_whole(first), [mean(first), mean(1.0 - first)]),
        })
    }

    /// Moves to the state that follows the present one.
    fn move_on(&mut self) {
        match self.state {
            State::SignalDown => {
                self.state = State::Connected;
                if !self.random.chance(SAME_CELL_PERMILLE) && self.mobility.brokers > 1 {
                    let others = self.mobility.brokers as u64 - 1;
                    let step = 1 + self.random.below(others) as usize;
                    self.broker = (self.broker + step) % self.mobility.brokers;
                }
            }
            State::Connected if self.random.below(WHOLE) < self.graceful => {
                self.broker = self.random.below(self.mobility.brokers as u64) as usize;
            }
            State::Connected => self.state = State::SignalDown,
        }
    }

    fn draw_duration(&mut self) -> Duration {
        match (self.state, self.mean_residence) {
            (State::Connected, None) => Duration::MAX,
            (State::Connected, Some(mean)) => self.random.exponential(mean),
            (State::SignalDown, _) => {
                let (first, means) = self.phases;
                let phase = usize::from(self.random.below(WHOLE) >= first);
                self.random.exponential(means[phase])
            }
        }
    }
}

fn of_whole(probability: f64) -> u64 {
    (probability * WHOLE as f64) as u64
}

impl Iterator for Node {
    type Item = Stay;

    fn next(&mut self) -> Option<Stay> {
        if core::mem::replace(&mut self.begun, true) {
            self.move_on();
        }
        Some(Stay { duration: self.draw_duration(), state: self.state, broker: self.broker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of stays examined: means are then within a few percent, also those of widely
    /// varying times.
    const STAYS: usize = 400_000;

    fn stays(mobility: Mobility) -> Vec<Stay> {
        Node::new(mobility, 0, Random::new(1)).expect("possible").take(STAYS).collect()
    }

    fn is_near(measured: f64, expected: f64, within: f64) {
        assert!((measured / expected - 1.0).abs() < within, "{measured} where {expected} is expected");
    }

    fn mean_and_cv(times: &[f64]) -> (f64, f64) {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    fn durations(stays: &[Stay], state: State) -> Vec<f64> {
        stays.iter().filter(|stay| stay.state == state).map(|stay| stay.duration.as_secs_f64()).collect()
    }

    #[test]
    fn the_papers_defaults_give_the_papers_times() {
        let mobility = Mobility::default();
        let between = mobility.between_requests().expect("it moves").as_secs_f64();
        is_near(between, 154.32, 0.003);
        is_near(mobility.outage_rate(), 0.006_17, 0.003);
        let slower =
            Mobility { mean_outage: Duration::from_secs(24), graceful_rate: 0.000_309 / 2.0, ..Mobility::default() };
        is_near(slower.between_requests().expect("it moves").as_secs_f64(), 308.64, 0.003);
    }

    #[test]
    fn the_signal_is_down_for_the_wanted_fraction_of_time_in_outages_of_the_wanted_mean_and_variation() {
        for (seconds, cv, fraction) in
            [(12, 1.0, 0.0742), (12, 1.5, 0.15), (24, 2.0, 0.0742), (12, 2.5, 0.01), (12, 1.0, 0.002)]
        {
            let mean_outage = Duration::from_secs(seconds);
            let mobility = Mobility { mean_outage, cv, fraction_down: fraction, ..Mobility::default() };
            let stays = stays(mobility);
            let (down, up) = (durations(&stays, State::SignalDown), durations(&stays, State::Connected));
            let all = down.iter().chain(&up).sum::<f64>();
            let (mean, measured) = mean_and_cv(&down);
            is_near(mean, seconds as f64, 0.03);
            is_near(measured, cv, 0.03);
            is_near(down.iter().sum::<f64>() / all, fraction, 0.03);
            let (residence, exponential) = mean_and_cv(&up);
            is_near(residence, mobility.mean_residence().expect("it moves").as_secs_f64(), 0.02);
            is_near(exponential, 1.0, 0.02);
        }
    }

    #[test]
    fn handovers_are_as_frequent_as_wanted_and_outages_mostly_end_where_they_began() {
        let mobility = Mobility { brokers: 3, ..Mobility::default() };
        let stays = stays(mobility);
        let all = stays.iter().map(|stay| stay.duration.as_secs_f64()).sum::<f64>();
        let pairs = || stays.windows(2).map(|pair| (pair[0], pair[1]));
        let handovers = pairs().filter(|(a, b)| a.state == b.state && a.state == State::Connected).count();
        is_near(handovers as f64 / all, mobility.graceful_rate, 0.05);
        let moved =
            pairs().filter(|(a, b)| a.state == b.state && a.broker != b.broker).count() as f64 / handovers as f64;
        is_near(moved, 2.0 / 3.0, 0.05);
        let outages = pairs().filter(|(a, _)| a.state == State::SignalDown).count();
        let back = pairs().filter(|(a, b)| a.state == State::SignalDown && a.broker == b.broker).count();
        is_near(back as f64 / outages as f64, 0.9, 0.01);
        assert!(pairs().all(|(a, b)| b.state != State::SignalDown || a.broker == b.broker), "no move without signal");
    }

    #[test]
    fn without_outages_there_are_only_handovers_and_without_those_nothing() {
        let still = Mobility { fraction_down: 0.0, ..Mobility::default() };
        assert!(stays(still).iter().all(|stay| stay.state == State::Connected));
        let mut fixed =
            Node::new(Mobility { graceful_rate: 0.0, ..still }, 1, Random::new(1)).expect("nothing is wrong with that");
        assert_eq!(fixed.next(), Some(Stay { duration: Duration::MAX, state: State::Connected, broker: 1 }));
    }

    #[test]
    fn what_no_node_can_be_is_refused() {
        let usual = Mobility::default();
        for (mobility, why) in [
            (Mobility { brokers: 0, ..usual }, Impossible::NoBroker),
            (Mobility { fraction_down: 1.0, ..usual }, Impossible::OutOfRange),
            (Mobility { graceful_rate: f64::NAN, ..usual }, Impossible::OutOfRange),
            (Mobility { cv: 0.9, ..usual }, Impossible::Variation),
            (Mobility { mean_outage: Duration::ZERO, ..usual }, Impossible::NoOutage),
            (
                Mobility { mean_outage: Duration::from_nanos(1), fraction_down: 0.9, ..usual },
                Impossible::NoTimeConnected,
            ),
        ] {
            assert_eq!(Node::new(mobility, 0, Random::new(1)).err(), Some(why), "{mobility:?}");
        }
    }

    #[test]
    fn a_seed_is_all_there_is_to_a_node() {
        let node = || Node::new(Mobility::default(), 0, Random::new(7)).expect("possible").take(100);
        assert!(node().eq(node()));
    }
}
