//! A synthetic city: lines along the streets of a grid, and buses that drive along them with stops.
//!
//! One seed gives one city with all its movements, wherever its centre is: at its brokers, or in
//! the middle of the Atlantic by default.

use fastrand::Rng;

use super::geo::Place;
use super::trace::{Builder, Record, Trace, TraceError};

/// The centre of a city whose brokers may be anywhere.
pub const ATLANTIC: Place = Place { lat: 45.0, lon: -30.0 };
/// The distance between two streets, m.
const BLOCK: f64 = 300.0;
/// The distance from the centre to each edge, blocks.
pub const REACH: i32 = 20;
/// The number of buses for which there is one line.
const BUSES_PER_LINE: usize = 12;
/// The distance between stops along a line, m.
const STOP_SPACING: f64 = 450.0;
/// Acceleration and braking, m/s².
const ACCELERATION: f64 = 1.0;
/// The range of a bus's top speed between stops, m/s.
pub const CRUISE: (f64, f64) = (6.0, 14.0);
/// The wait at a stop, s.
const DWELL: (f64, f64) = (8.0, 35.0);
/// The wait at the end of a line, s.
const LAYOVER: (f64, f64) = (90.0, 300.0);
/// The time between two positions of a bus, s.
const INTERVAL: (f64, f64) = (8.0, 12.0);
/// The receiver's error in each direction, m.
const NOISE: f64 = 3.0;
/// The length of the recording, s.
pub const SPAN: f64 = 3600.0;
/// The start of the recording: midnight of 1 January 2000 UTC, as fictitious as the place, ms since
/// the Unix epoch.
const START: i64 = 946_684_800_000;

/// An hour of the city of a seed, with `vehicles` buses, around `centre`.
pub fn synthesize(seed: u64, vehicles: usize, centre: Place) -> Result<Trace, TraceError> {
    let mut rng = Rng::with_seed(seed);
    let mut builder = Builder::new(format!("synthetic city, seed {seed}"));
    let lines: Vec<Street> = (0..vehicles.div_ceil(BUSES_PER_LINE)).map(|_| Street::lay(&mut rng)).collect();
    for vehicle in 0..vehicles {
        let line = vehicle % lines.len();
        drive(&mut rng, &lines[line], |seconds, (east, north)| {
            let place = centre.moved(east, north);
            let millis = START + (seconds * 1000.0) as i64;
            let (name, line) = (format!("bus{:04}", vehicle + 1), (line + 1).to_string());
            builder.add(&Record { vehicle: &name, line: &line, millis, place }, format_args!("bus {vehicle}"))
        })?;
    }
    builder.build()
}

fn within(rng: &mut Rng, (low, high): (f64, f64)) -> f64 {
    low + rng.f64() * (high - low)
}

/// The route of a line: corners, as metres east and north of the centre, joined by straight legs.
struct Street {
    corners: Vec<(f64, f64)>,
    /// By corner: the metres from the first corner.
    along: Vec<f64>,
}

impl Street {
    /// A route from one side of the city to the opposite one, with a turn every few blocks.
    fn lay(rng: &mut Rng) -> Street {
        let (mut at, to) = ((-REACH, rng.i32(-REACH..=REACH)), (REACH, rng.i32(-REACH..=REACH)));
        let mut blocks = vec![at];
        let mut sideways = rng.bool();
        while at != to {
            let left = if sideways { to.1 - at.1 } else { to.0 - at.0 };
            let step = left.abs().min(rng.i32(2..=8)) * left.signum();
            if sideways {
                at.1 += step;
            } else {
                at.0 += step;
            }
            sideways = !sideways;
            if step != 0 {
                blocks.push(at);
            }
        }
        // Half of the lines cross the city from south to north.
        let turned = rng.bool();
        let metres = |&(a, b): &(i32, i32)| {
            let (east, north) = if turned { (b, a) } else { (a, b) };
            (f64::from(east) * BLOCK, f64::from(north) * BLOCK)
        };
        let corners: Vec<(f64, f64)> = blocks.iter().map(metres).collect();
        let mut along = vec![0.0];
        for leg in corners.windows(2) {
            along.push(along[along.len() - 1] + (leg[1].0 - leg[0].0).abs() + (leg[1].1 - leg[0].1).abs());
        }
        Street { corners, along }
    }

