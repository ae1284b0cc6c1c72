//! The address of a load.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::transport::Transport;
use super::wire::{Protocol, QoS};

/// A broker's address and what to speak with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// What carries it.
    pub transport: Transport,
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
        let (scheme, transport) = scheme.split_once('+').unwrap_or((scheme, Transport::Tcp.id()));
        let transport = Transport::ALL.into_iter().find(|known| known.id() == transport);
        let transport = transport.with_context(|| format!("{text}: after + are known: tls, ws and wss"))?;
        let protocol = match scheme {
            "mqtt" => Protocol::Mqtt311,
            "mqtt5" => Protocol::Mqtt5,
            "nats" => Protocol::Nats,
            _ => bail!("{text}: unknown scheme {scheme}; mqtt, mqtt5 and nats are known"),
        };
        if protocol == Protocol::Nats && transport != Transport::Tcp {
            bail!("{text}: the NATS protocol is measured over TCP only");
        }
        let address = address
            .to_socket_addrs()
            .with_context(|| format!("{text}: HOST:PORT is needed after ://"))?
            .next()
            .with_context(|| format!("{text}: the host has no address"))?;
        Ok(Target { address, protocol, transport })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Mqtt311 => "mqtt",
            Protocol::Mqtt5 => "mqtt5",
            Protocol::Nats => "nats",
        };
        match self.transport {
            Transport::Tcp => write!(f, "{scheme}://{}", self.address),
            other => write!(f, "{scheme}+{}://{}", other.id(), self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_urls() {
        let over = ["mqtt+tls://127.0.0.1:8883", "mqtt5+ws://127.0.0.1:8083", "mqtt+wss://127.0.0.1:8084"];
        let plain = ["mqtt://127.0.0.1:1883", "mqtt5://127.0.0.1:1883", "nats://127.0.0.1:4222"];
        for text in plain.into_iter().chain(over) {
            assert_eq!(text.parse::<Target>().expect("a target").to_string(), text);
        }
        let unknown = ["127.0.0.1:1883", "http://127.0.0.1:80", "mqtt://127.0.0.1"];
        for text in unknown.into_iter().chain(["mqtt+quic://127.0.0.1:1883", "nats+tls://127.0.0.1:4222"]) {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
