//! The address of a load.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::wire::{Protocol, QoS};

/// A broker's address and the protocol to speak with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
}

impl Target {
    /// The topic number `index` of the load, in this protocol's spelling. JetStream's topics are
    /// separate: a stream takes in every message of its subjects.
    pub fn topic(&self, index: usize, qos: QoS) -> String {
        match (self.protocol, qos) {
            (Protocol::Nats, QoS::AtMostOnce) => format!("b.{index}"),
            (Protocol::Nats, QoS::AtLeastOnce) => format!("j.{index}"),
            (Protocol::Mqtt311 | Protocol::Mqtt5, _) => format!("b/{index}"),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Target> {
        let Some((scheme, address)) = text.split_once("://") else {
            bail!("{text}: a target is mqtt://HOST:PORT (MQTT 3.1.1), mqtt5://HOST:PORT or nats://HOST:PORT");
        };
        let protocol = match scheme {
            "mqtt" => Protocol::Mqtt311,
            "mqtt5" => Protocol::Mqtt5,
            "nats" => Protocol::Nats,
            _ => bail!("{text}: unknown scheme {scheme}; mqtt, mqtt5 and nats are known"),
        };
        let address = address
            .to_socket_addrs()
            .with_context(|| format!("{text}: HOST:PORT is needed after ://"))?
            .next()
            .with_context(|| format!("{text}: the host has no address"))?;
        Ok(Target { address, protocol })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Mqtt311 => "mqtt",
            Protocol::Mqtt5 => "mqtt5",
            Protocol::Nats => "nats",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_urls() {
        for text in ["mqtt://127.0.0.1:1883", "mqtt5://127.0.0.1:1883", "nats://127.0.0.1:4222"] {
            assert_eq!(text.parse::<Target>().expect("a target").to_string(), text);
        }
        for text in ["127.0.0.1:1883", "http://127.0.0.1:80", "mqtt://127.0.0.1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
