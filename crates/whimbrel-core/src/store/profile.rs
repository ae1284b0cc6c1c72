//! Profiles: which topics are logged.

use whimbrel_selector::{TopicFilter, TopicName};

/// Whether the reliable events of a topic are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Persistence {
    /// Events that a durable subscription wants.
    #[default]
    Auto,
    /// All events.
    Persistent,
    /// No events.
    Volatile,
}

/// The setting for topics that match a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// A topic filter.
    pub filter: Box<str>,
    /// Whether their events are logged.
    pub persistence: Persistence,
}

/// All profiles; the first that matches a topic counts.
#[derive(Debug, Default)]
pub(crate) struct Profiles(Vec<Profile>);

impl Profiles {
    /// # Panics
    /// When a filter is not valid: the reader of the configuration checks them.
    pub(crate) fn new(profiles: Vec<Profile>) -> Self {
        assert!(
            profiles.iter().all(|profile| TopicFilter::new(&profile.filter).is_ok()),
            "a profile has a topic filter"
        );
        Profiles(profiles)
    }

    /// Whether all topics under a filter are volatile, as far as a single profile tells.
    pub(crate) fn is_volatile(&self, filter: TopicFilter<'_>) -> bool {
        let touched = self.0.iter().find_map(|profile| {
            let of_profile =
                TopicFilter::new(&profile.filter).ok().filter(|of_profile| of_profile.intersects(filter))?;
            Some(profile.persistence == Persistence::Volatile && of_profile.covers(filter))
        });
        touched.unwrap_or(false)
    }

    /// Whether some topics under a filter may be volatile.
    pub(crate) fn may_be_volatile(&self, filter: TopicFilter<'_>) -> bool {
        self.0.iter().any(|profile| {
            profile.persistence == Persistence::Volatile
                && TopicFilter::new(&profile.filter).is_ok_and(|of_profile| of_profile.intersects(filter))
        })
    }

    pub(crate) fn of(&self, topic: TopicName<'_>) -> Persistence {
        let matches = |profile: &&Profile| TopicFilter::new(&profile.filter).is_ok_and(|filter| filter.matches(topic));
        self.0.iter().find(matches).map_or(Persistence::Auto, |profile| profile.persistence)
    }
}
