//! The conditions of watchers by content: fences and speeds, as selectors for the broker and as
//! plain comparisons for the checker.

use serde::Serialize;

use super::checker::{Promise, Tally};
use super::fence::{Fence, Side};
use super::geo::Place;
use super::layout;
use super::trace::Trace;

/// The number of lines whose fast vehicles are watched.
const FAST_LINES: usize = 3;

/// The fences of a run and the conditions that are watched.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Selection {
    /// The fences, all known to the broker.
    pub fences: Vec<Fence>,
    /// One for each watcher by content.
    pub conditions: Vec<Condition>,
}

/// A condition on positions: all given parts must hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Within this fence, by index.
    pub fence: Option<usize>,
    /// On this line, by index.
    pub line: Option<u32>,
    /// Faster than this, m/s.
    pub above: Option<u32>,
}

/// The contents of a message, which the checker compares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Content {
    /// Index of the line.
    pub line: u32,
    /// The place.
    pub place: Place,
    /// The speed, m/s.
    pub speed: f64,
}

/// Whether a message must arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// The message must arrive.
    Yes,
    /// The message must not arrive.
    No,
    /// The message's place is so close to a fence's border that both are right.
    Either,
}

/// The kind of a condition, by which watchers are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// With a fence.
    Fence,
    /// With a speed and without a fence.
    Speed,
}

/// The counts of a watcher by content, or of all watchers of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Watch {
    /// The kind of condition.
    pub kind: Kind,
    /// The selector, if it is one watcher.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The number of watchers.
    pub watchers: u32,
    /// Messages that had to arrive.
    pub expected: u64,
    /// Messages among these that arrived.
    pub delivered: u64,
    /// Messages that did not arrive and that the broker has told as a gap.
    pub reported: u64,
    /// Messages that did not arrive and that were not told as a gap.
    pub lost: u64,
    /// Messages whose publisher was not told that the broker has them, and that did not arrive.
    pub excused: u64,
    /// Wrong arrivals: unmatched, duplicate, out of order, or altered.
    pub wrong: u64,
    /// Messages too close to a border to judge whether they must arrive.
    pub bordering: u64,
}

impl Watch {
    /// The counts of one watcher.
    pub fn new(kind: Kind, selector: String, tally: &Tally) -> Watch {
        let Tally { expected, delivered, reported, lost, excused, bordering, .. } = *tally;
        let wrong = tally.faults(Promise::Reliable) - lost;
        Watch { kind, selector, watchers: 1, expected, delivered, reported, lost, excused, wrong, bordering }
    }

    /// The sum over one kind.
    pub fn sum(watches: &[Watch], kind: Kind) -> Watch {
        let mut sum = Watch { watchers: 0, ..Watch::new(kind, String::new(), &Tally::default()) };
        for watch in watches.iter().filter(|watch| watch.kind == kind) {
            sum.watchers += watch.watchers;
            sum.expected += watch.expected;
            sum.delivered += watch.delivered;
            sum.reported += watch.reported;
            sum.lost += watch.lost;
            sum.excused += watch.excused;
            sum.wrong += watch.wrong;
            sum.bordering += watch.bordering;
        }
        sum
    }
}

impl Selection {
    /// The selection for a trace; `fenced`: the broker can be told fences. Thresholds are such that
    /// some positions, and by far not all, exceed them.
    pub fn of(trace: &Trace, busiest: &[u32], fenced: bool) -> Selection {
        let fences = if fenced { layout::fences(trace, busiest) } else { Vec::new() };
        let mut speeds: Vec<f32> = trace.positions.iter().map(|position| position.motion.speed).collect();
        speeds.sort_by(f32::total_cmp);
        let quantile = |tenths: usize| Some(speeds[(speeds.len() - 1) * tenths / 10].max(1.0) as u32);
        let mut conditions: Vec<Condition> =
            (0..fences.len()).map(|fence| Condition { fence: Some(fence), ..Condition::default() }).collect();
        let moving = |fence| Condition { fence: Some(fence), above: quantile(5), ..Condition::default() };
        conditions.extend((0..fences.len()).filter(|&fence| fences[fence].name != "depot").map(moving));
        conditions.push(Condition { above: quantile(9), ..Condition::default() });
        let fast = |&line: &u32| Condition { line: Some(line), above: quantile(7), fence: None };
        conditions.extend(busiest.iter().take(FAST_LINES).map(fast));
        Selection { fences, conditions }
    }

    /// A condition as a selector.
    pub fn selector(&self, condition: Condition, lines: &[String]) -> String {
        let mut parts = Vec::new();
        parts.extend(condition.fence.map(|fence| format!("within('{}')", self.fences[fence].name)));
        parts.extend(condition.line.map(|line| format!("line = '{}'", lines[line as usize].replace('\'', "''"))));
        parts.extend(condition.above.map(|above| format!("speed > {above}")));
        parts.join(" AND ")
    }

    /// Whether a message must arrive at a watcher of this condition.
    pub fn want(&self, condition: Condition, content: Content) -> Want {
        let wrong_line = condition.line.is_some_and(|line| line != content.line);
        let too_slow = condition.above.is_some_and(|above| content.speed <= f64::from(above));
        if wrong_line || too_slow {
            return Want::No;
        }
        match condition.fence.map(|fence| self.fences[fence].shape.side(content.place)) {
            None | Some(Side::Inside) => Want::Yes,
            Some(Side::Outside) => Want::No,
            Some(Side::Border) => Want::Either,
        }
    }
}

impl Condition {
    /// The kind of the condition.
    pub fn kind(self) -> Kind {
        if self.fence.is_some() { Kind::Fence } else { Kind::Speed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::fence::Shape;

    const HERE: Place = Place { lat: 52.0, lon: 21.0 };

    fn selection() -> Selection {
        let shape = Shape::Circles { middles: vec![HERE], radius: 100.0 };
        Selection { fences: vec![Fence { name: "depot", shape }], conditions: Vec::new() }
    }

    #[test]
    fn selectors_say_all_that_is_asked_for_and_quote_what_needs_it() {
        let lines = ["N56".to_owned(), "o'clock".to_owned()];
        let text = |condition| selection().selector(condition, &lines);
        let all = Condition { fence: Some(0), line: Some(1), above: Some(7) };
        assert_eq!(text(all), "within('depot') AND line = 'o''clock' AND speed > 7");
        assert_eq!(text(Condition { above: Some(7), ..Condition::default() }), "speed > 7");
    }

    #[test]
    fn all_that_is_asked_for_has_to_hold() {
        let all = Condition { fence: Some(0), line: Some(1), above: Some(7) };
        let fits = Content { line: 1, place: HERE, speed: 7.1 };
        let want = |content| selection().want(all, content);
        assert_eq!(want(fits), Want::Yes);
        assert_eq!(want(Content { line: 0, ..fits }), Want::No);
        assert_eq!(want(Content { speed: 7.0, ..fits }), Want::No);
        assert_eq!(want(Content { place: HERE.moved(110.0, 0.0), ..fits }), Want::No);
        assert_eq!(want(Content { place: HERE.moved(100.0, 0.0), ..fits }), Want::Either);
        assert_eq!(want(Content { place: HERE.moved(100.0, 0.0), speed: 0.0, ..fits }), Want::No);
    }
}
