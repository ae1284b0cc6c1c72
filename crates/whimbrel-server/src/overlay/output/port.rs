//! Output of one link.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use quinn::{Connection, SendStream, VarInt};
use tokio::sync::Semaphore;
use whimbrel_core::overlay::Share;
use whimbrel_core::{Channel, HangUp};

use super::beat::Beat;
use super::cap::LinkCap;
use super::changes::StreamChanges;
use super::gather::Gather;
use super::outlet::Outlet;
use super::pipe::{Broken, OutputLimits, Pipe};
use super::window::PathGauge;
use crate::overlay::channel;
use crate::overlay::counts::LinkCounts;
use crate::overlay::endpoint::DATAGRAMS;

/// A link that is given bytes in a channel with more than this many unsent is hung up: the broker
/// should have stopped long before.
const UNSENT_MAX: usize = 8 << 20;

/// Datagrams that wait until the machine is let go of, at most; more are dropped.
const DATAGRAMS_MAX: usize = 256;

/// A datagram that waits counts as at least this many bytes, so that the core sends no further
/// events as datagrams long before [`DATAGRAMS_MAX`] wait: probes and reports still have room.
const DATAGRAM_COUNTED_MIN: usize = 128;

/// The gauge is looked up again after this time: the connection may have another path.
const GAUGE_KEPT: Duration = Duration::from_secs(1);

/// The machine is told at least this often that less waits, as long as that is so: it takes a link
/// that makes no progress for stuck.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Pause between two looks, at the end, whether everything is written.
const FINISH_LOOK: Duration = Duration::from_millis(2);

/// Application error code of a link that the core of a broker has hung up, plus the reason's place
/// in [`HangUp::ALL`].
pub(in crate::overlay) const HUNG_UP: u32 = 0x100;

#[derive(Debug)]
struct Outbound {
    /// At the places of their channels.
    outlets: [Outlet; Channel::STREAMS],
    datagrams: VecDeque<Bytes>,
    /// Why the machine has let go of the link, if it has.
    hang_up: Option<HangUp>,
    /// Writing failed: the link has ended, or is about to.
    broken: bool,
    task: Option<Waker>,
    gather: Gather,
    /// What is due to all events beside urgent ones, and to those of best effort beside reliable
    /// ones.
    shares: [Share; 2],
    changes: StreamChanges,
    cap: Option<LinkCap>,
    /// The cap lets nothing through before this moment.
    capped_until: Option<Instant>,
    /// When the task last told the machine that less waits.
    progress_at: Instant,
    /// What the connection's path takes, and when it was looked up.
    gauge: Arc<PathGauge>,
    gauge_at: Instant,
    /// Until when unsent events wait for more.
    until: Option<Instant>,
    /// The timer has this link on its list.
    is_listed: bool,
}

impl Outbound {
    /// Until when new output waits for more; `None`: it does not wait. State, probes and the end of
    /// the link never wait, nor does output together with them.
    fn wait(&mut self, now: Instant) -> Option<Instant> {
        let [control, events @ ..] = &self.outlets;
        let bytes = events.iter().map(Outlet::unsent).sum();
        let until = self.gather.wait(now, bytes);
        until.filter(|_| control.unsent() == 0 && self.datagrams.is_empty() && self.hang_up.is_none())
    }

