//! The truth of all links, and the checker that knows it: what an omniscient router would do.

use std::time::Duration;

use whimbrel_event::Time;

use super::scene::MESH;
use crate::cores::START;
use crate::cores::wire::{WayCourse, WayTruth};

/// The truth of a link in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkTruth {
    /// The brokers.
    pub ends: [usize; 2],
    /// The truth from the first broker and from the second one.
    pub courses: [WayCourse; 2],
}

/// The truth of all links.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// The links.
    pub links: Vec<LinkTruth>,
}

impl Truth {
    /// Links of fixed delays.
    pub fn steady(links: impl IntoIterator<Item = ([usize; 2], Duration)>) -> Truth {
        let of = |(ends, delay): ([usize; 2], Duration)| {
            let course = || WayCourse(vec![(START, WayTruth::steady(delay))]);
            LinkTruth { ends, courses: [course(), course()] }
        };
        Truth { links: links.into_iter().map(of).collect() }
    }

    /// The paper's mesh.
    pub fn mesh() -> Truth {
        Truth::steady(MESH.map(|(ends, millis)| (ends, Duration::from_millis(u64::from(millis)))))
    }

    /// Changes the truth of one link from a moment on, as `change` says for each side that sends.
    pub fn change(&mut self, link: usize, from: Time, change: impl Fn(usize, WayTruth) -> WayTruth) {
        for (side, course) in self.links[link].courses.iter_mut().enumerate() {
            let last = course.0.last().expect("a course has a beginning").1;
            course.0.push((from, change(side, last)));
        }
    }

    /// Changes the truth of all links from the beginning.
    pub fn map(mut self, change: impl Fn(WayTruth) -> WayTruth) -> Truth {
        for (_, way) in self.links.iter_mut().flat_map(|link| &mut link.courses).flat_map(|course| &mut course.0) {
            *way = change(*way);
        }
        self
    }

    /// The truth of the link from a broker to another one at a moment.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn way(&self, from: usize, to: usize, at: Time) -> &WayTruth {
        self.course(from, to).at(at)
    }

    /// The truth of the link from a broker to another one over time.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn course(&self, from: usize, to: usize) -> &WayCourse {
        let is_it = |link: &&LinkTruth| link.ends == [from, to] || link.ends == [to, from];
        let link = self.links.iter().find(is_it).expect("they are linked");
        &link.courses[usize::from(link.ends[0] != from)]
    }
}

/// Arrivals from one broker that hold for a span of time.
#[derive(Clone, Debug)]
struct KnownFloor {
    from: Time,
    until: Time,
    /// By broker: the time that it takes.
    takes: Vec<Duration>,
}

/// The floor: the earliest arrival of an event that any router could reach.
///
/// It is the earliest arrival in the time-expanded graph of the truth: an event may wait at a
/// broker, and a hop costs nothing but its delay. Found by Dijkstra's algorithm: with waiting, to
/// leave later never makes an event arrive earlier (Dreyfus, "An Appraisal of Some Shortest-Path
/// Algorithms", 1969). The noise of a delay counts as its least; a link that loses some packets
/// carries those of an omniscient router.
#[derive(Debug)]
pub struct Floor {
    /// By broker: the links from it, with the broker at the other end.
    edges: Vec<Vec<(usize, WayCourse)>>,
    /// The moments of all changes, in order.
    changes: Vec<Time>,
    /// By broker.
    known: Vec<Option<KnownFloor>>,
}

impl Floor {
    /// The floor of a truth among a number of brokers.
    pub fn new(truth: &Truth, brokers: usize) -> Floor {
        let mut edges = vec![Vec::new(); brokers];
        let mut changes = Vec::new();
        for LinkTruth { ends, courses } in &truth.links {
            for (side, course) in courses.iter().enumerate() {
                changes.extend(course.0.iter().map(|(from, _)| *from));
                edges[ends[side]].push((ends[1 - side], course.clone()));
            }
        }
        changes.sort_unstable();
        changes.dedup();
        Floor { edges, changes, known: vec![None; brokers] }
    }

