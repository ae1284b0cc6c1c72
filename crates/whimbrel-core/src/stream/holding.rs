//! Publishers are held back: their connections are not read for a while.

use core::time::Duration;

use whimbrel_event::{Qos, Time};

use super::own::{AHEAD_MAX, Streams};
use crate::api::{Link, Output, Publish, Refusal};
use crate::stats::Stats;

/// Answers to one client that may wait to be durable. Above, the client is not read for
/// [`UNANSWERED_PAUSE`], so that it alone does not hold up all others.
const UNANSWERED_MAX: u32 = 4096;

/// The longest time for which a publisher that exceeds the rate of a topic is not read in one go.
const RATE_HOLD_MAX: Duration = Duration::from_secs(5);

/// How long a client with more than [`UNANSWERED_MAX`] unanswered publishes is not read.
const UNANSWERED_PAUSE: Duration = Duration::from_millis(10);

/// Holds a publisher back whose earlier publishes wait for their answers in great number, or whose
/// event exceeds the rate of its topic by this time. An event of QoS 0 beyond the rate is dropped:
/// then returns false.
pub(super) fn hold_back(
    publish: &Publish<'_>,
    excess: Duration,
    in_line: u32,
    stats: &mut Stats,
    out: &mut dyn Output,
) -> bool {
    if in_line > UNANSWERED_MAX {
        stats.publishers_held += 1;
        out.hold(publish.link, UNANSWERED_PAUSE);
    }
    if excess.is_zero() {
        return true;
    }
    if publish.event.qos == Qos::AtMostOnce {
        stats.events_over_rate += 1;
        out.dropped(publish.link, Refusal::OverRate);
        return false;
    }
    stats.publishers_over_rate += 1;
    out.hold(publish.link, excess.min(RATE_HOLD_MAX));
    true
}

/// Has the edge take nothing from a publisher for a while, if the own streams have run ahead of the
/// clock.
#[inline]
pub(super) fn hold_if_ahead(own: &Streams, stats: &mut Stats, now: Time, link: Link, out: &mut dyn Output) {
    if let Some(ahead) = own.ahead(now) {
        stats.publishers_held += 1;
        out.hold(link, ahead - AHEAD_MAX);
    }
}
