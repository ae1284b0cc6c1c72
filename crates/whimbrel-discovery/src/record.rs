//! The records of a broker: written, and read from strangers.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use mdns_sd::{ResolvedService, ScopedIp, ServiceInfo};

/// Bytes of a broker's name, its deployment's and its version's in a record, at most.
pub const TEXT_MAX: usize = 64;

/// Bytes of a label of a domain name, at most (RFC 1035).
const LABEL_MAX: usize = 63;

/// Addresses of one record that are looked at.
const ADDRESSES_MAX: usize = 8;

const NAME: &str = "name";
const DEPLOYMENT: &str = "deployment";
const VERSION: &str = "version";

/// What a broker offers at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// MQTT over TCP.
    Mqtt,
    /// Links to other brokers, over QUIC.
    Overlay,
}

impl Offer {
    /// The service type with its domain.
    pub(crate) fn service_type(self) -> &'static str {
        match self {
            Offer::Mqtt => "_mqtt._tcp.local.",
            Offer::Overlay => "_whimbrel._udp.local.",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Offer::Mqtt => "mqtt",
            Offer::Overlay => "link",
        }
    }
}

/// One offer of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What is offered.
    pub offer: Offer,
    /// Where: an address of this machine.
    pub address: SocketAddr,
    /// The broker's name, at most [`TEXT_MAX`] bytes.
    pub name: String,
    /// Its deployment's name, at most [`TEXT_MAX`] bytes.
    pub deployment: String,
    /// Its version.
    pub version: String,
}

impl Announcement {
    /// The address as part of a label. With the port it is unique in the network, so that neither
    /// brokers of the same name nor several on one machine have the same records.
    fn place(&self) -> String {
        let ip = self.address.ip().to_canonical().to_string().replace(['.', ':'], "-");
        format!("{ip}-{}", self.address.port())
    }

    /// The name of the instance: the broker's name, shortened to what a label has room for, and the
    /// place.
    fn instance(&self) -> String {
        let place = self.place();
        let room = LABEL_MAX.saturating_sub(place.len() + 1);
        let name: String = self.name.replace('.', "-").chars().filter(char::is_ascii).take(room).collect();
        format!("{name}-{place}")
    }

    /// The records.
    pub(crate) fn service(&self) -> Result<ServiceInfo, mdns_sd::Error> {
        let host = format!("whimbrel-{}-{}.local.", self.offer.word(), self.place());
        let version: String = self.version.chars().take(TEXT_MAX).collect();
        let texts = [(NAME, self.name.as_str()), (DEPLOYMENT, &self.deployment), (VERSION, &version)];
        let (ip, port) = (self.address.ip().to_canonical(), self.address.port());
        ServiceInfo::new(self.offer.service_type(), &self.instance(), &host, ip, port, &texts[..])
    }
}

/// A broker that another host, or this one, has announced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundBroker {
    /// The name of its deployment.
    pub deployment: String,
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Where it is to be reached: an address of loopback or of a private network.
    pub address: SocketAddr,
    /// Its version, printable ASCII.
    pub version: String,
}

impl FoundBroker {
    /// The address for [MQTT](Offer::Mqtt) clients, `mqtt://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }
}

/// Why a record is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Name, deployment or version are missing, too long, or have other characters than a broker's.
    #[error("its TXT record does not have the name, deployment and version of a broker of Whimbrel")]
    Text,
    /// It has no port, or no address of loopback, seen there, or of a private network.
    #[error("it has no port, or no address of this machine's loopback or of a private network")]
    Address,
}

/// What is read of a record.
#[derive(Debug, Default)]
pub(crate) struct BrokerRecord<'a> {
    name: Option<&'a [u8]>,
    deployment: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    port: u16,
    /// Each with whether it was received on a loopback interface, and the number of the interface.
    addresses: Vec<SeenAddress>,
}

/// An address of a record.
#[derive(Clone, Copy, Debug)]
struct SeenAddress {
    ip: IpAddr,
    is_on_loopback: bool,
    interface: u32,
}

