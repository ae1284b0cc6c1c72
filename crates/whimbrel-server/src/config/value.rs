//! Reading one setting's value, from text or from TOML.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::Uri;
use bytesize::ByteSize;
use ipnet::IpNet;
use toml::de::DeValue;
use whimbrel_core::TopicRate;

/// Peers at most.
pub const PEERS_MAX: usize = 64;

/// Texts of a list, at most.
pub const TEXTS_MAX: usize = 64;

/// Parts per million of one.
const PPM: f64 = 1e6;

/// The longest host name, in bytes (RFC 1035).
const HOST_MAX: usize = 253;

/// Values that a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// Any text that is not empty.
    Text,
    /// `ADDR:PORT`, or `off`.
    Listen,
    /// A whole number between the bounds, both included.
    Count(u64, u64),
    /// A number of bytes between the bounds, both included.
    Size(u64, u64),
    /// A duration between the bounds, in milliseconds, both included.
    Duration(u64, u64),
    /// One of a few words; a number among them may be written as one.
    Choice(&'static [&'static str]),
    /// A number between the bounds, in parts per million, both included.
    Ratio(u32, u32),
    /// Degrees, at most this many to either side of 0.
    Degrees(u16),
    /// `http://HOST:PORT`, with a path or without.
    Endpoint,
    /// A list of `HOST:PORT`, at most [`PEERS_MAX`]; as text, with commas between them.
    Peers,
    /// `NUMBER/s`, events per second, or `SIZE/s`, bytes per second.
    Rate,
    /// A list of texts, at most [`TEXTS_MAX`].
    Texts,
    /// A list of some of these words; as text, with commas between them.
    Words(&'static [&'static str]),
    /// A list of networks such as `10.0.0.0/8`, or single addresses, at most [`TEXTS_MAX`]; as
    /// text, with commas between them.
    Networks,
    /// A setting reserved for a later version: only `off`, `false` or an empty list is accepted.
    Later,
}

/// A setting's checked value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Text`], [`Kind::Choice`] and [`Kind::Endpoint`].
    Text(String),
    /// Of [`Kind::Ratio`] and [`Kind::Degrees`].
    Real(f64),
    /// Of [`Kind::Listen`]; `None` is `off`.
    Listen(Option<SocketAddr>),
    /// Of [`Kind::Count`] and [`Kind::Size`].
    Number(u64),
    /// Of [`Kind::Duration`].
    Duration(Duration),
    /// Of [`Kind::Rate`].
    Rate(TopicRate),
    /// Of [`Kind::Peers`].
    Peers(Vec<String>),
    /// Of [`Kind::Texts`] and [`Kind::Words`].
    Texts(Vec<String>),
    /// Of [`Kind::Networks`].
    Networks(Vec<IpNet>),
    /// Of [`Kind::Later`], and of settings that were not given and have no default.
    Nothing,
}

/// Why a value was refused.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// Completes "`key` …".
    pub what: String,
    /// What to write instead.
    pub help: String,
}

fn refuse<T>(what: impl Into<String>, help: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { what: what.into(), help: help.into() })
}

impl Kind {
    /// The expected value, as the end of "write …".
    pub fn expectation(self) -> String {
        match self {
            Kind::Switch => self.values(),
            Kind::Text => "a text".into(),
            Kind::Listen => "an address and port such as \"127.0.0.1:1883\", or \"off\"".into(),
            Kind::Count(..) => format!("a whole number from {}", self.values()),
            Kind::Size(..) => format!("a size such as 65536 or \"64 KiB\", from {}", self.values()),
            Kind::Duration(..) => {
                let examples = "\"500ms\", \"10s\" or \"2h\"";
                format!("a duration with its unit, such as {examples}, from {}", self.values())
            }
            Kind::Choice(_) => format!("one of {}", self.values()),
            Kind::Ratio(..) => format!("a number from {}", self.values()),
            Kind::Degrees(_) => format!("degrees such as 52.23, from {}", self.values()),
            Kind::Endpoint => "an address such as \"http://127.0.0.1:4318\"".into(),
            Kind::Peers => "a host and port such as \"broker.example.org:7117\", or a list of them".into(),
            Kind::Rate => "events or bytes per second, such as \"100/s\" or \"64 KiB/s\"".into(),
            Kind::Texts => "a list of texts".into(),
            Kind::Words(_) => format!("a list of some of {}", self.values()),
            Kind::Networks => {
                "networks such as \"10.0.0.0/8\" or \"fd00::/8\", or single addresses, or a list of them".into()
            }
            Kind::Later => "nothing yet".into(),
        }
    }

