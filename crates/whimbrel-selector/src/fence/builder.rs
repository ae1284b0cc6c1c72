//! Collecting fences before their index is made.

use std::collections::BTreeMap;

use super::error::{FenceError, Path};
use super::{FENCE_NAME_MAX, FENCES_MAX, FENCES_POSITIONS_MAX, Fences, Shape, geojson};

/// Collects fences for [`Fences`]. What is refused leaves it as it was.
#[derive(Debug, Default)]
pub struct FencesBuilder {
    fences: BTreeMap<Box<str>, Vec<Shape>>,
    positions: usize,
}

impl FencesBuilder {
    /// No fences yet.
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
            geojson::shapes(&value, &Path::Root)
        };
        let (shapes, positions) = read().map_err(|error| about(name, error))?;
        self.insert(vec![(name.to_owned(), shapes, positions)])
    }

    /// Adds a fence for each feature of a FeatureCollection, under its property `name` or else its `id`; returns their names.
    ///
    /// # Errors
    /// The text, a name or the number of fences or positions is refused; then none is added.
    pub fn insert_features(&mut self, text: &str) -> Result<Vec<String>, FenceError> {
        let value = geojson::parse(text)?;
        let list = Path::Member(&Path::Root, "features");
        let mut fences = Vec::new();
        for (n, (name, feature)) in geojson::named_features(&value)?.into_iter().enumerate() {
            check_name(&name)?;
            let read = geojson::shapes(feature, &Path::Element(&list, n));
            let (shapes, positions) = read.map_err(|error| about(&name, error))?;
            fences.push((name, shapes, positions));
        }
        let names = fences.iter().map(|(name, ..)| name.clone()).collect();
        self.insert(fences)?;
        Ok(names)
    }

    /// The fences, with their index.
    pub fn build(self) -> Fences {
        Fences::from_shapes(self.fences)
    }

    fn insert(&mut self, fences: Vec<(String, Vec<Shape>, usize)>) -> Result<(), FenceError> {
        let mut names = std::collections::BTreeSet::new();
        let mut total = self.positions;
        for (name, _, positions) in &fences {
            let refuse = |cause: String, advice: &str| Err(about(name, Path::Root.error(cause, advice)));
            if self.fences.contains_key(&**name) || !names.insert(name) {
                return refuse("there is already a fence of that name".into(), "give each fence a name of its own");
            }
            if self.fences.len() + names.len() > FENCES_MAX {
                return refuse(format!("there are more than {FENCES_MAX} fences"), "remove some");
            }
            total += positions;
            if total > FENCES_POSITIONS_MAX {
                let cause = format!("all fences together have more than {FENCES_POSITIONS_MAX} positions");
                return refuse(cause, "simplify their shapes, or remove some");
            }
        }
        self.positions = total;
        self.fences.extend(fences.into_iter().map(|(name, shapes, _)| (name.into(), shapes)));
        Ok(())
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
