//! What the connections of a run are for, and how many there are.

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Publishes the positions of one vehicle.
    Vehicle,
    /// Gets everything, QoS 1.
    Console,
    /// Gets one line, or what a selector asks for, QoS 1.
    Watcher,
    /// Gets everything, QoS 0.
    Viewer,
}

/// All roles, in the order in which they are shown.
pub const ROLES: [Role; 4] = [Role::Vehicle, Role::Console, Role::Watcher, Role::Viewer];

/// Connections of one role.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seats {
    /// Open now.
    pub connected: u32,
    /// How many there should be.
    pub wanted: u32,
    /// How often one was lost.
    pub lost: u32,
}
