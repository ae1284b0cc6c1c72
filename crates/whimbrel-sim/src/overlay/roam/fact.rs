//! What is known of one event of a publisher.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{PubendId, StreamClass, Time};

use super::book::Name;
use super::publisher::VOLATILE;
use crate::overlay::book::Process;
use crate::speech::Message;

/// See the module's documentation.
pub(super) struct Fact {
    pub(super) key: String,
    pub(super) message: Message,
    pub(super) publisher: usize,
    pub(super) number: u64,
    pub(super) sent: Vec<(Time, Process)>,
    /// Since when its publisher was connected.
    pub(super) since: Time,
    /// The clocks of the brokers in `sent` at those times.
    pub(super) clocks: Vec<Time>,
    pub(super) answered: Option<(Time, Process)>,
    /// The names under which it was seen, each with its process if that is known.
    pub(super) names: BTreeMap<Name, Option<Process>>,
    pub(super) is_marked: bool,
    /// Where it was written: machine, the number of its disk, index of the pubend, tick.
    pub(super) written: BTreeSet<(usize, u32, u8, u64)>,
}

impl Fact {
    /// Whether it was accepted only once, as far as is known.
    pub(super) fn is_answered_once(&self) -> bool {
        self.names.len() == 1 && !self.is_marked
    }

    /// Whether it is in a stream of volatile events with a deadline: between these and others there
    /// is no order.
    pub(super) fn is_apart(&self) -> bool {
        let is_of_class = |name: &Name| PubendId(name.0).class() == StreamClass::Deadline;
        self.message.topic == VOLATILE && self.names.keys().any(is_of_class)
    }
}
