//! The division of the cache, and the capacity and policy of each part.

use core::time::Duration;

use whimbrel_selector::{Selector, TopicFilter};

/// The most partitions, the default one included.
pub const PARTITIONS_MAX: usize = 256;

/// The default capacity of the default partition, bytes.
pub const DEFAULT_BYTES: u64 = 64 * 1024 * 1024;

/// The default lifetime of a protected event: twice the mean outage that is assumed.
pub const PROTECTED_LIFETIME: Duration = Duration::from_secs(48);

/// The default part of a partition that holds protected events, thousandths.
pub const PROTECTED_PER_MILLE: u16 = 200;

/// The capacity of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A number of events.
    Events(u64),
    /// A number of bytes, the bookkeeping for each event included.
    Bytes(u64),
    /// The events that arrived during the last `keep`.
    Time {
        /// The oldest age that is kept. Policies other than lrp hold as many events as arrived
        /// during that time, of any age.
        keep: Duration,
        /// The most bytes.
        ceiling: u64,
    },
}

/// The policy by which a full partition overwrites events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The event that was published first is overwritten.
    Lrp,
    /// Any event is overwritten, with equal probability.
    Random,
    /// The event that was published first is overwritten, but an important one lives on for a
    /// while: it moves to a protected part if that has room, or holds a less important event, the
    /// oldest of which is overwritten then (Farooq, Majumdar, Parsons, "High performance
    /// publish/subscribe middleware for mobile wireless networks", section 7.3, there PwP).
    Priority {
        /// The protected part, thousandths of the capacity.
        protected: u16,
        /// The longest time of an event in that part.
        lifetime: Duration,
    },
    /// The event with the least worth is overwritten: importance times the probability that a
    /// subscriber is away for longer than the event's age.
    Value,
}

impl Policy {
    /// The policy with priorities as in the paper.
    pub const PRIORITY: Policy = Policy::Priority { protected: PROTECTED_PER_MILLE, lifetime: PROTECTED_LIFETIME };
}

/// One partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionPlan {
    /// Topics of its events, as a well-formed [`TopicFilter`].
    pub filter: Box<str>,
    /// The condition that its events fulfil; `None`: all events of its topics.
    pub selector: Option<Selector>,
    /// Its capacity.
    pub capacity: Capacity,
    /// Its policy for overwriting.
    pub policy: Policy,
}

/// The partition for events of no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultPlan {
    /// Its capacity.
    pub capacity: Capacity,
    /// Its policy for overwriting.
    pub policy: Policy,
}

/// The whole division. An event belongs to the first partition whose filter and selector match it,
/// else to the default one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order in which they are tried; at most [`PARTITIONS_MAX`] - 1.
    pub partitions: Vec<PartitionPlan>,
    /// The partition for events of none of them.
    pub default: DefaultPlan,
    /// The most bytes of all partitions together.
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
    /// The number of partitions, the default one (the last) included.
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

/// Whether `wide` is true for all events for which `narrow` is; no selector is true for all.
pub(crate) fn all_content(wide: Option<&Selector>, narrow: Option<&Selector>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.covers(narrow),
        (Some(wide), None) => wide.is_everything(),
    }
}

/// Words of a [`PartitionSet`], a bit for each partition.
const WORDS: usize = PARTITIONS_MAX / 64;

/// A set of partitions, by their numbers. Takes memory on the heap only with numbers beyond 63.
#[derive(Clone, Debug, Default)]
pub struct PartitionSet {
    first: u64,
    others: Option<Box<[u64; WORDS - 1]>>,
}

impl PartitionSet {
    /// The empty set.
    pub const EMPTY: PartitionSet = PartitionSet { first: 0, others: None };

    fn words(&self) -> [u64; WORDS] {
        let others = self.others.as_deref().unwrap_or(&[0; WORDS - 1]);
        core::array::from_fn(|at| if at == 0 { self.first } else { others[at - 1] })
    }

    fn word_mut(&mut self, at: usize) -> &mut u64 {
        if at == 0 { &mut self.first } else { &mut self.others.get_or_insert_default()[at - 1] }
    }

    /// The first `count` partitions.
    ///
    /// # Panics
    /// When `count` exceeds [`PARTITIONS_MAX`].
    pub fn first(count: usize) -> PartitionSet {
        (0..count).collect()
    }

    /// Adds a partition.
    ///
    /// # Panics
    /// When its number is not below [`PARTITIONS_MAX`].
    pub fn insert(&mut self, partition: usize) {
        *self.word_mut(partition / 64) |= 1 << (partition % 64);
    }

    /// Removes a partition.
    pub fn remove(&mut self, partition: usize) {
        if self.contains(partition) {
            *self.word_mut(partition / 64) &= !(1 << (partition % 64));
        }
    }

    /// Whether a partition is in the set.
    pub fn contains(&self, partition: usize) -> bool {
        let others = self.others.as_deref().map_or(&[][..], |others| &others[..]);
        let word = if partition < 64 { Some(&self.first) } else { others.get(partition / 64 - 1) };
        word.is_some_and(|word| word & (1 << (partition % 64)) != 0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words() == [0; WORDS]
    }

    /// The number of partitions in the set.
    pub fn len(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The partitions in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.words().into_iter().enumerate().flat_map(|(place, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(place * 64 + bit)
            })
        })
    }
}

impl PartialEq for PartitionSet {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Eq for PartitionSet {}

impl FromIterator<usize> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut set = PartitionSet::EMPTY;
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }
}
