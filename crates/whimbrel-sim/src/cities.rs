//! The distances between the sites of a wide area: round trips between each pair, measured or
//! computed from coordinates.
//!
//! Measured ones are read from a directory with `azure_sites.csv`
//! (`site,name,latitude_deg,longitude_deg`) and `azure_rtt.csv` (`src,dst,rtt_ms`, one row for each
//! direction of a pair that was measured). A pair measured in one direction has the same in the
//! other; one not measured at all is reckoned. The data are not part of the project; without them
//! there are the cities of a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::random::Random;

/// Mean radius of the earth, m.
const EARTH_RADIUS: f64 = 6_371_008.8;
/// Light in a fibre: two thirds of its speed in the vacuum, m/s.
const FIBRE_SPEED: f64 = 2.0 / 3.0 * 299_792_458.0;
/// The assumed length of a fibre relative to the great circle.
const DETOUR: f64 = 1.3;
/// The time that equipment adds to a computed round trip.
const EQUIPMENT: Duration = Duration::from_millis(1);
/// The number of sites that a file may have, at most.
pub const SITES_MAX: usize = 1024;
/// The longest round trip that a file may tell, ms.
const ROUND_TRIP_MAX_MS: f64 = 60_000.0;

/// An error in a directory of measured round trips.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{file} line {line}: {what}")]
    Malformed {
        /// The file.
        file: &'static str,
        /// The line's number, from 1; 0: the file as a whole.
        line: usize,
        /// The mistake.
        what: &'static str,
    },
}

/// A place with a broker.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// A short name, without blanks.
    pub name: String,
    /// Degrees, -90 to 90, positive northwards.
    pub latitude: f64,
    /// Degrees, -180 to 180, positive eastwards.
    pub longitude: f64,
}

impl Site {
    /// The distance to another site along the great circle, metres, by the haversine formula.
    pub fn distance(&self, other: &Site) -> f64 {
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        let haversine = half(other.latitude - self.latitude) + cosines * half(other.longitude - self.longitude);
        2.0 * EARTH_RADIUS * haversine.sqrt().min(1.0).asin()
    }

    /// The round trip to another site, computed from the distance: through a fibre that is 1.3
    /// times as long, plus 1 ms. It is rounded to tens of microseconds, so that the last digits of
    /// a machine's sine do not matter.
    pub fn reckoned(&self, other: &Site) -> Duration {
        let seconds = 2.0 * self.distance(other) * DETOUR / FIBRE_SPEED;
        EQUIPMENT + Duration::from_micros((seconds * 100_000.0).round() as u64 * 10)
    }
}

/// Sites, and the round trip between each pair.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundTrips {
    sites: Vec<Site>,
    /// Row by row; rows and columns are sites.
    spans: Vec<Duration>,
}

impl RoundTrips {
    /// The round trips of the table of cities, computed.
    pub fn reckoned() -> Self {
        let site = |(name, latitude, longitude): &(&str, f64, f64)| Site {
            name: (*name).to_owned(),
            latitude: *latitude,
            longitude: *longitude,
        };
        RoundTrips::between(CITIES.iter().map(site).collect(), &BTreeMap::new())
    }

    /// The measured round trips of a directory, or the computed ones if it has no file of sites.
    ///
    /// # Errors
    /// When a file is there and cannot be read, or is not what it should be.
    pub fn load(directory: &Path) -> Result<Self, Problem> {
        let (sites, spans) = (directory.join("azure_sites.csv"), directory.join("azure_rtt.csv"));
        if !sites.exists() {
            return Ok(RoundTrips::reckoned());
        }
        let read =
            |file: PathBuf| std::fs::read_to_string(&file).map_err(|source| Problem::Unreadable { file, source });
        RoundTrips::parse(&read(sites)?, &read(spans)?)
    }

    /// Parses the measured round trips from the text of both files. See the module's documentation.
    ///
    /// # Errors
    /// When a row has too few fields, names an unknown site, or has a number out of its bounds;
    /// when there are more than [`SITES_MAX`] sites.
    pub fn parse(sites: &str, spans: &str) -> Result<Self, Problem> {
        let sites = parse_sites(sites)?;
        let index: BTreeMap<&str, usize> =
            sites.iter().enumerate().map(|(at, site)| (site.name.as_str(), at)).collect();
        let mut measured = BTreeMap::new();
        for (line, row) in rows(spans) {
            let wrong = |what| Problem::Malformed { file: "azure_rtt.csv", line, what };
            let [from, to, span] = row[..] else { return Err(wrong("not three fields")) };
            let (Some(from), Some(to)) = (index.get(from), index.get(to)) else { return Err(wrong("an unknown site")) };
            let span = number(span, 0.0, ROUND_TRIP_MAX_MS).ok_or_else(|| wrong("no number of milliseconds"))?;
            measured.insert((*from, *to), Duration::from_micros((span * 1000.0).round() as u64));
        }
        Ok(RoundTrips::between(sites, &measured))
    }

