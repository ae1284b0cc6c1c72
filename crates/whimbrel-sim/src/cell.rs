//! The cells of a world: which lines share which access link, in both directions.

use std::collections::BTreeMap;

use whimbrel_event::Time;

use crate::access::{Access, Member, Shape};
use crate::link::Arrival;

/// The direction of bytes over a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    /// Towards the broker.
    Up,
    /// Towards the client.
    Down,
}

/// One access link, and the lines over it. All bytes of all lines, to and from the broker, share
/// its rate.
#[derive(Debug)]
pub(crate) struct Cell {
    access: Access,
    members: BTreeMap<(usize, Way), Member>,
    lines: BTreeMap<Member, (usize, Way)>,
    /// When the world will next inspect it.
    pub(crate) scheduled: Option<Time>,
}

impl Cell {
    pub(crate) fn new(shape: Shape) -> Self {
        Cell { access: Access::new(shape), members: BTreeMap::new(), lines: BTreeMap::new(), scheduled: None }
    }

    /// Adds a line.
    pub(crate) fn join(&mut self, line: usize) {
        for way in [Way::Up, Way::Down] {
            let member = self.access.join();
            self.members.insert((line, way), member);
            self.lines.insert(member, (line, way));
        }
    }

    /// Ends one direction of a line: pieces in flight that way are lost.
    pub(crate) fn leave(&mut self, line: usize, way: Way) {
        if let Some(member) = self.members.remove(&(line, way)) {
            self.lines.remove(&member);
            self.access.leave(member);
        }
    }

    /// Whether a piece of a line may be handed in. A line that has ended takes any piece, and loses
    /// it.
    pub(crate) fn has_room(&self, line: usize, way: Way) -> bool {
        self.members.get(&(line, way)).is_none_or(|member| self.access.has_room(*member))
    }

    /// Hands in a piece for which there is room.
    pub(crate) fn push(&mut self, now: Time, line: usize, way: Way, piece: Arrival) {
        if let Some(member) = self.members.get(&(line, way)) {
            self.access.push(now, *member, piece);
        }
    }

    /// When a piece arrives, or a line has room again.
    pub(crate) fn next_change(&self) -> Option<Time> {
        self.access.next_change()
    }

    /// The next piece that has arrived by now.
    pub(crate) fn read(&mut self, now: Time) -> Option<(usize, Way, Arrival)> {
        let (member, arrival) = self.access.read(now)?;
        let (line, way) = *self.lines.get(&member)?;
        if arrival == Arrival::End {
            self.leave(line, way);
        }
        Some((line, way, arrival))
    }

    /// The lines that share it.
    pub(crate) fn lines(&self) -> Vec<usize> {
        let mut lines: Vec<usize> = self.members.keys().map(|(line, _)| *line).collect();
        lines.dedup();
        lines
    }
}
