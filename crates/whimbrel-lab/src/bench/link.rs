//! One connection: opened and subscribed with blocking calls, then driven without blocking.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::target::Target;
use super::transport::{Coding, Transport};
use super::wire::{self, Frame, Protocol, QoS, mqtt, nats};

/// How long a broker may take to answer during the set-up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a session outlives its connection, seconds.
const LASTING: u32 = 3600;

/// Name of the JetStream stream that holds the load's topics.
const STREAM: &str = "BENCH";

/// Bytes that a JetStream stream on a disk holds.
const STREAM_BYTES: u64 = 256 << 20;

/// Space for bytes read at once. Larger than any frame the load produces, small enough to stay in
/// the second-level cache.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// The packet that opens a connection: the broker answers it with [`Frame::Ready`].
pub fn hello(protocol: Protocol, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        Protocol::Mqtt311 => mqtt::connect(&mut out, false, name),
        Protocol::Mqtt5 => mqtt::connect(&mut out, true, name),
        Protocol::Nats => nats::connect(&mut out, name),
    }
    out
}

/// As [`hello`], for an MQTT session that outlives the connection.
pub fn hello_lasting(protocol: Protocol, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        Protocol::Mqtt5 => mqtt::connect_5(&mut out, name, Some(LASTING), None),
        Protocol::Mqtt311 | Protocol::Nats => mqtt::connect_lasting_311(&mut out, name),
    }
    out
}

/// A subscription that the broker answers with [`Frame::Subscribed`] (MQTT) or [`Frame::Ready`]
/// (NATS). Not for JetStream.
pub fn subscription(protocol: Protocol, topic: &str, qos: QoS) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        Protocol::Mqtt311 | Protocol::Mqtt5 => {
            mqtt::subscribe(&mut out, protocol == Protocol::Mqtt5, 1, (topic, qos), &[]);
        }
        Protocol::Nats => {
            nats::subscribe(&mut out, topic, nats::LOAD_SID);
            nats::ping(&mut out);
        }
    }
    out
}

/// A connection during the set-up.
pub struct Link {
    target: Target,
    stream: TcpStream,
    coding: Option<Box<Coding>>,
    received: Vec<u8>,
}

impl Link {
    /// Connects and waits until the broker has accepted the connection.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer within ten seconds.
    pub fn open(target: Target, name: &str) -> Result<Link> {
        Link::open_with(target, &hello(target.protocol, name))
    }

    /// As [`Link::open`], for an MQTT session that outlives the connection.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer within ten seconds.
    pub fn open_lasting(target: Target, name: &str) -> Result<Link> {
        Link::open_with(target, &hello_lasting(target.protocol, name))
    }

    fn open_with(target: Target, hello: &[u8]) -> Result<Link> {
        let mut stream = TcpStream::connect_timeout(&target.address, SETUP_TIMEOUT)
            .with_context(|| format!("connecting to {target}: is the broker running?"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SETUP_TIMEOUT))?;
        stream.set_write_timeout(Some(SETUP_TIMEOUT))?;
        let coding = Coding::open(target.transport, &mut stream, target.address)?;
        let mut link = Link { target, stream, coding, received: Vec::new() };
        link.send(hello)?;
        link.wait_for("the connection to be accepted", |frame| (frame == Frame::Ready).then_some(()))?;
        Ok(link)
    }

    /// Subscribes to topic number `index` and waits until the broker has confirmed it. `name` must
    /// differ among connections.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer within ten seconds.
    pub fn subscribe(&mut self, index: usize, qos: QoS, name: &str) -> Result<()> {
        let topic = self.target.topic(index, qos);
        if (self.target.protocol, qos) == (Protocol::Nats, QoS::AtLeastOnce) {
            return self.consume(&topic, name);
        }
        self.send(&subscription(self.target.protocol, &topic, qos))?;
        self.wait_for("the subscription to be confirmed", |frame| {
            matches!(frame, Frame::Subscribed { .. } | Frame::Ready).then_some(())
        })
    }

    /// Subscribes to a topic filter with user properties (MQTT 5) and returns the token of the
    /// subscription's start that the broker tells.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer within ten seconds.
    pub fn subscribe_with(&mut self, filter: &str, qos: QoS, user: &[(&str, &str)]) -> Result<String> {
        let mut out = Vec::new();
        mqtt::subscribe(&mut out, self.target.protocol == Protocol::Mqtt5, 1, (filter, qos), user);
        self.send(&out)?;
        self.wait_for("the subscription to be confirmed", |frame| match frame {
            Frame::Subscribed { token, .. } => Some(token.to_owned()),
            _ => None,
        })
    }

    /// Prepares the connection for publishing to topic number `index` at `qos`: JetStream's
    /// acknowledgements need a subscription.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer within ten seconds.
    pub fn prepare_publishing(&mut self, index: usize, qos: QoS) -> Result<()> {
        match (self.target.protocol, qos) {
            (Protocol::Nats, QoS::AtLeastOnce) => {
                let inbox = nats::accepted_inbox(&self.target.topic(index, qos));
                self.subscribe_nats(&inbox, nats::ACCEPTED_SID)
            }
            _ => Ok(()),
        }
    }

