//! Notices: JSON objects of strings, parsed without the broker's library.

use std::collections::BTreeMap;

/// The topic of notices.
pub(crate) const TOPIC: &str = "$whimbrel/notice";

/// The reasons of gaps.
const REASONS: [&str; 7] = ["overwritten", "not-buffered", "released", "lost", "slow", "assumed", "best-effort"];

/// A notice to a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// Part of a stream is missing.
    Gap { pubend: u64, from: u64, to: u64, reason: String },
    /// There is nothing more to deliver up to here.
    Silence { to: u64, token: String },
    /// An event is known to exist, and has not come by its deadline.
    Overdue { pubend: u64, tick: u64 },
    /// No event has come under a filter for its period.
    Stalled,
}

impl Notice {
    /// Reads a notice.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(payload: &[u8]) -> Result<Notice, String> {
        let text = str::from_utf8(payload).map_err(|_| "no UTF-8".to_owned())?;
        let members = object(text).ok_or_else(|| format!("no object of strings: {text}"))?;
        let member = |name: &str| members.get(name).copied().ok_or_else(|| format!("no {name}: {text}"));
        let tick = |name: &str| {
            let tick = member(name)?;
            let digits = !tick.is_empty() && tick.bytes().all(|byte| byte.is_ascii_digit());
            tick.parse().ok().filter(|_| digits).ok_or_else(|| format!("{name} is no tick: {text}"))
        };
        match member("kind")? {
            "gap" => {
                let reason = member("reason")?.to_owned();
                if !REASONS.contains(&&*reason) {
                    return Err(format!("unknown reason: {text}"));
                }
                let pubend = u64::from_str_radix(member("pubend")?, 16).map_err(|_| format!("no pubend: {text}"))?;
                Ok(Notice::Gap { pubend, from: tick("from")?, to: tick("to")?, reason })
            }
            "silence" if member("pubend")? == "*" => {
                Ok(Notice::Silence { to: tick("to")?, token: member("token")?.to_owned() })
            }
            "overdue" => {
                let pubend = u64::from_str_radix(member("pubend")?, 16).map_err(|_| format!("no pubend: {text}"))?;
                Ok(Notice::Overdue { pubend, tick: tick("tick")? })
            }
            "stalled" => member("filter").map(|_| Notice::Stalled),
            _ => Err(format!("of no known kind: {text}")),
        }
    }
}

/// The members of a JSON object whose values are strings without escapes.
fn object(text: &str) -> Option<BTreeMap<&str, &str>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut members = BTreeMap::new();
    while !rest.is_empty() {
        let (name, after) = string(rest)?;
        let (value, after) = string(after.trim_start().strip_prefix(':')?.trim_start())?;
        if members.insert(name, value).is_some() {
            return None;
        }
        rest = match after.trim_start() {
            "" => "",
            more => more.strip_prefix(',')?.trim_start(),
        };
    }
    Some(members)
}

/// The string that `text` begins with, and what follows.
fn string(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = text.strip_prefix('"')?.split_once('"')?;
    (!value.contains('\\')).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_and_everything_else_is_not() {
        let gap = br#"{"kind":"gap","pubend":"ab0","from":"5", "to" : "9","reason":"slow"}"#;
        assert_eq!(Notice::parse(gap), Ok(Notice::Gap { pubend: 0xab0, from: 5, to: 9, reason: "slow".to_owned() }));
        let silence = br#"{"kind":"silence","pubend":"*","from":"0","to":"9","token":"AQ-_"}"#;
        assert_eq!(Notice::parse(silence), Ok(Notice::Silence { to: 9, token: "AQ-_".to_owned() }));
        let overdue = br#"{"kind":"overdue","pubend":"ab0","tick":"5","topic":"a"}"#;
        assert_eq!(Notice::parse(overdue), Ok(Notice::Overdue { pubend: 0xab0, tick: 5 }));
        for text in [
            r#"{}"#,
            r#"{"kind":"overdue","pubend":"ab0"}"#,
            r#"{"kind":"stalled"}"#,
            r#"{"kind":"gap","pubend":"ab0","from":"5","to":"9"}"#,
            r#"{"kind":"gap","pubend":"ab0","from":5,"to":"9","reason":"slow"}"#,
            r#"{"kind":"gap","pubend":"ab0","from":"-5","to":"9","reason":"slow"}"#,
            r#"{"kind":"gap","pubend":"ab0","from":"5","to":"9","reason":"bored"}"#,
            r#"{"kind":"gap","pubend":"*","from":"5","to":"9","reason":"slow"}"#,
            r#"{"kind":"silence","pubend":"*"}"#,
            r#"{"kind":"silence","pubend":"1","token":"x"}"#,
        ] {
            assert!(Notice::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