    /// The values in short, for a table.
    pub fn values(self) -> String {
        let duration = |millis| humantime::format_duration(Duration::from_millis(millis)).to_string();
        match self {
            Kind::Switch => "true or false".into(),
            Kind::Text => "text".into(),
            Kind::Listen => "`ADDR:PORT` or `off`".into(),
            Kind::Count(min, max) => format!("{min} to {max}"),
            Kind::Size(min, max) => format!("{} to {}", ByteSize(min), ByteSize(max)),
            Kind::Duration(min, max) => format!("{} to {}", duration(min), duration(max)),
            Kind::Choice(words) | Kind::Words(words) => words.join(", "),
            Kind::Ratio(min, max) => format!("{} to {}", f64::from(min) / PPM, f64::from(max) / PPM),
            Kind::Degrees(most) => format!("-{most} to {most}"),
            Kind::Endpoint => "`http://HOST:PORT`".into(),
            Kind::Peers => "list of `HOST:PORT`".into(),
            Kind::Rate => "`NUMBER/s` or `SIZE/s`".into(),
            Kind::Texts => "list of texts".into(),
            Kind::Networks => "list of `ADDR/BITS`".into(),
            Kind::Later => String::new(),
        }
    }

    /// Reads a value given as text: a flag, a variable, or a TOML string.
    pub fn read_text(self, text: &str) -> Result<Value, Refusal> {
        match self {
            Kind::Switch => match text {
                "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
                "false" | "0" | "no" | "off" => Ok(Value::Switch(false)),
                _ => self.mismatch("is neither true nor false"),
            },
            Kind::Text if text.trim().is_empty() => self.mismatch("is empty"),
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Listen => read_listen(text).map(Value::Listen),
            Kind::Count(..) => match text.parse() {
                Ok(number) => self.read_number(number),
                Err(_) => self.mismatch("is not a whole number"),
            },
            Kind::Size(..) => match text.parse::<ByteSize>() {
                Ok(size) => self.read_number(size.as_u64()),
                Err(_) => self.mismatch("is not a size in bytes"),
            },
            Kind::Duration(min, max) => match humantime::parse_duration(text) {
                Ok(duration) if within(duration, min, max) => Ok(Value::Duration(duration)),
                Ok(_) => self.mismatch("is out of range"),
                Err(_) => self.mismatch("is not a duration with its unit"),
            },
            Kind::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Choice(_) => self.mismatch("is not known"),
            Kind::Ratio(min, max) => self.read_real(text, f64::from(min) / PPM, f64::from(max) / PPM),
            Kind::Degrees(most) => self.read_real(text, -f64::from(most), f64::from(most)),
            Kind::Endpoint => self.read_endpoint(text),
            Kind::Peers => read_peers(text.split(',').map(str::trim)),
            Kind::Rate => read_rate(text).map_or_else(|| self.mismatch("is no rate"), |rate| Ok(Value::Rate(rate))),
            Kind::Texts => Ok(Value::Texts(vec![text.to_owned()])),
            Kind::Words(_) | Kind::Networks => self.read_list(text.split(',').map(str::trim)),
            Kind::Later if matches!(text, "off" | "false") => Ok(Value::Nothing),
            Kind::Later => not_available(),
        }
    }

