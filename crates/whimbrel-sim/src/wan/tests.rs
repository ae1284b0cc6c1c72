//! For many seeds the observed behaviour has the parameters that were asked for.

use std::time::Duration;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn profile(delay: Duration) -> WanProfile {
    WanProfile::PERFECT.with_delay(delay)
}

/// Whether each of `count` datagrams of 100 bytes, a millisecond apart, arrives.
fn arrivals(loss: Loss, seed: u64, count: usize) -> Vec<bool> {
    let mut link = Link::new(WanProfile { loss, ..WanProfile::PERFECT }, Random::new(seed));
    let mut now = Time::ZERO;
    (0..count)
        .map(|_| {
            now = now + MS;
            link.send(now, 100).landing.is_some()
        })
        .collect()
}

/// The share of losses, and the mean length of a run of them.
fn losses(arrived: &[bool]) -> (f64, f64) {
    let lost = arrived.iter().filter(|arrived| !**arrived).count() as f64;
    let runs = arrived.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
    (lost / arrived.len() as f64, lost / runs)
}

#[test]
fn losses_are_as_many_and_as_bursty_as_asked_for() {
    // 400,000 datagrams have at least 1,000 bursts: five standard errors are below a sixth.
    for (seed, lost, length) in [(1, 10_000, 3), (2, 50_000, 8), (3, 200_000, 1), (4, 20_000, 2)] {
        let (share, mean) = losses(&arrivals(Loss::bursts(lost, length), seed, 400_000));
        let wanted = lost as f64 / MILLION as f64;
        assert!((share / wanted - 1.0).abs() < 0.17, "seed {seed}: {share} lost, not {wanted}");
        assert!((mean / length as f64 - 1.0).abs() < 0.17, "seed {seed}: runs of {mean}, not {length}");
    }
}

#[test]
fn each_state_has_its_own_loss() {
    let loss = Loss { to_bad: 10_000, to_good: 40_000, in_good: 1_000, in_bad: 500_000 };
    let (share, _) = losses(&arrivals(loss, 5, 400_000));
    let wanted = loss.mean() as f64 / MILLION as f64;
    assert_eq!(loss.mean(), 100_800);
    assert!((share / wanted - 1.0).abs() < 0.1, "{share} lost, not {wanted}");
    let (share, mean) = losses(&arrivals(Loss::independent(100_000), 6, 400_000));
    assert!((share - 0.1).abs() < 0.003 && (mean - 1.0 / 0.9).abs() < 0.02, "{share} lost, in runs of {mean}");
}

#[test]
fn the_rate_is_never_exceeded_and_the_queue_is_bounded() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let shape = WanProfile { rate: 100_000, queue: 20_000, duplicate: 50, ..profile(10 * MS) };
        let mut link = Link::new(shape, random.fork());
        let (mut now, mut landed) = (Time::ZERO, Vec::new());
        for _ in 0..5_000 {
            now = now + Duration::from_micros(random.below(2_000));
            let bytes = random.between(1, 1_400) as usize;
            let fate = link.send(now, bytes);
            assert!(link.waiting(now) <= 20_000, "seed {seed}");
            assert!(fate.departs.since(now) <= Duration::from_millis(200), "seed {seed}: 20 kB take 0.2 s");
            landed.extend(fate.landing.map(|landing| (landing.at, bytes)));
            landed.extend(fate.copy.map(|landing| (landing.at, bytes)));
        }
        assert!(landed.is_sorted(), "seed {seed}: in order");
        // From any arrival to any later one, the datagrams in between took their time.
        for step in [1, 10, 1_000] {
            for window in landed.windows(step + 1) {
                let bytes: usize = window[1..].iter().map(|(_, bytes)| bytes).sum();
                let span = window[step].0.since(window[0].0);
                assert!(span >= Duration::from_nanos(bytes as u64 * 10_000), "seed {seed}: {bytes} bytes in {span:?}");
            }
        }
        let counters = link.counters();
        assert!(counters.dropped > 1_000 && counters.duplicated > 20, "seed {seed}: it was too much: {counters:?}");
        assert!(
            landed.len() as u64 >= counters.sent + counters.duplicated - counters.dropped,
            "seed {seed}: none else is lost"
        );
    }
}

#[test]
fn delays_stay_in_their_bounds() {
    let spread = Jitter::LogNormal { median: 4 * MS, spread: 500 };
    for (seed, jitter) in [(1, Jitter::NONE), (2, Jitter::Uniform(30 * MS)), (3, spread)] {
        for reorders in [false, true] {
            let mut link = Link::new(WanProfile { jitter, reorders, ..profile(20 * MS) }, Random::new(seed));
            let (mut late, mut last, mut reordered) = (0, Time::ZERO, 0);
            for n in 0..20_000_u64 {
                let now = Time::from_nanos(n * 40_000_000);
                // Two at the same time: the second may overtake.
                let first = link.send(now, 100).landing.expect("nothing is lost").at;
                let second = link.send(now, 100).landing.expect("nothing is lost").at;
                for at in [first, second] {
                    let delay = at.since(now);
                    assert!(delay >= 20 * MS, "{jitter:?}: {delay:?}");
                    assert!(reorders || at >= last, "{jitter:?} does not reorder");
                    reordered += u64::from(at < last);
                    last = last.max(at);
                }
                assert!(first.since(now) <= 20 * MS + jitter.most() || !reorders, "{jitter:?}: {first:?}");
                late += u32::from(first.since(now) > 20 * MS + jitter.median());
            }
            assert_eq!(link.counters().reordered, reordered);
            if jitter != Jitter::NONE {
                assert!((9_500..10_500).contains(&late), "{jitter:?}: {late} of 20,000 above the median");
                assert_eq!(reordered > 1_000, reorders, "{jitter:?}: {reordered} overtaken");
            }
        }
    }
}