impl<'a> BrokerRecord<'a> {
    /// The record of a service; `loopbacks` are the numbers of the loopback interfaces.
    pub(crate) fn of(service: &'a ResolvedService, loopbacks: &[u32]) -> BrokerRecord<'a> {
        let text = |key| service.get_property_val(key).flatten();
        let mut addresses: Vec<SeenAddress> = service.get_addresses().iter().map(|ip| seen(ip, loopbacks)).collect();
        // The library has them in the order of their hashes.
        addresses.sort_unstable_by_key(|seen| (seen.ip.is_ipv6(), seen.ip, seen.interface));
        addresses.truncate(ADDRESSES_MAX);
        let port = service.get_port();
        BrokerRecord { name: text(NAME), deployment: text(DEPLOYMENT), version: text(VERSION), port, addresses }
    }

    /// The broker of the record; of several addresses that fit, IPv4 is taken before IPv6, and the
    /// least.
    pub(crate) fn read(&self) -> Result<FoundBroker, Unfit> {
        let name = self.name.and_then(name).ok_or(Unfit::Text)?;
        let deployment = self.deployment.and_then(self::name).ok_or(Unfit::Text)?;
        let version = self.version.and_then(printable).ok_or(Unfit::Text)?;
        let fit = self.addresses.iter().find(|seen| seen.is_fit()).filter(|_| self.port != 0);
        let address = fit.ok_or(Unfit::Address)?.with_port(self.port);
        Ok(FoundBroker { deployment, name, address, version })
    }
}

impl SeenAddress {
    fn is_fit(&self) -> bool {
        match self.ip.to_canonical() {
            // Another machine must not lead to a port of this one.
            ip if ip.is_loopback() => self.is_on_loopback,
            IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
        }
    }

    fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip.to_canonical() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, port, 0, self.interface).into(),
            ip => SocketAddr::new(ip, port),
        }
    }
}

fn seen(address: &ScopedIp, loopbacks: &[u32]) -> SeenAddress {
    let numbers: Vec<u32> = match address {
        ScopedIp::V4(v4) => v4.interface_ids().iter().map(|interface| interface.index).collect(),
        ScopedIp::V6(v6) => vec![v6.scope_id().index],
        _ => Vec::new(),
    };
    let is_on_loopback = numbers.iter().any(|number| loopbacks.contains(number));
    SeenAddress { ip: address.to_ip_addr(), is_on_loopback, interface: numbers.first().copied().unwrap_or(0) }
}

/// A name as configurations may have it.
fn name(bytes: &[u8]) -> Option<String> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text(bytes, is_allowed)
}

fn printable(bytes: &[u8]) -> Option<String> {
    text(bytes, |byte| matches!(byte, b' '..=b'~'))
}