    fn between(sites: Vec<Site>, measured: &BTreeMap<(usize, usize), Duration>) -> Self {
        let mut spans = Vec::with_capacity(sites.len() * sites.len());
        for (a, from) in sites.iter().enumerate() {
            for (b, to) in sites.iter().enumerate() {
                let known = measured.get(&(a, b)).or_else(|| measured.get(&(b, a)));
                spans.push(match known {
                    _ if a == b => Duration::ZERO,
                    Some(span) => *span,
                    None => from.reckoned(to),
                });
            }
        }
        RoundTrips { sites, spans }
    }

    /// The sites; a site's number is its index.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The round trip from one site to another; zero from a site to itself.
    ///
    /// # Panics
    /// If a number is not that of a site.
    pub fn span(&self, from: usize, to: usize) -> Duration {
        assert!(from < self.sites.len() && to < self.sites.len(), "numbers of sites");
        self.spans[from * self.sites.len() + to]
    }

    /// A number of sites, drawn in random order; all of them if there are fewer.
    #[must_use]
    pub fn choose(&self, count: usize, random: &mut Random) -> RoundTrips {
        let mut left: Vec<usize> = (0..self.sites.len()).collect();
        let count = count.min(left.len());
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count {
            chosen.push(left.swap_remove(random.below(left.len() as u64) as usize));
        }
        let sites = chosen.iter().map(|at| self.sites[*at].clone()).collect();
        let spans = chosen.iter().flat_map(|a| chosen.iter().map(|b| self.span(*a, *b))).collect();
        RoundTrips { sites, spans }
    }
}

/// The rows below the header, split at commas, with their line numbers.
fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let lines = text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| (at + 1, line.split(',').map(str::trim).collect()))
}

fn number(text: &str, low: f64, high: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (low..=high).contains(number))
}

fn parse_sites(text: &str) -> Result<Vec<Site>, Problem> {
    let mut sites: Vec<Site> = Vec::new();
    for (line, row) in rows(text) {
        let wrong = |what| Problem::Malformed { file: "azure_sites.csv", line, what };
        let [name, _, latitude, longitude] = row[..] else { return Err(wrong("not four fields")) };
        let latitude = number(latitude, -90.0, 90.0).ok_or_else(|| wrong("no latitude in degrees"))?;
        let longitude = number(longitude, -180.0, 180.0).ok_or_else(|| wrong("no longitude in degrees"))?;
        if sites.len() >= SITES_MAX {
            return Err(wrong("too many sites"));
        }
        if sites.iter().any(|site| site.name == name) {
            return Err(wrong("a site that was there before"));
        }
        sites.push(Site { name: name.to_owned(), latitude, longitude });
    }
    match sites.is_empty() {
        true => Err(Problem::Malformed { file: "azure_sites.csv", line: 0, what: "no sites" }),
        false => Ok(sites),
    }
}