#[test]
fn a_cut_link_delivers_nothing() {
    let mut wan = Wan::new(profile(10 * MS), Random::new(1));
    wan.push(Time::ZERO, vec![1]);
    wan.push(Time::ZERO + 5 * MS, vec![2]);
    assert_eq!(wan.next_arrival(), Some(Time::ZERO + 10 * MS));
    assert_eq!(wan.pop(Time::ZERO + 9 * MS), None);
    assert_eq!(wan.pop(Time::ZERO + 10 * MS), Some(Datagram { at: Time::ZERO + 10 * MS, bytes: vec![1] }));
    wan.cut();
    wan.push(Time::ZERO + 12 * MS, vec![3]);
    assert_eq!(wan.next_arrival(), None);
    wan.heal();
    wan.push(Time::ZERO + 13 * MS, vec![4]);
    assert_eq!(wan.pop(Time::ZERO + 23 * MS).map(|datagram| datagram.bytes), Some(vec![4]));
    assert_eq!(wan.pop(Time::ZERO + 99 * MS), None, "what was under way is gone");
    assert_eq!(wan.counters(), Counters { sent: 4, bytes: 4, cut: 2, ..Counters::default() });
}

#[test]
fn copies_and_wrong_bits_come_as_often_as_asked_for() {
    let shape = WanProfile { duplicate: 100, corrupt: 50, ..profile(MS) };
    let mut wan = Wan::new(shape, Random::new(9));
    let (mut wrong, mut came) = (0, 0);
    for n in 0..20_000_u64 {
        let now = Time::from_nanos(n * 2_000_000);
        wan.push(now, vec![0; 50]);
        while let Some(datagram) = wan.pop(now + MS) {
            let bits: u32 = datagram.bytes.iter().map(|byte| byte.count_ones()).sum();
            assert!(bits <= 1, "one bit at most");
            (wrong, came) = (wrong + u64::from(bits), came + 1);
        }
    }
    let counters = wan.counters();
    assert_eq!((counters.duplicated, counters.corrupted), (came - 20_000, wrong));
    assert!((1_800..2_200).contains(&counters.duplicated), "{counters:?}");
    assert!((900..1_300).contains(&counters.corrupted), "{counters:?}");
}

#[test]
fn a_new_profile_counts_from_now_on() {
    let mut link = Link::new(WanProfile { rate: 1_000, ..profile(MS) }, Random::new(1));
    let early = link.send(Time::ZERO, 500).landing.expect("nothing is lost").at;
    assert_eq!(early, Time::ZERO + 501 * MS);
    link.set_profile(Time::ZERO + 100 * MS, WanProfile { rate: 10_000, ..profile(7 * MS) });
    // 400 bytes wait, and take 40 ms now.
    let late = link.send(Time::ZERO + 100 * MS, 100).landing.expect("nothing is lost").at;
    assert_eq!(late, early, "it would be there after 157 ms, but does not overtake");
    assert_eq!(link.waiting(Time::ZERO + 100 * MS), 500);
    assert_eq!(link.drained_to(Time::ZERO + 100 * MS, 200), Time::ZERO + 130 * MS);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let shape = WanProfile {
            jitter: Jitter::LogNormal { median: MS, spread: 900 },
            reorders: true,
            loss: Loss::bursts(50_000, 4),
            duplicate: 20,
            corrupt: 20,
            ..profile(10 * MS)
        };
        let mut wan = Wan::new(shape, Random::new(seed));
        (0..2_000_u64).for_each(|n| wan.push(Time::from_nanos(n * 300_000), n.to_be_bytes().to_vec()));
        let mut came = Vec::new();
        while let Some(at) = wan.next_arrival() {
            came.push(wan.pop(at).expect("it has arrived"));
        }
        came
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn datagrams_under_way_are_bounded() {
    let mut wan = Wan::new(profile(1_000 * MS), Random::new(1));
    (0..FLYING_MAX + 10).for_each(|_| wan.push(Time::ZERO, vec![0]));
    assert_eq!(wan.counters().dropped, 10);
}

#[test]
#[should_panic(expected = "a link with a rate")]
fn a_profile_without_a_rate_is_refused() {
    Link::new(WanProfile { rate: 0, ..WanProfile::PERFECT }, Random::new(1));
}
