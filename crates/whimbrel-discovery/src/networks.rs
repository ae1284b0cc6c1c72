//! The interfaces on which brokers are announced and looked for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use if_addrs::Interface;
use mdns_sd::{IfKind, MDNS_PORT};
use socket2::{Domain, Protocol, Socket, Type};

/// Interfaces that are used, at most; IPv4 and IPv6 count each.
pub const NETWORKS_MAX: usize = 16;

/// The multicast groups of mDNS (RFC 6762).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// A DNS query without a question: it is sent to see whether anything can be.
const EMPTY_QUERY: [u8; 12] = [0; 12];

/// The networks in which brokers are announced and looked for.
#[derive(Clone, Debug)]
pub enum Within {
    /// Those of the interfaces that have these addresses.
    Addresses(Vec<IpAddr>),
    /// Loopback, and those of all interfaces with a private address.
    PrivateNetworks,
}

/// Why there is no discovery.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The system does not tell its interfaces.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(io::Error),
    /// There is no interface to use.
    #[error("no network interface that is up has such an address")]
    NoInterface,
    /// The multicast port cannot be bound, or there is no multicast.
    #[error("no multicast DNS at {address} (UDP port 5353): {cause}")]
    NoMulticast {
        /// The interface's address.
        address: IpAddr,
        /// The error of the system.
        cause: io::Error,
    },
    /// The library could not start, or take an order.
    #[error("multicast DNS does not work: {0}")]
    Library(String),
}

impl From<mdns_sd::Error> for Unavailable {
    fn from(error: mdns_sd::Error) -> Unavailable {
        Unavailable::Library(error.to_string())
    }
}

/// An interface, for one version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    index: u32,
    ip: IpAddr,
}

impl Network {
    /// The interface for the library.
    pub(crate) fn kind(self) -> IfKind {
        match self.ip {
            IpAddr::V4(_) => IfKind::IndexV4(self.index),
            IpAddr::V6(_) => IfKind::IndexV6(self.index),
        }
    }

    /// The interface's number if it is loopback.
    pub(crate) fn loopback(self) -> Option<u32> {
        self.ip.is_loopback().then_some(self.index)
    }
}

/// The interfaces within these bounds, without those on which multicast does not work. Interfaces
/// that are not up are among them: the library uses them when they are.
///
/// # Errors
/// Multicast works on none: why not on the last one.
pub(crate) fn usable(within: &Within) -> Result<Vec<Network>, Unavailable> {
    let all = if_addrs::get_if_addrs().map_err(Unavailable::Interfaces)?;
    // The library leaves out others.
    let is_multicast = |interface: &&Interface| !interface.is_p2p();
    let up: Vec<Option<u32>> = all.iter().filter(|one| one.is_oper_up()).map(|one| one.index).collect();
    let network = |one: &Interface| Some(Network { index: one.index?, ip: one.ip() });
    let (mut usable, mut waiting, mut last) = (Vec::new(), Vec::new(), Unavailable::NoInterface);
    for network in chosen(within, all.iter().filter(is_multicast).filter_map(network)) {
        if !up.contains(&Some(network.index)) {
            waiting.push(network);
            continue;
        }
        match probe(network) {
            Ok(()) => usable.push(network),
            Err(cause) => last = Unavailable::NoMulticast { address: network.ip, cause },
        }
    }
    if usable.is_empty() {
        return Err(last);
    }
    usable.extend(waiting);
    Ok(usable)
}

/// The interfaces within these bounds, each once for each version of IP.
fn chosen(within: &Within, interfaces: impl Iterator<Item = Network>) -> Vec<Network> {
    let is_private = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    let is_within = |ip: IpAddr| match within {
        // All of 127.0.0.0/8 is at the loopback interface, which tells one address.
        Within::Addresses(wanted) => wanted.iter().map(IpAddr::to_canonical).any(|wanted| {
            wanted == ip || (wanted.is_loopback() && ip.is_loopback() && wanted.is_ipv4() == ip.is_ipv4())
        }),
        Within::PrivateNetworks => is_private(ip),
    };
    let mut chosen: Vec<Network> = Vec::new();
    for network in interfaces.filter(|network| is_within(network.ip)) {
        let is_known =
            chosen.iter().any(|known| known.index == network.index && known.ip.is_ipv4() == network.ip.is_ipv4());
        if !is_known && chosen.len() < NETWORKS_MAX {
            chosen.push(network);
        }
    }
    chosen
}

/// Tries whether mDNS is possible on an interface. The library's thread would fail in silence.
fn probe(network: Network) -> io::Result<()> {
    let (any, group) = match network.ip {
        IpAddr::V4(_) => {
            (SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), MDNS_PORT), SocketAddr::new(GROUP_V4.into(), MDNS_PORT))
        }
        IpAddr::V6(_) => {
            let group = SocketAddrV6::new(GROUP_V6, MDNS_PORT, 0, network.index);
            (SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), MDNS_PORT), group.into())
        }
    };
    let socket = Socket::new(Domain::for_address(any), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // Not everywhere known, and not everywhere needed.
    let _ = socket.set_reuse_port(true);
    match network.ip {
        IpAddr::V4(ip) => {
            socket.bind(&any.into())?;
            socket.join_multicast_v4(&GROUP_V4, &ip)?;
            socket.set_multicast_if_v4(&ip)?;
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.bind(&any.into())?;
            socket.join_multicast_v6(&GROUP_V6, network.index)?;
            socket.set_multicast_if_v6(network.index)?;
        }
    }
    socket.send_to(&EMPTY_QUERY, &group.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(index: u32, ip: &str) -> Network {
        Network { index, ip: ip.parse().expect("a literal address") }
    }

    fn all() -> Vec<Network> {
        let ips =
            [(1, "127.0.0.1"), (1, "::1"), (2, "192.168.1.5"), (2, "192.168.1.6"), (2, "fe80::5"), (3, "8.8.8.8")];
        ips.map(|(index, ip)| network(index, ip)).to_vec()
    }

    fn within(addresses: &[&str]) -> Vec<Network> {
        let addresses = addresses.iter().map(|ip| ip.parse().expect("a literal address")).collect();
        chosen(&Within::Addresses(addresses), all().into_iter())
    }

    #[test]
    fn interfaces_of_listeners_are_chosen_once() {
        assert_eq!(within(&["127.0.0.1", "127.0.0.9"]), [network(1, "127.0.0.1")]);
        assert_eq!(within(&["192.168.1.6", "192.168.1.5"]), [network(2, "192.168.1.5")]);
        assert_eq!(within(&["::ffff:192.168.1.6", "::1"]), [network(1, "::1"), network(2, "192.168.1.6")]);
        assert_eq!(within(&["10.0.0.1"]), []);
    }

    #[test]
    fn without_listeners_public_interfaces_are_left_out() {
        let expected = [(1, "127.0.0.1"), (1, "::1"), (2, "192.168.1.5"), (2, "fe80::5")];
        let expected = expected.map(|(index, ip)| network(index, ip));
        assert_eq!(chosen(&Within::PrivateNetworks, all().into_iter()), expected);
    }

    #[test]
    fn the_number_of_interfaces_is_bounded() {
        let many = (0..100).map(|index| network(index, "10.0.0.1"));
        assert_eq!(chosen(&Within::PrivateNetworks, many).len(), NETWORKS_MAX);
    }

    #[test]
    fn an_address_that_no_interface_has_is_an_error() {
        let none = Within::Addresses(vec!["192.0.2.77".parse().expect("a literal address")]);
        assert!(matches!(usable(&none), Err(Unavailable::NoInterface)));
    }
}