/// Name, latitude, longitude: centres of cities, degrees.
const CITIES: &[(&str, f64, f64)] = &[
    ("amsterdam", 52.37, 4.90),
    ("athens", 37.98, 23.73),
    ("atlanta", 33.75, -84.39),
    ("auckland", -36.85, 174.76),
    ("bangkok", 13.76, 100.50),
    ("beijing", 39.90, 116.41),
    ("bogota", 4.71, -74.07),
    ("buenos-aires", -34.60, -58.38),
    ("cairo", 30.04, 31.24),
    ("cape-town", -33.92, 18.42),
    ("chicago", 41.88, -87.63),
    ("dallas", 32.78, -96.80),
    ("delhi", 28.61, 77.21),
    ("denver", 39.74, -104.99),
    ("dubai", 25.20, 55.27),
    ("dublin", 53.35, -6.26),
    ("frankfurt", 50.11, 8.68),
    ("helsinki", 60.17, 24.94),
    ("hong-kong", 22.32, 114.17),
    ("istanbul", 41.01, 28.98),
    ("jakarta", -6.21, 106.85),
    ("johannesburg", -26.20, 28.05),
    ("lagos", 6.52, 3.38),
    ("lima", -12.05, -77.04),
    ("lisbon", 38.72, -9.14),
    ("london", 51.51, -0.13),
    ("los-angeles", 34.05, -118.24),
    ("madrid", 40.42, -3.70),
    ("manila", 14.60, 120.98),
    ("melbourne", -37.81, 144.96),
    ("mexico-city", 19.43, -99.13),
    ("miami", 25.76, -80.19),
    ("milan", 45.46, 9.19),
    ("mumbai", 19.08, 72.88),
    ("nairobi", -1.29, 36.82),
    ("new-york", 40.71, -74.01),
    ("osaka", 34.69, 135.50),
    ("paris", 48.86, 2.35),
    ("santiago", -33.45, -70.67),
    ("sao-paulo", -23.55, -46.63),
    ("seattle", 47.61, -122.33),
    ("seoul", 37.57, 126.98),
    ("singapore", 1.35, 103.82),
    ("stockholm", 59.33, 18.07),
    ("sydney", -33.87, 151.21),
    ("tel-aviv", 32.09, 34.78),
    ("tokyo", 35.68, 139.69),
    ("toronto", 43.65, -79.38),
    ("vienna", 48.21, 16.37),
    ("warsaw", 52.23, 21.01),
];

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "site,name,latitude_deg,longitude_deg\na,Site A,0,0\nb,Site B,0,90\nc,Site C,0,-90\n";

    #[test]
    fn reckoned_round_trips_follow_the_distance() {
        let trips = RoundTrips::reckoned();
        let at = |name: &str| trips.sites().iter().position(|site| site.name == name).expect("it is in the table");
        assert_eq!(trips.sites().len(), 50);
        let distance = trips.sites()[at("london")].distance(&trips.sites()[at("new-york")]);
        assert!((5_560_000.0..5_580_000.0).contains(&distance), "{distance} m");
        // 5,570 km there and back, 1.3 times as long, at 199,862 km/s: 72.5 ms, and 1 ms.
        let trip = trips.span(at("london"), at("new-york"));
        assert!((73_300..73_600).contains(&trip.as_micros()), "{trip:?}");
        for a in 0..50 {
            assert_eq!(trips.span(a, a), Duration::ZERO);
            for b in (0..50).filter(|b| *b != a) {
                assert_eq!(trips.span(a, b), trips.span(b, a));
                assert!(trips.span(a, b) < Duration::from_millis(262), "half round the earth");
                assert!(trips.span(a, b) > Duration::from_millis(2), "no two cities are one");
            }
        }
    }

    #[test]
    fn measured_round_trips_come_first_then_the_other_direction_then_the_distance() {
        let trips = RoundTrips::parse(SITES, "src,dst,rtt_ms\na,b,80\nb,a,81.5\nc,a,70\n").expect("a good file");
        let millis = |a, b| trips.span(a, b).as_micros() as f64 / 1000.0;
        assert_eq!((millis(0, 1), millis(1, 0)), (80.0, 81.5));
        assert_eq!((millis(0, 2), millis(2, 0)), (70.0, 70.0));
        assert_eq!(trips.span(1, 2), trips.sites()[1].reckoned(&trips.sites()[2]));
        assert!((260.0..262.0).contains(&millis(1, 2)), "half round the earth: {}", millis(1, 2));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let told = |sites: &str, spans: &str| RoundTrips::parse(sites, spans).expect_err("wrong").to_string();
        assert_eq!(told("head\n", ""), "azure_sites.csv line 0: no sites");
        assert_eq!(told("head\na,A,0\n", ""), "azure_sites.csv line 2: not four fields");
        assert_eq!(told("head\na,A,91,0\n", ""), "azure_sites.csv line 2: no latitude in degrees");
        assert_eq!(told("head\na,A,0,nan\n", ""), "azure_sites.csv line 2: no longitude in degrees");
        assert_eq!(told("head\na,A,0,0\n\na,A,0,0\n", ""), "azure_sites.csv line 4: a site that was there before");
        assert_eq!(told(SITES, "head\na,b\n"), "azure_rtt.csv line 2: not three fields");
        assert_eq!(told(SITES, "head\na,d,1\n"), "azure_rtt.csv line 2: an unknown site");
        assert_eq!(told(SITES, "head\na,b,-1\n"), "azure_rtt.csv line 2: no number of milliseconds");
        let many: String = (0..=SITES_MAX).map(|n| format!("s{n},S,0,0\n")).collect();
        assert_eq!(told(&format!("head\n{many}"), ""), "azure_sites.csv line 1026: too many sites");
    }

    #[test]
    fn without_the_files_the_table_is_used() {
        let nowhere = Path::new("no-such-directory");
        assert_eq!(RoundTrips::load(nowhere).expect("it is not there"), RoundTrips::reckoned());
    }

    #[test]
    fn chosen_sites_keep_their_round_trips() {
        let all = RoundTrips::reckoned();
        let some = all.choose(10, &mut Random::new(1));
        assert_eq!(some, all.choose(10, &mut Random::new(1)));
        assert_ne!(some, all.choose(10, &mut Random::new(2)));
        let at = |site: &Site| all.sites().iter().position(|other| other == site).expect("one of them");
        let places: Vec<usize> = some.sites().iter().map(at).collect();
        assert!((0..10).all(|a| (0..a).all(|b| places[a] != places[b])), "none twice: {places:?}");
        for a in 0..10 {
            for b in 0..10 {
                assert_eq!(some.span(a, b), all.span(places[a], places[b]));
            }
        }
        assert_eq!(all.choose(99, &mut Random::new(1)).sites().len(), 50);
    }
}
