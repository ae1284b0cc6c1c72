//! Messages as `whimbrel sub` prints them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use whimbrel_client::{Gap, Message, Notice, Tick};

/// Options of printing.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    /// Prints each message as a line of JSON.
    pub json: bool,
    /// Prints the topic before each payload.
    pub verbose: bool,
    /// Prints only retained messages.
    pub retained_only: bool,
}

impl Printer {
    /// Appends a message as it is printed. Returns whether it counts.
    pub fn put(&self, message: &Message, output: &mut Vec<u8>) -> bool {
        if self.retained_only && !message.retain {
            return false;
        }
        if self.json {
            output.extend_from_slice(json_line(message, unix_millis()).as_bytes());
        } else {
            if self.verbose {
                output.extend_from_slice(message.topic.as_bytes());
                output.push(b' ');
            }
            output.extend_from_slice(&message.payload);
        }
        output.push(b'\n');
        true
    }

    /// Appends a notice, in its place among the messages.
    pub fn put_notice(&self, notice: &Notice, output: &mut Vec<u8>) {
        let notice = match notice {
            Notice::Gap(Gap { pubend, from, to, reason }) => json!({
                "kind": "gap",
                "pubend": pubend.to_string(),
                "from": from.to_string(),
                "to": to.to_string(),
                "reason": reason.name(),
            }),
            Notice::Silence { token } => json!({ "kind": "silence", "token": token.to_string() }),
            Notice::Overdue { pubend, tick, topic } => {
                let (pubend, tick) = (pubend.to_string(), tick.to_string());
                json!({ "kind": "overdue", "pubend": pubend, "tick": tick, "topic": topic })
            }
            Notice::Stalled { filter } => json!({ "kind": "stalled", "filter": filter }),
        };
        let line =
            if self.json { json!({ "notice": notice }).to_string() } else { format!("$whimbrel/notice {notice}") };
        output.extend_from_slice(line.as_bytes());
        output.push(b'\n');
    }
}

/// Gaps as text, those with the same reason together: a broker that ends leaves one in each of its
/// streams.
pub fn words(gaps: &[Gap]) -> Vec<String> {
    let mut left: Vec<&Gap> = gaps.iter().collect();
    let mut lines = Vec::new();
    while let Some(first) = left.first().copied() {
        let (alike, others): (Vec<&Gap>, Vec<&Gap>) = left.iter().partition(|gap| gap.reason == first.reason);
        let mut streams: Vec<_> = alike.iter().map(|gap| gap.pubend).collect();
        streams.sort_unstable();
        streams.dedup();
        let from = alike.iter().map(|gap| gap.from).min().unwrap_or(first.from);
        let to = alike.iter().map(|gap| gap.to).max().unwrap_or(first.to);
        let since = if from.0 == 0 { "up to".to_owned() } else { format!("between {} and", moment(from)) };
        let place =
            if let [one] = streams[..] { format!("stream {one}") } else { format!("{} streams", streams.len()) };
        lines.push(format!("missed: whatever matched {since} {} in {place}; {}", moment(to), first.reason));
        left = others;
    }
    lines
}

/// The time of a tick, or its number if that is not a time.
fn moment(tick: Tick) -> String {
    let at = jiff::Timestamp::from_nanosecond(tick.0.into());
    at.map_or_else(|_| tick.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A message as JSON. A payload that is not text is in hexadecimal under another key.
fn json_line(message: &Message, received_ms: u64) -> String {
    let mut line = json!({
        "topic": message.topic,
        "qos": message.qos as u8,
        "retain": message.retain,
        "dup": message.dup,
        "received_ms": received_ms,
    });
    match std::str::from_utf8(&message.payload) {
        Ok(text) => line["payload"] = json!(text),
        Err(_) => line["payload_hex"] = json!(hex(&message.payload)),
    }
    if let Some(id) = message.id() {
        line["id"] = json!(id.to_string());
    }
    if !message.properties.is_empty() {
        line["properties"] = json!(message.properties);
    }
    if !message.subscription_ids.is_empty() {
        line["subscription_ids"] = json!(message.subscription_ids);
    }
    if let Some(expiry) = message.expiry {
        line["expiry"] = json!(expiry);
    }
    if let Some(content_type) = &message.content_type {
        line["content_type"] = json!(content_type);
    }
    if let Some(topic) = &message.response_topic {
        line["response_topic"] = json!(topic);
    }
    if let Some(correlation) = &message.correlation {
        line["correlation_hex"] = json!(hex(correlation));
    }
    line.to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_client::{GapReason, PubendId};

    #[test]
    fn a_gap_says_between_which_moments_and_why() {
        let gap = |from| Gap {
            pubend: PubendId(0xabc1),
            from: Tick(from),
            to: Tick(1_767_225_602_500_000_000),
            reason: GapReason::Overwritten,
        };
        let told = words(&[gap(1_767_225_600_000_000_000)]);
        let [text] = &told[..] else { panic!("{told:?}") };
        assert!(text.contains("between 2026-01-01T00:00:00.000Z and 2026-01-01T00:00:02.500Z"), "{text}");
        assert!(text.contains("in stream abc1;") && text.contains("overwritten"), "{text}");
        let other = Gap { pubend: PubendId(0xabc2), to: Tick(1_767_225_603_000_000_000), ..gap(0) };
        let slow = Gap { reason: GapReason::Slow, ..gap(7) };
        let told = words(&[gap(7), slow, other]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("matched up to 2026-01-01T00:00:03.000Z in 2 streams; overwritten"), "{told:?}");
        assert!(told[1].contains("too slow"), "{told:?}");
    }
}
