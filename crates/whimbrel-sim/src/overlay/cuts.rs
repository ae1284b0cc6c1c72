//! Connections between brokers are cut, become bad, heal and break.

use super::net::Fabric;
use crate::trunk::Side;
use crate::wan::WanProfile;

impl Fabric {
    /// Everything that one end of an edge, or both, send is lost from now on.
    pub(super) fn cut(&mut self, number: usize, sides: [bool; 2]) {
        let edge = &mut self.edges[number];
        for side in [Side::Near, Side::Far].into_iter().filter(|side| sides[*side as usize]) {
            edge.is_cut[side as usize] = true;
            if let Some(line) = edge.line.and_then(|line| self.lines.get_mut(&line)) {
                line.trunk.cut(side);
            }
        }
    }

    /// What one end of an edge sends passes over such a path from now on.
    pub(super) fn disturb(&mut self, number: usize, side: Side, profile: WanProfile) {
        let edge = &mut self.edges[number];
        edge.shape.profiles[side as usize] = profile;
        if let Some(line) = edge.line.and_then(|line| self.lines.get_mut(&line)) {
            line.trunk.set_profile(self.now, side, profile);
        }
    }

    /// Everything that an edge carries arrives again, over the paths that it had at first.
    pub(super) fn heal(&mut self, number: usize) {
        for side in [Side::Near, Side::Far] {
            let profile = self.edges[number].at_first[side as usize];
            if self.edges[number].shape.profiles[side as usize] != profile {
                self.disturb(number, side, profile);
            }
        }
        let edge = &mut self.edges[number];
        edge.is_cut = [false; 2];
        if let Some(line) = edge.line.and_then(|line| self.lines.get_mut(&line))
            && self.nodes[edge.ends.0].broker.is_some()
            && self.nodes[edge.ends.1].broker.is_some()
            && line.is_open == [true; 2]
        {
            [Side::Near, Side::Far].into_iter().for_each(|side| line.trunk.heal(side));
        }
    }

    /// The connection of an edge breaks, if there is one.
    pub(super) fn reset(&mut self, number: usize) {
        if let Some(name) = self.edges[number].line {
            self.lines.get_mut(&name).expect("an edge knows its line").trunk.reset(self.now);
            self.plan_line(name);
        }
    }
}
