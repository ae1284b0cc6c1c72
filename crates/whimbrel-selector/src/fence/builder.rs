//! Collects fences before their index is built.

use std::collections::BTreeMap;

use super::error::{FenceError, Path};
use super::{FENCE_NAME_MAX, FENCES_MAX, FENCES_POSITIONS_MAX, Fences, Shape, geojson};
use crate::json::Json;

/// Refused features of one text that are reported, each with its reason; further ones are counted.
const REFUSALS_MAX: usize = 16;

/// Collects fences for [`Fences`]. A refused fence leaves it unchanged.
#[derive(Debug, Default)]
pub struct FencesBuilder {
    fences: BTreeMap<Box<str>, Vec<Shape>>,
    positions: usize,
}

impl FencesBuilder {
    /// An empty collection.
    pub fn new() -> FencesBuilder {
        FencesBuilder::default()
    }

    /// Adds a fence: the union of all shapes in a GeoJSON text.
    ///
    /// # Errors
    /// The text, the name or the number of fences or positions is refused.
    pub fn insert_geojson(&mut self, name: &str, text: &str) -> Result<(), FenceError> {
        check_name(name)?;
        let read = || {
            let value = geojson::parse(text)?;
            geojson::shapes(value, &Path::Root)
        };
        let (shapes, positions) = read().map_err(|error| about(name, error))?;
        let read = Read { name: name.to_owned(), shapes, positions };
        self.insert(vec![read])
    }

    /// Adds a fence for each feature of a FeatureCollection, under its property `name` or otherwise
    /// its `id`; returns their names.
    ///
    /// # Errors
    /// The text, features, or the number of fences or positions are refused; then none is added.
    /// Each refused feature has an error of its own; beyond 16 the last error has the number of the
    /// others.
    pub fn insert_features(&mut self, text: &str) -> Result<Vec<String>, Vec<FenceError>> {
        let only = |error| vec![error];
        let value = geojson::parse(text).map_err(only)?;
        let mut refusals = Refusals::default();
        let (mut fences, mut names) = (Vec::new(), BTreeMap::new());
        for (n, (name, feature)) in geojson::named_features(value).map_err(only)?.enumerate() {
            let at = Path::Element(&geojson::FEATURES, n);
            let read = name.and_then(|name| self.read(name, feature, &at, &mut names));
            match read {
                Ok(read) => fences.push(read),
                Err(error) => refusals.push(error),
            }
        }
        refusals.none()?;
        let names = fences.iter().map(|read: &Read| read.name.clone()).collect();
        self.insert(fences).map_err(only)?;
        Ok(names)
    }

    /// Reads one feature. `names` has the names of earlier features, and their places.
    fn read(
        &self,
        name: String,
        feature: Json<'_>,
        at: &Path<'_>,
        names: &mut BTreeMap<String, String>,
    ) -> Result<Read, FenceError> {
        check_name(&name).map_err(|error| FenceError { place: at.to_string(), ..error })?;
        let place = at.to_string();
        if let Some(other) = names.get(&name) {
            let cause = format!("{other} has that name, too");
            return Err(about(&name, at.error(cause, "give each fence a name of its own")));
        }
        if self.fences.contains_key(&*name) {
            return Err(about(&name, at.error(TAKEN, "give each fence a name of its own")));
        }
        names.insert(name.clone(), place);
        let (shapes, positions) = geojson::shapes(feature, at).map_err(|error| about(&name, error))?;
        Ok(Read { name, shapes, positions })
    }

    /// The fences, with their index.
    pub fn build(self) -> Fences {
        Fences::from_shapes(self.fences)
    }

    fn insert(&mut self, fences: Vec<Read>) -> Result<(), FenceError> {
        let mut total = self.positions;
        for (n, Read { name, positions, .. }) in fences.iter().enumerate() {
            let refuse = |cause: String, advice: &str| Err(about(name, Path::Root.error(cause, advice)));
            if self.fences.contains_key(&**name) {
                return refuse(TAKEN.into(), "give each fence a name of its own");
            }
            if self.fences.len() + n >= FENCES_MAX {
                return refuse(format!("there are more than {FENCES_MAX} fences"), "remove some");
            }
            total += positions;
            if total > FENCES_POSITIONS_MAX {
                let cause = format!("all fences together have more than {FENCES_POSITIONS_MAX} positions");
                return refuse(cause, "simplify their shapes, or remove some");
            }
        }
        self.positions = total;
        self.fences.extend(fences.into_iter().map(|read| (read.name.into(), read.shapes)));
        Ok(())
    }
}

const TAKEN: &str = "there is already a fence of that name";

/// A fence that has been read.
struct Read {
    name: String,
    shapes: Vec<Shape>,
    positions: usize,
}

/// The refused features: the errors of the first ones, and the number of the others.
#[derive(Default)]
struct Refusals {
    told: Vec<FenceError>,
    others: usize,
}

impl Refusals {
    fn push(&mut self, error: FenceError) {
        if self.told.len() < REFUSALS_MAX { self.told.push(error) } else { self.others += 1 }
    }

    fn none(mut self) -> Result<(), Vec<FenceError>> {
        if self.others > 0 {
            let cause = format!("{} more features are refused", self.others);
            self.told.push(geojson::FEATURES.error(cause, "mend those above; the others are told then"));
        }
        if self.told.is_empty() { Ok(()) } else { Err(self.told) }
    }
}

fn about(name: &str, error: FenceError) -> FenceError {
    FenceError { fence: Some(name.to_owned()), ..error }
}

fn check_name(name: &str) -> Result<(), FenceError> {
    let cause = if name.trim().is_empty() {
        "the name is empty".to_owned()
    } else if name.len() > FENCE_NAME_MAX {
        format!("the name is longer than {FENCE_NAME_MAX} bytes")
    } else if name.chars().any(char::is_control) {
        "the name has control characters".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(FENCE_NAME_MAX).collect();
    Err(about(&shown, Path::Root.error(cause, "choose another name")))
}