    /// The time that an event takes at least from one broker to another one if it is published at
    /// this moment; `None`: it never arrives.
    pub fn takes(&mut self, from: usize, to: usize, at: Time) -> Option<Duration> {
        let is_known = |known: &&KnownFloor| known.from <= at && at < known.until;
        if let Some(known) = self.known[from].as_ref().filter(is_known) {
            return Some(known.takes[to]);
        }
        let arrivals = self.arrivals(from, at);
        let takes: Option<Vec<Duration>> =
            arrivals.iter().map(|arrival| arrival.map(|arrival| arrival.since(at))).collect();
        if let Some(takes) = takes {
            // They hold as long as the last one arrives before the next change.
            let next = self.changes.partition_point(|change| *change <= at);
            let last = takes.iter().max().copied().unwrap_or_default();
            let until = self
                .changes
                .get(next)
                .map_or(Time::MAX, |change| Time::from_nanos(change.as_nanos().saturating_sub(last.as_nanos() as u64)));
            self.known[from] = Some(KnownFloor { from: at, until, takes });
        }
        arrivals[to].map(|arrival| arrival.since(at))
    }

    /// The earliest arrival at each broker.
    fn arrivals(&self, from: usize, at: Time) -> Vec<Option<Time>> {
        let mut arrivals: Vec<Option<Time>> = vec![None; self.edges.len()];
        let mut is_final = vec![false; self.edges.len()];
        arrivals[from] = Some(at);
        // Bounded by the number of brokers: each turn makes one final.
        loop {
            let open = (0..self.edges.len()).filter(|node| !is_final[*node] && arrivals[*node].is_some());
            let Some(node) = open.min_by_key(|node| arrivals[*node]) else { return arrivals };
            is_final[node] = true;
            let reached = arrivals[node].expect("it is open");
            for (to, course) in &self.edges[node] {
                if let Some(arrival) = earliest(course, reached)
                    && arrivals[*to].is_none_or(|known| arrival < known)
                {
                    arrivals[*to] = Some(arrival);
                }
            }
        }
    }
}

/// The earliest arrival over a link from a moment on; waiting for a later truth may be faster.
fn earliest(course: &WayCourse, at: Time) -> Option<Time> {
    let least = |way: &WayTruth| way.delay.mul_f64(1.0 - way.noise);
    let arrival = |from: Time, way: &WayTruth| way.carries().then(|| from.max(at) + least(way));
    let now = arrival(at, course.at(at));
    let next = course.0.partition_point(|(from, _)| *from <= at);
    let later = course.0[next..].iter().filter_map(|(from, way)| arrival(*from, way));
    now.into_iter().chain(later).min()
}

#[cfg(test)]
mod tests {
    use whimbrel_sim::random::Random;

    use super::super::scene::{ALL_PAIRS, BROKERS, DEADLINE, LINKS, PUBLISHERS, SLOW, Trouble};
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Moments up to which events leave a broker in the naive search.
    const HORIZON: u32 = 48;

    const NODES: usize = 4;

    /// Three phases of a few milliseconds each; in some of them nothing is carried.
    fn random_course(random: &mut Random) -> WayCourse {
        let mut at = START;
        let phase = |_| {
            let delay = MILLI * random.between(1, 12) as u32;
            let loss = f64::from(u8::from(random.chance(400)));
            let phase = (at, WayTruth { loss, ..WayTruth::steady(delay) });
            at = at + MILLI * random.between(1, 8) as u32;
            phase
        };
        WayCourse((0..3).map(phase).collect())
    }

    fn random_truth(random: &mut Random) -> Truth {
        let mut links = Vec::new();
        for one in 0..NODES {
            for other in one + 1..NODES {
                if !random.chance(300) {
                    let courses = [random_course(random), random_course(random)];
                    links.push(LinkTruth { ends: [one, other], courses });
                }
            }
        }
        Truth { links }
    }