fn text(bytes: &[u8], is_allowed: impl Fn(&u8) -> bool) -> Option<String> {
    let is_fit = !bytes.is_empty() && bytes.len() <= TEXT_MAX && bytes.iter().all(is_allowed);
    is_fit.then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(address: &str) -> Announcement {
        Announcement {
            offer: Offer::Overlay,
            address: address.parse().expect("an address"),
            name: "north".into(),
            deployment: "city".into(),
            version: "0.2.0".into(),
        }
    }

    fn at(ip: &str, is_on_loopback: bool) -> SeenAddress {
        SeenAddress { ip: ip.parse().expect("a literal address"), is_on_loopback, interface: 7 }
    }

    fn record(addresses: &[SeenAddress]) -> BrokerRecord<'static> {
        BrokerRecord {
            name: Some(b"north"),
            deployment: Some(b"city"),
            version: Some(b"0.2.0 (abc)"),
            port: 7117,
            addresses: addresses.to_vec(),
        }
    }

    #[test]
    fn what_is_announced_is_read_again() {
        let announcement = Announcement { version: "0.2.0-éé".into(), ..announced("10.0.0.5:7117") };
        let service = announcement.service().expect("it can be announced").as_resolved_service();
        assert_eq!(BrokerRecord::of(&service, &[]).read(), Err(Unfit::Text), "the version is no ASCII");
        let service = announced("10.0.0.5:7117").service().expect("it can be announced").as_resolved_service();
        let found = BrokerRecord::of(&service, &[]).read().expect("it is fit");
        assert_eq!(
            found,
            FoundBroker {
                deployment: "city".into(),
                name: "north".into(),
                address: "10.0.0.5:7117".parse().expect("an address"),
                version: "0.2.0".into(),
            }
        );
        assert_eq!(found.url(), "mqtt://10.0.0.5:7117");
        assert_eq!(service.get_fullname(), "north-10-0-0-5-7117._whimbrel._udp.local.");
        assert_eq!(service.get_hostname(), "whimbrel-link-10-0-0-5-7117.local.");
    }

    #[test]
    fn labels_fit_whatever_the_name_and_the_address_are() {
        let long =
            Announcement { name: "n.".repeat(32), ..announced("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535") };
        assert_eq!(long.instance().len(), LABEL_MAX);
        assert!(long.service().is_ok_and(|service| service.get_hostname().len() <= LABEL_MAX + ".local.".len()));
        assert!(!long.instance().contains('.'), "{}", long.instance());
        let other = Announcement { name: "south".into(), ..announced("10.0.0.5:7118") };
        assert_ne!(other.place(), announced("10.0.0.5:7117").place());
    }

    #[test]
    fn garbage_in_texts_is_refused() {
        let fit = [at("10.0.0.5", false)];
        let refused = |record: BrokerRecord<'_>| assert_eq!(record.read(), Err(Unfit::Text), "{record:?}");
        assert!(record(&fit).read().is_ok());
        refused(BrokerRecord { name: None, ..record(&fit) });
        refused(BrokerRecord { name: Some(b""), ..record(&fit) });
        refused(BrokerRecord { name: Some(b"north\x1b[31m"), ..record(&fit) });
        refused(BrokerRecord { name: Some(&[b'n'; TEXT_MAX + 1]), ..record(&fit) });
        refused(BrokerRecord { deployment: Some(b"a city"), ..record(&fit) });
        refused(BrokerRecord { deployment: None, ..record(&fit) });
        refused(BrokerRecord { version: Some(b"0.2\n"), ..record(&fit) });
        refused(BrokerRecord { version: Some(&[0xff]), ..record(&fit) });
    }

    #[test]
    fn only_addresses_of_loopback_and_of_private_networks_are_taken() {
        let taken = |seen: SeenAddress| record(&[seen]).read().ok().map(|found| found.address.to_string());
        assert_eq!(taken(at("10.0.0.5", false)).as_deref(), Some("10.0.0.5:7117"));
        assert_eq!(taken(at("169.254.1.1", false)).as_deref(), Some("169.254.1.1:7117"));
        assert_eq!(taken(at("fd00::1", false)).as_deref(), Some("[fd00::1]:7117"));
        assert_eq!(taken(at("fe80::1", false)).as_deref(), Some("[fe80::1%7]:7117"));
        assert_eq!(taken(at("127.0.0.1", true)).as_deref(), Some("127.0.0.1:7117"));
        assert_eq!(taken(at("::ffff:10.0.0.5", false)).as_deref(), Some("10.0.0.5:7117"));
        let unfit = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "8.8.8.8", "2001:db8::1", "224.0.0.251"];
        for ip in unfit {
            assert_eq!(taken(at(ip, false)), None, "{ip}");
        }
        let both = record(&[at("8.8.8.8", false), at("192.168.1.5", false)]);
        assert!(both.read().is_ok_and(|found| found.address.to_string() == "192.168.1.5:7117"));
        assert_eq!(record(&[]).read(), Err(Unfit::Address));
        assert_eq!(BrokerRecord { port: 0, ..record(&[at("10.0.0.5", false)]) }.read(), Err(Unfit::Address));
    }
}
