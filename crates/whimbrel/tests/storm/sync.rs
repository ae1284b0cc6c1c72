//! No acknowledgement before its sync: judged from the system calls of the broker alone.

use std::collections::BTreeMap;

use whimbrel_mqtt::codec::{Packet, Version, decode, frame};

use crate::book::Name;
use crate::publisher::unmark;
use crate::trace::{Call, Step};

/// Longest packet of a storm, bytes.
const PACKET_MAX: usize = 1 << 20;

/// An acknowledgement that was written before it was certain that its event survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooEarly {
    pub event: Name,
    pub why: &'static str,
}

/// What was looked at, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Acknowledgements of events.
    pub acknowledged: usize,
    /// Those of them that refuse.
    pub refused: usize,
    pub too_early: Vec<TooEarly>,
}

/// Events on their way to the disk.
#[derive(Default)]
struct Disk {
    /// Writes that have begun and not returned: file and events.
    writing: Vec<(Call, Vec<Name>)>,
    /// Written, not synced: by file.
    written: BTreeMap<String, Vec<Name>>,
    /// What each sync that has begun covers: file and events.
    syncing: Vec<(String, Vec<Name>)>,
    safe: Vec<Name>,
}

/// One connection, in both directions.
#[derive(Default)]
struct Wire {
    input: Vec<u8>,
    output: Vec<u8>,
    /// Events of publishers by packet identifier.
    awaited: BTreeMap<u16, Name>,
}

/// Follows the trace of a broker. Every PUBACK and PUBREC that accepts must have been written after
/// a sync had returned that had begun after the write of the event's bytes had returned.
pub fn check(steps: &[Step]) -> Findings {
    let mut findings = Findings::default();
    let mut disk = Disk::default();
    let mut wires: BTreeMap<u32, Wire> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Begin(call) if call.is_socket() && call.writes() => {
                let wire = wires.entry(call.descriptor).or_default();
                wire.output.extend(&call.bytes);
                wire.written(&disk, &mut findings);
            }
            Step::End(call, result) if call.is_socket() && call.reads() && *result > 0 => {
                let wire = wires.entry(call.descriptor).or_default();
                wire.input.extend(&call.bytes[..call.bytes.len().min(*result as usize)]);
                wire.read();
            }
            // What the socket did not take was not written, and comes again.
            Step::End(call, result) if call.is_socket() && call.writes() => {
                let taken = usize::try_from(*result).unwrap_or(0);
                if let Some(wire) = wires.get_mut(&call.descriptor).filter(|_| taken < call.bytes.len()) {
                    wire.take_back(call.bytes.len() - taken);
                }
            }
            Step::Begin(call) if call.is_socket() && call.name == "close" => _ = wires.remove(&call.descriptor),
            Step::Begin(call) if !call.is_socket() => disk.begin(call),
            Step::End(call, result) if !call.is_socket() => disk.end(call, *result),
            _ => {}
        }
    }
    findings
}

impl Disk {
    fn begin(&mut self, call: &Call) {
        if call.writes() {
            self.writing.push((call.clone(), marks(&call.bytes)));
        } else if call.syncs() {
            let covered = self.written.get(&call.file).cloned().unwrap_or_default();
            self.syncing.push((call.file.clone(), covered));
        }
    }

    fn end(&mut self, call: &Call, result: i64) {
        if call.writes() {
            let Some(index) = self.writing.iter().position(|(begun, _)| begun.file == call.file) else { return };
            let (begun, events) = self.writing.swap_remove(index);
            // A short write leaves it open which events are there: none counts.
            if usize::try_from(result).is_ok_and(|written| written == begun.bytes.len().max(call.bytes.len())) {
                self.written.entry(call.file.clone()).or_default().extend(events);
            }
        } else if call.syncs() {
            let Some(index) = self.syncing.iter().position(|(file, _)| *file == call.file) else { return };
            let (file, covered) = self.syncing.swap_remove(index);
            if result == 0 {
                self.written.entry(file).or_default().retain(|event| !covered.contains(event));
                self.safe.extend(covered);
            }
        }
    }

    fn why_not_safe(&self, event: Name) -> Option<&'static str> {
        if self.safe.contains(&event) {
            return None;
        }
        let is_in = |events: &[Name]| events.contains(&event);
        Some(if self.syncing.iter().any(|(_, events)| is_in(events)) {
            "its sync had not returned"
        } else if self.written.values().any(|events| is_in(events)) {
            "it was written and not synced"
        } else if self.writing.iter().any(|(_, events)| is_in(events)) {
            "its write had not returned"
        } else {
            "it was never written"
        })
    }
}

impl Wire {
    /// Packets that the broker has read.
    fn read(&mut self) {
        let mut used = 0;
        while let Ok(Some(cut)) = frame(&self.input[used..], PACKET_MAX) {
            if let Ok(Packet::Publish(publish)) = decode(Version::V5, cut.first_byte, cut.body)
                && let (Some(id), Some(name)) = (publish.packet_id, unmark(publish.payload))
            {
                self.awaited.insert(id.get(), name);
            }
            used += cut.whole.len();
        }
        self.input.drain(..used);
    }

    /// Packets that the broker begins to write.
    fn written(&mut self, disk: &Disk, findings: &mut Findings) {
        let mut used = 0;
        while let Ok(Some(cut)) = frame(&self.output[used..], PACKET_MAX) {
            if let Ok(Packet::PubAck(ack) | Packet::PubRec(ack)) = decode(Version::V5, cut.first_byte, cut.body)
                && let Some(event) = self.awaited.remove(&ack.packet_id.get())
            {
                findings.acknowledged += 1;
                if ack.reason.is_error() {
                    findings.refused += 1;
                } else if let Some(why) = disk.why_not_safe(event) {
                    findings.too_early.push(TooEarly { event, why });
                }
            }
            used += cut.whole.len();
        }
        self.output.drain(..used);
    }

    /// The last bytes were not taken. Whole packets among them have been judged already, which is
    /// as strict; of an unfinished one the rest comes anew.
    fn take_back(&mut self, bytes: usize) {
        let left = self.output.len().saturating_sub(bytes);
        self.output.truncate(left);
    }
}

/// The events whose payloads begin in these bytes.
fn marks(bytes: &[u8]) -> Vec<Name> {
    let begin = b"storm-";
    let starts = bytes.windows(begin.len()).enumerate().filter(|(_, window)| window == begin);
    starts.filter_map(|(at, _)| unmark(&bytes[at..])).collect()
}
