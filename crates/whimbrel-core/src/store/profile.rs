//! Which topics are logged.

use whimbrel_selector::{TopicFilter, TopicName};

/// Whether the reliable events of a topic are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Persistence {
    /// Those that a durable subscription wants.
    #[default]
    Auto,
    /// All.
    Persistent,
    /// None.
    Volatile,
}

/// What is set for the topics that match a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// A topic filter.
    pub filter: Box<str>,
    /// Whether their events are logged.
    pub persistence: Persistence,
}

/// All profiles; of those that match a topic, the first counts.
#[derive(Debug, Default)]
pub(crate) struct Profiles(Vec<Profile>);

impl Profiles {
    /// # Panics
    /// When a filter is none: who reads the configuration checks them.
    pub(crate) fn new(profiles: Vec<Profile>) -> Self {
        assert!(
            profiles.iter().all(|profile| TopicFilter::new(&profile.filter).is_ok()),
            "a profile has a topic filter"
        );
        Profiles(profiles)
    }

    pub(crate) fn of(&self, topic: TopicName<'_>) -> Persistence {
        let matches = |profile: &&Profile| TopicFilter::new(&profile.filter).is_ok_and(|filter| filter.matches(topic));
        self.0.iter().find(matches).map_or(Persistence::Auto, |profile| profile.persistence)
    }
}
