//! A publisher of numbered events that is never more than a window ahead of the broker.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use whimbrel_event::Publisher as Named;

use super::{BODY, CLASSES, PUBLISHERS, SESSION_SECONDS, TOPIC};
use crate::bench::link::Endpoint;
use crate::bench::target::Target;
use crate::bench::wire::{Frame, STAMP_BYTES, mqtt};

/// Unacknowledged events of a publisher, at most.
const WINDOW: usize = 1_000;

/// The class of an event.
pub fn class_of(number: u64) -> usize {
    (number / PUBLISHERS as u64 % CLASSES as u64) as usize
}

/// The name of a publisher that the broker binds to the stream of an index.
pub fn name_of(index: usize) -> String {
    let is_bound = |name: &String| Named::named(name).to_bits() % PUBLISHERS as u64 == index as u64;
    (0..).map(|n| format!("machine-{n}")).find(is_bound).expect("a hash has all remainders")
}

/// See the module's documentation.
pub struct Publisher {
    name: String,
    endpoint: Option<Endpoint>,
    is_ready: bool,
    /// The numbers of events that are due and not sent.
    due: VecDeque<u64>,
    /// Events that are sent and not acknowledged: packet identifier and number.
    flying: VecDeque<(u16, u64)>,
    last_id: u16,
    /// Events acknowledged.
    pub accepted: u64,
}

impl Publisher {
    /// A publisher that the broker binds to the stream of an index.
    pub fn new(index: usize) -> Publisher {
        Publisher {
            name: name_of(index),
            endpoint: None,
            is_ready: false,
            due: VecDeque::new(),
            flying: VecDeque::new(),
            last_id: 0,
            accepted: 0,
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// When the system has no sockets left.
    pub fn connect(&mut self, target: Target) -> Result<()> {
        let mut hello = Vec::new();
        mqtt::connect_5(&mut hello, &self.name, Some(SESSION_SECONDS), None);
        self.endpoint = Some(Endpoint::connecting(target, hello)?);
        self.is_ready = false;
        Ok(())
    }

    /// Whether the broker has accepted the connection.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether everything that was due is acknowledged.
    pub fn is_done(&self) -> bool {
        self.due.is_empty() && self.flying.is_empty()
    }

    /// An event is due.
    pub fn push(&mut self, number: u64) {
        self.due.push_back(number);
    }

    /// Writes events that are due and may be sent, and reads answers. `answered` is given the
    /// number of each event that the broker has accepted.
    ///
    /// # Errors
    /// When the broker refuses or ends the connection.
    pub fn turn(&mut self, scratch: &mut [u8], mut answered: impl FnMut(u64)) -> Result<()> {
        let Publisher { endpoint: Some(endpoint), is_ready, flying, accepted, .. } = self else { return Ok(()) };
        endpoint.flush()?;
        endpoint.receive(scratch, |frame, _| {
            match frame {
                Frame::Ready => *is_ready = true,
                Frame::Accepted(Some(id)) => {
                    let Some(place) = flying.iter().position(|(flying, _)| *flying == id) else {
                        bail!("the broker acknowledged packet identifier {id}, which is not in use")
                    };
                    let gone = flying.remove(place);
                    gone.into_iter().for_each(|(_, number)| answered(number));
                    *accepted += 1;
                }
                frame => bail!("a publisher received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        while self.is_ready && self.flying.len() < WINDOW {
            let Some(number) = self.due.pop_front() else { break };
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            self.flying.push_back((self.last_id, number));
            self.write(self.last_id, number);
        }
        self.endpoint.as_mut().map_or(Ok(()), Endpoint::flush)
    }

    fn write(&mut self, id: u16, number: u64) {
        let Some(endpoint) = &mut self.endpoint else { return };
        let mut body = [b'.'; BODY];
        body[..STAMP_BYTES].copy_from_slice(&number.to_be_bytes());
        let (class, sequence) = (class_of(number).to_string(), (number + 1).to_string());
        let attributes = [
            ("class", class.as_str()),
            ("w-seq", sequence.as_str()),
            ("machine", self.name.as_str()),
            ("quality", "inspected and found to be good"),
        ];
        mqtt::publish_with(&mut endpoint.out, TOPIC, Some(id), &attributes, &body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_publisher_has_a_stream_of_its_own_and_each_class_events_of_all() {
        let names: Vec<String> = (0..PUBLISHERS).map(|index| Publisher::new(index).name).collect();
        for (index, name) in names.iter().enumerate() {
            assert_eq!(Named::named(name).to_bits() % PUBLISHERS as u64, index as u64);
        }
        for class in 0..CLASSES {
            let of_class = (0..64).filter(|number| class_of(*number) == class).map(|number| number % PUBLISHERS as u64);
            assert_eq!(of_class.collect::<Vec<u64>>(), [0, 1, 2, 3].repeat(4), "class {class}");
        }
    }
}
