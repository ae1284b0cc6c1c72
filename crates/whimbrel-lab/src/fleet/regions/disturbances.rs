//! The times when brokers could not be reached, by the run's own doing: during them the judges
//! allow what is promised for crashes, and nothing more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The first event that a publisher publishes at another broker waits at most this long for its
/// predecessor.
pub const PREDECESSOR_MAX: Duration = Duration::from_secs(5);
/// The greatest age of a copy of a session with which another broker continues.
const COPY_AGE: Duration = Duration::from_millis(250);
/// The time in which the session's owner reads a client's packets: their order relative to the end
/// of a broker is undefined, and a broker reads when it has processor time.
const KNOWN: Duration = Duration::from_secs(1);
/// After its links are up again a broker may be out of reach for others for this time: they must
/// learn of it.
const LINGERS: Duration = Duration::from_secs(1);
/// The number of disturbances in the text about a fault.
const TOLD: usize = 6;
/// The number of disturbances that are remembered; beyond it the oldest is forgotten, and excuses
/// nothing any more.
const WINDOWS: usize = 1_024;

/// A set of regions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sites(u8);

impl Sites {
    /// No region.
    pub const NONE: Sites = Sites(0);
    /// All regions.
    pub const ALL: Sites = Sites(u8::MAX);

    /// One region.
    pub fn one(region: usize) -> Sites {
        Sites(1 << region)
    }

    /// The union of both sets.
    pub fn and(self, other: Sites) -> Sites {
        Sites(self.0 | other.0)
    }

    /// Whether the sets have a region in common.
    pub fn meets(self, other: Sites) -> bool {
        self.0 & other.0 != 0
    }

    /// The region, if there is exactly one.
    pub fn single(self) -> Option<usize> {
        (self.0.count_ones() == 1).then(|| self.0.trailing_zeros() as usize)
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            (0..u8::BITS as usize).filter(|at| self.meets(Sites::one(*at))).map(|at| at.to_string()).collect();
        write!(to, "region {}", if all.is_empty() { "unknown".to_owned() } else { all.join(" and ") })
    }
}

#[derive(Clone, Copy, Debug)]
struct Window {
    from: Duration,
    /// `None` while it lasts.
    until: Option<Duration>,
    /// Brokers that could not be reached.
    sites: Sites,
    /// Brokers among these that did not run.
    down: Sites,
    /// Brokers that could not reach each other until they had noticed the cut and gone around it.
    ends: Sites,
}

impl Window {
    fn is_within(&self, from: Duration, to: Duration) -> bool {
        self.from <= to && !self.is_over_before(from)
    }

    fn is_over_before(&self, moment: Duration) -> bool {
        self.until.is_some_and(|until| until + LINGERS < moment)
    }
}

/// All disturbances of a run, on the board's clock.
#[derive(Default, Debug)]
pub struct Disturbances(Mutex<VecDeque<Window>>);

impl Disturbances {
    fn windows(&self) -> MutexGuard<'_, VecDeque<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These brokers are down from now on, and cannot be reached by the others.
    pub fn begin(&self, now: Duration, sites: Sites) {
        self.begin_window(Window { from: now, until: None, sites, down: sites, ends: Sites::NONE });
    }

    /// These brokers run, but cannot reach each other from now on: there is no other way.
    pub fn begin_apart(&self, now: Duration, sites: Sites) {
        self.begin_window(Window { from: now, until: None, sites, down: Sites::NONE, ends: Sites::NONE });
    }

    /// The link between these brokers is cut from now on, and there is another way around it.
    pub fn begin_cut(&self, now: Duration, ends: Sites) {
        self.begin_window(Window { from: now, until: None, sites: Sites::NONE, down: Sites::NONE, ends });
    }

    fn begin_window(&self, window: Window) {
        let mut windows = self.windows();
        if windows.len() == WINDOWS {
            windows.pop_front();
        }
        windows.push_back(window);
    }

    /// Ends all present disturbances.
    pub fn end(&self, now: Duration) {
        self.windows().iter_mut().filter(|window| window.until.is_none()).for_each(|window| window.until = Some(now));
    }

    /// Whether there is a present disturbance.
    pub fn is_going_on(&self) -> bool {
        self.windows().iter().any(|window| window.until.is_none())
    }

