//! The connection that a link's streams write to.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::{Connection, SendStream, VarInt};
use whimbrel_core::Channel;

use super::cap::LinkCap;
use super::window::PathGauge;
use crate::overlay::channel;
use crate::overlay::counts::LinkCounts;

/// Writing failed: the link has ended, or is about to.
#[derive(Debug)]
pub(super) struct Broken;

/// What limits the bytes of events that QUIC may be given: what the path takes, and the link's cap.
#[derive(Clone, Copy)]
pub(super) struct OutputLimits<'a> {
    pub(super) gauge: &'a PathGauge,
    pub(super) cap: Option<&'a LinkCap>,
}

impl OutputLimits<'_> {
    fn capped(&self, room: usize) -> usize {
        self.cap.map_or(room, |cap| room.min(cap.room(Instant::now())))
    }

    /// Bytes of ordinary events and bulk.
    pub(super) fn room(&self) -> usize {
        self.capped(self.gauge.room())
    }

    /// Bytes of urgent events.
    pub(super) fn urgent_room(&self) -> usize {
        self.capped(self.gauge.urgent_room())
    }
}

/// The connection that streams write to.
pub(super) struct Pipe<'a, 'w> {
    pub(super) connection: &'a Connection,
    pub(super) gauge: &'a PathGauge,
    pub(super) counts: &'a LinkCounts,
    pub(super) cx: &'a mut Context<'w>,
}

impl Pipe<'_, '_> {
    /// Gives a stream what it takes. Returns the number of bytes.
    ///
    /// # Errors
    /// The link has ended.
    pub(super) fn write(&mut self, stream: &mut SendStream, bytes: &[u8]) -> Result<usize, Broken> {
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            // It may be sent before the call returns.
            self.gauge.give(rest.len());
            let taken = match Pin::new(&mut *stream).poll_write(self.cx, rest) {
                Poll::Pending => 0,
                Poll::Ready(Ok(taken)) => taken,
                Poll::Ready(Err(_)) => return Err(Broken),
            };
            self.gauge.take_back(rest.len() - taken);
            written += taken;
            if taken == 0 {
                break;
            }
        }
        Ok(written)
    }

    /// Ends the link, as there is no memory to compress its events.
    pub(super) fn fail(&self) -> Broken {
        self.connection.close(VarInt::from_u32(channel::FAILED), b"the other end has no memory to compress events");
        Broken
    }

    /// Opens a stream of a channel, if the other end allows it at present.
    pub(super) fn open(&mut self, channel: Channel) -> Poll<Result<SendStream, Broken>> {
        pin!(self.connection.open_uni()).poll(self.cx).map(|opened| {
            let stream = opened.map_err(|_| Broken)?;
            // It fails only for a stream that has ended, which the write reports.
            let _ = stream.set_priority(channel::priority(channel));
            Ok(stream)
        })
    }
}
