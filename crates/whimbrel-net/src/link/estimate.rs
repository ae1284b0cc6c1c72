//! The state of one link: its delay, the variation of the delay, and its loss.

use core::fmt;
use core::time::Duration;

use whimbrel_event::Time;

/// Interval at which the caller sends a probe over each link, unless its
/// [`Pace`](crate::Pace) says otherwise.
pub const PROBE_EVERY: Duration = Duration::from_millis(500);

/// A link over which nothing was received for this time is down, where probes are sent every
/// [`PROBE_EVERY`].
pub const LINK_DEAD_AFTER: Duration = Duration::from_secs(2);

/// The number of probes over which the loss is measured; an echo of an older one is refused.
pub const PROBES_KEPT: u64 = 64;

/// A probe without an echo counts as lost when this many more have been sent.
pub const LOST_AFTER_PROBES: u64 = 3;

/// Loss is computed over at least this many probes, the missing ones taken as answered: otherwise
/// the first loss of a new link would look like a bad link.
pub const LOSS_PROBES_MIN: u64 = 16;

/// A new delay is announced if it differs from the announced one by at least this part of it, per
/// cent, and by at least [`NEWS_DELAY_US`].
pub const NEWS_DELAY_PERCENT: u64 = 20;

/// See [`NEWS_DELAY_PERCENT`]; microseconds.
pub const NEWS_DELAY_US: u32 = 2_000;

/// A new loss is announced if it differs from the announced one by at least this, thousandths.
pub const NEWS_LOSS_PERMILLE: u16 = 20;

/// A new sample has the weight 1 / `SHARE`: the weight of 0.25 of Harmony (see [`Estimate`]).
const SHARE: u64 = 4;

/// Why an echo is not a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadEcho {
    /// No such probe waits for an echo: it was never sent, is answered, or is not one of the last
    /// [`PROBES_KEPT`]. Networks duplicate and delay packets, so this need not be a fault of the
    /// peer.
    Unasked,
    /// The probe would have been sent in the future, or held for longer than it was away: a fault
    /// of the peer.
    Impossible,
}

impl fmt::Display for BadEcho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadEcho::Unasked => "the peer echoes a probe that does not wait for an echo",
            BadEcho::Impossible => "the peer says that it held a probe for longer than it was away",
        })
    }
}

impl core::error::Error for BadEcho {}

/// Delay and loss of one link, from probes that the other side echoes. A few dozen bytes.
///
/// The delay is half of the time that a probe was away, less the time for which the peer held it,
/// smoothed with weight 0.25 as in Kim, Karenos, Ye, Reason, Lei, Shagin, "Efficacy of Techniques
/// for Responsiveness in a Wide-Area Publish/Subscribe System" (2010), section 2.1. Its variation
/// is smoothed in the same way, as the mean deviation of Jacobson, "Congestion Avoidance and
/// Control" (1988).
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Sequence number of the next probe.
    next: u64,
    /// Bit k: there is an echo of the probe `next - 1 - k`.
    answered: u64,
    /// Nanoseconds; `None` before the first echo.
    delay: Option<u64>,
    /// Mean deviation of the delay, nanoseconds.
    jitter: u64,
    heard: Time,
    /// The delay (microseconds) and loss (thousandths) announced last.
    told: Option<(u32, u16)>,
}

impl Estimate {
    /// The estimate of a link that has just come up.
    pub fn new(now: Time) -> Estimate {
        Estimate { next: 0, answered: 0, delay: None, jitter: 0, heard: now, told: None }
    }

    /// Records that a probe is sent. Returns its sequence number, which the peer echoes along with
    /// the time of sending.
    pub fn sent(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.answered <<= 1;
        sequence
    }

    /// Records that anything was received from the peer.
    pub fn heard(&mut self, now: Time) {
        self.heard = self.heard.max(now);
    }

