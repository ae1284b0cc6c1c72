//! The PROXY protocol, versions 1 and 2: a header in which a proxy tells the client's address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::metrics::Cause;

/// The longest header that is accepted, in bytes. Addresses take 52; the rest is for extensions
/// (TLVs), which are ignored.
const HEADER_MAX: usize = 4096;

/// The longest header of version 1, in bytes, its end included.
const TEXT_MAX: usize = 107;

/// First bytes of a header of version 1.
const TEXT: &[u8] = b"PROXY ";

/// First bytes of a header of version 2.
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 up to and including the length of the rest.
const BINARY_HEAD: usize = BINARY.len() + 4;

/// Version 2 only adds extensions behind the addresses, which are not kept.
const PARSE: ParseConfig = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };

/// The proxies in front of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Proxies {
    /// Networks of the proxies.
    pub(crate) from: Vec<IpNet>,
    /// Time for a header.
    pub(crate) limit: Duration,
}

impl Proxies {
    /// Whether headers from this address are believed.
    pub(crate) fn trust(&self, ip: IpAddr) -> bool {
        // A socket for both families shows addresses of IPv4 within IPv6.
        let ip = ip.to_canonical();
        self.from.iter().any(|network| network.contains(&ip))
    }

    /// Reads the header that a connection begins with, and nothing behind it. Returns the address
    /// of the client; the proxy's own if it speaks for itself, or does not tell.
    ///
    /// # Errors
    /// The address is not a proxy's, the header is malformed, or it takes too long.
    pub(crate) async fn client(&self, stream: &mut TcpStream, proxy: SocketAddr) -> Result<SocketAddr, Cause> {
        if !self.trust(proxy.ip()) {
            return Err(Cause::ProxyUntrusted);
        }
        match timeout(self.limit, read(stream)).await {
            Ok(Ok(header)) => Ok(judge(&header).ok_or(Cause::ProxyHeader)?.unwrap_or(proxy)),
            Ok(Err(_)) => Err(Cause::ProxyHeader),
            Err(_) => Err(Cause::ProxyTimeout),
        }
    }
}

/// Extent of the header in the bytes received.
#[derive(Debug, PartialEq, Eq)]
enum Extent {
    /// The header is not complete.
    More,
    /// The header has this many bytes.
    Whole(usize),
    /// The bytes are no header, or one that is too long.
    Wrong,
}

fn extent(bytes: &[u8]) -> Extent {
    let begins_with = |mark: &[u8]| bytes.iter().zip(mark).all(|(byte, marked)| byte == marked);
    if begins_with(BINARY) {
        let Some(head) = bytes.get(..BINARY_HEAD) else { return Extent::More };
        let whole = BINARY_HEAD + usize::from(u16::from_be_bytes([head[BINARY_HEAD - 2], head[BINARY_HEAD - 1]]));
        return match whole {
            _ if whole > HEADER_MAX => Extent::Wrong,
            _ if whole > bytes.len() => Extent::More,
            _ => Extent::Whole(whole),
        };
    }
    match bytes.iter().take(TEXT_MAX).position(|byte| *byte == b'\n') {
        _ if !begins_with(TEXT) => Extent::Wrong,
        Some(end) => Extent::Whole(end + 1),
        None if bytes.len() < TEXT_MAX => Extent::More,
        None => Extent::Wrong,
    }
}

/// Reads the header off a stream.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER_MAX];
    let mut taken = 0;
    loop {
        // Peeked first: bytes behind the header must stay in the stream.
        let seen = taken + stream.peek(&mut bytes[taken..]).await?;
        let is_over = seen == taken;
        let extent = extent(&bytes[..seen]);
        let take = match extent {
            Extent::Whole(length) => length,
            Extent::More if !is_over => seen,
            Extent::More | Extent::Wrong => return Err(io::ErrorKind::InvalidData.into()),
        };
        stream.read_exact(&mut bytes[taken..take]).await?;
        taken = take;
        if extent != Extent::More {
            bytes.truncate(taken);
            return Ok(bytes);
        }
    }
}

/// The client's address in a complete header; `Some(None)` if the proxy speaks for itself, or does
/// not tell. `None`: it is malformed.
fn judge(header: &[u8]) -> Option<Option<SocketAddr>> {
    let (parsed, length) = ProxyHeader::parse(header, PARSE).ok()?;
    let told = parsed.proxied_address().filter(|told| told.protocol == Protocol::Stream).map(|told| told.source);
    (length == header.len()).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("a short header").to_be_bytes();
        [BINARY, &[command, family], &length, rest].concat()
    }

    #[test]
    fn a_header_ends_where_it_says_however_it_is_cut() {
        let text = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n".to_vec();
        let v2 = binary(0x21, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 7, 0x5b, 4, 0, 1, 0]);
        for header in [text, v2] {
            for cut in 0..header.len() {
                assert_eq!(extent(&header[..cut]), Extent::More, "{cut}");
            }
            let followed = [header.clone(), b"\x10\x0e\n".to_vec()].concat();
            assert_eq!(extent(&followed), Extent::Whole(header.len()));
            assert_eq!(judge(&header), Some(Some("192.0.2.7:4711".parse().expect("an address"))));
        }
    }

    #[test]
    fn what_is_no_header_is_refused_at_its_first_wrong_byte() {
        for wrong in [&b"\x10"[..], b"PROXZ", b"PROXYTCP4", b"\r\n\r\r", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"] {
            assert_eq!(extent(wrong), Extent::Wrong, "{wrong:?}");
        }
        let long = [TEXT, &[b'x'; TEXT_MAX]].concat();
        assert_eq!(extent(&long), Extent::Wrong);
        let long = binary(0x21, 0x11, &vec![0; HEADER_MAX]);
        assert_eq!(extent(&long[..BINARY_HEAD]), Extent::Wrong, "before any of it is held");
        for wrong in [
            &b"PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n"[..],
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 65536\r\n",
            b"PROXY TCP6 192.0.2.7 198.51.100.1 4711 1883\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\n",
            b"PROXY \n",
            b"PROXY SCTP 192.0.2.7 198.51.100.1 4711 1883\r\n",
            b"PROXY TCP4 \xff\xfe 198.51.100.1 4711 1883\r\n",
            &binary(0x21, 0x11, &[192, 0, 2, 7]),
            &binary(0x31, 0x11, &[0; 12]),
            &binary(0x22, 0x11, &[0; 12]),
            &binary(0x21, 0x41, &[0; 12]),
        ] {
            assert_eq!(judge(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_proxy_may_speak_for_itself() {
        for header in [
            &b"PROXY UNKNOWN\r\n"[..],
            b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
            &binary(0x20, 0x00, &[]),
            &binary(0x20, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 7, 0x5b]),
            &binary(0x21, 0x00, &[]),
            &binary(0x21, 0x31, &[0; 216]),
            &binary(0x21, 0x12, &[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 7, 0x5b]),
        ] {
            assert_eq!(judge(header), Some(None), "{header:?}");
        }
    }

    #[test]
    fn proxies_are_known_by_their_networks() {
        let from = ["10.1.0.0/16", "192.0.2.7/32", "fd00::/8"].map(|text| text.parse().expect("a network")).to_vec();
        let proxies = Proxies { from, limit: Duration::from_secs(1) };
        let trust = |text: &str| proxies.trust(text.parse().expect("an address"));
        assert!(trust("10.1.2.3") && trust("::ffff:10.1.2.3") && trust("192.0.2.7") && trust("fd12::1"));
        assert!(!trust("10.2.0.1") && !trust("192.0.2.8") && !trust("::1"));
    }
}