    /// The last disturbances, as an aid to examine a fault.
    pub fn last(&self) -> String {
        let windows = self.windows();
        let told = windows.iter().rev().take(TOLD).map(|Window { from, until, sites, .. }| {
            let until = until.map(|until| format!("{:.3} s", until.as_secs_f64()));
            let until = until.as_deref().unwrap_or("now");
            match sites.single() {
                Some(region) => format!("region {region} from {:.3} s until {until}", from.as_secs_f64()),
                None => format!("a link from {:.3} s until {until}", from.as_secs_f64()),
            }
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// Whether one of these brokers could not be reached at some moment from `from` to `to`.
    pub fn touch(&self, sites: Sites, from: Duration, to: Duration) -> bool {
        let touches = |window: &Window| window.sites.meets(sites) && window.is_within(from, to);
        self.windows().iter().any(touches)
    }

    /// Whether one of these brokers was down at some moment from `from` to `to`: it did not run, or
    /// had not all its clients and links back.
    pub fn was_down(&self, sites: Sites, from: Duration, to: Duration) -> bool {
        let touches = |window: &Window| window.down.meets(sites) && window.is_within(from, to);
        self.windows().iter().any(touches)
    }

    /// Whether one of these brokers could not be asked by another one at some moment from `from` to
    /// `to`.
    pub fn is_hard_to_ask(&self, sites: Sites, from: Duration, to: Duration) -> bool {
        let touches = |window: &Window| window.sites.and(window.ends).meets(sites) && window.is_within(from, to);
        self.windows().iter().any(touches)
    }

    /// Whether a session may have continued from a copy that lacked an arrival at this broker at
    /// `first`, when the event arrived again at `again`.
    pub fn may_have_forgotten(&self, region: usize, first: Duration, again: Duration) -> bool {
        let sites = Sites::one(region);
        let forgets = |window: &Window| {
            let began = window.from.saturating_sub(COPY_AGE + KNOWN);
            window.sites.meets(sites) && began <= first && !window.is_over_before(first) && window.from <= again
        };
        self.windows().iter().any(forgets)
    }

    /// Whether an event may have been delivered before an earlier one of its publisher. The earlier
    /// one was published at `said` at the brokers `before`; this one was published at `published`
    /// at another broker, and arrived at `came`. A predecessor that could not be asked for when the
    /// publisher moved is not awaited for later events either.
    pub fn may_overtake(&self, (before, said): (Sites, Duration), published: Duration, came: Duration) -> bool {
        came.saturating_sub(published) >= PREDECESSOR_MAX || self.is_hard_to_ask(before, said.min(published), came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broker_that_is_out_of_reach_excuses_and_only_as_long() {
        let disturbances = Disturbances::default();
        let at = Duration::from_millis;
        disturbances.begin(at(10_000), Sites::one(1));
        assert!(disturbances.is_going_on() && disturbances.touch(Sites::ALL, at(99_000), at(99_000)));
        assert!(disturbances.was_down(Sites::one(1), at(9_000), at(10_000)));
        assert!(!disturbances.was_down(Sites::one(2), at(9_000), at(10_000)));
        disturbances.end(at(12_000));
        assert!(!disturbances.is_going_on());
        // Excused: from a second and a quarter before it until the broker is back.
        for (first, excused) in [(8_000, false), (9_000, true), (11_000, true), (14_000, false)] {
            assert_eq!(disturbances.may_have_forgotten(1, at(first), at(20_000)), excused, "{first}");
            assert!(!disturbances.may_have_forgotten(0, at(first), at(20_000)), "another broker");
        }
        assert!(!disturbances.may_have_forgotten(1, at(9_500), at(9_900)), "it came again before");
        for (said, published, came, excused) in [
            (8_900, 9_000, 9_900, false),
            (8_900, 9_000, 10_100, true),
            (12_400, 12_500, 12_600, true),
            (14_100, 14_200, 14_300, false),
            (11_900, 14_200, 14_300, true),
        ] {
            let may_overtake =
                |region| disturbances.may_overtake((Sites::one(region), at(said)), at(published), at(came));
            assert_eq!(may_overtake(1), excused, "{said}, {published}");
            assert!(!may_overtake(2), "another broker");
        }
        assert!(disturbances.may_overtake((Sites::one(2), at(0)), at(0), at(5_000)), "it has waited long enough");
    }

    #[test]
    fn a_cut_with_another_way_around_it_excuses_only_that_nobody_was_asked() {
        let (disturbances, second) = (Disturbances::default(), Duration::from_secs(1));
        disturbances.begin_cut(Duration::ZERO, Sites::one(0).and(Sites::one(1)));
        assert!(disturbances.is_going_on());
        assert!(!disturbances.touch(Sites::ALL, Duration::ZERO, second));
        assert!(!disturbances.may_have_forgotten(0, Duration::ZERO, second));
        assert!(disturbances.may_overtake((Sites::one(1), Duration::ZERO), Duration::ZERO, second));
        assert!(!disturbances.may_overtake((Sites::one(2), Duration::ZERO), Duration::ZERO, second));
    }

    #[test]
    fn brokers_that_cannot_reach_each_other_are_not_down() {
        let (disturbances, second) = (Disturbances::default(), Duration::from_secs(1));
        disturbances.begin_apart(Duration::ZERO, Sites::one(0).and(Sites::one(1)));
        assert!(disturbances.touch(Sites::one(1), Duration::ZERO, second));
        assert!(!disturbances.was_down(Sites::ALL, Duration::ZERO, second));
    }
}