    fn length(&self) -> f64 {
        self.along[self.along.len() - 1]
    }

    /// The place `metres` along the line, as metres east and north of the centre.
    fn at(&self, metres: f64) -> (f64, f64) {
        let next = self.along.partition_point(|&along| along < metres).clamp(1, self.along.len() - 1);
        let (from, to) = (self.corners[next - 1], self.corners[next]);
        let share = (metres - self.along[next - 1]) / (self.along[next] - self.along[next - 1]);
        (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
    }
}

/// The drive from one stop to the next, and the wait there.
struct Hop {
    begin: f64,
    from: f64,
    to: f64,
    cruise: f64,
}

impl Hop {
    /// The seconds of acceleration, and the seconds at cruising speed. Braking takes as long as
    /// acceleration.
    fn phases(&self) -> (f64, f64) {
        let distance = (self.to - self.from).abs();
        let ramp = (self.cruise / ACCELERATION).min((distance / ACCELERATION).sqrt());
        (ramp, (distance / (ramp * ACCELERATION) - ramp).max(0.0))
    }

    fn arrival(&self) -> f64 {
        let (ramp, steady) = self.phases();
        self.begin + ramp + steady + ramp
    }

    /// The metres along the line at a moment.
    fn at(&self, seconds: f64) -> f64 {
        let (ramp, steady) = self.phases();
        let spent = (seconds - self.begin).clamp(0.0, ramp + steady + ramp);
        let to_go = ramp + steady + ramp - spent;
        let distance = (self.to - self.from).abs();
        let done = if spent < ramp {
            ACCELERATION * spent * spent / 2.0
        } else if to_go < ramp {
            distance - ACCELERATION * to_go * to_go / 2.0
        } else {
            ACCELERATION * ramp * (spent - ramp / 2.0)
        };
        self.from + done.min(distance) * (self.to - self.from).signum()
    }
}

/// Drives one bus for [`SPAN`]: `tell` is given each time at which it reports, s, and its place,
/// metres east and north of the centre.
fn drive(
    rng: &mut Rng,
    street: &Street,
    mut tell: impl FnMut(f64, (f64, f64)) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let stops = (street.length() / STOP_SPACING).floor().max(1.0);
    let spacing = street.length() / stops;
    let mut stop = rng.i32(0..=stops as i32);
    let mut direction = if rng.bool() { 1 } else { -1 };
    let mut now = -within(rng, LAYOVER);
    let interval = within(rng, INTERVAL);
    let mut next_report = rng.f64() * interval;
    while now < SPAN {
        if (direction > 0 && stop == stops as i32) || (direction < 0 && stop == 0) {
            direction = -direction;
            now += within(rng, LAYOVER);
        }
        let (from, to) = (f64::from(stop) * spacing, f64::from(stop + direction) * spacing);
        let hop = Hop { begin: now, from, to, cruise: within(rng, CRUISE) };
        stop += direction;
        now = hop.arrival() + within(rng, DWELL);
        while next_report < now.min(SPAN) {
            let (east, north) = street.at(hop.at(next_report));
            let (east, north) = (east + within(rng, (-NOISE, NOISE)), north + within(rng, (-NOISE, NOISE)));
            tell(next_report, (east, north))?;
            next_report += interval;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn city(seed: u64, vehicles: usize) -> Trace {
        synthesize(seed, vehicles, ATLANTIC).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
    }

    #[test]
    fn one_seed_gives_one_city_and_another_seed_another() {
        let (first, again, other) = (city(7, 30), city(7, 30), city(8, 30));
        assert_eq!(first.positions, again.positions);
        assert_ne!(first.positions, other.positions);
    }

    #[test]
    fn buses_move_as_buses_do() {
        for seed in 0..10 {
            let trace = city(seed, 48);
            let speeds: Vec<f32> = trace.positions.iter().map(|position| position.motion.speed).collect();
            // The noise of two fixes adds to the distance between them.
            let limit = CRUISE.1 + 2.0 * 2.0_f64.sqrt() * NOISE / INTERVAL.0;
            let fastest = speeds.iter().copied().fold(0.0, f32::max);
            assert!(f64::from(fastest) <= limit, "seed {seed}: {fastest} m/s");
            let mean = speeds.iter().sum::<f32>() / speeds.len() as f32;
            assert!((3.0..9.0).contains(&mean), "seed {seed}: {mean} m/s on average");
            let standing = speeds.iter().filter(|&&speed| speed < 1.5).count() as f64 / speeds.len() as f64;
            assert!((0.05..0.6).contains(&standing), "seed {seed}: {standing} of the time at stops");
        }
    }

    #[test]
    fn buses_stay_on_their_streets_within_the_city() {
        for seed in 0..10 {
            for position in city(seed, 24).positions {
                let place = position.fix.place;
                let east = ATLANTIC.distance(Place { lat: ATLANTIC.lat, ..place });
                let north = ATLANTIC.distance(Place { lon: ATLANTIC.lon, ..place });
                let reach = f64::from(REACH) * BLOCK + NOISE + 1.0;
                assert!(east < reach && north < reach, "seed {seed}: {place:?}");
                let off = |metres: f64| (metres - (metres / BLOCK).round() * BLOCK).abs();
                // The plane at the centre and the one halfway differ by some metres at the city's
                // edge.
                assert!(off(east).min(off(north)) < NOISE + 8.0, "seed {seed}: {east} m, {north} m off the centre");
            }
        }
    }

    #[test]
    fn the_same_city_lies_wherever_it_is_asked_to() {
        let warsaw = Place { lat: 52.23, lon: 21.01 };
        let (here, there) = (synthesize(5, 12, warsaw).expect("a city"), city(5, 12));
        assert_eq!(here.positions.len(), there.positions.len());
        for (here, there) in here.positions.iter().zip(&there.positions) {
            assert_eq!((here.fix.vehicle, here.fix.millis), (there.fix.vehicle, there.fix.millis));
            let difference = warsaw.distance(here.fix.place) - ATLANTIC.distance(there.fix.place);
            assert!(difference.abs() < 20.0, "{difference} m");
        }
    }

    #[test]
    fn every_bus_tells_its_position_all_the_time() {
        let trace = city(3, 100);
        assert_eq!(trace.vehicles.len(), 100);
        assert_eq!(trace.lines.len(), 100_usize.div_ceil(BUSES_PER_LINE));
        assert!(trace.span() as f64 > (SPAN - INTERVAL.1) * 1000.0);
        let mut last = vec![START; trace.vehicles.len()];
        for position in &trace.positions {
            let before = std::mem::replace(&mut last[position.fix.vehicle as usize], position.fix.millis);
            let gap = (position.fix.millis - before) as f64 / 1000.0;
            assert!(gap <= INTERVAL.1 + 0.001, "a gap of {gap} s");
        }
    }

    #[test]
    fn a_hop_covers_its_way_without_jumps() {
        for (length, cruise) in [(450.0, 14.0), (40.0, 14.0), (300.0, 6.0)] {
            let hop = Hop { begin: 5.0, from: 1_000.0, to: 1_000.0 - length, cruise };
            assert_eq!(hop.at(0.0), 1_000.0);
            assert!((hop.at(hop.arrival()) - (1_000.0 - length)).abs() < 1e-6);
            let mut before = 1_000.0;
            let mut moment = hop.begin;
            while moment < hop.arrival() {
                moment += 0.1;
                let at = hop.at(moment);
                assert!(before - at <= cruise * 0.1 + 1e-9 && at <= before, "{length} m: {before} to {at}");
                before = at;
            }
        }
    }
}