    /// Gives QUIC what it may have, the most urgent first, and has the task woken when it may have
    /// more.
    fn flush_streams(
        &mut self,
        connection: &Connection,
        counts: &LinkCounts,
        cx: &mut Context<'_>,
    ) -> Result<(), Broken> {
        let Outbound { outlets, shares: [ordinary, bulk], gauge, changes, cap, capped_until, .. } = self;
        let [control, urgent, events @ ..] = outlets;
        let mut pipe = Pipe { connection, gauge, counts, cx };
        let is_watched = changes.thinness.is_watched() || events.iter().any(Outlet::is_packed);
        if is_watched {
            changes.make(Instant::now(), urgent, events, &mut pipe)?;
        }
        control.flush(&mut pipe, usize::MAX)?;
        let mut is_urgent = false;
        if urgent.has_output() {
            let due = ordinary.due().min(limits(gauge, cap).urgent_room());
            ordinary.record_given(spend(cap, flush_events(events, bulk, &mut pipe, due)?));
            let most = limits(gauge, cap).urgent_room();
            let ahead = spend(cap, urgent.flush(&mut pipe, most)?);
            ordinary.record_ahead(ahead);
            is_urgent = ahead == most && urgent.unsent() > 0;
        }
        let most = limits(gauge, cap).room();
        let given = spend(cap, flush_events(events, bulk, &mut pipe, most)?);
        let waits = events.iter().any(Outlet::has_output);
        if !waits {
            ordinary.reset();
        }
        let is_full = waits && given == most;
        if is_full || is_watched {
            let plain = events.iter_mut().map(Outlet::take_plain).sum();
            changes.thinness.record(Instant::now(), is_full, plain, gauge.rate());
        }
        *capped_until = cap.as_ref().filter(|_| is_urgent || is_full).and_then(LinkCap::closed_until);
        // What QUIC itself does not take it has woken for.
        if (is_urgent || is_full) && capped_until.is_none() {
            gauge.wake(cx.waker(), is_urgent);
            // There may be room since.
            if gauge.room() > 0 || (is_urgent && gauge.urgent_room() > 0) {
                cx.waker().wake_by_ref();
            }
        }
        Ok(())
    }
}

/// What limits the events of a link.
fn limits<'a>(gauge: &'a PathGauge, cap: &'a Option<LinkCap>) -> OutputLimits<'a> {
    OutputLimits { gauge, cap: cap.as_ref() }
}

/// Records bytes that QUIC was given. Returns them.
fn spend(cap: &mut Option<LinkCap>, bytes: usize) -> usize {
    if let Some(cap) = cap {
        cap.spend(Instant::now(), bytes);
    }
    bytes
}

/// Gives QUIC reliable events and those of best effort, at most `most` bytes. Returns the number of
/// bytes.
fn flush_events(
    [reliable, best_effort]: &mut [Outlet; 2],
    share: &mut Share,
    pipe: &mut Pipe<'_, '_>,
    most: usize,
) -> Result<usize, Broken> {
    let mut given = 0;
    if reliable.has_output() {
        given = best_effort.flush(pipe, share.due().min(most))?;
        share.record_given(given);
        let ahead = reliable.flush(pipe, most - given)?;
        share.record_ahead(ahead);
        given += ahead;
    }
    given += best_effort.flush(pipe, most - given)?;
    if !best_effort.has_output() {
        share.reset();
    }
    Ok(given)
}

/// One link's output: bounded; written by the thread that has just let go of the machine, and by
/// the link's task when the path takes more.
#[derive(Debug)]
pub struct Port {
    connection: Connection,
    counts: Arc<LinkCounts>,
    outbound: Mutex<Outbound>,
    beat: Arc<Beat>,
    plan: PortPlan,
}

/// What holds for the links of a broker.
#[derive(Clone, Debug)]
pub(in crate::overlay) struct PortPlan {
    /// A permit for each context that compresses.
    pub(in crate::overlay) packers: Arc<Semaphore>,
    /// Bytes of events per second that are sent to some brokers, by their names.
    pub(in crate::overlay) caps: Arc<BTreeMap<String, u64>>,
}

impl Port {
    pub(in crate::overlay) fn new(
        connection: Connection,
        streams: [Option<SendStream>; Channel::STREAMS],
        counts: Arc<LinkCounts>,
        beat: Arc<Beat>,
        plan: PortPlan,
    ) -> Port {
        let mut streams = streams.into_iter();
        let outlets = channel::STREAMS.map(|channel| Outlet::new(channel, streams.next().flatten()));
        let (gauge, gauge_at) = (PathGauge::of(&connection), Instant::now());
        let outbound = Outbound {
            outlets,
            datagrams: VecDeque::new(),
            hang_up: None,
            broken: false,
            task: None,
            gather: Gather::new(gauge_at),
            shares: Default::default(),
            changes: StreamChanges::new(gauge_at, plan.packers.clone()),
            cap: None,
            capped_until: None,
            progress_at: gauge_at,
            gauge,
            gauge_at,
            until: None,
            is_listed: false,
        };
        Port { connection, counts, outbound: Mutex::new(outbound), beat, plan }
    }

