//! The clients and events of each region: clients and the disturbances write to it, and the view
//! reads it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::snapshot::{Health, LinkRow, PauseRow, RegionRow, Snapshot};
use super::{Layout, LinkTrouble, REGIONS_MAX};
use crate::fleet::crashes::End;
use crate::fleet::roles::{ROLES, Role};

/// Names of the classes of clients, in the order in which they are shown.
pub const CLASSES: [&str; 8] =
    ["vehicles", "consoles", "watchers", "map", "semi-durable", "nondurable", "clerks", "dispatchers"];

/// The kind of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A vehicle, or a subscriber to positions.
    Fleet(Role),
    /// A publisher of orders.
    Clerk,
    /// A receiver of orders.
    Dispatcher,
}

impl Class {
    /// Its index in [`CLASSES`].
    pub fn index(self) -> usize {
        match self {
            Class::Fleet(role) => role as usize,
            Class::Clerk => ROLES.len(),
            Class::Dispatcher => ROLES.len() + 1,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Pauses {
    count: u64,
    longest: Duration,
}

#[derive(Default)]
struct State {
    regions: Vec<RegionRow>,
    links: Vec<LinkRow>,
    is_measured: bool,
    pauses: [Pauses; CLASSES.len()],
    /// When the present cut or kill began.
    since: Option<Duration>,
    cut_served: Option<Duration>,
}

/// The regions of a run; nothing is counted until [`Census::open`].
#[derive(Default)]
pub struct Census(Mutex<State>);

impl Census {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the regions, and the addresses of their brokers.
    pub fn open(&self, layout: &Layout, addresses: &[String]) {
        let mut state = self.state();
        let row = |(name, address): (&String, &String)| RegionRow::new(name.clone(), address.clone());
        state.regions = layout.names.iter().zip(addresses).map(row).take(REGIONS_MAX).collect();
        let count = state.regions.len();
        let pairs = (0..count).flat_map(|to| (0..to).map(move |from| (from, to)));
        state.links = pairs.map(|(from, to)| LinkRow::new((from, to), layout)).collect();
        state.is_measured = layout.is_measured;
    }

    /// A client has a connection in a region. `moved`: its last one was elsewhere; `paused`: how
    /// long it had none although it wanted one.
    pub(super) fn arrives(&self, (class, region): (Class, usize), moved: bool, paused: Option<Duration>) {
        let mut state = self.state();
        let Some(row) = state.regions.get_mut(region) else { return };
        row.here[class.index()] += 1;
        row.moves += u64::from(moved);
        if let Some(paused) = paused {
            let pauses = &mut state.pauses[class.index()];
            *pauses = Pauses { count: pauses.count + 1, longest: pauses.longest.max(paused) };
        }
    }

    /// A client's connection there has ended.
    pub(super) fn leaves(&self, class: Class, region: usize) {
        if let Some(row) = self.state().regions.get_mut(region) {
            row.here[class.index()] = row.here[class.index()].saturating_sub(1);
        }
    }

    /// A vehicle has published in a region.
    pub fn published(&self, region: usize) {
        if let Some(row) = self.state().regions.get_mut(region) {
            row.published += 1;
        }
    }

    /// A subscriber has received an event in a region.
    pub fn delivered(&self, region: usize) {
        if let Some(row) = self.state().regions.get_mut(region) {
            row.delivered += 1;
        }
    }

    /// The broker of a region is about to end.
    pub fn ends(&self, region: usize, how: End, now: Duration) {
        let mut state = self.state();
        state.since = Some(now);
        if let Some(row) = state.regions.get_mut(region) {
            match how {
                End::Killed => row.kills += 1,
                End::Asked => row.restarts += 1,
            }
            row.health = Health::Down;
        }
    }

    /// The broker of a region is ready again.
    pub fn is_up(&self, region: usize) {
        if let Some(row) = self.state().regions.get_mut(region) {
            row.health = Health::Returning;
        }
    }

    /// A link is about to go bad. How long it takes until all clients are served is measured after
    /// a cut: in the other cases they are served all the time, if later.
    pub fn goes_bad(&self, link: usize, trouble: LinkTrouble, now: Duration) {
        let mut state = self.state();
        if trouble == LinkTrouble::Cut {
            state.since = Some(now);
        }
        if let Some(row) = state.links.get_mut(link) {
            row.trouble = Some(trouble);
            *row.count_mut(trouble) += 1;
        }
    }

    /// A link is whole again.
    pub fn is_mended(&self, link: usize) {
        if let Some(row) = self.state().links.get_mut(link) {
            row.trouble = None;
        }
    }

    /// All clients are served again, after a kill or a cut.
    pub fn all_served(&self, now: Duration) {
        let mut state = self.state();
        let Some(since) = state.since.take() else { return };
        let took = now.saturating_sub(since);
        match state.regions.iter_mut().find(|row| row.health != Health::Serves) {
            Some(row) => {
                (row.health, row.recoveries) = (Health::Serves, row.recoveries + 1);
                row.worst_served = row.worst_served.max(Some(took));
            }
            None => state.cut_served = state.cut_served.max(Some(took)),
        }
    }

    /// The run no longer waits until all clients are served.
    pub fn given_up(&self) {
        let mut state = self.state();
        state.since = None;
        state.regions.iter_mut().for_each(|row| row.health = Health::Serves);
    }

    /// The present state for the view; `None` with a single region.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let state = self.state();
        let pause = |(class, pauses): (&&'static str, &Pauses)| PauseRow {
            class,
            count: pauses.count,
            longest: pauses.longest,
        };
        (state.regions.len() > 1).then(|| Snapshot {
            regions: state.regions.clone(),
            links: state.links.clone(),
            is_measured: state.is_measured,
            moves: state.regions.iter().map(|row| row.moves).sum(),
            cuts: state.links.iter().map(|row| row.cuts).sum(),
            slow: state.links.iter().map(|row| row.slow).sum(),
            lossy: state.links.iter().map(|row| row.lossy).sum(),
            worst_cut_served: state.cut_served,
            pauses: CLASSES.iter().zip(&state.pauses).map(pause).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn census() -> Census {
        let layout = Layout::load(&"3".parse().expect("a number"), Path::new("nowhere")).expect("cities");
        let census = Census::default();
        census.open(&layout, &["a:1", "b:2", "c:3"].map(str::to_owned));
        census
    }

    #[test]
    fn who_is_where_and_what_became_of_brokers_and_links_is_told() {
        let (census, at) = (census(), Duration::from_millis);
        census.arrives((Class::Fleet(Role::Vehicle), 0), false, None);
        census.arrives((Class::Fleet(Role::Vehicle), 1), true, Some(at(40)));
        census.arrives((Class::Dispatcher, 1), true, Some(at(400)));
        census.leaves(Class::Fleet(Role::Vehicle), 0);
        census.published(1);
        census.delivered(2);
        census.ends(1, End::Killed, at(1_000));
        assert_eq!(census.snapshot().expect("three").regions[1].health, Health::Down);
        census.is_up(1);
        census.all_served(at(1_900));
        census.goes_bad(2, LinkTrouble::Cut, at(5_000));
        census.is_mended(2);
        census.all_served(at(7_500));
        for trouble in [LinkTrouble::Slow, LinkTrouble::Lossy, LinkTrouble::Slow] {
            census.goes_bad(0, trouble, at(20_000));
            assert_eq!(census.snapshot().expect("three").links[0].trouble, Some(trouble));
            census.is_mended(0);
            census.all_served(at(30_000));
        }
        let told = census.snapshot().expect("three");
        assert_eq!((told.regions[0].total(), told.regions[1].total(), told.moves, told.cuts), (0, 2, 2, 1));
        let json = serde_json::to_value(&told).expect("JSON");
        let number = |path: &str| json.pointer(path).unwrap_or_else(|| panic!("{path} in {json}")).as_u64();
        for (path, expected) in [
            ("/regions/1/kills", 1),
            ("/regions/1/recoveries", 1),
            ("/regions/1/worst_served_ms", 900),
            ("/regions/1/published", 1),
            ("/regions/2/delivered", 1),
            ("/worst_cut_served_ms", 2_500),
            ("/links/2/cuts", 1),
            ("/links/0/slow", 2),
            ("/slow", 2),
            ("/lossy", 1),
            ("/longest_pause_ms/vehicles", 40),
            ("/longest_pause_ms/dispatchers", 400),
        ] {
            assert_eq!(number(path), Some(expected), "{path} in {json}");
        }
        assert_eq!(json["regions"][0]["name"], "warsaw");
        let rows = told.rows().join("\n");
        assert!(
            rows.contains("a link was cut 1 time; all served again within 2.50 s, slow 2 times, lossy 1 time"),
            "{rows}"
        );
        assert!(rows.contains("killed 1 time") && rows.contains("dispatchers 0.40 s"), "{rows}");
    }

    #[test]
    fn a_single_region_is_not_shown() {
        let census = Census::default();
        census.arrives((Class::Fleet(Role::Vehicle), 0), false, None);
        assert!(census.snapshot().is_none());
    }
}
