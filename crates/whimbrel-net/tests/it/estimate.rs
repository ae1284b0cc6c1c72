//! Delay, loss and silence of a link.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_net::link::estimate::{BadEcho, Estimate, LINK_DEAD_AFTER, PROBE_EVERY};

const START: Time = Time::from_nanos(1_000_000_000_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A link whose probes are sent in time.
struct Probed {
    estimate: Estimate,
    now: Time,
}

impl Probed {
    fn new() -> Probed {
        Probed { estimate: Estimate::new(START), now: START }
    }

    /// The next probe is lost.
    fn lose(&mut self) -> u64 {
        self.now = self.now + PROBE_EVERY;
        self.estimate.sent()
    }

    /// The echo of the next probe returns after `away`.
    fn echo(&mut self, away: Duration) {
        let sequence = self.lose();
        let back = self.now + away;
        self.estimate.echo(back, sequence, self.now, Duration::ZERO).expect("an echo of the last probe");
    }
}

#[test]
fn the_delay_is_half_of_the_way_and_back_without_the_stay() {
    let mut link = Probed::new();
    assert_eq!(link.estimate.delay_us(), None);
    let sequence = link.lose();
    link.estimate.echo(link.now + ms(50), sequence, link.now, ms(10)).expect("an echo");
    assert_eq!((link.estimate.delay_us(), link.estimate.jitter_us()), (Some(20_000), 0));
}

#[test]
fn a_new_sample_counts_one_quarter() {
    let mut link = Probed::new();
    for (away, delay, jitter) in [(40, 20_000, 0), (80, 25_000, 5_000), (10, 20_000, 8_750), (40, 20_000, 6_563)] {
        link.echo(ms(away));
        assert_eq!((link.estimate.delay_us(), link.estimate.jitter_us()), (Some(delay), jitter), "after {away} ms");
    }
}

#[test]
fn a_probe_is_lost_when_three_more_have_been_sent() {
    let mut link = Probed::new();
    for _ in 0..64 {
        link.echo(ms(1));
    }
    let lost = link.lose();
    let sent = link.now;
    link.echo(ms(1));
    link.echo(ms(1));
    assert_eq!(link.estimate.loss_permille(), 0);
    link.echo(ms(1));
    assert_eq!(link.estimate.loss_permille(), 16, "1 of 64");
    // Its echo was only late.
    link.estimate.echo(link.now + ms(400), lost, sent, Duration::ZERO).expect("a late echo");
    assert_eq!(link.estimate.loss_permille(), 0);
}

#[test]
fn the_loss_is_that_of_the_last_64_probes() {
    let mut link = Probed::new();
    for _ in 0..64 {
        link.lose();
    }
    assert_eq!(link.estimate.loss_permille(), 1_000);
    for _ in 0..32 {
        link.echo(ms(1));
    }
    assert_eq!(link.estimate.loss_permille(), 500);
    for _ in 0..32 {
        link.echo(ms(1));
    }
    assert_eq!(link.estimate.loss_permille(), 0);
}

#[test]
fn the_first_loss_of_a_new_link_is_one_of_sixteen() {
    let mut link = Probed::new();
    link.lose();
    for _ in 0..3 {
        link.echo(ms(1));
    }
    assert_eq!(link.estimate.loss_permille(), 63);
}

#[test]
fn what_is_no_echo_changes_nothing() {
    let mut link = Probed::new();
    let sequence = link.lose();
    let (sent, now) = (link.now, link.now + ms(10));
    let mut echo = |sequence, sent, held| link.estimate.echo(now, sequence, sent, held);
    assert_eq!(echo(sequence + 1, sent, ms(0)), Err(BadEcho::Unasked), "never sent");
    assert_eq!(echo(u64::MAX, sent, ms(0)), Err(BadEcho::Unasked), "never sent");
    assert_eq!(echo(sequence, sent, ms(11)), Err(BadEcho::Impossible), "held for longer than away");
    assert_eq!(echo(sequence, now + ms(1), ms(0)), Err(BadEcho::Impossible), "from the future");
    assert_eq!(echo(sequence, sent, ms(0)), Ok(()));
    assert_eq!(echo(sequence, sent, ms(0)), Err(BadEcho::Unasked), "twice");
    assert_eq!(link.estimate.delay_us(), Some(5_000));
    let old = link.lose();
    for _ in 0..64 {
        link.lose();
    }
    assert_eq!(link.estimate.echo(link.now, old, sent, ms(0)), Err(BadEcho::Unasked), "the 65th from the end");
}

#[test]
fn a_link_is_silent_two_seconds_after_the_last_frame() {
    let mut estimate = Estimate::new(START);
    let last = START + ms(700);
    estimate.heard(last);
    estimate.heard(START);
    let end = last + LINK_DEAD_AFTER;
    assert_eq!(estimate.silent_at(LINK_DEAD_AFTER), end);
    assert!(!estimate.is_silent(Time::from_nanos(end.as_nanos() - 1), LINK_DEAD_AFTER));
    assert!(estimate.is_silent(end, LINK_DEAD_AFTER));
    // Even an invalid echo shows that the peer is there.
    estimate.echo(end, 7, START, ms(0)).expect_err("no probe was sent");
    assert!(!estimate.is_silent(end, LINK_DEAD_AFTER));
}

#[test]
fn a_delay_is_told_again_when_it_differs_by_a_fifth_and_two_milliseconds() {
    // One sample changes the delay by an eighth of the difference between the ways.
    let told_after = |first: Duration, second: Duration| {
        let mut link = Probed::new();
        assert_eq!(link.estimate.news(), None, "nothing is known yet");
        link.echo(first);
        let told = link.estimate.news().expect("the first delay is news");
        assert_eq!(link.estimate.news(), None, "it has been told");
        assert_eq!(link.estimate.told(), Some(told));
        link.echo(second);
        link.estimate.news().map(|(delay, _)| delay)
    };
    assert_eq!(told_after(ms(8), ms(24)), Some(6_000), "from 4 to 6 ms");
    assert_eq!(told_after(ms(8), ms(23)), None, "less than 2 ms, though by far more than a fifth");
    assert_eq!(told_after(ms(200), ms(360)), Some(120_000), "from 100 to 120 ms");
    assert_eq!(told_after(ms(200), ms(359)), None, "less than a fifth, though by far more than 2 ms");
    assert_eq!(told_after(ms(200), ms(40)), Some(80_000), "from 100 to 80 ms");
}

#[test]
fn a_loss_is_told_again_when_it_differs_by_two_per_cent() {
    let mut link = Probed::new();
    for _ in 0..64 {
        link.echo(ms(1));
    }
    assert_eq!(link.estimate.news(), Some((500, 0)));
    for _ in 0..2 {
        link.lose();
    }
    for _ in 0..2 {
        link.echo(ms(1));
    }
    assert_eq!(link.estimate.news(), None, "1 of 64");
    link.echo(ms(1));
    assert_eq!(link.estimate.news(), Some((500, 31)), "2 of 64");
}

#[test]
fn nothing_overflows() {
    let mut estimate = Estimate::new(Time::ZERO);
    let end = Time::from_nanos(u64::MAX);
    for _ in 0..3 {
        let sequence = estimate.sent();
        estimate.echo(end, sequence, Time::ZERO, Duration::ZERO).expect("a very late echo");
    }
    assert_eq!(estimate.delay_us(), Some(u32::MAX));
    assert_eq!(estimate.silent_at(LINK_DEAD_AFTER), end, "time ends there");
}
