//! Reads a recording: its faults, or the story of one event.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{BEFORE, Line, NOW, PacketLine, Way, What};

/// The sources of a line that are not a client or broker.
const OF_THE_RUN: [&str; 2] = ["judge", "run"];
/// Lines of clients and brokers this long before the first and after the last packet of an event
/// belong to its story, s.
const AROUND: f64 = 1.0;
/// Characters of a payload that are shown.
const PAYLOAD_SHOWN: usize = 160;
/// Characters of a text that are shown: a verdict lists earlier events, which are recorded anyway.
const SAID_SHOWN: usize = 300;
/// Packets that tell a client's state.
const POSITIONS: [&str; 7] = ["CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "DISCONNECT"];
/// The topic on which tokens are acknowledged.
const ACKNOWLEDGE: &str = "$whimbrel/ack";

/// Explains a recording: everything about a named event, `PUBEND:TICK` or `CLIENT/NUMBER`; without
/// a name, the acts of the run and the judges' findings.
///
/// # Errors
/// When there is no recording in that directory, or nothing about the event in it.
pub fn explain(dir: &Path, event: Option<&str>) -> Result<String> {
    match event {
        Some(event) => story(dir, event),
        None => {
            let mut text = String::new();
            read(dir, |line| {
                if OF_THE_RUN.contains(&&*line.from) {
                    push(&mut text, line);
                }
            })?;
            text += "\nThe story of an event: --event PUBEND:TICK, or CLIENT/NUMBER, as clerk-3/17.\n";
            Ok(text)
        }
    }
}

/// Passes each line of a recording to `take`, in order. The last one may be cut off by the end of
/// the program that wrote it.
fn read(dir: &Path, mut take: impl FnMut(&Line)) -> Result<()> {
    let mut is_there = false;
    for name in [BEFORE, NOW] {
        let file = match File::open(dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {name} in {}", dir.display())),
        };
        is_there = true;
        let mut lines = BufReader::new(file).lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let line = line.with_context(|| format!("cannot read {name} in {}", dir.display()))?;
            match serde_json::from_str(&line) {
                Ok(line) => take(&line),
                Err(_) if lines.peek().is_none() => break,
                Err(error) => return Err(error).with_context(|| format!("line {} of {name} is damaged", number + 1)),
            }
        }
    }
    if !is_there {
        bail!("there is no recording in {}; `whimbrel demo --record DIR` makes one", dir.display());
    }
    Ok(())
}

/// The messages that are asked about.
struct Asked<'a> {
    event: &'a str,
    /// The publisher's topic level, and its own number.
    own: Option<(&'a str, u64)>,
}

