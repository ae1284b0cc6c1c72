//! The paper's set-up: five brokers in a full mesh, publishers and subscribers, and the versions
//! that are compared.

use std::time::Duration;

use whimbrel_core::{Pace, Routing, TopicPaths};
use whimbrel_event::Time;
use whimbrel_sim::random::Random;

use super::truth::{LinkTruth, Truth};
use crate::cores::wire::{WayCourse, WayTruth};

/// The number of brokers. Broker `n` of the paper has index `n - 1`.
pub const BROKERS: usize = 5;

/// The number of links.
pub const LINKS: usize = 10;

/// The links: both ends, and the one-way delay in ms. Figure 1 has 1–2, 1–3, 3–4, 2–5, 3–5 and 4–5,
/// 1–5 and 2–4 follow from figure 7, and the other two are our own.
pub const MESH: [([usize; 2], u32); LINKS] = [
    ([0, 1], 16),
    ([0, 2], 20),
    ([0, 3], 25),
    ([0, 4], 6),
    ([1, 2], 18),
    ([1, 3], 5),
    ([1, 4], 12),
    ([2, 3], 15),
    ([2, 4], 15),
    ([3, 4], 15),
];

/// A subscriber and a topic.
#[derive(Clone, Copy, Debug)]
pub struct TopicPair {
    /// The paper's name.
    pub name: &'static str,
    /// The index of the topic, and of its publisher.
    pub topic: usize,
    /// The subscriber's broker.
    pub to: usize,
}

/// The number of pairs.
pub const PAIRS: usize = 6;

/// All pairs.
pub const ALL_PAIRS: [TopicPair; PAIRS] = [
    TopicPair { name: "s1.t1", topic: 0, to: 0 },
    TopicPair { name: "s1.t2", topic: 1, to: 0 },
    TopicPair { name: "s3.t3", topic: 2, to: 2 },
    TopicPair { name: "s4.t2", topic: 1, to: 3 },
    TopicPair { name: "s5.t1", topic: 0, to: 4 },
    TopicPair { name: "s5.t3", topic: 2, to: 4 },
];

/// The index of s5.t1, which the paper looks into.
pub const SHOWN: usize = 4;

/// The names of the topics, by their index.
pub const TOPICS: [&str; 3] = ["t1", "t2", "t3"];

/// The brokers of the publishers, by topic.
pub const PUBLISHERS: [usize; 3] = [1, 2, 3];

/// The time between two events of a publisher.
pub const EVERY: Duration = Duration::from_millis(10);

/// The deadline of every event: the only place that gives a topic its deadline.
pub const DEADLINE: Duration = Duration::from_millis(50);

/// The delay of a path that has become slow.
pub const SLOW: Duration = Duration::from_millis(100);

/// The interval of a receiver's reports of a busy link: the greater of 20 ms and a quarter of the
/// least deadline.
pub const REPORT_EVERY: Duration = Duration::from_millis(20);

/// The chance of a path to be bad in a slot, per thousand.
const BAD_PERMILLE: u64 = 120;

/// The slots of one run.
pub const SLOTS: u32 = 10;

/// The length of a slot.
pub const DWELL: Duration = Duration::from_secs(180);

/// How paths are chosen: the versions of the paper that are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Technique {
    /// DP: the direct path.
    Direct,
    /// BP: the best path.
    Best,
    /// BP+QoS: the best path, and reactions.
    Reactive,
    /// BP+QoS+MP: two paths beside.
    Multipath,
    /// DG: two paths, and more around an end that has trouble.
    Targeted,
}

impl Technique {
    /// All of them.
    pub const ALL: [Technique; 5] =
        [Technique::Direct, Technique::Best, Technique::Reactive, Technique::Multipath, Technique::Targeted];

