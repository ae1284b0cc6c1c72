//! User properties of a SUBSCRIBE about following the streams: durability, start, owner of the
//! position, notices of gaps; and whether the subscription answers requests.

use whimbrel_core::{Durability, Start, SubscriptionSpec};
use whimbrel_event::{CheckpointToken, EventId, Qos, Time};

use crate::codec::UserProperties;
use crate::moment;

/// The user property with the durability: which events a subscription gets of the time in which its
/// client is away.
const DURABILITY: &str = "w-durability";
/// The user property with the start of a subscription.
const FROM: &str = "w-from";
/// The user property that says whether the client or the broker keeps the position.
const ACK: &str = "w-ack";
/// The user property that asks for notices.
const NOTICES: &str = "w-notices";
/// The user property of subscriptions that answer requests.
const REPLIER: &str = "w-replier";

/// The properties that this module reads.
const NAMES: [&str; 5] = [DURABILITY, FROM, ACK, NOTICES, REPLIER];

/// Event ids in one `w-from` at most. A client names the last one of each stream that it has
/// received events of. (The text is a string of MQTT, at most 65,535 bytes long.)
const IDS_MAX: usize = 1024;

/// The options of a SUBSCRIBE, for all its filters.
#[derive(Debug, Default)]
pub(super) struct FollowOptions {
    durability: Durability,
    from: StartPlace,
    by_token: bool,
    notices: bool,
    is_replier: bool,
    /// A property that asks for event ids is present.
    named: bool,
}

/// The start of a subscription, as [`Start`].
#[derive(Debug, Default)]
enum StartPlace {
    #[default]
    Own,
    Token(Box<CheckpointToken>, Vec<EventId>),
    After(Vec<EventId>),
    Since(Time),
    Earliest,
}

/// Whether a user property of a SUBSCRIBE is read by [`FollowOptions::read`].
pub(super) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

impl FollowOptions {
    /// Reads the user properties of a SUBSCRIBE; `has_log`: the broker has a log.
    ///
    /// # Errors
    /// The text says which property is wrong, and why.
    pub(super) fn read(user: UserProperties<'_>, has_log: bool) -> Result<FollowOptions, String> {
        let mut values: [Option<&str>; NAMES.len()] = [None; NAMES.len()];
        for (name, value) in user.iter() {
            let Some(at) = NAMES.iter().position(|known| *known == name) else { continue };
            if values[at].replace(value).is_some() {
                return Err(format!("{name} is given more than once: a SUBSCRIBE has one for all its filters"));
            }
        }
        let [durability, from, ack, notices, replier] = values;
        let wish = FollowOptions {
            durability: durability.map_or(Ok(Durability::default()), durability_of)?,
            from: from.map_or(Ok(StartPlace::Own), from_of)?,
            by_token: ack.map_or(Ok(false), by_token)? || from.is_some(),
            notices: notices.map_or(Ok(false), |value| is_on(NOTICES, value))?,
            is_replier: replier.map_or(Ok(false), |value| is_on(REPLIER, value))?,
            named: [durability, from, ack, notices].iter().any(Option::is_some),
        };
        let keeps = !matches!(wish.durability, Durability::Nondurable) && (has_log || durability.is_some());
        if ack.is_some() && !keeps {
            return Err(format!(
                "{ACK} is for subscriptions that get what they missed: ask for {DURABILITY} durable or semi-durable"
            ));
        }
        Ok(wish)
    }

    /// The options of a subscription with that QoS, as far as user properties say.
    pub(super) fn spec(&self, qos: Qos) -> SubscriptionSpec {
        let FollowOptions { durability, by_token, notices, is_replier, named, .. } = *self;
        SubscriptionSpec { durability, by_token, notices, is_replier, named, ..SubscriptionSpec::new(qos) }
    }

    /// The start position.
    pub(super) fn start(&self) -> Start<'_> {
        match &self.from {
            StartPlace::Own => Start::Own,
            StartPlace::Token(token, later) => Start::Token(token, later),
            StartPlace::After(ids) => Start::After(ids),
            StartPlace::Since(at) => Start::Since(*at),
            StartPlace::Earliest => Start::Earliest,
        }
    }

    /// Whether the answer is to name the position at which the subscription begins: if event ids
    /// are asked for, and the client `wants_diagnostics`.
    pub(super) fn wants_token(&self, wants_diagnostics: bool) -> bool {
        self.named && wants_diagnostics
    }
}