impl<'a> Asked<'a> {
    fn new(event: &'a str) -> Result<Asked<'a>> {
        let own = event.rsplit_once('/').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        if own.is_none() && !event.contains(':') {
            bail!("{event:?} names no event; give PUBEND:TICK, as brokers name it, or CLIENT/NUMBER, as clerk-3/17");
        }
        Ok(Asked { event, own })
    }

    fn is_meant(&self, packet: &PacketLine) -> bool {
        packet.value("w-id") == Some(self.event) || self.own.is_some_and(|own| number_of(packet, own.0) == Some(own.1))
    }
}

/// The number that a client has given to its own message.
fn number_of(packet: &PacketLine, client: &str) -> Option<u64> {
    let is_of = packet.topic.as_deref()?.split('/').any(|level| level == client);
    let body: serde_json::Value = is_of.then(|| serde_json::from_str(packet.payload.as_deref()?).ok()).flatten()?;
    ["order", "seq"].iter().find_map(|name| body.get(name)?.as_u64())
}

/// The findings about an event.
#[derive(Default)]
struct Found {
    /// Topics and payloads: a client that sends again sends the same.
    contents: HashSet<(String, String)>,
    clients: BTreeSet<String>,
    from: f64,
    to: f64,
}

impl Found {
    fn holds(&self, packet: &PacketLine) -> bool {
        let content = packet.topic.clone().zip(packet.payload.clone());
        packet.packet == "PUBLISH" && content.is_some_and(|content| self.contents.contains(&content))
    }
}

fn story(dir: &Path, event: &str) -> Result<String> {
    let asked = Asked::new(event)?;
    let mut found = Found { from: f64::MAX, ..Found::default() };
    read(dir, |line| {
        if let What::Packet(packet) = &line.what
            && packet.packet == "PUBLISH"
            && asked.is_meant(packet)
        {
            found.contents.extend(packet.topic.clone().zip(packet.payload.clone()));
        }
    })?;
    read(dir, |line| {
        if let What::Packet(packet) = &line.what
            && found.holds(packet)
        {
            found.clients.insert(line.from.clone());
            (found.from, found.to) = (found.from.min(line.at), found.to.max(line.at));
        }
    })?;
    if found.clients.is_empty() {
        bail!("the recording in {} tells nothing of {event}", dir.display());
    }
    let mut text = String::new();
    // Exchanges that have begun: client, whether the client began it, and packet identifier.
    let mut open: HashSet<(String, bool, u16)> = HashSet::new();
    read(dir, |line| {
        if is_told(line, &found, &mut open) {
            push(&mut text, line);
        }
    })?;
    Ok(text)
}

/// Whether a line belongs to the story.
fn is_told(line: &Line, found: &Found, open: &mut HashSet<(String, bool, u16)>) -> bool {
    let is_near = (found.from - AROUND..=found.to + AROUND).contains(&line.at);
    match &line.what {
        What::Packet(packet) if found.holds(packet) => {
            if let Some(id) = packet.id {
                open.insert((line.from.clone(), packet.way == Way::Sent, id));
            }
            true
        }
        What::Packet(packet) => {
            let of_client = |packet: &PacketLine| found.clients.contains(&line.from) && is_near && says_where(packet);
            match exchange(packet) {
                Some((by_client, id)) => {
                    let key = (line.from.clone(), by_client, id);
                    let is_known = open.contains(&key);
                    if is_known && ["PUBACK", "PUBCOMP"].contains(&&*packet.packet) {
                        open.remove(&key);
                    }
                    is_known
                }
                None => {
                    // The identifier is used for another message.
                    if let Some(id) = packet.id.filter(|_| packet.packet == "PUBLISH") {
                        open.remove(&(line.from.clone(), packet.way == Way::Sent, id));
                    }
                    of_client(packet)
                }
            }
        }
        What::Text { says } => {
            let is_of_run = OF_THE_RUN.contains(&&*line.from) || found.clients.contains(&line.from);
            is_near && (is_of_run || found.clients.iter().any(|client| says.contains(client.as_str())))
        }
    }
}

/// Whether a packet tells its client's state.
fn says_where(packet: &PacketLine) -> bool {
    POSITIONS.contains(&&*packet.packet) || packet.topic.as_deref() == Some(ACKNOWLEDGE)
}

/// For an acknowledgement: whether the client began the exchange, and its packet identifier.
fn exchange(packet: &PacketLine) -> Option<(bool, u16)> {
    let is_of_receiver = match &*packet.packet {
        "PUBACK" | "PUBREC" | "PUBCOMP" => true,
        "PUBREL" => false,
        _ => return None,
    };
    Some(((packet.way == Way::Got) == is_of_receiver, packet.id?))
}

/// Appends a line in readable form.
fn push(text: &mut String, Line { at, from, what }: &Line) {
    // Writing to a string cannot fail.
    _ = match what {
        What::Text { says } => {
            let shown: String = says.chars().take(SAID_SHOWN).collect();
            let rest = if shown.len() < says.len() { " …" } else { "" };
            writeln!(text, "{at:>12.6}  {from}: {shown}{rest}")
        }
        What::Packet(packet) => writeln!(text, "{at:>12.6}  {from} #{}", shown(packet)),
    };
}

fn shown(packet: &PacketLine) -> String {
    let PacketLine { connection, way, packet: name, id, qos, dup, retain, topic, payload, with } = packet;
    let way = if *way == Way::Sent { "sent" } else { "got " };
    let mut text = format!("{connection} {way} {name}");
    let mut add = |more: String| text.extend([" ", &more]);
    qos.iter().for_each(|qos| add(format!("q{qos}")));
    [(dup, "dup"), (retain, "retain")].iter().filter(|(is, _)| **is).for_each(|(_, name)| add((*name).to_owned()));
    id.iter().for_each(|id| add(format!("[{id}]")));
    topic.iter().for_each(|topic| add(topic.clone()));
    payload.iter().for_each(|payload| add(payload.chars().take(PAYLOAD_SHOWN).collect()));
    with.iter().for_each(|(name, value)| add(format!("{name}={value}")));
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn packet(at: f64, from: &str, packet: PacketLine) -> Line {
        Line { at, from: from.to_owned(), what: What::Packet(packet) }
    }

    fn text(at: f64, from: &str, says: &str) -> Line {
        Line { at, from: from.to_owned(), what: What::Text { says: says.to_owned() } }
    }

    fn publish(way: Way, order: u64, id: u16, name: Option<&str>) -> PacketLine {
        PacketLine {
            connection: 1,
            way,
            packet: "PUBLISH".to_owned(),
            id: Some(id),
            qos: Some(1),
            topic: Some("freight/standard/clerk-1".to_owned()),
            payload: Some(format!("{{\"order\":{order}}}")),
            with: name.map(|name| ("w-id".to_owned(), name.to_owned())).into_iter().collect(),
            ..PacketLine::default()
        }
    }

    fn ack(way: Way, id: u16) -> PacketLine {
        PacketLine { connection: 1, way, packet: "PUBACK".to_owned(), id: Some(id), ..PacketLine::default() }
    }

    fn recorded() -> TempDir {
        let dir = TempDir::new().expect("a directory");
        let connect = PacketLine { connection: 1, packet: "CONNECT".to_owned(), ..PacketLine::default() };
        let lines = [
            packet(0.1, "dispatch-token", connect.clone()),
            packet(0.2, "clerk-1", connect),
            packet(1.0, "clerk-1", publish(Way::Sent, 4, 11, None)),
            packet(1.1, "clerk-1", publish(Way::Sent, 5, 12, None)),
            packet(1.2, "clerk-1", ack(Way::Got, 11)),
            text(1.25, "warsaw", "a session goes on from a copy client=dispatch-token"),
            text(1.26, "warsaw", "something else"),
            packet(1.3, "dispatch-token", publish(Way::Got, 4, 1, Some("a1:40"))),
            packet(1.4, "dispatch-token", publish(Way::Got, 5, 2, Some("a1:50"))),
            packet(1.5, "dispatch-token", ack(Way::Sent, 2)),
            packet(1.6, "dispatch-token", ack(Way::Sent, 1)),
            packet(1.7, "dispatch-token", publish(Way::Got, 4, 3, Some("a1:40"))),
            text(1.75, "judge", "dispatch-token: order 4 of clerk-1 came twice"),
            text(9.0, "judge", "something later"),
        ];
        let text: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).expect("JSON")).collect();
        let (before, now) = text.split_at(4);
        // The program that wrote it was killed.
        fs::write(dir.path().join(BEFORE), before.join("\n")).expect("it can be written");
        fs::write(dir.path().join(NOW), now.join("\n") + "\n{\"at\":9.").expect("it can be written");
        dir
    }

    #[test]
    fn the_story_of_an_event_has_its_ways_and_what_happened_around_it() {
        let dir = recorded();
        let by_name = explain(dir.path(), Some("a1:40")).expect("it is recorded");
        assert_eq!(by_name, explain(dir.path(), Some("clerk-1/4")).expect("it is recorded"));
        let times: Vec<&str> = by_name.lines().map(|line| line.trim_start().split("  ").next().unwrap_or("")).collect();
        assert_eq!(
            times,
            [
                "0.100000", "0.200000", "1.000000", "1.200000", "1.250000", "1.300000", "1.600000", "1.700000",
                "1.750000"
            ],
            "{by_name}"
        );
        let first =
            "    1.300000  dispatch-token #1 got  PUBLISH q1 [1] freight/standard/clerk-1 {\"order\":4} w-id=a1:40";
        assert!(by_name.contains(first), "{by_name}");
    }

    #[test]
    fn without_an_event_what_was_found_is_told() {
        let dir = recorded();
        let text = explain(dir.path(), None).expect("it is recorded");
        assert!(text.contains("came twice") && text.contains("something later") && !text.contains("PUBLISH"), "{text}");
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_so() {
        let dir = recorded();
        for (event, expected) in [("a1:41", "tells nothing of a1:41"), ("seven", "names no event")] {
            let error = explain(dir.path(), Some(event)).expect_err("it is not there");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let empty = TempDir::new().expect("a directory");
        let error = explain(empty.path(), None).expect_err("there is no recording");
        assert!(error.to_string().contains("there is no recording"), "{error}");
        fs::write(dir.path().join(BEFORE), "no line\n{}\n").expect("it can be written");
        let error = explain(dir.path(), None).expect_err("it is damaged");
        assert!(error.to_string().contains("line 1 of run.before.jsonl is damaged"), "{error}");
    }
}
