//! A client that breaks the protocol, each time in another way, and must harm no other client.

use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::Time;

use super::{Act, random_topic};
use crate::random::Random;
use crate::speech::{Hello, Message, Said};

/// The number of random bytes after a breach, at most.
const RUBBISH_MAX: u64 = 300;

/// Packets that break the protocol on a connection of an accepted client, in any version.
const BREACHES: [&[u8]; 12] = [
    &[0x00, 0x00],                                     // reserved packet type
    &[0x36, 0x05, 0x00, 0x01, b'a', 0x00, 0x01],       // PUBLISH with QoS 3
    &[0x30, 0xff, 0xff, 0xff, 0xff, 0x01],             // remaining length of five bytes
    &[0x30, 0x04, 0x00, 0x02, 0xc3, 0x28],             // topic that is no UTF-8
    &[0x32, 0x05, 0x00, 0x01, b'a', 0x00, 0x00],       // packet identifier 0
    &[0x80, 0x06, 0x00, 0x01, 0x00, 0x01, b'a', 0x00], // SUBSCRIBE with wrong flags
    &[0x82, 0x02, 0x00, 0x01],                         // SUBSCRIBE without a filter
    &[0x60, 0x02, 0x00, 0x01],                         // PUBREL with wrong flags
    &[0x20, 0x02, 0x00, 0x00],                         // CONNACK, which only brokers send
    &[0x40, 0x01, 0x00],                               // PUBACK cut short
    &[0xc0, 0x01, 0x00],                               // PINGREQ with a body
    &[0x30, 0x04, 0x00, 0x01, b'#', 0x00],             // wildcard in a topic name
];

/// See the module's documentation.
#[derive(Debug)]
pub struct Hostile {
    name: String,
    random: Random,
    next: Option<Time>,
    open: bool,
    wills: u64,
}

impl Hostile {
    /// A client that begins a little after `now`.
    pub fn new(name: String, mut random: Random, now: Time) -> Self {
        let next = Some(now + random.span(Duration::from_secs(2)));
        Hostile { name, random, next, open: false, wills: 0 }
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        self.next
    }

    pub(super) fn closed(&mut self, _now: Time) {
        self.open = false;
    }

    pub(super) fn calm(&mut self, acts: &mut Vec<Act>) {
        self.next = None;
        if self.open {
            acts.push(Act::Reset);
            self.open = false;
        }
    }

    pub(super) fn wake(&mut self, now: Time, acts: &mut Vec<Act>) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        if self.open {
            self.open = false;
            acts.push(if self.random.chance(500) { Act::Reset } else { Act::Finish });
        } else {
            self.open = true;
            acts.push(Act::Open);
            acts.push(Act::Send(self.attack()));
        }
        self.next = Some(now + self.random.span(Duration::from_secs(3)));
    }

    fn attack(&mut self) -> Vec<u8> {
        let mut bytes = match self.random.below(8) {
            // Sends nothing, or not all of a CONNECT.
            0 => return Vec::new(),
            1 => {
                let mut hello = self.hello();
                hello.truncate(self.random.between(1, hello.len() as u64 - 1) as usize);
                return hello;
            }
            2 => Said::Ping.encode(Version::V5_0),
            3 => vec![0x10, 0x0c, 0x00, 0x04, b'M', b'Q', b'T', b'X', 0x04, 0x02, 0x00, 0x00, 0x00, 0x00],
            4 => {
                let mut hello = self.hello();
                hello.extend(hello.clone());
                hello
            }
            _ => {
                let mut hello = self.hello();
                let breach: &[u8] = self.random.pick::<&[u8]>(&BREACHES);
                hello.extend_from_slice(breach);
                hello
            }
        };
        for _ in 0..self.random.below(RUBBISH_MAX) {
            bytes.push(self.random.next() as u8);
        }
        bytes
    }

    fn hello(&mut self) -> Vec<u8> {
        let five = self.random.chance(500);
        let mut hello = if five { Hello::v5(&self.name) } else { Hello::v311(&self.name) };
        if self.random.chance(300) {
            self.wills += 1;
            let topic = random_topic(&mut self.random);
            let will = Message::new(&topic, format!("{}/will{}", self.name, self.wills));
            hello = hello.will(will.qos(Qos::AtLeastOnce, 0));
        }
        Said::Connect(hello.clone()).encode(hello.version)
    }
}
