//! One stream of a link, and its output that waits.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use quinn::{Connection, SendStream, VarInt};
use whimbrel_core::Channel;

use super::channel;
use super::window::PathGauge;

/// A buffer with more written bytes than this at its front gives them up before all of it has been
/// written.
const SPENT_MAX: usize = 256 << 10;

/// Writing failed: the link has ended, or is about to.
#[derive(Debug)]
pub(super) struct Broken;

/// One stream, and its output that waits.
#[derive(Debug)]
pub(super) struct Outlet {
    channel: Channel,
    /// Not there before the first bytes of the urgent channel.
    stream: Option<SendStream>,
    buffer: Vec<u8>,
    written: usize,
    /// Unsent bytes as last told to the machine.
    told: usize,
}

/// The connection that streams write to.
pub(super) struct Pipe<'a, 'w> {
    pub(super) connection: &'a Connection,
    pub(super) gauge: &'a PathGauge,
    pub(super) cx: &'a mut Context<'w>,
}

impl Outlet {
    /// An outlet to a stream that has its number; without one it is opened with its first bytes.
    pub(super) fn new(channel: Channel, stream: Option<SendStream>) -> Outlet {
        let buffer = if stream.is_some() { Vec::new() } else { vec![channel::number(channel)] };
        Outlet { channel, stream, buffer, written: 0, told: 0 }
    }

    /// Unsent bytes.
    pub(super) fn unsent(&self) -> usize {
        let unsent = self.buffer.len() - self.written;
        // The number of a stream that is not opened waits for bytes.
        if self.stream.is_none() && unsent == 1 { 0 } else { unsent }
    }

    /// Unsent bytes beyond those that QUIC may be given at once.
    fn waiting(&self, gauge: &PathGauge) -> usize {
        match self.channel {
            Channel::Urgent => self.unsent().saturating_sub(gauge.urgent_room()),
            _ => self.unsent(),
        }
    }

    /// Whether the machine is to be told that there is room.
    pub(super) fn is_room_due(&self, gauge: &PathGauge) -> bool {
        let little = self.channel.little();
        self.told > little && self.waiting(gauge) <= (self.told / 2).max(little)
    }

    /// Unsent bytes, which count as told; of the urgent channel those that cannot be sent at once.
    pub(super) fn tell(&mut self, gauge: &PathGauge) -> usize {
        self.told = self.waiting(gauge);
        self.told
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives up what is unsent.
    pub(super) fn clear(&mut self) {
        (self.buffer, self.written, self.told) = (Vec::new(), 0, 0);
    }

    /// Gives the stream what it takes, at most `most` bytes. Returns the number of bytes.
    ///
    /// # Errors
    /// The link has ended, or the other end allows no stream for this channel.
    pub(super) fn flush(&mut self, pipe: &mut Pipe<'_, '_>, most: usize) -> Result<usize, Broken> {
        if self.unsent() == 0 || most == 0 {
            return Ok(0);
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            stream @ None => stream.insert(open(pipe.connection, self.channel, pipe.cx)?),
        };
        let (began, end) = (self.written, self.buffer.len().min(self.written.saturating_add(most)));
        while self.written < end {
            let bytes = &self.buffer[self.written..end];
            // It may be sent before the call returns.
            pipe.gauge.give(bytes.len());
            let taken = match Pin::new(&mut *stream).poll_write(pipe.cx, bytes) {
                Poll::Pending => 0,
                Poll::Ready(Ok(taken)) => taken,
                Poll::Ready(Err(_)) => return Err(Broken),
            };
            pipe.gauge.take_back(bytes.len() - taken);
            self.written += taken;
            if taken == 0 {
                break;
            }
        }
        let given = self.written - began;
        if self.written == self.buffer.len() {
            self.written = 0;
            self.buffer.clear();
            self.buffer.shrink_to(SPENT_MAX);
        } else if self.written > SPENT_MAX && self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
        Ok(given)
    }

    /// Ends the stream. The future is ready when the other end has all of it, or the link has
    /// ended; `None`: there is no stream.
    pub(super) fn finish(&mut self) -> Option<impl Future<Output = ()> + use<>> {
        let stream = self.stream.as_mut()?;
        // It fails for a stream that has ended already; such a stream counts as stopped.
        let _ = stream.finish();
        let stopped = stream.stopped();
        Some(async move { drop(stopped.await) })
    }
}

/// Opens the stream of a channel. The other end has allowed it with its handshake.
fn open(connection: &Connection, channel: Channel, cx: &mut Context<'_>) -> Result<SendStream, Broken> {
    match pin!(connection.open_uni()).poll(cx) {
        Poll::Ready(Ok(stream)) => {
            // It fails only for a stream that has ended, which the write reports.
            let _ = stream.set_priority(channel::priority(channel));
            Ok(stream)
        }
        Poll::Ready(Err(_)) => Err(Broken),
        Poll::Pending => {
            connection.close(VarInt::from_u32(channel::MISUSED), b"it allows no stream for urgent events");
            Err(Broken)
        }
    }
}
