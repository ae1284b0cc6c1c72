//! How the cache is divided and what each part keeps.

use core::time::Duration;

use whimbrel_selector::{Selector, TopicFilter};

/// The most partitions, the default one included.
pub const PARTITIONS_MAX: usize = 256;

/// What the default partition holds unless it is told otherwise, bytes.
pub const DEFAULT_BYTES: u64 = 64 * 1024 * 1024;

/// How long a protected event lives unless it is told otherwise: twice the mean outage that is
/// assumed.
pub const PROTECTED_LIFETIME: Duration = Duration::from_secs(48);

/// The part of a partition that holds protected events unless it is told otherwise, thousandths.
pub const PROTECTED_PER_MILLE: u16 = 200;

/// How much a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// So many events.
    Events(u64),
    /// So many bytes, the bookkeeping for each event included.
    Bytes(u64),
    /// What arrived during the last `keep`.
    Time {
        /// The oldest age that is kept. Policies other than lrp hold as many events as arrived
        /// during that time, wherever they chose them from.
        keep: Duration,
        /// Never more than so many bytes.
        ceiling: u64,
    },
}

/// Which event is overwritten when a partition is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The one that was published first.
    Lrp,
    /// Any of them, with equal probability.
    Random,
    /// The one that was published first, but what is important lives on for a while: what is
    /// overwritten moves to a protected part if that has room, or holds something less important,
    /// the oldest of which then goes (Farooq, Majumdar, Parsons, "High performance
    /// publish/subscribe middleware for mobile wireless networks", section 7.3, there PwP).
    Priority {
        /// The protected part, thousandths of the capacity.
        protected: u16,
        /// How long an event stays there at most.
        lifetime: Duration,
    },
    /// The one that is worth least: importance times the probability that somebody is away for
    /// longer than its age.
    Value,
}

impl Policy {
    /// The policy with priorities as the paper has it.
    pub const PRIORITY: Policy = Policy::Priority { protected: PROTECTED_PER_MILLE, lifetime: PROTECTED_LIFETIME };
}

/// One partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionPlan {
    /// Topics of its events, as a well-formed [`TopicFilter`].
    pub filter: Box<str>,
    /// What its events must make true.
    pub selector: Option<Selector>,
    /// How much it holds.
    pub capacity: Capacity,
    /// What is overwritten.
    pub policy: Policy,
}

/// The partition for what no other one names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultPlan {
    /// How much it holds.
    pub capacity: Capacity,
    /// What is overwritten.
    pub policy: Policy,
}

/// The whole division. An event belongs to the first partition whose filter and selector match it,
/// else to the default one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order in which they are asked; at most [`PARTITIONS_MAX`] - 1.
    pub partitions: Vec<PartitionPlan>,
    /// What belongs to none of them.
    pub default: DefaultPlan,
    /// All partitions together, bytes.
    pub ceiling: u64,
}

impl Default for Plan {
    /// No partition but the default one: 64 MB, least recently published is overwritten.
    fn default() -> Self {
        Plan {
            partitions: Vec::new(),
            default: DefaultPlan { capacity: Capacity::Bytes(DEFAULT_BYTES), policy: Policy::Lrp },
            ceiling: u64::MAX,
        }
    }
}

impl Plan {
    /// How many partitions there are, the default one (the last) included.
    pub fn count(&self) -> usize {
        self.partitions.len() + 1
    }

    /// The partitions that may hold events which a subscription to `filter` with `selector`
    /// matches.
    pub fn candidates(&self, filter: TopicFilter<'_>, selector: Option<&Selector>) -> PartitionSet {
        let mut set = PartitionSet::EMPTY;
        for (number, partition) in self.partitions.iter().enumerate() {
            let topics = TopicFilter::new(&partition.filter).expect("a plan has well-formed filters");
            let excluded = match (&partition.selector, selector) {
                (Some(of_partition), Some(wanted)) => of_partition.excludes(wanted),
                _ => false,
            };
            if excluded || !topics.intersects(filter) {
                continue;
            }
            set.insert(number);
            if all_content(partition.selector.as_ref(), selector) && topics.covers(filter) {
                return set;
            }
        }
        set.insert(self.partitions.len());
        set
    }
}

/// Whether everything that is true under `narrow` is under `wide`; without a selector everything
/// is.
pub(crate) fn all_content(wide: Option<&Selector>, narrow: Option<&Selector>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.covers(narrow),
        (Some(wide), None) => wide.is_everything(),
    }
}

/// Some of the partitions, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PartitionSet([u64; PARTITIONS_MAX / 64]);

impl PartitionSet {
    /// None of them.
    pub const EMPTY: PartitionSet = PartitionSet([0; PARTITIONS_MAX / 64]);

    /// The first `count` partitions.
    ///
    /// # Panics
    /// When there cannot be so many ([`PARTITIONS_MAX`]).
    pub fn first(count: usize) -> PartitionSet {
        (0..count).collect()
    }

    /// Adds one.
    ///
    /// # Panics
    /// When there cannot be so many ([`PARTITIONS_MAX`]).
    pub fn insert(&mut self, partition: usize) {
        self.0[partition / 64] |= 1 << (partition % 64);
    }

    /// Takes one out.
    pub fn remove(&mut self, partition: usize) {
        self.0[partition / 64] &= !(1 << (partition % 64));
    }

    /// Whether it is among them.
    pub fn contains(&self, partition: usize) -> bool {
        self.0[partition / 64] & (1 << (partition % 64)) != 0
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        *self == PartitionSet::EMPTY
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.0;
        words.into_iter().enumerate().flat_map(|(place, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(place * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut set = PartitionSet::EMPTY;
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }
}
