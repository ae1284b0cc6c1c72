//! Traces of events, and the ids of their spans.

use whimbrel_event::{EventId, EventRef, HostId};

/// The user property that carries a publisher's trace (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";

/// Bits of a trace id that decide whether it is sampled, as in OpenTelemetry: the last 56.
const RANDOM_BITS: u32 = 56;

/// Id of a span within its trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpanId(pub(super) u64);

/// The trace that an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context {
    /// The trace id; never 0.
    pub(super) trace: u128,
    /// The publisher's span.
    pub(super) parent: Option<SpanId>,
}

/// A step of an event that has its own span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    Accept,
    Commit(HostId),
    /// From one broker to its neighbour; `true`: on request, as a repeat.
    Hop(HostId, HostId, bool),
    Receive(HostId),
    /// To a client of a broker, by the numbers of its connection and of the delivery.
    Deliver(HostId, u32, u16),
    Settle(HostId, u32, u16),
}

impl Context {
    /// The trace of an event, if it is traced: its publisher asks for it, or it is in the sampled
    /// share.
    pub(super) fn of(id: EventId, event: &EventRef<'_>, sample: f64) -> Option<Context> {
        if let Some(asked) = event.attributes.get(TRACEPARENT).and_then(parse) {
            return Some(asked);
        }
        let high = mix(id.pubend.0, mix(id.tick.0, 1));
        let low = mix(id.pubend.0, mix(id.tick.0, 2)).max(1);
        let trace = u128::from(high) << 64 | u128::from(low);
        is_sampled(low, sample).then_some(Context { trace, parent: None })
    }
}

/// Whether a trace id with these last bits is sampled. Each broker decides alike, and one with a
/// smaller share chooses among those of others.
fn is_sampled(low: u64, sample: f64) -> bool {
    let all = (1_u64 << RANDOM_BITS) as f64;
    let least = ((1.0 - sample) * all) as u64;
    sample > 0.0 && low & ((1 << RANDOM_BITS) - 1) >= least
}

/// Reads a `traceparent` that asks to be sampled.
fn parse(text: &str) -> Option<Context> {
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Later versions may have more fields; this one has not.
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    number(version, 2)?;
    let (trace, parent, flags) = (number(trace, 32)?, number(parent, 16)? as u64, number(flags, 2)?);
    let is_asked = trace != 0 && parent != 0 && flags & 1 == 1;
    is_asked.then_some(Context { trace, parent: Some(SpanId(parent)) })
}

/// A number in exactly this many lower-case hexadecimal digits.
fn number(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_one = text.len() == digits && text.bytes().all(is_digit);
    is_one.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl Name {
    /// The id of this span of an event: the same at each broker, and after any restart.
    pub(super) fn span(self, id: EventId) -> SpanId {
        let (kind, a, b) = match self {
            Name::Accept => (1, 0, 0),
            Name::Commit(host) => (2, host.as_u64(), 0),
            Name::Hop(from, to, is_answer) => (3 + u64::from(is_answer), from.as_u64(), to.as_u64()),
            Name::Receive(host) => (5, host.as_u64(), 0),
            Name::Deliver(host, conn, tag) => (6, host.as_u64(), u64::from(conn) << 16 | u64::from(tag)),
            Name::Settle(host, conn, tag) => (7, host.as_u64(), u64::from(conn) << 16 | u64::from(tag)),
        };
        let event = mix(id.pubend.0, mix(id.tick.0, kind));
        SpanId(mix(b, mix(a, event)).max(1))
    }
}

/// Hashes two numbers: SplitMix64's finalizer over both. It must not change, or brokers of two
/// versions give the same span different ids.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a ^ b.rotate_left(29)).wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{PubendId, Tick};

    use super::*;

    const ASKED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_valid_traceparent_that_asks_for_it_is_followed() {
        let asked =
            Context { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, parent: Some(SpanId(0x00f0_67aa_0ba9_02b7)) };
        assert_eq!(parse(ASKED), Some(asked));
        assert_eq!(
            parse(&ASKED.replace("00-4", "cc-4")).map(|known| known.trace),
            Some(asked.trace),
            "a later version"
        );
        assert!(parse(&format!("{}-more", ASKED.replace("00-4", "cc-4"))).is_some());
        let wrong = [
            "",
            "00",
            &format!("{ASKED}-more"),
            &ASKED.replace("-01", "-00"),
            &ASKED.replace("00-4", "ff-4"),
            &ASKED.to_uppercase(),
            &ASKED.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &ASKED.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &ASKED.replace("4bf9", "+bf9"),
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn shares_are_kept_and_lie_within_each_other() {
        let low = |tick| mix(16, mix(tick, 2)).max(1);
        let count = |sample| (0..10_000).filter(|tick| is_sampled(low(*tick), sample)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((800..1_200).contains(&count(0.1)), "{}", count(0.1));
        assert!((0..10_000).all(|tick| !is_sampled(low(tick), 0.1) || is_sampled(low(tick), 0.2)));
    }

    #[test]
    fn spans_of_an_event_have_names_of_their_own() {
        let id = EventId { pubend: PubendId(48), tick: Tick(1_795_000_000_123_456_789) };
        let (a, b) = (HostId::new(16), HostId::new(32));
        let names = [
            Name::Accept,
            Name::Commit(a),
            Name::Hop(a, b, false),
            Name::Hop(a, b, true),
            Name::Hop(b, a, false),
            Name::Receive(a),
            Name::Receive(b),
            Name::Deliver(a, 1, 2),
            Name::Deliver(a, 2, 1),
            Name::Settle(a, 1, 2),
        ];
        let mut spans: Vec<u64> = names.iter().map(|name| name.span(id).0).collect();
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), names.len());
    }
}
