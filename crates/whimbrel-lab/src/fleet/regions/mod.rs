//! The regions of a run: their brokers, their clients, and their disturbances.

mod census;
mod disturbances;
mod layout;
mod link_trouble;
mod snapshot;
mod travel;

pub use census::{CLASSES, Census, Class};
pub use disturbances::{Disturbances, PREDECESSOR_MAX, Sites};
pub use layout::{Choice, Layout, MEASURED, REGIONS_MAX};
pub use link_trouble::LinkTrouble;
pub use snapshot::{Health, LinkRow, PauseRow, RegionRow, Snapshot};
pub use travel::{Atlas, Travel};