    /// Reads a value from a configuration file, whose type must be the right one.
    pub fn read_toml(self, value: &DeValue<'_>) -> Result<Value, Refusal> {
        match (self, value) {
            (Kind::Switch, DeValue::Boolean(on)) => Ok(Value::Switch(*on)),
            (Kind::Peers, DeValue::String(text)) => self.read_text(text),
            (Kind::Peers, DeValue::Array(items)) => {
                let texts: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
                texts.map_or_else(
                    || self.mismatch("has an entry that is no text"),
                    |texts| read_peers(texts.into_iter()),
                )
            }
            (Kind::Words(_) | Kind::Networks, DeValue::String(text)) => self.read_text(text),
            (Kind::Words(_) | Kind::Networks, DeValue::Array(items)) => {
                let texts: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
                texts.map_or_else(
                    || self.mismatch("has an entry that is no text"),
                    |texts| self.read_list(texts.into_iter()),
                )
            }
            (Kind::Texts, DeValue::String(text)) => self.read_text(text),
            (Kind::Texts, DeValue::Array(items)) if items.len() <= TEXTS_MAX => {
                let texts: Option<Vec<String>> =
                    items.iter().map(|item| item.get_ref().as_str().map(ToOwned::to_owned)).collect();
                texts.map_or_else(|| self.mismatch("has an entry that is no text"), |texts| Ok(Value::Texts(texts)))
            }
            (Kind::Texts, DeValue::Array(_)) => self.mismatch(format!("has more than {TEXTS_MAX} entries")),
            (Kind::Later, DeValue::Boolean(false)) => Ok(Value::Nothing),
            (Kind::Later, DeValue::Array(items)) if items.is_empty() => Ok(Value::Nothing),
            (Kind::Later, DeValue::String(text)) => self.read_text(text),
            (Kind::Later, _) => not_available(),
            (Kind::Count(..) | Kind::Size(..), DeValue::Integer(number)) => {
                match u64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => self.read_number(number),
                    Err(_) => self.mismatch("is out of range"),
                }
            }
            (Kind::Ratio(..) | Kind::Degrees(_) | Kind::Choice(_), DeValue::Integer(number)) => {
                self.read_text(number.as_str())
            }
            (Kind::Ratio(..) | Kind::Degrees(_), DeValue::Float(number)) => self.read_text(number.as_str()),
            (
                Kind::Text | Kind::Listen | Kind::Size(..) | Kind::Duration(..) | Kind::Choice(_) | Kind::Endpoint,
                DeValue::String(s),
            ) => self.read_text(s),
            (_, other) => self.mismatch(format!("has the wrong type: {}", other.type_str())),
        }
    }

    /// Reads the entries of [`Kind::Words`] and [`Kind::Networks`].
    fn read_list<'a>(self, texts: impl Iterator<Item = &'a str>) -> Result<Value, Refusal> {
        let (mut words, mut networks) = (Vec::new(), Vec::new());
        for text in texts {
            match self {
                Kind::Words(known) if known.contains(&text) => words.push(text.to_owned()),
                Kind::Networks => match text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
                    Ok(network) => networks.push(network),
                    Err(_) => return self.mismatch(format!("has \"{text}\", which is no network")),
                },
                _ => return self.mismatch(format!("has \"{text}\", which is not known")),
            }
            if words.len() + networks.len() > TEXTS_MAX {
                return self.mismatch(format!("has more than {TEXTS_MAX} entries"));
            }
        }
        Ok(if matches!(self, Kind::Networks) { Value::Networks(networks) } else { Value::Texts(words) })
    }

    fn read_number(self, number: u64) -> Result<Value, Refusal> {
        match self {
            Kind::Count(min, max) | Kind::Size(min, max) if (min..=max).contains(&number) => Ok(Value::Number(number)),
            _ => self.mismatch("is out of range"),
        }
    }

    fn read_real(self, text: &str, least: f64, most: f64) -> Result<Value, Refusal> {
        match text.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Value::Real(number)),
            Ok(_) => self.mismatch("is out of range"),
            Err(_) => self.mismatch("is not a number"),
        }
    }

    fn read_endpoint(self, text: &str) -> Result<Value, Refusal> {
        let Ok(uri) = text.parse::<Uri>() else { return self.mismatch("is no address") };
        if uri.scheme_str() == Some("https") {
            let help = "name a collector beside the broker with http://, and have that one speak TLS with the rest";
            return refuse("asks for TLS, which is not spoken to collectors", help);
        }
        let is_known = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
        if !is_known || uri.query().is_some() || uri.authority().is_some_and(|who| who.as_str().contains('@')) {
            return self.mismatch("is no address of a collector");
        }
        Ok(Value::Text(text.to_owned()))
    }

    fn mismatch(self, what: impl Into<String>) -> Result<Value, Refusal> {
        refuse(what, format!("write {}", self.expectation()))
    }
}