    /// Records the name that the broker at the other end has told.
    pub fn name_peer(&self, name: &str) {
        self.counts.name_peer(name);
        if let Some(rate) = self.plan.caps.get(name) {
            self.outbound.lock().cap.get_or_insert_with(|| LinkCap::new(*rate, Instant::now()));
        }
    }

    /// Sets the task to wake when there is something to do.
    pub(in crate::overlay) fn attend(&self, waker: &Waker) {
        let mut outbound = self.outbound.lock();
        if !outbound.task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            outbound.task = Some(waker.clone());
        }
    }

    /// Wakes the link's task.
    pub fn wake(&self) {
        if let Some(task) = &self.outbound.lock().task {
            task.wake_by_ref();
        }
    }

    /// Takes bytes for a channel, to be written at the next [`Port::flush`]; a datagram whole.
    /// Returns the channel's unsent bytes.
    pub fn send(&self, channel: Channel, bytes: &[u8]) -> usize {
        self.counts.sent(channel, bytes.len());
        let mut outbound = self.outbound.lock();
        if outbound.broken || outbound.hang_up.is_some() {
            return 0;
        }
        if channel == Channel::Datagram {
            if outbound.datagrams.len() < DATAGRAMS_MAX {
                outbound.datagrams.push_back(Bytes::copy_from_slice(bytes));
            } else {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
            // Those that QUIC has are counted by the room that it has left.
            let of_quic = DATAGRAMS.saturating_sub(self.connection.datagram_send_buffer_space());
            let waiting = outbound.datagrams.iter().map(|datagram| datagram.len().max(DATAGRAM_COUNTED_MIN));
            // Events go by the streams while the cap lets nothing through.
            let is_capped = outbound.cap.as_ref().is_some_and(|cap| cap.room(Instant::now()) == 0);
            return of_quic + waiting.sum::<usize>() + if is_capped { DATAGRAMS } else { 0 };
        }
        let Outbound { outlets, gauge, cap, hang_up, .. } = &mut *outbound;
        let outlet = &mut outlets[channel as usize];
        if outlet.unsent() > UNSENT_MAX {
            *hang_up = Some(HangUp::Stuck);
            return 0;
        }
        outlet.push(bytes);
        outlet.tell(&limits(gauge, cap))
    }

    /// Waits until everything is written, and the other end has it or the link has ended. The
    /// caller sends nothing more.
    ///
    /// Control ends last: an end that has read the ends of all streams lets go of the link, and by
    /// then it must know of each successor.
    pub async fn finish(&self) {
        self.outbound.lock().changes.end();
        while self.has_output() {
            tokio::time::sleep(FINISH_LOOK).await;
        }
        let events = {
            let mut outbound = self.outbound.lock();
            let [_, events @ ..] = &mut outbound.outlets;
            events.each_mut().map(Outlet::finish)
        };
        for stopped in events.into_iter().flatten() {
            stopped.await;
        }
        let stopped = self.outbound.lock().outlets[Channel::Control as usize].finish();
        if let Some(stopped) = stopped {
            stopped.await;
        }
    }

    fn has_output(&self) -> bool {
        let outbound = self.outbound.lock();
        !outbound.broken && outbound.outlets.iter().any(Outlet::has_output)
    }

    /// Ends the link at the next [`Port::flush`]. Unsent bytes are lost.
    pub fn hang_up(&self, why: HangUp) {
        self.outbound.lock().hang_up.get_or_insert(why);
    }

    /// Why the core has let go of the link, if it has.
    pub(in crate::overlay) fn hung_up(&self) -> Option<HangUp> {
        self.outbound.lock().hang_up
    }

    /// Closes the connection, unless it is closed: the other end is told why the core has let go of
    /// the link, or `why` if it has not.
    pub(in crate::overlay) fn close(&self, why: &str) {
        match self.hung_up() {
            Some(why) => self.close_hung_up(why),
            None => self.connection.close(VarInt::from_u32(channel::MISUSED), why.as_bytes()),
        }
    }

    fn close_hung_up(&self, why: HangUp) {
        let place = HangUp::ALL.iter().position(|known| *known == why).expect("the list is complete");
        self.connection.close(VarInt::from_u32(HUNG_UP + place as u32), why.text().as_bytes());
    }

    /// Writes output as far as the path takes it, the most urgent first; the link's task writes the
    /// rest. Events that follow each other closely wait for others.
    pub fn flush(self: &Arc<Self>) {
        let now = Instant::now();
        let mut outbound = self.outbound.lock();
        let Some(until) = outbound.wait(now) else { return self.write(&mut outbound, now) };
        if outbound.until.replace(until).is_some() {
            return;
        }
        if outbound.is_listed {
            self.beat.renew(self, now, until);
        } else {
            outbound.is_listed = true;
            self.beat.enlist(self, now, until);
        }
    }

    /// For the timer: writes output whose wait is over. Returns until when the output waits
    /// otherwise; `None`: nothing waits, and the timer drops the link from its list.
    pub(super) fn flush_due(&self, now: Instant) -> Option<Instant> {
        let mut outbound = self.outbound.lock();
        let until = outbound.until.filter(|until| *until > now);
        if until.is_none() {
            outbound.is_listed = false;
            if outbound.until.is_some() {
                self.write(&mut outbound, now);
            }
        }
        until
    }

    fn write(&self, outbound: &mut Outbound, now: Instant) {
        outbound.gather.written(now);
        outbound.until = None;
        if now.saturating_duration_since(outbound.gauge_at) > GAUGE_KEPT {
            (outbound.gauge, outbound.gauge_at) = (PathGauge::of(&self.connection), now);
        }
        if let Some(why) = outbound.hang_up {
            self.close_hung_up(why);
        }
        if outbound.broken || outbound.hang_up.is_some() {
            outbound.broken = true;
            outbound.outlets.iter_mut().for_each(Outlet::clear);
            outbound.datagrams.clear();
            return;
        }
        let task = outbound.task.clone();
        let mut cx = Context::from_waker(task.as_ref().map_or(Waker::noop(), |task| task));
        outbound.broken = outbound.flush_streams(&self.connection, &self.counts, &mut cx).is_err();
        for datagram in outbound.datagrams.drain(..) {
            spend(&mut outbound.cap, datagram.len());
            if self.connection.send_datagram(datagram).is_err() {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let Outbound { outlets, gauge, cap, capped_until, .. } = outbound;
        let limits = limits(gauge, cap);
        if (capped_until.is_some() || outlets.iter().any(|outlet| outlet.is_room_due(&limits)))
            && let Some(task) = task
        {
            task.wake();
        }
    }

    /// For the link's task: goes on writing. Calls `room` with the unsent bytes of each channel
    /// that has room again. Returns when the link's cap lets events through again, if it does not.
    pub(in crate::overlay) fn poll(
        &self,
        cx: &mut Context<'_>,
        mut room: impl FnMut(Channel, usize),
    ) -> Option<Instant> {
        self.attend(cx.waker());
        let mut rooms = [None; Channel::STREAMS];
        let mut outbound = self.outbound.lock();
        let is_waiting = outbound.until.is_some();
        if !outbound.broken && outbound.hang_up.is_none() {
            if !is_waiting {
                outbound.broken = outbound.flush_streams(&self.connection, &self.counts, cx).is_err();
            }
            let Outbound { outlets, gauge, cap, progress_at, .. } = &mut *outbound;
            let limits = limits(gauge, cap);
            let has_less = outlets.iter().any(|outlet| outlet.has_less(&limits));
            let is_news = has_less && progress_at.elapsed() >= PROGRESS_EVERY;
            if is_news {
                *progress_at = Instant::now();
            }
            for (outlet, room) in outlets.iter_mut().zip(&mut rooms) {
                if outlet.is_room_due(&limits) || (is_news && outlet.has_less(&limits)) {
                    *room = Some(outlet.tell(&limits));
                }
            }
        }
        // The timer's write wakes the task if the cap still lets nothing through then.
        let is_over = outbound.broken || outbound.hang_up.is_some();
        let capped_until = outbound.capped_until.filter(|_| !is_waiting && !is_over);
        drop(outbound);
        for (channel, unsent) in channel::STREAMS.into_iter().zip(rooms) {
            if let Some(unsent) = unsent {
                room(channel, unsent);
            }
        }
        capped_until
    }
}