    /// The paper's name; the last is that of dissemination graphs.
    pub fn name(self) -> &'static str {
        ["DP", "BP", "BP+QoS", "BP+QoS+MP", "DG"][self as usize]
    }

    /// The broker's setting.
    pub fn routing(self) -> Routing {
        match self {
            Technique::Direct => Routing::Direct,
            Technique::Best => Routing::Best,
            Technique::Reactive | Technique::Multipath | Technique::Targeted => Routing::Reactive,
        }
    }

    /// Whether topics have a deadline, by which brokers react.
    pub fn reacts(self) -> bool {
        self.routing() == Routing::Reactive
    }

    /// The paths of each event.
    pub fn paths(self) -> TopicPaths {
        match self {
            Technique::Direct | Technique::Best | Technique::Reactive => TopicPaths::One,
            Technique::Multipath => TopicPaths::Two,
            Technique::Targeted => TopicPaths::Targeted,
        }
    }
}

/// How fast links are measured and followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// The broker's own pace.
    Own,
    /// The paper's pace.
    Paper,
}

impl Preset {
    /// Both.
    pub const ALL: [Preset; 2] = [Preset::Own, Preset::Paper];

    /// What is added to a name.
    pub fn suffix(self) -> &'static str {
        ["", ", preset paper"][self as usize]
    }

    /// The broker's setting.
    pub fn pace(self) -> Pace {
        [Pace::DEFAULT, Pace::PAPER][self as usize]
    }

    /// How long it takes until links are known and paths are computed: twice the time until the
    /// first paths.
    pub fn warm_up(self) -> Duration {
        [Duration::from_secs(10), Duration::from_secs(70)][self as usize]
    }

    /// How long it takes at most until all have followed a change: a link is dead after four
    /// probes, and dialled again. For the paper's pace, until probes every 5 s have brought the
    /// smoothed delay near the new one, which is told within 10 s and followed within 30 s.
    pub fn settled(self) -> Duration {
        [Duration::from_secs(8), Duration::from_secs(90)][self as usize]
    }
}

/// A version with a preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// The version.
    pub version: Technique,
    /// The preset.
    pub preset: Preset,
}

impl Contender {
    /// All of them: the versions with our own pace, and with the paper's.
    pub fn all() -> impl Iterator<Item = Contender> {
        Preset::ALL.into_iter().flat_map(|preset| Technique::ALL.map(|version| Contender { version, preset }))
    }

    /// Its place in [`Contender::all`].
    pub fn place(self) -> usize {
        self.preset as usize * Technique::ALL.len() + self.version as usize
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("{}{}", self.version.name(), self.preset.suffix())
    }
}

/// What happens to a bad path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Its delay becomes [`SLOW`].
    Slow,
    /// It loses everything.
    Hole,
}

impl Trouble {
    /// The truth of a path in trouble.
    pub fn of(self, good: WayTruth) -> WayTruth {
        match self {
            Trouble::Slow => WayTruth { delay: SLOW, ..good },
            Trouble::Hole => WayTruth { loss: 1.0, ..good },
        }
    }
}

/// The slots of a run.
#[derive(Clone, Copy, Debug)]
pub struct SlotPlan {
    /// When the first one begins.
    pub from: Time,
    /// The length that is played.
    pub dwell: Duration,
    /// How long before the next change a window begins; `None`: slots are played whole.
    pub before: Option<Duration>,
}

/// How long before a change its window begins.
const BEFORE: Duration = Duration::from_secs(2);

impl SlotPlan {
    /// Whole slots.
    pub fn whole(from: Time) -> SlotPlan {
        SlotPlan { from, dwell: DWELL, before: None }
    }

    /// Windows from [`BEFORE`] before each change until a preset has followed it. What is between
    /// two windows is as the beginning of the later one, which counts for it.
    pub fn windows(from: Time, preset: Preset) -> SlotPlan {
        SlotPlan { from, dwell: preset.settled() + BEFORE, before: Some(BEFORE) }
    }

    /// The end of the last one.
    pub fn end(&self) -> Time {
        self.from + self.dwell * SLOTS
    }

    /// By how much an event of a moment counts; 0 outside of the slots.
    pub fn weight(&self, at: Time) -> f64 {
        if at < self.from || at >= self.end() {
            return 0.0;
        }
        let Some(before) = self.before else { return 1.0 };
        let within = Duration::from_nanos((at.since(self.from).as_nanos() % self.dwell.as_nanos()) as u64);
        let settled = self.dwell - before;
        if within < settled { 1.0 } else { (DWELL - settled).as_secs_f64() / before.as_secs_f64() }
    }

