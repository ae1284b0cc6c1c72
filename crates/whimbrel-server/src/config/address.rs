//! Addresses on which a broker without authentication may listen.

use std::net::{IpAddr, SocketAddr};

/// Set of hosts that can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This machine.
    Loopback,
    /// A private network: RFC 1918, link-local, or an IPv6 unique local address.
    Private,
    /// All addresses of this machine.
    Every,
    /// The internet.
    Public,
}

/// The reach of an address.
pub fn reach(ip: IpAddr) -> Reach {
    match ip.to_canonical() {
        ip if ip.is_loopback() => Reach::Loopback,
        ip if ip.is_unspecified() => Reach::Every,
        IpAddr::V4(ip) if ip.is_private() || ip.is_link_local() => Reach::Private,
        IpAddr::V6(ip) if ip.is_unique_local() || ip.is_unicast_link_local() => Reach::Private,
        _ => Reach::Public,
    }
}

/// Whether two listeners cannot both be bound.
pub fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let (ip_a, ip_b) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() != 0 && a.port() == b.port() && (ip_a == ip_b || ip_a.is_unspecified() || ip_b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_of_addresses() {
        let cases = [
            ("127.0.0.1", Reach::Loopback),
            ("127.8.8.8", Reach::Loopback),
            ("::1", Reach::Loopback),
            ("::ffff:127.0.0.1", Reach::Loopback),
            ("10.1.2.3", Reach::Private),
            ("172.16.0.1", Reach::Private),
            ("172.32.0.1", Reach::Public),
            ("192.168.1.1", Reach::Private),
            ("169.254.1.1", Reach::Private),
            ("fd00::1", Reach::Private),
            ("fe80::1", Reach::Private),
            ("0.0.0.0", Reach::Every),
            ("::", Reach::Every),
            ("100.64.0.1", Reach::Public),
            ("192.0.2.1", Reach::Public),
            ("2001:db8::1", Reach::Public),
            ("::ffff:8.8.8.8", Reach::Public),
        ];
        for (text, expected) in cases {
            assert_eq!(reach(text.parse().expect("a literal address")), expected, "{text}");
        }
    }

    #[test]
    fn clashes() {
        let clash = |a: &str, b: &str| clash(a.parse().expect("an address"), b.parse().expect("an address"));
        assert!(clash("127.0.0.1:1883", "127.0.0.1:1883"));
        assert!(clash("0.0.0.0:1883", "127.0.0.1:1883"));
        assert!(!clash("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!clash("127.0.0.1:1883", "127.0.0.2:1883"));
        assert!(!clash("127.0.0.1:1883", "127.0.0.1:8883"));
    }
}