    /// The earliest arrival over all simple paths, leaving each broker at each millisecond.
    fn naive(truth: &Truth, path: &mut Vec<usize>, at: Time, best: &mut [Option<Time>; NODES]) {
        let node = *path.last().expect("a path has a beginning");
        if best[node].is_none_or(|known| at < known) {
            best[node] = Some(at);
        }
        for LinkTruth { ends, courses } in &truth.links {
            let Some(side) = ends.iter().position(|end| *end == node) else { continue };
            let to = ends[1 - side];
            if path.contains(&to) {
                continue;
            }
            let mut leaves = at;
            while leaves <= START + MILLI * HORIZON {
                let way = courses[side].at(leaves);
                if way.carries() {
                    path.push(to);
                    naive(truth, path, leaves + way.delay, best);
                    path.pop();
                }
                leaves = leaves + MILLI;
            }
        }
    }

    #[test]
    fn the_floor_is_the_best_of_all_simple_paths_with_all_waits() {
        let mut random = Random::new(11);
        let mut waits = 0;
        for world in 0..60 {
            let truth = random_truth(&mut random);
            let mut floor = Floor::new(&truth, NODES);
            for start in [0, 3, 6] {
                let at = START + MILLI * start;
                let mut best = [None; NODES];
                naive(&truth, &mut vec![0], at, &mut best);
                for (to, naive) in best.iter().enumerate() {
                    let naive = naive.map(|arrival| arrival.since(at));
                    assert_eq!(floor.takes(0, to, at), naive, "world {world}, from {start} ms, to {to}: {truth:?}");
                }
                let frozen = Truth::steady(truth.links.iter().filter_map(|link| {
                    let way = link.courses[0].at(at);
                    way.carries().then_some((link.ends, way.delay))
                }));
                let static_best = Floor::new(&frozen, NODES).takes(0, NODES - 1, at);
                waits += u32::from(static_best.is_none() && floor.takes(0, NODES - 1, at).is_some());
            }
        }
        assert!(waits > 0, "in some worlds an event has to wait");
    }

    /// By pair: the probability that no path is in time, in per cent, over all states of the links.
    fn beyond(trouble: Trouble, is_beyond: impl Fn(Option<Duration>) -> bool) -> [f64; 6] {
        let mut sums = [0.0; 6];
        for state in 0..1_u32 << LINKS {
            let bad = state.count_ones() as i32;
            let probability = 0.12_f64.powi(bad) * 0.88_f64.powi(LINKS as i32 - bad);
            let mut truth = Truth::mesh();
            for link in (0..LINKS).filter(|link| state & 1 << link != 0) {
                truth.change(link, START, |_, way| trouble.of(way));
            }
            let mut floor = Floor::new(&truth, BROKERS);
            for (sum, pair) in sums.iter_mut().zip(ALL_PAIRS) {
                let takes = floor.takes(PUBLISHERS[pair.topic], pair.to, START + MILLI);
                *sum += if is_beyond(takes) { 100.0 * probability } else { 0.0 };
            }
        }
        sums
    }

    #[test]
    fn over_all_states_of_the_links_the_floor_is_what_was_computed_before() {
        let late = beyond(Trouble::Slow, |takes| takes.expect("slow links carry") > DEADLINE);
        let thousandths = late.map(|late| (late * 1_000.0).round());
        assert!(thousandths.iter().all(|late| (48.0..=64.0).contains(late)), "{late:?}");
        for pair in [0, 4, 5] {
            assert_eq!(thousandths[pair], 64.0, "{}: {late:?}", ALL_PAIRS[pair].name);
        }
        let cut_off = beyond(Trouble::Hole, |takes| takes.is_none());
        let mean = cut_off.iter().sum::<f64>() / cut_off.len() as f64;
        assert_eq!((mean * 1_000.0).round(), 43.0, "{cut_off:?}");
    }

    #[test]
    fn a_link_is_found_from_both_ends_and_changes_by_direction() {
        let mut truth = Truth::mesh();
        let at = START + MILLI;
        truth.change(0, at, |side, way| if side == 0 { WayTruth { delay: SLOW, ..way } } else { way });
        assert_eq!((truth.way(0, 1, START).delay, truth.way(0, 1, at).delay), (16 * MILLI, SLOW));
        assert_eq!(truth.way(1, 0, at).delay, 16 * MILLI);
        assert_eq!(truth.map(|way| WayTruth { noise: 0.2, ..way }).way(4, 0, at).noise, 0.2);
    }
}