fn durability_of(value: &str) -> Result<Durability, String> {
    match value {
        "nondurable" => Ok(Durability::Nondurable),
        "semi-durable" => Ok(Durability::SemiDurable),
        "durable" => Ok(Durability::Durable),
        _ => Err(format!("{DURABILITY} is none of nondurable, semi-durable and durable")),
    }
}

fn by_token(value: &str) -> Result<bool, String> {
    if value == "token" { Ok(true) } else { Err(format!("{ACK} is not token, the only value that it has")) }
}

fn is_on(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} is neither on nor off")),
    }
}

/// Tokens have no colon, event ids have one, and times have at least two.
fn from_of(value: &str) -> Result<StartPlace, String> {
    if value == "earliest" {
        return Ok(StartPlace::Earliest);
    }
    if value.eq_ignore_ascii_case("earliest") {
        return Err(format!("{FROM}: earliest is written in small letters"));
    }
    let first = value.split(',').next().unwrap_or_default();
    match first.bytes().filter(|byte| *byte == b':').count() {
        0 => {
            let token = first.parse();
            let token = token.map_err(|error| no_moment(value).unwrap_or_else(|| format!("{FROM}: {error}")))?;
            Ok(StartPlace::Token(Box::new(token), ids(FROM, value, 1)?))
        }
        1 => {
            let ids = ids(FROM, value, 0);
            ids.map(StartPlace::After).map_err(|error| no_moment(value).unwrap_or(error))
        }
        _ => time(value).map(StartPlace::Since),
    }
}

/// Advice for a text that is a time in another format.
fn no_moment(text: &str) -> Option<String> {
    moment::advice(text).map(|advice| format!("{FROM}: {advice}"))
}

/// The event ids of a list after its first `skipped` items; `name` is the list's name in errors.
pub(super) fn ids(name: &str, list: &str, skipped: usize) -> Result<Vec<EventId>, String> {
    let items = list.split(',').enumerate().skip(skipped);
    if items.clone().nth(IDS_MAX).is_some() {
        return Err(format!("{name} has more than {IDS_MAX} event ids: give the last one of each stream"));
    }
    let id = |(at, item): (usize, &str)| item.parse().map_err(|error| format!("{name}, item {}: {error}", at + 1));
    items.map(id).collect()
}

