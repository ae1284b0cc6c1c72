//! The regions, and the delays between them.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use whimbrel_sim::cities::{RoundTrips, Site};

use crate::fleet::geo::Place;

/// The most regions of a run.
pub const REGIONS_MAX: usize = 8;
/// The default number of regions.
const USUAL: usize = 3;
/// The directory of measured round trips, from the project's root. They are not part of the
/// project.
pub const MEASURED: &str = "../shared/data/latency";
/// The directory's file of sites.
const SITES: &str = "azure_sites.csv";
const ROUND_TRIPS: &str = "azure_rtt.csv";
/// The attribution where they are used: their terms ask for it.
const NOTICE: &str = "Round trips between regions: Microsoft, Azure network round-trip latency statistics (CC BY 4.0).";
/// Light in a fibre: two thirds of its speed in the vacuum, m/s.
const FIBRE_SPEED: f64 = 200_000_000.0;
/// The ratio of a datagram's path to the great circle: cables follow coasts and railways, and
/// routers take time. It is the median of measured round trips between cloud regions that are more
/// than 500 km apart.
const PATH_FACTOR: f64 = 1.7;
/// Cities, each with the region of a cloud whose round trips were measured, in the order in which
/// they are used: Warsaw, where the buses of the recording drive, and others of Europe around it.
const CITIES: [(&str, &str); REGIONS_MAX] = [
    ("warsaw", "polandcentral"),
    ("frankfurt", "germanywestcentral"),
    ("stockholm", "swedencentral"),
    ("amsterdam", "westeurope"),
    ("paris", "francecentral"),
    ("london", "uksouth"),
    ("milan", "italynorth"),
    ("dublin", "northeurope"),
];

/// The choice of regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A number of the default ones.
    Count(usize),
    /// The regions of these names.
    Named(Vec<String>),
}

impl Default for Choice {
    fn default() -> Choice {
        Choice::Count(USUAL)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let bounds =
            format!("there are 1 to {REGIONS_MAX} regions: give a number, or names as warsaw,frankfurt,stockholm");
        if let Ok(count) = text.parse::<usize>() {
            return if (1..=REGIONS_MAX).contains(&count) { Ok(Choice::Count(count)) } else { Err(bounds) };
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let is_name = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        if names.len() > REGIONS_MAX || !names.iter().all(is_name) {
            return Err(bounds);
        }
        match names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            Some((_, twice)) => Err(format!("{twice} is named twice; a region has one broker")),
            None => Ok(Choice::Named(names)),
        }
    }
}

impl Choice {
    /// The number of regions.
    pub fn count(&self) -> usize {
        match self {
            Choice::Count(count) => *count,
            Choice::Named(names) => names.len(),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Choice::Count(count) => CITIES[..*count].iter().map(|(city, _)| (*city).to_owned()).collect(),
            Choice::Named(names) => names.clone(),
        }
    }
}

/// Regions, and the delay from each to each other one.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// Their names, all different.
    pub names: Vec<String>,
    /// Whether the round trips were measured; otherwise they follow from distances.
    pub is_measured: bool,
    /// Their places.
    sites: Vec<Site>,
    /// Row by row: delays in one direction.
    delays: Vec<Duration>,
}

impl Layout {
    /// The chosen regions, with the round trips of a directory if it has them and knows these
    /// regions.
    ///
    /// # Errors
    /// When a region is not known, or the directory's files cannot be read.
    pub fn load(choice: &Choice, directory: &Path) -> Result<Layout> {
        let names = choice.names();
        let table = RoundTrips::reckoned();
        let are_there = [SITES, ROUND_TRIPS].iter().all(|file| directory.join(file).is_file());
        let measured = match names.len() > 1 && are_there {
            true => Some(RoundTrips::load(directory).with_context(|| {
                format!("the round trips in {} cannot be used; correct or remove them", directory.display())
            })?),
            false => None,
        };
        let in_file: Option<Vec<usize>> = match &measured {
            Some(trips) => names.iter().map(|name| find(trips, name)).collect(),
            None => None,
        };
        let sites: Vec<Site> =
            names.iter().map(|name| site_of(name, measured.as_ref(), &table)).collect::<Result<_>>()?;
        let measured = measured.as_ref().zip(in_file);
        let is_measured = measured.is_some();
        let delays = match measured {
            Some((trips, places)) => {
                let row = |from: &usize| places.iter().map(|to| trips.span(*from, *to) / 2).collect::<Vec<_>>();
                places.iter().flat_map(row).collect()
            }
            None => sites.iter().flat_map(|from| sites.iter().map(|to| reckoned(from, to))).collect(),
        };
        Ok(Layout { names, is_measured, sites, delays })
    }

    /// The number of regions.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The place of a region.
    pub fn place(&self, region: usize) -> Place {
        let Site { latitude, longitude, .. } = self.sites[region];
        Place { lat: latitude, lon: longitude }
    }

    /// The delay from one region to another; zero from one to itself.
    pub fn one_way(&self, from: usize, to: usize) -> Duration {
        self.delays[from * self.names.len() + to]
    }

    /// The attribution that the data need.
    pub fn notice(&self) -> Option<&'static str> {
        (self.is_measured && self.count() > 1).then_some(NOTICE)
    }
}