fn within(duration: Duration, min: u64, max: u64) -> bool {
    (Duration::from_millis(min)..=Duration::from_millis(max)).contains(&duration)
}

fn not_available() -> Result<Value, Refusal> {
    refuse("is not available in this version", "remove it; the name is reserved for a later version")
}

/// Reads `HOST:PORT` several times. A host is a name, an address, or an IPv6 address in brackets.
fn read_peers<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Value, Refusal> {
    let mut peers = Vec::new();
    for text in texts {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.len() <= HOST_MAX && host.chars().all(name),
        };
        if !is_host || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            let help = "write a host name or an address, and its port, such as broker.example.org:7117";
            return refuse(format!("has \"{text}\", which is no host and port"), help);
        }
        peers.push(text.to_owned());
    }
    if peers.len() > PEERS_MAX {
        return refuse(
            format!("has more than {PEERS_MAX} entries"),
            "a few are enough: brokers tell each other of others",
        );
    }
    Ok(Value::Peers(peers))
}

/// A rate: a number alone counts events, one with a unit bytes; at most [`u32::MAX`] of either.
fn read_rate(text: &str) -> Option<TopicRate> {
    let per_second = text.strip_suffix("/s")?.trim_end();
    if let Ok(events) = per_second.parse::<u32>() {
        return NonZeroU32::new(events).map(TopicRate::Events);
    }
    let bytes = u32::try_from(per_second.parse::<ByteSize>().ok()?.as_u64()).ok()?;
    NonZeroU32::new(bytes).map(TopicRate::Bytes)
}

