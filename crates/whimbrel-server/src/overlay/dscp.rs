//! How packets of links are marked for the network (DSCP), beside the bits by which QUIC learns of
//! congestion (ECN).
//!
//! Both are in one byte of the IP header. QUIC's socket library writes that byte for each packet,
//! with the ECN bits alone, so an option of the socket would have no effect: marked packets are
//! sent here.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn::udp::Transmit;

/// Names of code points, as network equipment has them.
const NAMES: [(&str, u8); 22] = [
    ("off", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("va", 44),
    ("ef", 46),
];

/// The greatest code point.
const DSCP_MAX: u8 = 63;

/// The code point of all packets of a broker's links; 0: they are not marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dscp(u8);

impl Dscp {
    /// Reads a name or a number, 0 to 63; `None`: it is neither.
    pub fn parse(text: &str) -> Option<Dscp> {
        let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, dscp)| *dscp);
        named.or_else(|| text.parse().ok().filter(|dscp| *dscp <= DSCP_MAX)).map(Dscp)
    }

    /// Whether packets are marked.
    pub(super) fn is_on(self) -> bool {
        self.0 > 0
    }

    /// Sends packets with the mark and the ECN bits that QUIC asks for.
    ///
    /// # Errors
    /// The socket takes nothing at present, or does not take this.
    pub(super) fn send(self, socket: &UdpSocket, transmit: &Transmit<'_>) -> io::Result<()> {
        let tos = (self.0 << 2) | transmit.ecn.map_or(0, |ecn| ecn as u8);
        let class = i32::from(tos);
        let is_v4 = match transmit.destination.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(to) => to.to_ipv4_mapped().is_some(),
        };
        let segment = transmit.segment_size.filter(|size| *size < transmit.contents.len());
        let segment = segment.map(|size| u16::try_from(size).unwrap_or(u16::MAX));
        let (from_v4, from_v6) = match transmit.src_ip {
            Some(IpAddr::V4(from)) => (Some(source_v4(from.octets())), None),
            Some(IpAddr::V6(from)) => (None, Some(source_v6(from.octets()))),
            None => (None, None),
        };
        let mark = if is_v4 { ControlMessage::Ipv4Tos(&tos) } else { ControlMessage::Ipv6TClass(&class) };
        let with: Vec<ControlMessage<'_>> = [
            Some(mark),
            segment.as_ref().map(ControlMessage::UdpGsoSegments),
            from_v4.as_ref().map(ControlMessage::Ipv4PacketInfo),
            from_v6.as_ref().map(ControlMessage::Ipv6PacketInfo),
        ]
        .into_iter()
        .flatten()
        .collect();
        let to = SockaddrStorage::from(transmit.destination);
        let parts = [IoSlice::new(transmit.contents)];
        match sendmsg(socket.as_raw_fd(), &parts, &with, MsgFlags::empty(), Some(&to)) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a packet that was not sent is left to QUIC's socket library, which knows what a system
/// cannot do.
pub(super) fn is_for_library(error: &io::Error) -> bool {
    error.kind() != ErrorKind::WouldBlock
}

fn source_v4(octets: [u8; 4]) -> in_pktinfo {
    let none = in_addr { s_addr: 0 };
    in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: in_addr { s_addr: u32::from_ne_bytes(octets) }, ipi_addr: none }
}

fn source_v6(octets: [u8; 16]) -> in6_pktinfo {
    in6_pktinfo { ipi6_addr: in6_addr { s6_addr: octets }, ipi6_ifindex: 0 }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::net::SocketAddr;

    use nix::sys::socket::{ControlMessageOwned, recvmsg};
    use quinn::udp::EcnCodepoint;
    use socket2::SockRef;

    use super::*;

    #[test]
    fn code_points_have_names_and_numbers() {
        for (text, dscp) in [("ef", 46), ("af41", 34), ("off", 0), ("0", 0), ("63", 63)] {
            assert_eq!(Dscp::parse(text), Some(Dscp(dscp)));
        }
        assert_eq!(["64", "-1", "EF", "", "fast"].map(Dscp::parse), [None; 5]);
        assert!(NAMES.iter().all(|(_, dscp)| *dscp <= DSCP_MAX));
    }

    /// What a packet's byte is when it arrives: mark and ECN bits.
    fn arrived(from: &UdpSocket, at: &UdpSocket, transmit: Transmit<'_>) -> Vec<(Vec<u8>, u8)> {
        Dscp::parse("ef").expect("a name").send(from, &transmit).expect("the socket takes it");
        let mut got = Vec::new();
        let count = transmit.contents.len().div_ceil(transmit.segment_size.unwrap_or(transmit.contents.len()));
        for _ in 0..count {
            let (mut bytes, mut with) = ([0; 2_000], nix::cmsg_space!(i32, i32));
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let message = recvmsg::<()>(at.as_raw_fd(), &mut parts, Some(&mut with), MsgFlags::empty());
            let message = message.expect("a packet arrives");
            let tos = message.cmsgs().expect("all fits").find_map(|with| match with {
                ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
                ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
                _ => None,
            });
            let len = message.bytes;
            got.push((bytes[..len].to_vec(), tos.expect("the system tells it")));
        }
        got
    }

    #[test]
    fn a_packet_has_the_mark_and_the_bits_of_quic() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let at = UdpSocket::bind(address).expect("a port");
            let from = UdpSocket::bind(address).expect("a port");
            if at.local_addr().is_ok_and(|at| at.is_ipv4()) {
                SockRef::from(&at).set_recv_tos_v4(true).expect("Linux has it");
            } else {
                SockRef::from(&at).set_recv_tclass_v6(true).expect("Linux has it");
            }
            let destination: SocketAddr = at.local_addr().expect("it is bound");
            let (contents, src_ip) = (&[7; 2_500][..], Some(destination.ip()));
            for (ecn, bits) in [(None, 0), (Some(EcnCodepoint::Ect0), 2), (Some(EcnCodepoint::Ce), 3)] {
                let transmit = Transmit { destination, ecn, contents: &contents[..900], segment_size: None, src_ip };
                assert_eq!(arrived(&from, &at, transmit), [(vec![7; 900], 46 << 2 | bits)]);
                let segment_size = Some(1_000);
                let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
                let lengths = [1_000, 1_000, 500].map(|len| (vec![7; len], 46 << 2 | bits));
                assert_eq!(arrived(&from, &at, transmit), lengths);
            }
        }
    }
}
