//! Distances and directions between nearby places, and the motion that they imply.

/// Mean radius of the earth, m.
pub const EARTH_RADIUS: f64 = 6_371_008.8;
/// Two fixes that are further apart in time say nothing about how the vehicle moved between them,
/// ms.
const LONGEST_STEP: i64 = 300_000;
/// Displacements below this count as noise of the receiver: they do not turn a vehicle, m.
const SHORTEST_TURN: f64 = 5.0;

/// A place: WGS 84 degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// Latitude, -90..=90, positive northwards.
    pub lat: f64,
    /// Longitude, -180..=180, positive eastwards.
    pub lon: f64,
}

impl Place {
    /// Whether both coordinates are numbers within their bounds.
    pub fn is_valid(self) -> bool {
        (-90.0..=90.0).contains(&self.lat) && (-180.0..=180.0).contains(&self.lon)
    }

    /// The place `east` and `north` metres from here, on the plane that touches the earth here.
    pub fn moved(self, east: f64, north: f64) -> Place {
        let lat = self.lat + (north / EARTH_RADIUS).to_degrees();
        Place { lat, lon: self.lon + (east / (EARTH_RADIUS * self.lat.to_radians().cos())).to_degrees() }
    }

    /// Metres east and north from here to `other`, on the plane that touches the earth halfway. The
    /// error is below 0.1 % within 100 km outside of the polar regions.
    fn offset(self, other: Place) -> (f64, f64) {
        let mut degrees = other.lon - self.lon;
        if degrees.abs() > 180.0 {
            degrees -= 360.0_f64.copysign(degrees);
        }
        let middle = ((self.lat + other.lat) / 2.0).to_radians();
        (EARTH_RADIUS * degrees.to_radians() * middle.cos(), EARTH_RADIUS * (other.lat - self.lat).to_radians())
    }

    /// Metres from here to `other`.
    pub fn distance(self, other: Place) -> f64 {
        let (east, north) = self.offset(other);
        east.hypot(north)
    }

    /// Metres from here to `other` along the great circle, by the haversine formula, at any
    /// distance.
    pub fn great_circle(self, other: Place) -> f64 {
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let cosines = self.lat.to_radians().cos() * other.lat.to_radians().cos();
        let haversine = half(other.lat - self.lat) + cosines * half(other.lon - self.lon);
        2.0 * EARTH_RADIUS * haversine.sqrt().min(1.0).asin()
    }

    /// The place at `share` of the way from here (0) to `other` (1), straight in latitude and
    /// longitude.
    pub fn between(self, other: Place, share: f64) -> Place {
        let mix = |from: f64, to: f64| from + (to - from) * share;
        Place { lat: mix(self.lat, other.lat), lon: mix(self.lon, other.lon) }
    }

    /// Direction from here to `other`, degrees clockwise from north, 0..360.
    pub fn heading(self, other: Place) -> f64 {
        let (east, north) = self.offset(other);
        east.atan2(north).to_degrees().rem_euclid(360.0)
    }
}

/// The motion of a vehicle at a place.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Motion {
    /// Speed, m/s.
    pub speed: f32,
    /// Heading, degrees clockwise from north, 0..360; the last one while the vehicle stands.
    pub heading: f32,
}

impl Motion {
    /// The motion that leads from `before` to `after` in `millis` ms; `last` is the motion at
    /// `before`.
    pub fn between(before: Place, after: Place, millis: i64, last: Motion) -> Motion {
        if millis <= 0 || millis > LONGEST_STEP {
            return Motion { speed: 0.0, heading: last.heading };
        }
        let distance = before.distance(after);
        let heading = if distance < SHORTEST_TURN { last.heading } else { before.heading(after) as f32 };
        Motion { speed: (distance / (millis as f64 / 1000.0)) as f32, heading }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARSAW: Place = Place { lat: 52.2297, lon: 21.0122 };

    #[test]
    fn distances_agree_with_the_great_circle() {
        let krakow = Place { lat: 50.0647, lon: 19.9450 };
        let distance = WARSAW.distance(krakow);
        assert!((distance - 251_990.0).abs() < 500.0, "{distance}");
        assert_eq!(WARSAW.distance(WARSAW), 0.0);
        assert!((WARSAW.great_circle(krakow) - distance).abs() < 100.0, "{}", WARSAW.great_circle(krakow));
        let antipode = Place { lat: -WARSAW.lat, lon: WARSAW.lon - 180.0 };
        assert!((WARSAW.great_circle(antipode) - EARTH_RADIUS * std::f64::consts::PI).abs() < 1.0);
    }

    #[test]
    fn headings_go_clockwise_from_north() {
        for (east, north, expected) in
            [(0.0, 100.0, 0.0), (100.0, 0.0, 90.0), (0.0, -100.0, 180.0), (-100.0, 0.0, 270.0)]
        {
            let heading = WARSAW.heading(WARSAW.moved(east, north));
            let error = (heading - expected + 180.0).rem_euclid(360.0) - 180.0;
            assert!(error.abs() < 0.01, "{heading} instead of {expected}");
        }
    }

    #[test]
    fn the_date_line_is_no_obstacle() {
        let west = Place { lat: 0.0, lon: 179.999 };
        let east = Place { lat: 0.0, lon: -179.999 };
        assert!((west.distance(east) - 222.4).abs() < 1.0);
        assert!((west.heading(east) - 90.0).abs() < 0.01);
    }

    #[test]
    fn a_standing_vehicle_keeps_its_heading() {
        let last = Motion { speed: 7.0, heading: 45.0 };
        let moved = Motion::between(WARSAW, WARSAW.moved(1.0, -1.0), 10_000, last);
        assert_eq!(moved.heading, 45.0);
        assert!(moved.speed < 0.2);
        let driven = Motion::between(WARSAW, WARSAW.moved(100.0, 0.0), 10_000, last);
        assert!((driven.speed - 10.0).abs() < 0.05 && (driven.heading - 90.0).abs() < 0.1, "{driven:?}");
    }

    #[test]
    fn a_long_silence_or_no_time_implies_no_speed() {
        let there = WARSAW.moved(5_000.0, 0.0);
        assert_eq!(Motion::between(WARSAW, there, LONGEST_STEP + 1, Motion::default()).speed, 0.0);
        assert_eq!(Motion::between(WARSAW, there, 0, Motion::default()).speed, 0.0);
    }
}