/// Parses a time. Times before 1970 mean 1970; no event is older.
fn time(text: &str) -> Result<Time, String> {
    moment::read(text).ok_or_else(|| {
        let example = moment::EXAMPLE;
        let none =
            format!("{FROM} is neither a checkpoint token, nor event ids, nor earliest, nor a time as {example}");
        no_moment(text).unwrap_or(none)
    })
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{AttributesBuf, Deployment, HostId, Tick};

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<FollowOptions, String> {
        let mut properties = AttributesBuf::new();
        for (name, value) in pairs {
            properties.push(name, value);
        }
        FollowOptions::read(properties.as_attributes().into(), false)
    }

    fn from(value: &str) -> Result<FollowOptions, String> {
        read(&[(DURABILITY, "semi-durable"), (FROM, value)])
    }

    fn token() -> CheckpointToken {
        let mut token = CheckpointToken::new(Deployment::named("d"), Tick(1_000));
        token.cover(HostId::new(0x10), 4, 4).expect("an empty token has room");
        token
    }

    #[test]
    fn nothing_asked_is_the_default() {
        let wish = read(&[("w-selector", "a = 1"), ("x", "y")]).expect("nothing of this is read");
        assert!(matches!(wish.start(), Start::Own));
        assert_eq!(wish.spec(Qos::AtLeastOnce), SubscriptionSpec::new(Qos::AtLeastOnce));
        assert!(!wish.wants_token(true), "a plain subscription gets what was published alone");
        for asked in [(DURABILITY, "nondurable"), (FROM, "earliest"), (NOTICES, "on")] {
            let wish = read(&[asked]).expect("known");
            assert!(wish.wants_token(true) && wish.spec(Qos::AtLeastOnce).named, "{}", asked.0);
            assert!(!wish.wants_token(false), "{}", asked.0);
        }
    }

    #[test]
    fn a_replier_says_so_and_gets_nothing_else_for_it() {
        let qos = Qos::AtLeastOnce;
        let spec = |value| read(&[(REPLIER, value)]).expect("known").spec(qos);
        assert_eq!(spec("on"), SubscriptionSpec { is_replier: true, ..SubscriptionSpec::new(qos) });
        assert_eq!(spec("off"), SubscriptionSpec::new(qos));
    }

    #[test]
    fn a_place_to_begin_is_a_token_with_or_without_ids_or_ids_or_a_time_or_earliest() {
        let id = |text: &str| text.parse::<EventId>().expect("an id");
        let text = token().to_string();
        let wish = from(&text).expect("a token");
        assert!(matches!(wish.start(), Start::Token(at, []) if *at == token()));
        assert!(wish.by_token, "who names a place keeps it");
        let wish = from(&format!("{text},13:5,ff:18446744073709551615")).expect("a token and ids");
        let later = [id("13:5"), id("ff:18446744073709551615")];
        assert!(matches!(wish.start(), Start::Token(at, ids) if *at == token() && ids == later));
        let wish = from("13:5,14:7").expect("ids");
        assert!(matches!(wish.start(), Start::After(ids) if ids == [id("13:5"), id("14:7")]));
        assert!(matches!(from("earliest").expect("a word").start(), Start::Earliest));
    }

    #[test]
    fn a_time_is_one_of_rfc_3339_with_any_offset() {
        let at = |text| match from(text).expect("a time").from {
            StartPlace::Since(at) => at.as_nanos(),
            other => panic!("a time, not {other:?}"),
        };
        assert_eq!(at("2026-01-01T00:00:00Z"), 1_767_225_600_000_000_000);
        assert_eq!(at("2026-01-01T01:30:00.000000007+01:30"), 1_767_225_600_000_000_007);
        assert_eq!(at("2026-01-01t00:00:00z"), 1_767_225_600_000_000_000);
        assert_eq!((at("1969-12-31T23:59:59Z"), at("9999-01-01T00:00:00Z")), (0, u64::MAX));
        assert_eq!(at("2026-01-01T00:00:00.123456789987Z"), 1_767_225_600_123_456_789);
    }

    #[test]
    fn what_means_a_moment_otherwise_is_told_how_it_is_written() {
        for (value, written) in [
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("1767225600", "2026-01-01T00:00:00Z"),
            ("2026-03-01T12:00Z", moment::EXAMPLE),
            ("2026-03-01T12:00:00", moment::EXAMPLE),
        ] {
            let cause = from(value).expect_err(value);
            assert_eq!(cause, format!("{FROM}: {}", moment::advice(value).expect("it means a moment")));
            assert!(cause.ends_with(written), "{value}: {cause}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_read_is_refused_with_what_and_where() {
        let cut = &token().to_string()[..10];
        for (value, says) in [
            ("", "ends too early"),
            ("tok en", "byte 3"),
            (cut, "check"),
            ("1:2,", "item 2"),
            ("1:2,x", "item 2"),
            (&format!("{},1:2,3", token()), "item 3"),
            (&format!("{},{}", token(), token()), "item 2"),
            ("12:00:00", "time"),
            ("2026-02-30T00:00:00Z", "time"),
            ("2026-01-01T00:00:00", "time"),
            ("2026-01-01T00:00:00+24:00", "time"),
            ("2026-01-01T00:00:00+0130", "time"),
            ("2026-01-01T00:00:00-01", "time"),
            ("junk", "no checkpoint token"),
            ("EARLIEST", "small letters"),
            ("2026-01-01T00:00:00Z,1:2", "time"),
        ] {
            let cause = from(value).expect_err(value);
            assert!(cause.starts_with(FROM) && cause.contains(says), "{value}: {cause}");
        }
    }

    #[test]
    fn the_number_of_ids_is_bounded() {
        let ids = |count| vec!["1:2"; count].join(",");
        assert!(from(&ids(IDS_MAX)).is_ok());
        assert!(from(&format!("{},{}", token(), ids(IDS_MAX))).is_ok());
        for many in [ids(IDS_MAX + 1), format!("{},{}", token(), ids(IDS_MAX + 1))] {
            assert!(from(&many).expect_err("too many").contains("more than 1024"));
        }
    }

    #[test]
    fn unknown_values_and_repetitions_are_refused_by_name() {
        for pairs in [
            &[(DURABILITY, "Durable")][..],
            &[(ACK, "packet"), (DURABILITY, "semi-durable")],
            &[(ACK, "token")],
            &[(ACK, "token"), (DURABILITY, "nondurable")],
            &[(NOTICES, "yes")],
            &[(REPLIER, "yes")],
            &[(REPLIER, "on"), (REPLIER, "on")],
            &[(NOTICES, "on"), (NOTICES, "on")],
            &[(FROM, "earliest"), (FROM, "earliest")],
        ] {
            let cause = read(pairs).expect_err("refused");
            assert!(cause.starts_with(pairs[0].0), "{cause}");
        }
    }
}
