//! One stream of a link, and its output that waits.

use std::future::Future;
use std::task::Poll;

use quinn::{SendStream, VarInt};
use whimbrel_core::Channel;

use super::pipe::{Broken, OutputLimits, Pipe};
use super::succession::Succession;
use crate::overlay::channel;

/// A buffer with more written bytes than this at its front gives them up before all of it has been
/// written.
const SPENT_MAX: usize = 256 << 10;

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
    /// Not there as long as the channel has only had its first stream.
    succession: Option<Box<Succession>>,
}

impl Outlet {
    /// An outlet to a stream that has its number; without one it is opened with its first bytes.
    pub(super) fn new(channel: Channel, stream: Option<SendStream>) -> Outlet {
        let buffer = if stream.is_some() { Vec::new() } else { vec![channel::number(channel)] };
        Outlet { channel, stream, buffer, written: 0, told: 0, succession: None }
    }

    /// Unsent bytes.
    pub(super) fn unsent(&self) -> usize {
        let unsent = self.buffer.len() - self.written;
        // The number of a stream that is not opened waits for bytes.
        if self.stream.is_none() && unsent == 1 { 0 } else { unsent }
    }

    /// Whether there is something to write.
    pub(super) fn has_output(&self) -> bool {
        self.unsent() > 0 || self.succession.as_ref().is_some_and(|succession| succession.has_output())
    }

    /// The channel.
    pub(super) fn channel(&self) -> Channel {
        self.channel
    }

    /// What follows the first stream.
    pub(super) fn succession(&mut self) -> &mut Succession {
        self.succession.get_or_insert_with(|| Box::new(Succession::new(self.channel)))
    }

    /// Whether what is written next is compressed.
    pub(super) fn is_packed(&self) -> bool {
        self.succession.as_ref().is_some_and(|succession| succession.is_packed())
    }

    /// Whether compression pays, as far as it has been tried.
    pub(super) fn pays(&self) -> bool {
        self.succession.as_ref().is_none_or(|succession| succession.pays())
    }

    /// Whether a successor is about to follow.
    pub(super) fn is_changing(&self) -> bool {
        self.succession.as_ref().is_some_and(|succession| succession.is_changing())
    }

    /// Plain bytes that have been compressed since the last call.
    pub(super) fn take_plain(&mut self) -> u64 {
        self.succession.as_mut().map_or(0, |succession| succession.take_plain())
    }

    /// Unsent bytes beyond those that QUIC may be given at once.
    fn waiting(&self, limits: &OutputLimits<'_>) -> usize {
        match self.channel {
            Channel::Urgent => self.unsent().saturating_sub(limits.urgent_room()),
            _ => self.unsent(),
        }
    }

    /// Whether the machine is to be told that there is room.
    pub(super) fn is_room_due(&self, limits: &OutputLimits<'_>) -> bool {
        let little = self.channel.little();
        self.told > little && self.waiting(limits) <= (self.told / 2).max(little)
    }

    /// Whether less waits than was told, of much.
    pub(super) fn has_less(&self, limits: &OutputLimits<'_>) -> bool {
        self.told > self.channel.little() && self.waiting(limits) < self.told
    }

    /// Unsent bytes, which count as told; of the urgent channel those that cannot be sent at once.
    pub(super) fn tell(&mut self, limits: &OutputLimits<'_>) -> usize {
        self.told = self.waiting(limits);
        self.told
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives up what is unsent.
    pub(super) fn clear(&mut self) {
        (self.buffer, self.written, self.told, self.succession) = (Vec::new(), 0, 0, None);
    }

    /// Gives the stream what it takes, at most `most` bytes. Returns the number of bytes.
    ///
    /// # Errors
    /// The link has ended, or the other end allows no stream for this channel.
    pub(super) fn flush(&mut self, pipe: &mut Pipe<'_, '_>, most: usize) -> Result<usize, Broken> {
        if most == 0 || !self.has_output() {
            return Ok(0);
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            stream @ None => stream.insert(open(self.channel, pipe)?),
        };
        let (mut given, mut is_plain) = (0, true);
        if let Some(succession) = &mut self.succession {
            let flushed = succession.flush(stream, &self.buffer[self.written..], pipe, most)?;
            self.written += flushed.plain;
            (given, is_plain) = (flushed.given, flushed.is_plain);
        }
        if is_plain {
            let end = self.buffer.len().min(self.written.saturating_add(most - given));
            let written = pipe.write(stream, &self.buffer[self.written..end])?;
            self.written += written;
            given += written;
        }
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

    /// Opens the stream before its first bytes, with its number, if the other end allows it.
    /// Returns whether it is open.
    ///
    /// # Errors
    /// The link has ended.
    pub(super) fn open_early(&mut self, pipe: &mut Pipe<'_, '_>) -> Result<bool, Broken> {
        if self.stream.is_none()
            && let Poll::Ready(stream) = pipe.open(self.channel)
        {
            let stream = self.stream.insert(stream?);
            self.written += pipe.write(stream, &self.buffer[self.written..])?;
        }
        Ok(self.stream.is_some())
    }

    /// Ends the stream. The future is ready when the other end has all of it and of its
    /// predecessor, or the link has ended; `None`: there is no stream.
    pub(super) fn finish(&mut self) -> Option<impl Future<Output = ()> + use<>> {
        let stream = self.stream.as_mut()?;
        // It fails for a stream that has ended already; such a stream counts as stopped.
        let _ = stream.finish();
        let former = self.succession.as_ref().and_then(|succession| Some(succession.former()?.stopped()));
        let stopped = stream.stopped();
        Some(async move {
            if let Some(former) = former {
                drop(former.await);
            }
            drop(stopped.await);
        })
    }
}

/// Opens the stream of a channel. The other end has allowed it with its handshake.
fn open(channel: Channel, pipe: &mut Pipe<'_, '_>) -> Result<SendStream, Broken> {
    match pipe.open(channel) {
        Poll::Ready(opened) => opened,
        Poll::Pending => {
            pipe.connection.close(VarInt::from_u32(channel::MISUSED), b"it allows no stream for urgent events");
            Err(Broken)
        }
    }
}
