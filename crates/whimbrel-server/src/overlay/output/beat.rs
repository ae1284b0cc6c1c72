//! The timer of output that waits on links: finer than the runtime's timers, whose step is a
//! millisecond.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::port::Port;

/// Setting for a moment that has already come: zero would disarm the timer.
const SOON: Duration = Duration::from_micros(1);

/// One timer for all links of a broker.
#[derive(Debug)]
pub(in crate::overlay) struct Beat {
    timer: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Links whose output may wait, each once, so at most [`crate::overlay::LINKS_MAX`].
    links: Vec<Weak<Port>>,
    /// What the timer is set to.
    armed: Option<Instant>,
}

impl Beat {
    /// A timer that is not set. Call it within a tokio runtime.
    ///
    /// # Errors
    /// The system has no timer left.
    pub(in crate::overlay) fn start() -> io::Result<Beat> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "the safe one; it is unsound for what is not its own descriptor only")]
        let timer = AsyncFd::new(timer)?;
        Ok(Beat { timer, waiting: Mutex::default() })
    }

    /// Lists a link whose output waits from `now` until `at`; it was not on the list.
    pub(super) fn enlist(&self, port: &Arc<Port>, now: Instant, at: Instant) {
        self.arm_with(Some(Arc::downgrade(port)), now, at);
    }

    /// Sets a later moment for a link that is on the list. If it is the only one, the timer need
    /// not wake up for output that has been written meanwhile.
    pub(super) fn renew(&self, port: &Arc<Port>, now: Instant, at: Instant) {
        let mut waiting = self.waiting.lock();
        if let [only] = &*waiting.links
            && std::ptr::eq(only.as_ptr(), Arc::as_ptr(port))
        {
            self.arm(&mut waiting, now, at);
        }
    }

    fn arm_with(&self, links: impl IntoIterator<Item = Weak<Port>>, now: Instant, at: Instant) {
        let mut waiting = self.waiting.lock();
        waiting.links.extend(links);
        if waiting.armed.is_none_or(|armed| at < armed) {
            self.arm(&mut waiting, now, at);
        }
    }

    fn arm(&self, waiting: &mut Waiting, now: Instant, at: Instant) {
        let span = at.saturating_duration_since(now).max(SOON);
        let value = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).expect("a timer takes a short span");
        waiting.armed = Some(at);
    }

    /// Writes output when its wait is over, as long as the runtime lives.
    ///
    /// # Errors
    /// The runtime ends.
    pub(in crate::overlay) async fn keep(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if matches!(read, Ok(Ok(_))) {
                // The timer is set again before it is readable again.
                ready.clear_ready();
                self.come();
            }
        }
    }

    /// Flushes the links that are due. They are looked at without the lock: a link enlists itself
    /// while it holds its own.
    fn come(&self) {
        let Waiting { mut links, .. } = std::mem::take(&mut *self.waiting.lock());
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        links.retain(|port| {
            let at = port.upgrade().and_then(|port| port.flush_due(now));
            next = next.into_iter().chain(at).min();
            at.is_some()
        });
        if let Some(at) = next {
            self.arm_with(links, now, at);
        }
    }
}
