//! What lies between a connection's packets and its socket: nothing, TLS, WebSocket, or both.
//!
//! The codecs do no input or output of their own: bytes go in and come out, so that the same code
//! serves the blocking set-up and the load, which never blocks.

mod websocket;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ProtocolVersion};
use whimbrel_client::Tls;

use websocket::Unframer;

/// The way of a connection's packets to the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP alone.
    #[default]
    Tcp,
    /// TLS 1.3.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS 1.3.
    Wss,
}

impl Transport {
    /// All of them, in the order of tables.
    pub const ALL: [Transport; 4] = [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

    /// Its name in addresses and in figures.
    pub fn id(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Ws => "ws",
            Transport::Wss => "wss",
        }
    }

    /// Its title in tables.
    pub fn title(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Ws => "WebSocket",
            Transport::Wss => "WebSocket over TLS",
        }
    }

    /// The name of this project's listener for it, in arguments and in the ready line.
    pub fn listener(self) -> &'static str {
        match self {
            Transport::Tcp => "mqtt",
            other => other.id(),
        }
    }

    fn is_secure(self) -> bool {
        matches!(self, Transport::Tls | Transport::Wss)
    }

    fn is_websocket(self) -> bool {
        matches!(self, Transport::Ws | Transport::Wss)
    }
}

/// Bytes read at once while a connection is set up.
const CHUNK_BYTES: usize = 4096;

/// The state of TLS and WebSocket of one connection.
#[derive(Debug)]
pub struct Coding {
    tls: Option<Box<ClientConnection>>,
    websocket: Option<Unframer>,
    /// Frames on their way into TLS, or what came out of it; empty between calls.
    between: Vec<u8>,
    /// Bytes for the socket. Who takes some keeps count, and clears it once all are taken.
    pub wire: Vec<u8>,
}

impl Coding {
    /// Makes the handshakes over `stream`, which blocks with a time limit; `None` for TCP alone.
    /// Every certificate is trusted: the generator is no client whose secrets could be stolen.
    ///
    /// # Errors
    /// When the broker refuses, speaks something else, or does not answer in time.
    pub fn open(transport: Transport, stream: &mut TcpStream, address: SocketAddr) -> Result<Option<Box<Coding>>> {
        if transport == Transport::Tcp {
            return Ok(None);
        }
        let tls = if transport.is_secure() { Some(Box::new(handshake(stream, address)?)) } else { None };
        let mut coding = Coding { tls, websocket: None, between: Vec::new(), wire: Vec::new() };
        if transport.is_websocket() {
            coding.upgrade(stream, address)?;
        }
        Ok(Some(Box::new(coding)))
    }

    /// Codes `packets` for the socket, together with answers that are due: see [`Coding::wire`].
    /// They make one WebSocket message, in frames of up to `websocket::FRAME_MAX` bytes; records
    /// of TLS are as large as they can be.
    ///
    /// # Errors
    /// When TLS has ended.
    pub fn encode(&mut self, packets: &[u8]) -> Result<()> {
        match (&mut self.websocket, self.tls.is_some()) {
            (None, _) => return self.seal(packets),
            (Some(websocket), false) => websocket.frame(packets, &mut self.wire),
            (Some(websocket), true) => {
                let mut frames = std::mem::take(&mut self.between);
                websocket.frame(packets, &mut frames);
                self.seal(&frames)?;
                frames.clear();
                self.between = frames;
            }
        }
        Ok(())
    }

    /// Takes bytes from the socket, cut anywhere, and appends the bytes of packets to `into`.
    ///
    /// # Errors
    /// When the broker ends TLS or WebSocket, or breaks their protocols.
    pub fn decode(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> Result<()> {
        match (&mut self.websocket, self.tls.is_some()) {
            (None, _) => self.unseal(bytes, into),
            (Some(websocket), false) => websocket.take(bytes, into),
            (Some(_), true) => {
                let mut frames = std::mem::take(&mut self.between);
                self.unseal(bytes, &mut frames)?;
                let taken = self.websocket.as_mut().map_or(Ok(()), |websocket| websocket.take(&frames, into));
                frames.clear();
                self.between = frames;
                taken
            }
        }
    }

    /// Appends to the bytes for the socket: `bytes` encrypted, if there is TLS.
    fn seal(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(tls) = &mut self.tls else {
            self.wire.extend_from_slice(bytes);
            return Ok(());
        };
        tls.writer().write_all(bytes).context("encrypting")?;
        while tls.wants_write() {
            tls.write_tls(&mut self.wire).context("encrypting")?;
        }
        Ok(())
    }

    /// Appends what `bytes` hold, decrypted if there is TLS, to `into`.
    fn unseal(&mut self, mut bytes: &[u8], into: &mut Vec<u8>) -> Result<()> {
        let Some(tls) = &mut self.tls else {
            into.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).context("decrypting")?;
            let state = tls.process_new_packets().context("the broker breaks TLS")?;
            let start = into.len();
            into.resize(start + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut into[start..]).context("decrypting")?;
            ensure!(!state.peer_has_closed(), "the broker closed TLS");
        }
        Ok(())
    }

    /// Asks for WebSocket and waits for the answer.
    fn upgrade(&mut self, stream: &mut TcpStream, address: SocketAddr) -> Result<()> {
        self.seal(websocket::request(address).as_bytes())?;
        stream.write_all(&self.wire)?;
        self.wire.clear();
        let mut chunk = [0; CHUNK_BYTES];
        let mut answer = Vec::new();
        let rest = loop {
            let read = stream.read(&mut chunk).context("waiting for the upgrade to WebSocket")?;
            ensure!(read > 0, "{address} closed the connection instead of upgrading to WebSocket");
            self.unseal(&chunk[..read], &mut answer)?;
            if let Some(length) = websocket::answered(&answer).with_context(|| format!("upgrading at {address}"))? {
                break answer.split_off(length);
            }
        };
        // A broker says nothing before the client has sent CONNECT.
        ensure!(rest.is_empty(), "{address} sends before it is spoken to");
        self.websocket = Some(Unframer::default());
        Ok(())
    }
}

fn handshake(stream: &mut TcpStream, address: SocketAddr) -> Result<ClientConnection> {
    let config = whimbrel_client::tls_config(&Tls::Insecure, None).context("preparing TLS")?;
    let mut tls = ClientConnection::new(config, ServerName::IpAddress(address.ip().into())).context("preparing TLS")?;
    // What waits is bounded by who writes, as without TLS.
    tls.set_buffer_limit(None);
    while tls.is_handshaking() {
        tls.complete_io(stream).with_context(|| format!("{address}: the TLS handshake"))?;
    }
    match tls.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => Ok(tls),
        other => bail!("{address} speaks {other:?}, and TLS 1.3 is what is measured"),
    }
}

#[cfg(test)]
mod tests;