    /// Makes the JetStream stream anew, in memory. A message is kept until every consumer has
    /// acknowledged it, as MQTT's QoS 1 demands of a broker.
    ///
    /// # Errors
    /// When JetStream is not enabled.
    pub fn make_stream(&mut self, name: &str) -> Result<()> {
        let config = json!({ "name": STREAM, "subjects": ["j.>"], "retention": "interest", "storage": "memory" });
        self.make_stream_as(name, &config)
    }

    /// Makes the JetStream stream anew, in files of a bounded size; the oldest messages are
    /// dropped.
    ///
    /// # Errors
    /// When JetStream is not enabled.
    pub fn make_stream_on_disk(&mut self, name: &str) -> Result<()> {
        let config = json!({
            "name": STREAM, "subjects": ["j.>"], "retention": "limits", "storage": "file", "discard": "old", "max_bytes": STREAM_BYTES,
        });
        self.make_stream_as(name, &config)
    }

    fn make_stream_as(&mut self, name: &str, config: &Value) -> Result<()> {
        self.remove_stream(name)?;
        let made = self.request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), name, config)?;
        ensure!(made["error"].is_null(), "making a JetStream stream: {made}");
        Ok(())
    }

    /// Removes the JetStream stream, if there is one.
    ///
    /// # Errors
    /// When JetStream is not enabled.
    pub fn remove_stream(&mut self, name: &str) -> Result<()> {
        let removed = self.request(&format!("$JS.API.STREAM.DELETE.{STREAM}"), name, &json!({}))?;
        let absent = removed["error"]["code"] == 404;
        ensure!(removed["error"].is_null() || absent, "removing the JetStream stream of the load: {removed}");
        Ok(())
    }

    /// Makes a JetStream push consumer with explicit acknowledgements that delivers to this
    /// connection.
    fn consume(&mut self, topic: &str, name: &str) -> Result<()> {
        let inbox = format!("d.{name}");
        self.subscribe_nats(&inbox, nats::LOAD_SID)?;
        let consumer = json!({ "stream_name": STREAM, "config": {
            "deliver_subject": inbox, "filter_subject": topic, "ack_policy": "explicit", "deliver_policy": "new",
            "max_ack_pending": 65_535, "mem_storage": true,
        }});
        let made = self.request(&format!("$JS.API.CONSUMER.CREATE.{STREAM}"), name, &consumer)?;
        ensure!(made["error"].is_null(), "making a JetStream consumer: {made}");
        Ok(())
    }

    fn request(&mut self, subject: &str, name: &str, body: &Value) -> Result<Value> {
        let inbox = format!("_INBOX.{name}");
        self.subscribe_nats(&inbox, nats::REPLY_SID)?;
        let mut out = Vec::new();
        nats::request(&mut out, subject, &inbox, body.to_string().as_bytes());
        self.send(&out)?;
        self.wait_for("JetStream to answer (is it enabled?)", |frame| match frame {
            Frame::Message { body, .. } => serde_json::from_slice(body).ok(),
            _ => None,
        })
    }

    fn subscribe_nats(&mut self, subject: &str, sid: u32) -> Result<()> {
        let mut out = Vec::new();
        nats::subscribe(&mut out, subject, sid);
        nats::ping(&mut out);
        self.send(&out)?;
        self.wait_for("the subscription to be confirmed", |frame| (frame == Frame::Ready).then_some(()))
    }

    fn send(&mut self, packets: &[u8]) -> Result<()> {
        let Some(coding) = &mut self.coding else { return Ok(self.stream.write_all(packets)?) };
        coding.encode(packets)?;
        self.stream.write_all(&coding.wire)?;
        coding.wire.clear();
        Ok(())
    }

    /// Reads frames until `wanted` takes one; others are skipped.
    fn wait_for<T>(&mut self, what: &str, wanted: impl Fn(Frame<'_>) -> Option<T>) -> Result<T> {
        let protocol = self.target.protocol;
        let mut chunk = vec![0; 4096];
        loop {
            while let Some((frame, length)) = wire::parse(protocol, &self.received)? {
                let found = wanted(frame);
                self.received.drain(..length);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            let read = self.stream.read(&mut chunk).with_context(|| format!("{}: waiting for {what}", self.target))?;
            if read == 0 {
                bail!("{} closed the connection instead of {what}", self.target);
            }
            match &mut self.coding {
                None => self.received.extend_from_slice(&chunk[..read]),
                Some(coding) => coding.decode(&chunk[..read], &mut self.received)?,
            }
        }
    }

    /// Sends DISCONNECT (MQTT) and waits until the broker has closed the connection: its session
    /// then has no client.
    ///
    /// # Errors
    /// When the broker does not close it within ten seconds.
    pub fn leave(mut self) -> Result<()> {
        self.send(mqtt::DISCONNECT_PACKET)?;
        let mut chunk = [0; 256];
        while self.stream.read(&mut chunk).with_context(|| format!("{}: waiting for the end", self.target))? > 0 {}
        Ok(())
    }

    /// Ends the set-up: from now on nothing blocks.
    ///
    /// # Errors
    /// When the socket cannot be switched.
    pub fn into_endpoint(self) -> io::Result<Endpoint> {
        self.stream.set_nonblocking(true)?;
        let stream = mio::net::TcpStream::from_std(self.stream);
        let (protocol, coding) = (self.target.protocol, self.coding);
        Ok(Endpoint { stream, protocol, coding, partial: self.received, out: Vec::new(), written: 0 })
    }
}

/// A connection that never blocks.
pub struct Endpoint {
    /// The socket, to be registered with a poll.
    pub stream: mio::net::TcpStream,
    /// Bytes to be sent by the next [`Endpoint::flush`].
    pub out: Vec<u8>,
    protocol: Protocol,
    /// `None`: what is in `out` goes to the socket as it is.
    coding: Option<Box<Coding>>,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    /// The number of bytes that were sent: of `out`, or of the coded bytes if there is a coding.
    written: usize,
}

impl Endpoint {
    /// Begins to connect; `out` is sent by flushing once the socket is writable.
    ///
    /// # Errors
    /// When the system has no sockets or ports left, or the transport is not TCP alone: others have
    /// handshakes, which [`Link::open`] makes.
    pub fn connecting(target: Target, out: Vec<u8>) -> Result<Endpoint> {
        ensure!(target.transport == Transport::Tcp, "{target}: this is measured over TCP only");
        let stream = mio::net::TcpStream::connect(target.address).with_context(|| format!("connecting to {target}"))?;
        Ok(Endpoint { stream, protocol: target.protocol, coding: None, partial: Vec::new(), out, written: 0 })
    }

    /// Reads everything available and passes every frame to `on`, which may append answers to the
    /// bytes to be sent. Returns the number of read calls that returned bytes.
    ///
    /// # Errors
    /// When the broker closed the connection, sent something malformed, or `on` fails.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        mut on: impl FnMut(Frame<'_>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<u64> {
        if self.coding.is_some() {
            return self.receive_coded(scratch, on);
        }
        let mut reads = 0;
        loop {
            let kept = self.partial.len();
            ensure!(kept < scratch.len(), "the broker sent a frame of more than {} bytes", scratch.len());
            let Some(read) = read_some(&mut self.stream, &mut scratch[kept..])? else { return Ok(reads) };
            reads += 1;
            scratch[..kept].copy_from_slice(&self.partial);
            let bytes = &scratch[..kept + read];
            let taken = take_frames(self.protocol, bytes, &mut self.out, &mut on)?;
            self.partial.clear();
            self.partial.extend_from_slice(&bytes[taken..]);
            if kept + read < scratch.len() {
                return Ok(reads); // a short read has emptied the socket; epoll tells of what comes later
            }
        }
    }

    /// [`Endpoint::receive`] with a coding, which may hold more or fewer bytes than were read.
    fn receive_coded(
        &mut self,
        scratch: &mut [u8],
        mut on: impl FnMut(Frame<'_>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<u64> {
        let Some(coding) = &mut self.coding else { return Ok(0) };
        let mut reads = 0;
        while let Some(read) = read_some(&mut self.stream, scratch)? {
            reads += 1;
            coding.decode(&scratch[..read], &mut self.partial)?;
            let taken = take_frames(self.protocol, &self.partial, &mut self.out, &mut on)?;
            self.partial.drain(..taken);
            ensure!(self.partial.len() < scratch.len(), "the broker sent a frame of more than {} bytes", scratch.len());
            if read < scratch.len() {
                break;
            }
        }
        Ok(reads)
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> Result<()> {
        let bytes = match &mut self.coding {
            None => &mut self.out,
            Some(coding) => {
                coding.encode(&self.out)?;
                self.out.clear();
                &mut coding.wire
            }
        };
        while self.written < bytes.len() {
            match self.stream.write(&bytes[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("writing to the broker"),
            }
        }
        bytes.clear();
        self.written = 0;
        Ok(())
    }

    /// Bytes that the socket has not taken yet.
    pub fn unsent(&self) -> usize {
        let coded = self.coding.as_ref().map_or(0, |coding| coding.wire.len());
        self.out.len() + coded - self.written
    }
}

/// Reads what is there, up to the length of `into`; `None` if nothing is.
fn read_some(stream: &mut mio::net::TcpStream, into: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(0) => bail!("the broker closed a connection under load"),
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading from the broker"),
        }
    }
}

/// Passes the complete frames at the start of `bytes` to `on`; returns the number of their bytes.
fn take_frames(
    protocol: Protocol,
    bytes: &[u8],
    out: &mut Vec<u8>,
    mut on: impl FnMut(Frame<'_>, &mut Vec<u8>) -> Result<()>,
) -> Result<usize> {
    let mut at = 0;
    while let Some((frame, length)) = wire::parse(protocol, &bytes[at..])? {
        at += length;
        match frame {
            Frame::Ping => nats::pong(out),
            Frame::Ignored => {}
            frame => on(frame, out)?,
        }
    }
    Ok(at)
}
