//! Idle connections: the rate at which they are accepted, and the memory of each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};

use super::link::{self, Endpoint, SCRATCH_BYTES};
use super::process;
use super::target::Target;
use super::wire::{Frame, Protocol, QoS};

/// Connections that are being opened at the same time, at most: below the shortest listen queue of
/// the brokers (100).
const AT_ONCE: usize = 64;

/// After this long without any progress the broker counts as stuck.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Files that the process needs besides the connections.
const OTHER_FILES: u64 = 100;

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Connections opened and subscribed per second.
    pub connects_per_second: f64,
    /// The growth of the broker's resident memory per connection, bytes. Sockets are the kernel's
    /// memory and are not included.
    pub bytes_per_connection: Option<f64>,
}

/// Opens `connections` connections, each with its own subscription to its own topic. `pid` is the
/// broker; it should be freshly started, since memory left over from an earlier load hides growth.
///
/// # Errors
/// When the broker refuses or breaks a connection, or the limit of open files is too low.
pub fn run(target: Target, connections: usize, pid: Option<u32>) -> Result<Idle> {
    process::allow_open_files(connections as u64 + OTHER_FILES)?;
    let before = pid.map(process::resident_bytes).transpose()?;
    let start = Instant::now();
    let opened = Opening::new(target, connections)?.complete()?;
    let elapsed = start.elapsed();
    let after = pid.map(process::resident_bytes).transpose()?;
    for endpoint in opened {
        // A reset leaves no port in use, so that the next run finds free ones.
        socket2::SockRef::from(&endpoint.stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(Idle {
        connects_per_second: connections as f64 / elapsed.as_secs_f64(),
        bytes_per_connection: after
            .zip(before)
            .map(|(after, before)| (after as f64 - before as f64) / connections as f64),
    })
}

/// Connections that are being opened.
struct Opening {
    target: Target,
    wanted: usize,
    poll: Poll,
    connections: Vec<Endpoint>,
    subscribing: Vec<bool>,
    finished: usize,
    scratch: Vec<u8>,
}

impl Opening {
    fn new(target: Target, wanted: usize) -> Result<Opening> {
        let poll = Poll::new().context("making a poll")?;
        let connections = Vec::with_capacity(wanted);
        let subscribing = vec![false; wanted];
        Ok(Opening { target, wanted, poll, connections, subscribing, finished: 0, scratch: vec![0; SCRATCH_BYTES] })
    }

    fn complete(mut self) -> Result<Vec<Endpoint>> {
        let mut events = Events::with_capacity(2 * AT_ONCE);
        let mut last_progress = Instant::now();
        let mut finished_then = 0;
        while self.finished < self.wanted {
            while self.connections.len() < self.wanted && self.connections.len() < self.finished + AT_ONCE {
                self.open()?;
            }
            match self.poll.poll(&mut events, Some(STALLED_AFTER)) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.context("waiting for the sockets")?,
            }
            for event in &events {
                let Token(index) = event.token();
                self.advance(index).with_context(|| format!("connection {index} of {}", self.wanted))?;
            }
            if self.finished > finished_then {
                finished_then = self.finished;
                last_progress = Instant::now();
            }
            ensure!(
                last_progress.elapsed() < STALLED_AFTER,
                "only {} of {} connections were served",
                self.finished,
                self.wanted
            );
        }
        Ok(self.connections)
    }

    fn open(&mut self) -> Result<()> {
        let index = self.connections.len();
        let hello = link::hello(self.target.protocol, &format!("idle{index}"));
        let mut endpoint = Endpoint::connecting(self.target, hello)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut endpoint.stream, Token(index), interest)?;
        self.connections.push(endpoint);
        Ok(())
    }

    fn advance(&mut self, index: usize) -> Result<()> {
        let Opening { target, connections, subscribing, finished, scratch, .. } = self;
        let endpoint = &mut connections[index];
        endpoint.flush()?;
        endpoint.receive(scratch, |frame, out| {
            match frame {
                Frame::Ready if !subscribing[index] => {
                    subscribing[index] = true;
                    let topic = target.topic(index, QoS::AtMostOnce);
                    out.extend_from_slice(&link::subscription(target.protocol, &topic, QoS::AtMostOnce));
                }
                Frame::Ready if target.protocol == Protocol::Nats => *finished += 1,
                Frame::Subscribed { .. } => *finished += 1,
                frame => bail!("{frame:?} was not expected"),
            }
            Ok(())
        })?;
        endpoint.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_broker::{Fault, TestBroker};
    use super::*;

    #[test]
    fn all_connections_are_opened_and_subscribed() {
        let broker = TestBroker::start(Fault::None);
        let idle = run(broker.target(), 200, Some(std::process::id())).expect("a run");
        assert!(idle.connects_per_second > 0.0);
        assert!(idle.bytes_per_connection.is_some());
        broker.stop();
    }
}