/// Reads `ADDR:PORT` or `off`. The address is numeric, in brackets if it is IPv6, or `localhost`.
fn read_listen(text: &str) -> Result<Option<SocketAddr>, Refusal> {
    if text == "off" {
        return Ok(None);
    }
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    if let Ok(address) = numeric.parse() {
        return Ok(Some(address));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        let example = SocketAddr::new(ip, 0);
        return refuse("has no port", format!("write the port too, such as \"{example}\" for any free one"));
    }
    match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_err() => {
            refuse(format!("has the port \"{port}\""), "write a port from 1 to 65535, or 0 for any free one")
        }
        Some((host, _)) => refuse(
            format!("has \"{host}\", which is not a numeric address"),
            "write an address such as 127.0.0.1 or [::1], or localhost; other host names are not looked up",
        ),
        None => refuse("is not an address and port", format!("write {}", Kind::Listen.expectation())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Result<Value, String> {
        Kind::Listen.read_text(text).map_err(|refusal| refusal.what)
    }

    #[test]
    fn addresses() {
        let value = |text: &str| Ok(Value::Listen(Some(text.parse().expect("a literal address"))));
        assert_eq!(listen("off"), Ok(Value::Listen(None)));
        assert_eq!(listen("127.0.0.1:0"), value("127.0.0.1:0"));
        assert_eq!(listen("[::1]:1883"), value("[::1]:1883"));
        assert_eq!(listen("localhost:1883"), value("127.0.0.1:1883"));
        assert_eq!(listen("10.0.0.1"), Err("has no port".into()));
        assert_eq!(listen("::1"), Err("has no port".into()));
        assert_eq!(listen("127.0.0.1:70000"), Err("has the port \"70000\"".into()));
        assert_eq!(listen("broker.example:1883"), Err("has \"broker.example\", which is not a numeric address".into()));
        assert_eq!(listen(""), Err("is not an address and port".into()));
    }

    #[test]
    fn peers() {
        let peers = |text: &str| Kind::Peers.read_text(text);
        let value = |texts: &[&str]| Ok(Value::Peers(texts.iter().map(|text| text.to_string()).collect()));
        assert_eq!(peers("10.0.0.5:7117"), value(&["10.0.0.5:7117"]));
        assert_eq!(peers("a.example:1, [::1]:2"), value(&["a.example:1", "[::1]:2"]));
        for wrong in ["", "a", "a:0", "a:70000", ":7117", "a b:1", "::1:7117", "[::g]:1"] {
            assert!(peers(wrong).is_err(), "{wrong:?} was taken");
        }
        assert!(
            peers(&vec!["a:1"; PEERS_MAX].join(",")).is_ok() && peers(&vec!["a:1"; PEERS_MAX + 1].join(",")).is_err()
        );
    }

    #[test]
    fn networks() {
        let networks = |text: &str| Kind::Networks.read_text(text);
        let value = |texts: &[&str]| {
            Ok(Value::Networks(texts.iter().map(|text| text.parse().expect("a literal network")).collect()))
        };
        assert_eq!(networks("10.0.0.0/8"), value(&["10.0.0.0/8"]));
        assert_eq!(networks("192.0.2.7, fd00::/8"), value(&["192.0.2.7/32", "fd00::/8"]));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "proxy.example", "10.0.0.0/8,"] {
            assert!(networks(wrong).is_err(), "{wrong:?} was taken");
        }
        let many = |number: usize| networks(&vec!["10.0.0.0/8"; number].join(","));
        assert!(many(TEXTS_MAX).is_ok() && many(TEXTS_MAX + 1).is_err());
        let words = |text: &str| Kind::Words(&["mqtt", "tls"]).read_text(text);
        assert_eq!(words("tls,mqtt"), Ok(Value::Texts(vec!["tls".into(), "mqtt".into()])));
        assert_eq!(words("tls,overlay").expect_err("it is none").what, "has \"overlay\", which is not known");
    }

    #[test]
    fn numbers_keep_their_bounds() {
        let count = Kind::Count(1, 10);
        assert_eq!(count.read_text("10"), Ok(Value::Number(10)));
        for text in ["0", "11", "-1", "ten", "", "99999999999999999999"] {
            assert!(count.read_text(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn ratios_lie_between_nothing_and_all() {
        assert_eq!(Kind::Ratio(0, 1_000_000).read_text("0.25"), Ok(Value::Real(0.25)));
        assert_eq!(Kind::Ratio(0, 1_000_000).read_text("1"), Ok(Value::Real(1.0)));
        for wrong in ["-0.1", "1.01", "NaN", "inf", "", "half"] {
            assert!(Kind::Ratio(0, 1_000_000).read_text(wrong).is_err(), "{wrong:?} was taken");
        }
    }

    #[test]
    fn degrees_lie_on_the_earth() {
        let longitude = Kind::Degrees(180);
        for (text, degrees) in [("21.01", 21.01), ("-180", -180.0), ("180.0", 180.0), ("0", 0.0)] {
            assert_eq!(longitude.read_text(text), Ok(Value::Real(degrees)));
        }
        for wrong in ["180.01", "-181", "NaN", "-inf", "", "21°"] {
            assert!(longitude.read_text(wrong).is_err(), "{wrong:?} was taken");
        }
    }

    #[test]
    fn endpoints_are_plain_http() {
        for right in ["http://127.0.0.1:4318", "http://collector", "http://[::1]:4318/otlp"] {
            assert_eq!(Kind::Endpoint.read_text(right), Ok(Value::Text(right.into())));
        }
        for wrong in ["", "127.0.0.1:4318", "https://a:4318", "ftp://a", "http://", "http://u:p@a", "http://a/?b"] {
            assert!(Kind::Endpoint.read_text(wrong).is_err(), "{wrong:?} was taken");
        }
    }

    #[test]
    fn sizes_have_units() {
        let size = Kind::Size(0, u64::MAX);
        assert_eq!(size.read_text("64 KiB"), Ok(Value::Number(65_536)));
        assert_eq!(size.read_text("64kB"), Ok(Value::Number(64_000)));
        assert_eq!(size.read_text("1000"), Ok(Value::Number(1000)));
        assert!(size.read_text("64 bananas").is_err());
    }

    #[test]
    fn durations_need_a_unit() {
        let duration = Kind::Duration(0, 60_000);
        assert_eq!(duration.read_text("1m"), Ok(Value::Duration(Duration::from_secs(60))));
        assert_eq!(duration.read_text("250ms"), Ok(Value::Duration(Duration::from_millis(250))));
        assert!(duration.read_text("5").is_err());
        assert!(duration.read_text("61s").is_err());
    }

    #[test]
    fn what_comes_later_is_refused_unless_off() {
        assert_eq!(Kind::Later.read_text("off"), Ok(Value::Nothing));
        let refusal = Kind::Later.read_text("127.0.0.1:14567").expect_err("not there yet");
        assert_eq!(refusal.what, "is not available in this version");
    }
}
