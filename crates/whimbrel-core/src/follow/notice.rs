//! Notices: gaps and silence as events that a client can read.

use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, IMPORTANCE_DEFAULT, PubendId, Publisher, Qos, Reliability, Tick,
    Time,
};

use super::Gap;

/// Where notices are: in no stream.
pub(crate) const NO_PUBEND: PubendId = PubendId(0);

/// The topic of all notices.
pub const NOTICE_TOPIC: &str = "$whimbrel/notice";

/// What stands for all pubends in a notice of silence.
const ALL_PUBENDS: &str = "*";

/// The notice of a gap.
pub(super) fn gap(gap: &Gap, now: Time) -> Event {
    let Gap { pubend, from, to, reason } = gap;
    let reason = reason.name();
    notice(&format!(r#"{{"kind":"gap","pubend":"{pubend}","from":"{from}","to":"{to}","reason":"{reason}"}}"#), now)
}

/// The notice that nothing is missing up to a token.
pub(super) fn silence(since: Time, common: Tick, token: &str, now: Time) -> Event {
    let (from, to) = (Tick(since.as_nanos()).min(common), common);
    let text =
        format!(r#"{{"kind":"silence","pubend":"{ALL_PUBENDS}","from":"{from}","to":"{to}","token":"{token}"}}"#);
    notice(&text, now)
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