/// The name of a city's measured region, or the city of a measured region.
fn other_name(name: &str) -> Option<&'static str> {
    CITIES.iter().find_map(|(city, region)| match name {
        _ if name == *city => Some(*region),
        _ if name == *region => Some(*city),
        _ => None,
    })
}

fn find(trips: &RoundTrips, name: &str) -> Option<usize> {
    let at = |name: &str| trips.sites().iter().position(|site| site.name == name);
    at(name).or_else(|| at(other_name(name)?))
}

fn site_of(name: &str, measured: Option<&RoundTrips>, table: &RoundTrips) -> Result<Site> {
    for trips in [measured, Some(table)].into_iter().flatten() {
        if let Some(index) = find(trips, name) {
            return Ok(trips.sites()[index].clone());
        }
    }
    let known: Vec<&str> = measured.unwrap_or(table).sites().iter().map(|site| &*site.name).collect();
    bail!("where the region {name} is is not known; known are {}", known.join(", "))
}

/// The delay in one direction that follows from the distance, rounded to tens of microseconds.
fn reckoned(from: &Site, to: &Site) -> Duration {
    let seconds = from.distance(to) * PATH_FACTOR / FIBRE_SPEED;
    Duration::from_micros((seconds * 100_000.0).round() as u64 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: &str = "site,name,latitude_deg,longitude_deg\npolandcentral,Poland,52.2,21.0\n\
        germanywestcentral,Germany,50.1,8.7\nswedencentral,Sweden,60.7,17.1\nfar,Far,0,0\n";
    const TRIPS: &str = "src,dst,rtt_ms\npolandcentral,germanywestcentral,22\nswedencentral,polandcentral,31\n\
        germanywestcentral,swedencentral,25\nfar,polandcentral,90\n";

    fn load(choice: &str, directory: &Path) -> Result<Layout> {
        Layout::load(&choice.parse().expect("a choice"), directory)
    }

    fn measured() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join(SITES), PLACES).expect("written");
        std::fs::write(directory.path().join(ROUND_TRIPS), TRIPS).expect("written");
        directory
    }

    #[test]
    fn with_the_file_delays_are_half_the_measured_round_trips() {
        let directory = measured();
        let layout = load("3", directory.path()).expect("all are in the file");
        assert_eq!(layout.names, ["warsaw", "frankfurt", "stockholm"]);
        let micros = |from, to| layout.one_way(from, to).as_micros();
        assert_eq!([micros(0, 1), micros(1, 0), micros(0, 2), micros(1, 2)], [11_000, 11_000, 15_500, 12_500]);
        assert_eq!((micros(0, 0), layout.is_measured, layout.notice().is_some()), (0, true, true));
        assert_eq!(layout.place(2), Place { lat: 60.7, lon: 17.1 });
        // By the names in the file, too.
        let named = load("far,polandcentral", directory.path()).expect("both are in the file");
        assert_eq!((named.one_way(0, 1), named.count()), (Duration::from_millis(45), 2));
    }

    #[test]
    fn without_it_delays_follow_from_the_distance() {
        let layout = load("warsaw,london,new-york", Path::new("no-such-directory")).expect("they are in the table");
        assert!(!layout.is_measured && layout.notice().is_none());
        // 1,446 km and 6,850 km, 1.7 times as long, at 200,000 km/s.
        for (to, low, high) in [(1, 12_000, 12_600), (2, 57_000, 60_000)] {
            let micros = layout.one_way(0, to).as_micros();
            assert!((low..high).contains(&micros) && layout.one_way(to, 0) == layout.one_way(0, to), "{micros}");
        }
        let clouds = load("polandcentral,germanywestcentral", Path::new("nowhere")).expect("their cities are");
        assert_eq!(clouds.one_way(0, 1), load("2", Path::new("nowhere")).expect("the same").one_way(0, 1));
    }

    #[test]
    fn a_region_that_the_file_lacks_is_reckoned_and_an_unknown_one_is_told() {
        let directory = measured();
        let mixed = load("warsaw,tokyo", directory.path()).expect("both are known");
        assert!(!mixed.is_measured && mixed.one_way(0, 1) > Duration::from_millis(60));
        let told = load("warsaw,atlantis", directory.path()).expect_err("nobody knows it").to_string();
        assert!(told.contains("atlantis") && told.contains("polandcentral"), "{told}");
        std::fs::write(directory.path().join(ROUND_TRIPS), "head\npolandcentral\n").expect("written");
        let told = format!("{:#}", load("3", directory.path()).expect_err("a row is too short"));
        assert!(told.contains("line 2: not three fields") && told.contains("correct or remove"), "{told}");
    }

    #[test]
    fn choices_are_read() {
        assert_eq!("1".parse(), Ok(Choice::Count(1)));
        assert_eq!("a, B-2".parse(), Ok(Choice::Named(vec!["a".to_owned(), "b-2".to_owned()])));
        for wrong in ["0", "9", "", "a,,b", "a,a", "a b", "a,b,c,d,e,f,g,h,i"] {
            wrong.parse::<Choice>().expect_err(wrong);
        }
        assert_eq!(Choice::default().count(), 3);
    }
}
