//! Notices: gaps and silence as events that a client can read.

use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, IMPORTANCE_DEFAULT, PubendId, Publisher, Qos, Reliability, Tick,
    Time,
};

use super::{Gap, GapReason};

/// The pubend of notices, which are in no stream.
pub(crate) const NO_PUBEND: PubendId = PubendId(0);

/// The topic of all notices.
pub const NOTICE_TOPIC: &str = "$whimbrel/notice";

/// Stands for all pubends in a notice of silence.
const ALL_PUBENDS: &str = "*";

/// The notice of a gap.
pub(crate) fn gap(gap: &Gap, now: Time) -> Event {
    let Gap { pubend, from, to, reason } = gap;
    let reason = reason.name();
    notice(&format!(r#"{{"kind":"gap","pubend":"{pubend}","from":"{from}","to":"{to}","reason":"{reason}"}}"#), now)
}

/// The gap of a notice; `None` if it is not a gap's notice.
pub(crate) fn gap_of(notice: &Event) -> Option<Gap> {
    let text = core::str::from_utf8(notice.view().payload).ok()?;
    let members = text.trim_start_matches('{').trim_end_matches('}').split(',');
    let members: Vec<(&str, &str)> = members
        .filter_map(|member| member.split_once(':'))
        .map(|(name, value)| (name.trim_matches('"'), value.trim_matches('"')))
        .collect();
    let member = |name| members.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let EventId { pubend, tick: from } = format!("{}:{}", member("pubend")?, member("from")?).parse().ok()?;
    let (to, reason) = (Tick(member("to")?.parse().ok()?), member("reason")?);
    let reason = GapReason::ALL.into_iter().find(|known| known.name() == reason)?;
    (member("kind")? == "gap").then_some(Gap { pubend, from, to, reason })
}

/// The notice that nothing is missing up to a token.
pub(super) fn silence(since: Time, common: Tick, token: &str, now: Time) -> Event {
    let (from, to) = (Tick(since.as_nanos()).min(common), common);
    let text =
        format!(r#"{{"kind":"silence","pubend":"{ALL_PUBENDS}","from":"{from}","to":"{to}","token":"{token}"}}"#);
    notice(&text, now)
}

/// The notice that an event is known to exist and has not come by its deadline.
pub(super) fn overdue(id: EventId, topic: Option<&str>, now: Time) -> Event {
    let EventId { pubend, tick } = id;
    let topic = topic.map_or(String::new(), |topic| format!(r#","topic":{}"#, quoted(topic)));
    notice(&format!(r#"{{"kind":"overdue","pubend":"{pubend}","tick":"{tick}"{topic}}}"#), now)
}

/// The notice that no event has come under a filter for its period.
pub(super) fn stalled(filter: &str, now: Time) -> Event {
    notice(&format!(r#"{{"kind":"stalled","filter":{}}}"#, quoted(filter)), now)
}

/// A text as JSON (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

fn notice(text: &str, now: Time) -> Event {
    let event = EventRef {
        topic: NOTICE_TOPIC,
        attributes: Attributes::EMPTY,
        payload: text.as_bytes(),
        headers: Headers { text_payload: Some(true), content_type: Some("application/json"), ..Headers::EMPTY },
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance: IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    };
    Event::keep(EventId { pubend: NO_PUBEND, tick: Tick(0) }, now, &event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_read_from_its_notice() {
        for reason in GapReason::ALL {
            let told = Gap { pubend: PubendId(0x1234_5678_9abc_def0), from: Tick(7), to: Tick(u64::MAX), reason };
            assert_eq!(gap_of(&gap(&told, Time::ZERO)), Some(told));
        }
        assert_eq!(gap_of(&silence(Time::ZERO, Tick(9), "token", Time::ZERO)), None);
    }

    #[test]
    fn a_topic_is_told_as_json() {
        let id = EventId { pubend: PubendId(0x12), tick: Tick(7) };
        let text = |told: Event| String::from_utf8(told.view().payload.to_vec()).expect("text");
        let pubend = id.pubend;
        assert_eq!(
            text(overdue(id, Some("a\"\\\u{1}é"), Time::ZERO)),
            format!(r#"{{"kind":"overdue","pubend":"{pubend}","tick":"7","topic":"a\"\\\u0001é"}}"#)
        );
        assert_eq!(
            text(overdue(id, None, Time::ZERO)),
            format!(r#"{{"kind":"overdue","pubend":"{pubend}","tick":"7"}}"#)
        );
        assert_eq!(text(stalled("a/+", Time::ZERO)), r#"{"kind":"stalled","filter":"a/+"}"#);
    }
}