    /// The peer has echoed a probe that was sent at `sent` of the own clock, and `held` it before
    /// it answered.
    ///
    /// # Errors
    /// When it cannot be an echo of a probe, see [`BadEcho`]. It still counts as received.
    pub fn echo(&mut self, now: Time, sequence: u64, sent: Time, held: Duration) -> Result<(), BadEcho> {
        self.heard(now);
        let Some(back) = self.next.checked_sub(sequence).filter(|back| (1..=PROBES_KEPT).contains(back)) else {
            return Err(BadEcho::Unasked);
        };
        let bit = 1 << (back - 1);
        if self.answered & bit != 0 {
            return Err(BadEcho::Unasked);
        }
        let away = now.since(sent);
        if sent > now || held > away {
            return Err(BadEcho::Impossible);
        }
        self.answered |= bit;
        self.sample((away - held).as_nanos() as u64 / 2);
        Ok(())
    }

    fn sample(&mut self, sample: u64) {
        let Some(old) = self.delay else {
            self.delay = Some(sample);
            return;
        };
        self.delay = Some(nearer(old, sample));
        self.jitter = nearer(self.jitter, sample.abs_diff(old));
    }

    /// The delay of one way, microseconds; `None` before the first echo.
    pub fn delay_us(&self) -> Option<u32> {
        self.delay.map(micros)
    }

    /// The mean deviation of the delay, microseconds.
    pub fn jitter_us(&self) -> u32 {
        micros(self.jitter)
    }

    /// The share of the last [`PROBES_KEPT`] probes that was lost, thousandths. Probes that may
    /// still be answered do not count.
    pub fn loss_permille(&self) -> u16 {
        let kept = self.next.min(PROBES_KEPT);
        let old = kept.saturating_sub(LOST_AFTER_PROBES);
        let judged = mask(kept) & !mask(kept - old);
        let lost = u64::from((judged & !self.answered).count_ones());
        let echoed = u64::from((self.answered & mask(kept)).count_ones());
        let all = (lost + echoed).max(LOSS_PROBES_MIN);
        ((lost * 1_000 + all / 2) / all) as u16
    }

    /// The number of probes in a row that have come back, counted back from the last one that did;
    /// 0 if the last [`LOST_AFTER_PROBES`] did not.
    pub fn echoes_in_a_row(&self) -> u32 {
        let waiting = u64::from(self.answered.trailing_zeros()).min(LOST_AFTER_PROBES);
        (self.answered >> waiting).trailing_ones()
    }

    /// When anything was last received.
    pub fn heard_at(&self) -> Time {
        self.heard
    }

    /// Whether nothing was received for the time `after`.
    pub fn is_silent(&self, now: Time, after: Duration) -> bool {
        now >= self.silent_at(after)
    }

    /// When the link has been silent for the time `after` if nothing is received until then.
    pub fn silent_at(&self, after: Duration) -> Time {
        self.heard + after
    }

    /// Delay (microseconds) and loss (thousandths), if they are to be announced to all other
    /// brokers: they are new or differ much from the values announced last. They then count as
    /// announced.
    pub fn news(&mut self) -> Option<(u32, u16)> {
        let (delay, loss) = (self.delay_us()?, self.loss_permille());
        let is_news = self.told.is_none_or(|(old_delay, old_loss)| {
            let by = delay.abs_diff(old_delay);
            let is_far = u64::from(by) * 100 >= u64::from(old_delay) * NEWS_DELAY_PERCENT;
            (is_far && by >= NEWS_DELAY_US) || loss.abs_diff(old_loss) >= NEWS_LOSS_PERMILLE
        });
        if !is_news {
            return None;
        }
        self.told = Some((delay, loss));
        self.told
    }

    /// The values that [`Estimate::news`] returned last.
    pub fn told(&self) -> Option<(u32, u16)> {
        self.told
    }
}

/// A smoothed value after one more sample.
fn nearer(old: u64, sample: u64) -> u64 {
    if sample >= old { old + (sample - old) / SHARE } else { old - (old - sample) / SHARE }
}

fn micros(nanos: u64) -> u32 {
    u32::try_from((nanos + 500) / 1_000).unwrap_or(u32::MAX)
}

/// A mask of the lowest `bits` bits, at most 64.
fn mask(bits: u64) -> u64 {
    if bits >= u64::from(u64::BITS) { u64::MAX } else { (1 << bits) - 1 }
}
