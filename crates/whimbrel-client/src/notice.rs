//! What the broker reports about a subscription.

use core::fmt;

use serde::Deserialize;
use whimbrel_event::{CheckpointToken, PubendId, Tick};

/// The topic of notices.
pub(crate) const TOPIC: &str = "$whimbrel/notice";

/// A notice of the broker ([`crate::Subscription::notices`]). Gaps and silence arrive among the
/// messages, in the order of the streams; the others at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something that may have matched is not delivered.
    Gap(Gap),
    /// Nothing matched lately, and nothing is missing up to here.
    Silence {
        /// The subscription's position now.
        token: CheckpointToken,
    },
    /// A message is known to exist, and has not come by its deadline. It is delivered later, unless
    /// it is lost or does not match.
    Overdue {
        /// The message's stream.
        pubend: PubendId,
        /// Its position there.
        tick: Tick,
        /// Its topic, if that is known.
        topic: Option<String>,
    },
    /// No message has come for longer than is accepted, by the period of its topic's profile.
    Stalled {
        /// The topics.
        filter: String,
    },
}

/// A range of one stream of which nothing is delivered, though something may have matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The stream.
    pub pubend: PubendId,
    /// The last position before the gap.
    pub from: Tick,
    /// The last position in the gap.
    pub to: Tick,
    /// The reason.
    pub reason: GapReason,
}

/// The reason for a gap. [`fmt::Display`] explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The broker's cache has given the room to other events.
    Overwritten,
    /// The broker had no reason to keep such events before this subscription was made.
    NotBuffered,
    /// Discarded because it was older than the broker promises to keep.
    Released,
    /// The stream has ended, or its broker has lost that part.
    Lost,
    /// This client took messages more slowly than they arrived, for too long.
    Slow,
    /// This client named no position in that stream, and the broker assumed one.
    Assumed,
    /// Delivery of its messages was not promised (QoS 0).
    BestEffort,
    /// A reason that this library does not know, by the broker's name for it.
    Other(String),
}

impl GapReason {
    /// The reasons that this library knows.
    const KNOWN: [GapReason; 7] = [
        GapReason::Overwritten,
        GapReason::NotBuffered,
        GapReason::Released,
        GapReason::Lost,
        GapReason::Slow,
        GapReason::Assumed,
        GapReason::BestEffort,
    ];

    fn named(name: String) -> GapReason {
        let known = GapReason::KNOWN.into_iter().find(|reason| reason.name() == name);
        known.unwrap_or(GapReason::Other(name))
    }
}

impl GapReason {
    /// The broker's name for the reason.
    pub fn name(&self) -> &str {
        match self {
            GapReason::Overwritten => "overwritten",
            GapReason::NotBuffered => "not-buffered",
            GapReason::Released => "released",
            GapReason::Lost => "lost",
            GapReason::Slow => "slow",
            GapReason::Assumed => "assumed",
            GapReason::BestEffort => "best-effort",
            GapReason::Other(name) => name,
        }
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapReason::Overwritten => "overwritten: the broker's cache had no more room for it",
            GapReason::NotBuffered => "not buffered: the broker did not keep such messages before",
            GapReason::Released => "released: it was older than the broker promises to keep",
            GapReason::Lost => "lost: the broker that had it has ended",
            GapReason::Slow => "too slow: this client took less than came",
            GapReason::Assumed => "assumed: no position was given for this stream",
            GapReason::BestEffort => "best effort: nothing was promised of such messages",
            GapReason::Other(name) => name,
        })
    }
}

/// A notice as its JSON is written.
#[derive(Deserialize)]
struct Written {
    kind: String,
    pubend: Option<String>,
    from: Option<String>,
    to: Option<String>,
    reason: Option<String>,
    token: Option<String>,
    tick: Option<String>,
    topic: Option<String>,
    filter: Option<String>,
}

impl Notice {
    /// The notice in a message; `None` if the message is none.
    pub(crate) fn read(topic: &str, payload: &[u8]) -> Option<Notice> {
        if topic != TOPIC {
            return None;
        }
        let written: Written = serde_json::from_slice(payload).ok()?;
        let tick = |text: Option<String>| text?.parse().ok().map(Tick);
        let pubend = |text: Option<String>| u64::from_str_radix(&text?, 16).ok().map(PubendId);
        match written.kind.as_str() {
            "gap" => {
                let pubend = pubend(written.pubend)?;
                let reason = GapReason::named(written.reason?);
                Some(Notice::Gap(Gap { pubend, from: tick(written.from)?, to: tick(written.to)?, reason }))
            }
            "silence" => Some(Notice::Silence { token: written.token?.parse().ok()? }),
            "overdue" => {
                let (pubend, tick) = (pubend(written.pubend)?, tick(written.tick)?);
                Some(Notice::Overdue { pubend, tick, topic: written.topic })
            }
            "stalled" => Some(Notice::Stalled { filter: written.filter? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_read_with_their_reason() {
        let gap = |reason: &str| {
            let text = format!(
                r#"{{"kind":"gap","pubend":"ab0","from":"7","to":"18446744073709551615","reason":"{reason}"}}"#
            );
            Notice::read(TOPIC, text.as_bytes())
        };
        let expected = |reason| Notice::Gap(Gap { pubend: PubendId(0xab0), from: Tick(7), to: Tick(u64::MAX), reason });
        assert_eq!(gap("slow"), Some(expected(GapReason::Slow)));
        assert_eq!(gap("not-buffered"), Some(expected(GapReason::NotBuffered)));
        assert_eq!(gap("eaten"), Some(expected(GapReason::Other("eaten".to_owned()))), "later brokers may say more");
    }

    #[test]
    fn what_did_not_come_is_read_with_or_without_its_topic() {
        let read = |text: &str| Notice::read(TOPIC, text.as_bytes());
        let (pubend, tick) = (PubendId(0xab0), Tick(7));
        let topic = Some("alarm/1".to_owned());
        let overdue = read(r#"{"kind":"overdue","pubend":"ab0","tick":"7","topic":"alarm/1"}"#);
        assert_eq!(overdue, Some(Notice::Overdue { pubend, tick, topic }));
        let unknown = read(r#"{"kind":"overdue","pubend":"ab0","tick":"7"}"#);
        assert_eq!(unknown, Some(Notice::Overdue { pubend, tick, topic: None }));
        let stalled = read(r#"{"kind":"stalled","filter":"alarm/#"}"#);
        assert_eq!(stalled, Some(Notice::Stalled { filter: "alarm/#".to_owned() }));
    }

    #[test]
    fn what_is_no_notice_is_none() {
        let gap = br#"{"kind":"gap","pubend":"ab0","from":"7","to":"9","reason":"lost"}"#;
        assert!(Notice::read(TOPIC, gap).is_some());
        assert_eq!(Notice::read("$whimbrel/other", gap), None);
        for text in [
            "",
            "{}",
            r#"{"kind":"party"}"#,
            r#"{"kind":"silence","token":"?"}"#,
            r#"{"kind":"gap","pubend":"ab0","from":7,"to":9,"reason":"lost"}"#,
        ] {
            assert_eq!(Notice::read(TOPIC, text.as_bytes()), None, "{text}");
        }
    }
}
