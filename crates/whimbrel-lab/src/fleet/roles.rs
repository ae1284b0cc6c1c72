//! The roles of a run's connections, and their numbers.

use super::checker::Promise;

/// The role of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Publishes the positions of one vehicle.
    Vehicle,
    /// Subscribes to everything, QoS 1.
    Console,
    /// Subscribes to one line, or with a selector, QoS 1.
    Watcher,
    /// Subscribes to everything, QoS 0.
    Viewer,
    /// Loses its signal now and then, and continues from its position; QoS 1.
    SemiDurable,
    /// Loses its signal now and then, and the events meanwhile; QoS 1.
    Nondurable,
}

impl Role {
    /// The promise of its subscriptions.
    pub fn promise(self) -> Promise {
        match self {
            Role::Vehicle | Role::Console | Role::Watcher => Promise::Reliable,
            Role::Viewer => Promise::BestEffort,
            Role::SemiDurable => Promise::SemiDurable,
            Role::Nondurable => Promise::Nondurable,
        }
    }

    /// Whether it loses its signal on purpose.
    pub fn roams(self) -> bool {
        matches!(self, Role::SemiDurable | Role::Nondurable)
    }
}

/// All roles, in the order in which they are shown.
pub const ROLES: [Role; 6] =
    [Role::Vehicle, Role::Console, Role::Watcher, Role::Viewer, Role::SemiDurable, Role::Nondurable];

/// The connections of one role.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seats {
    /// Connections among these that are moving to another region.
    #[serde(skip)]
    pub moving: u32,
    /// Open now.
    pub connected: u32,
    /// The number that should be open.
    pub wanted: u32,
    /// The number of lost connections.
    pub lost: u32,
    /// The number of intended outages.
    pub outages: u32,
}
