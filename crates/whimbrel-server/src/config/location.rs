//! Location of the broker, for maps.

use super::problem::Problem;
use super::settings::Settings;

/// The greatest latitude, degrees.
pub const LATITUDE_MAX: u16 = 90;

/// The greatest longitude, degrees.
pub const LONGITUDE_MAX: u16 = 180;

/// A place on the earth, in degrees of WGS 84.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// Latitude, positive northwards.
    pub lat: f64,
    /// Longitude, positive eastwards.
    pub lon: f64,
}

/// Checks the location. Only one of the two numbers is a mistake.
pub(super) fn load(settings: &mut Settings) -> Option<Location> {
    let [lat, lon] = ["place.lat", "place.lon"].map(|path| settings.degrees(path));
    let (given, missing) = match (lat, lon) {
        (Some(lat), Some(lon)) => return Some(Location { lat, lon }),
        (None, None) => return None,
        (Some(_), None) => ("lat", "lon"),
        (None, Some(_)) => ("lon", "lat"),
    };
    let problem = Problem::new(format!("`place.{given}` is given without `place.{missing}`, which is no place"))
        .at(settings.place(&format!("place.{given}")), "here")
        .help("write both, such as place = { lat = 52.23, lon = 21.01 }, or neither");
    settings.problems.push(problem);
    None
}