    /// By slot and link: whether it is bad. It depends on the seed and the number of links only.
    pub fn drawn(seed: u64, links: usize) -> Vec<Vec<bool>> {
        let mut random = Random::new(seed);
        (0..SLOTS).map(|_| (0..links).map(|_| random.chance(BAD_PERMILLE)).collect()).collect()
    }

    /// The truth of a run: in each slot some paths are bad, and before and behind them none.
    pub fn truth(&self, map: &Truth, seed: u64, trouble: Trouble) -> Truth {
        self.truth_by(map, seed, |_, way| trouble.of(way))
    }

    /// The same, where `of` gives the truth of a path in trouble by the number of its link plus
    /// that of the slot.
    pub fn truth_by(&self, map: &Truth, seed: u64, of: impl Fn(usize, WayTruth) -> WayTruth) -> Truth {
        let drawn = SlotPlan::drawn(seed, map.links.len());
        let course = |link: usize, course: &WayCourse| {
            let good = course.0[0].1;
            let slot = |(slot, bad): (u32, &Vec<bool>)| {
                let way = if bad[link] { of(link + slot as usize, good) } else { good };
                (self.from + self.dwell * slot, way)
            };
            let slots = (0..).zip(&drawn).map(slot);
            WayCourse(course.0[..1].iter().copied().chain(slots).chain([(self.end(), good)]).collect())
        };
        let links = map.links.iter().enumerate();
        let link_truth = |(link, truth): (usize, &LinkTruth)| LinkTruth {
            ends: truth.ends,
            courses: truth.courses.each_ref().map(|each| course(link, each)),
        };
        Truth { links: links.map(link_truth).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::START;

    /// `bench/responsiveness-peers` draws them again, in another language.
    #[test]
    fn slots_of_a_seed_are_the_same_for_ever() {
        let bad = |slot: &Vec<bool>| (0..LINKS).filter(|link| slot[*link]).collect::<Vec<_>>();
        let expected: [&[usize]; SLOTS as usize] =
            [&[], &[], &[0, 1, 5, 8], &[], &[], &[5], &[1, 6, 7], &[9], &[], &[2, 5, 8]];
        assert_eq!(SlotPlan::drawn(1, LINKS).iter().map(bad).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn windows_count_for_whole_slots() {
        for preset in Preset::ALL {
            let [whole, windows] = [SlotPlan::whole(START), SlotPlan::windows(START, preset)];
            let sum = |slots: &SlotPlan| -> f64 {
                let steps = slots.end().since(START).as_nanos() / EVERY.as_nanos();
                (0..steps as u32).map(|step| slots.weight(START + EVERY * step)).sum()
            };
            assert!((sum(&whole) - sum(&windows)).abs() < 1.0, "{} and {}", sum(&whole), sum(&windows));
            assert_eq!(windows.weight(windows.end()), 0.0);
        }
    }

    #[test]
    fn both_ways_of_playing_slots_have_the_same_troubles_as_often_as_the_paper() {
        let mesh = Truth::mesh();
        let mut bad = 0;
        for seed in 1..=50 {
            let [whole, windows] = [SlotPlan::whole(START), SlotPlan::windows(START, Preset::Own)];
            let [one, other] = [whole, windows].map(|slots| slots.truth(&mesh, seed, Trouble::Slow));
            for slot in 0..SLOTS {
                let half = |slots: SlotPlan| slots.from + slots.dwell * slot + slots.dwell / 2;
                for (link, other) in one.links.iter().zip(&other.links) {
                    let [at, other] = [link.courses[0].at(half(whole)), other.courses[1].at(half(windows))];
                    assert_eq!(at, other);
                    bad += u32::from(at.delay == SLOW);
                }
            }
        }
        assert!((540..660).contains(&bad), "{bad} of 5,000");
    }
}
