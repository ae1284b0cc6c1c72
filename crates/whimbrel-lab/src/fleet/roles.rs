//! What the connections of a run are for, and how many there are.

use super::checker::Promise;

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
    /// Loses its signal now and then, and goes on where it was; QoS 1.
    SemiDurable,
    /// Loses its signal now and then, and what it missed with it; QoS 1.
    Nondurable,
}

impl Role {
    /// What its subscriptions promise.
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

/// Connections of one role.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seats {
    /// Those that are on their way to another region.
    #[serde(skip)]
    pub moving: u32,
    /// Open now.
    pub connected: u32,
    /// How many there should be.
    pub wanted: u32,
    /// How often one was lost.
    pub lost: u32,
    /// How often one lost its signal, as it was meant to.
    pub outages: u32,
}
