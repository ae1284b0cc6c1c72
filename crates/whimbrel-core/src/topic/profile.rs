//! Profiles: what holds for the events of topics that match a filter.

use core::num::NonZeroU32;
use core::time::Duration;

use whimbrel_event::{Domains, EventRef, IMPORTANCE_DEFAULT, Reliability, Time};
use whimbrel_net::route::{Availability, TopicPaths};

/// The longest deadline of a profile.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3_600);

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

/// The throughput that each topic of a profile may have at one broker, per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicRate {
    /// Events.
    Events(NonZeroU32),
    /// Bytes of packed events.
    Bytes(NonZeroU32),
}

/// How best-effort events go over links to other brokers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TopicTransport {
    /// On a stream: none is lost while a link stays, and each waits for those before it.
    #[default]
    Stream,
    /// Each as a datagram, which may be lost and waits for none; events that do not fit one go on a
    /// stream. Only of topics with a deadline.
    Datagram,
}

/// The settings for topics that match a filter. Of several profiles that match a topic one counts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Profile {
    /// A topic filter.
    pub filter: Box<str>,
    /// Whether their events are logged.
    pub persistence: Persistence,
    /// The guarantee for their events; `None`: as each is published.
    pub reliability: Option<Reliability>,
    /// The deadline of events that have none of their own: from acceptance to the subscriber's
    /// edge; whole milliseconds, at least one, at most [`DEADLINE_MAX`]. Topics with a deadline
    /// have streams of their own.
    pub deadline: Option<Duration>,
    /// The longest time without an event that subscribers of these topics accept; those with
    /// notices are told when it passes.
    pub period: Option<Duration>,
    /// The throughput of each topic; `None`: no bound.
    pub rate: Option<TopicRate>,
    /// The importance of events that name none.
    pub importance: Option<u8>,
    /// How long events without an expiry of their own are delivered.
    pub expiry: Option<Duration>,
    /// How best-effort events go over links.
    pub transport: TopicTransport,
    /// The paths that events take to each broker that wants them. Only of topics with a deadline.
    pub paths: TopicPaths,
    /// The share of time in which one of their paths is to be in order, in place of `paths`.
    pub availability: Option<Availability>,
    /// The domains that may carry their events; empty: any broker may.
    pub domains: Domains,
}

/// The settings of one topic: the part of its profile that its events need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct TopicSettings {
    pub(crate) persistence: Persistence,
    reliability: Option<Reliability>,
    deadline_ms: Option<u32>,
    pub(crate) rate: Option<TopicRate>,
    importance: Option<u8>,
    expiry: Option<Duration>,
    pub(crate) transport: TopicTransport,
    pub(crate) paths: TopicPaths,
    /// The place of the profile among [`Profiles`](super::Profiles), if it has a period.
    pub(crate) period_of: Option<u32>,
    /// Likewise, if it has domains.
    pub(crate) domains_of: Option<u32>,
}

impl From<&Profile> for TopicSettings {
    fn from(profile: &Profile) -> TopicSettings {
        let Profile { persistence, reliability, deadline, rate, importance, expiry, transport, .. } = profile;
        TopicSettings {
            period_of: None,
            domains_of: None,
            persistence: *persistence,
            reliability: *reliability,
            deadline_ms: deadline.map(|deadline| deadline.min(DEADLINE_MAX).as_millis() as u32),
            rate: *rate,
            importance: *importance,
            expiry: *expiry,
            transport: *transport,
            paths: profile.availability.map_or(profile.paths, TopicPaths::Available),
        }
    }
}

impl TopicSettings {
    /// Whether events keep all that they were published with, and are taken at any rate: whether
    /// they are logged, how they travel and how often they come is all that may be set.
    pub(crate) fn changes_nothing(&self) -> bool {
        let TopicSettings { persistence, transport, paths, period_of, .. } = TopicSettings::default();
        TopicSettings { persistence, transport, paths, period_of, ..*self } == TopicSettings::default()
    }

    /// The deadline of events that name none, milliseconds.
    pub(crate) fn deadline_ms(&self) -> Option<u32> {
        self.deadline_ms
    }

    /// Whether the topic has a deadline.
    pub(crate) fn has_deadline(&self) -> bool {
        self.deadline_ms.is_some()
    }

    /// The event with the settings for what it does not say itself. Applying them again changes
    /// nothing more.
    pub(crate) fn apply<'a>(&self, now: Time, event: &EventRef<'a>) -> EventRef<'a> {
        let mut event = *event;
        event.reliability = self.reliability.unwrap_or(event.reliability);
        event.deadline_ms = event.deadline_ms.or(self.deadline_ms);
        event.expires = event.expires.or_else(|| self.expiry.map(|expiry| now.after(expiry)));
        let names_importance = || event.attributes.iter().any(|(name, _)| name == "w-importance");
        if let Some(importance) = self.importance
            && event.importance == IMPORTANCE_DEFAULT
            && !names_importance()
        {
            event.importance = importance;
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{AttributesBuf, Qos};

    use super::*;

    const NOW: Time = Time::from_nanos(1_000);

    fn settings() -> TopicSettings {
        TopicSettings::from(&Profile {
            filter: "alarm/#".into(),
            reliability: Some(Reliability::Reliable),
            deadline: Some(Duration::from_millis(50)),
            importance: Some(9),
            expiry: Some(Duration::from_secs(2)),
            ..Profile::default()
        })
    }

    #[test]
    fn an_event_gets_what_it_does_not_say_itself() {
        let event = EventRef::new("alarm/1", b"x", Qos::AtMostOnce);
        let applied = settings().apply(NOW, &event);
        assert_eq!(
            (applied.reliability, applied.deadline_ms, applied.importance),
            (Reliability::Reliable, Some(50), 9)
        );
        assert_eq!((applied.expires, applied.qos), (Some(NOW.after(Duration::from_secs(2))), Qos::AtMostOnce));
        let later = settings().apply(NOW.after(Duration::from_secs(1)), &applied);
        assert_eq!((later.expires, later.importance), (applied.expires, 9));
    }

    #[test]
    fn what_an_event_says_itself_stays() {
        let mut attributes = AttributesBuf::new();
        attributes.push("w-importance", "5");
        let said = EventRef {
            attributes: attributes.as_attributes(),
            expires: Some(Time::from_nanos(7)),
            deadline_ms: Some(3),
            ..EventRef::new("alarm/1", b"x", Qos::AtLeastOnce)
        };
        let applied = settings().apply(NOW, &said);
        assert_eq!((applied.expires, applied.deadline_ms, applied.importance), (said.expires, Some(3), 5));
        let named = EventRef { importance: 2, attributes: whimbrel_event::Attributes::EMPTY, ..said };
        assert_eq!(settings().apply(NOW, &named).importance, 2);
    }

    #[test]
    fn only_persistence_leaves_events_as_they_are() {
        let logged = Profile { persistence: Persistence::Persistent, ..Profile::default() };
        assert!(TopicSettings::from(&logged).changes_nothing() && !settings().changes_nothing());
        assert!(settings().has_deadline() && !TopicSettings::from(&logged).has_deadline());
    }
}
