//! Streams are delivered as they were sent, over bad links; ends are told; bounds hold.

use super::*;
use crate::wan::{Jitter, Loss};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// 20 ms each way, a tenth of all lost in bursts, late, twice and damaged, at 1 MB/s.
const BAD: WanProfile = WanProfile {
    delay: Duration::from_millis(20),
    jitter: Jitter::Uniform(Duration::from_millis(10)),
    reorders: true,
    loss: Loss::bursts(100_000, 3),
    rate: 1_000_000,
    queue: 50_000,
    duplicate: 20,
    corrupt: 10,
};

fn trunk(profile: WanProfile, seed: u64) -> Trunk {
    Trunk::new(Time::ZERO, Shape::over(profile), Random::new(seed))
}

/// All events until a moment, and when they happen.
fn run(trunk: &mut Trunk, until: Time) -> Vec<(Time, Event)> {
    let mut events = Vec::new();
    while let Some(at) = trunk.next_event().filter(|at| *at <= until) {
        while let Some(event) = trunk.poll(at) {
            events.push((at, event));
        }
    }
    events
}

fn bytes_of(events: &[(Time, Event)], side: Side, number: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for (_, event) in events {
        match event {
            Event::Bytes { to, stream, bytes } if (*to, *stream) == (side, number) => all.extend_from_slice(bytes),
            _ => {}
        }
    }
    all
}

fn ends(events: &[(Time, Event)]) -> Vec<(Time, Side, End)> {
    let end = |(at, event): &(Time, Event)| match event {
        Event::Closed { side, why } => Some((*at, *side, *why)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

#[test]
fn streams_come_out_as_they_went_in_and_datagrams_are_lost() {
    for seed in 0..20 {
        let (mut trunk, mut random) = (trunk(BAD, seed), Random::new(seed));
        let mut sent = vec![Vec::new(); 3];
        for n in 0..300_u32 {
            let stream = random.below(3) as usize;
            let bytes: Vec<u8> = (0..random.below(4_000)).map(|_| random.next() as u8).collect();
            sent[stream].extend_from_slice(&bytes);
            trunk.write(Time::ZERO, Side::Near, stream, bytes).expect("it is open");
            if n < 30 {
                trunk.send(Time::ZERO, Side::Far, vec![n as u8; 100]).expect("it is open");
            }
        }
        let events = run(&mut trunk, Time::ZERO + 30 * SECOND);
        (0..3).for_each(|stream| assert!(bytes_of(&events, Side::Far, stream) == sent[stream], "seed {seed}"));
        let datagrams =
            events.iter().filter(|(_, event)| matches!(event, Event::Datagram { to: Side::Near, .. })).count();
        assert!((10..=30).contains(&datagrams), "seed {seed}: {datagrams} came");
        assert_eq!(ends(&events), [], "seed {seed}: losses do not end it");
        let last = events.iter().rev().find(|(_, event)| matches!(event, Event::Bytes { .. })).expect("some").0;
        let all: usize = sent.iter().map(Vec::len).sum();
        assert!(last.since(Time::ZERO) >= Duration::from_micros(all as u64), "seed {seed}: 1 MB/s is the bound");
    }
}

#[test]
fn a_loss_delays_its_own_stream_only() {
    let mut trunk = trunk(WanProfile::PERFECT.with_delay(20 * MS), 1);
    trunk.cut(Side::Near);
    trunk.write(Time::ZERO, Side::Near, 0, vec![1]).expect("it is open");
    trunk.heal(Side::Near);
    trunk.write(Time::ZERO, Side::Near, 0, vec![2]).expect("it is open");
    trunk.write(Time::ZERO, Side::Near, 1, vec![3]).expect("it is open");
    let events = run(&mut trunk, Time::ZERO + SECOND);
    let bytes = |stream, byte| Event::Bytes { to: Side::Far, stream, bytes: vec![byte] };
    // A round trip of 40 ms and 25 ms until it is sent again, and 20 ms in flight.
    let late = Time::ZERO + 85 * MS;
    assert_eq!(events, [(Time::ZERO + 20 * MS, bytes(1, 3)), (late, bytes(0, 1)), (late, bytes(0, 2))]);
}

#[test]
fn who_does_not_read_blocks_the_stream_and_no_other() {
    let mut trunk = trunk(WanProfile::PERFECT.with_delay(MS), 1);
    trunk.stall(Side::Far, 2);
    let sent: Vec<u8> = (0..3 << 20).map(|n| (n / 7) as u8).collect();
    trunk.write(Time::ZERO, Side::Near, 2, sent.clone()).expect("it is open");
    trunk.write(Time::ZERO, Side::Near, 0, vec![7]).expect("it is open");
    let events = run(&mut trunk, Time::ZERO + SECOND);
    assert_eq!(trunk.unsent(Side::Near, 2), 2 << 20, "a window of 1 MiB");
    assert_eq!((bytes_of(&events, Side::Far, 0), bytes_of(&events, Side::Far, 2)), (vec![7], vec![]));
    trunk.resume(Time::ZERO + SECOND, Side::Far, 2);
    let events = run(&mut trunk, Time::ZERO + 2 * SECOND);
    assert!(bytes_of(&events, Side::Far, 2) == sent && trunk.unsent(Side::Near, 2) == 0);
    let rest = vec![0; UNSENT_MAX + 1];
    assert_eq!(trunk.write(Time::ZERO + 2 * SECOND, Side::Near, 0, rest), Err(Refused::Full));
}

#[test]
fn silence_ends_it_for_each_side_at_its_own_moment() {
    for seed in 0..20 {
        let mut trunk = trunk(WanProfile::SITES, seed);
        assert_eq!(ends(&run(&mut trunk, Time::ZERO + 60 * SECOND)), [], "it lasts while it is heard of");
        trunk.cut(Side::Near);
        trunk.cut(Side::Far);
        let began = Time::ZERO + 60 * SECOND;
        trunk.write(began, Side::Near, 0, vec![1]).expect("it is open");
        let told = ends(&run(&mut trunk, began + 60 * SECOND));
        assert!(told.len() == 2 && told[0].0 != told[1].0 && told[0].1 != told[1].1, "seed {seed}: {told:?}");
        for (at, _, why) in told {
            let after = at.since(began);
            assert!(why == End::Idle && (7 * SECOND..=10 * SECOND).contains(&after), "seed {seed}: {after:?}");
        }
        assert_eq!((trunk.next_event(), trunk.write(began, Side::Near, 0, vec![1])), (None, Err(Refused::Closed)));
    }
}

#[test]
fn a_short_cut_only_delays() {
    let mut trunk = trunk(WanProfile::SITES, 3);
    trunk.write(Time::ZERO, Side::Near, 0, vec![1]).expect("it is open");
    trunk.cut(Side::Near);
    let second = Time::ZERO + SECOND;
    assert_eq!(run(&mut trunk, second), [], "what was under way is lost");
    trunk.write(second, Side::Near, 0, vec![2]).expect("it is open");
    let healed = Time::ZERO + 5 * SECOND;
    run(&mut trunk, healed);
    trunk.heal(Side::Near);
    let events = run(&mut trunk, healed + 3 * SECOND);
    assert_eq!((bytes_of(&events, Side::Far, 0), ends(&events)), (vec![1, 2], vec![]));
}

#[test]
fn a_reset_ends_it_for_both_at_once() {
    let mut trunk = trunk(WanProfile::SITES, 3);
    trunk.write(Time::ZERO, Side::Near, 0, vec![1]).expect("it is open");
    trunk.reset(Time::ZERO + MS);
    let at = Time::ZERO + MS;
    let told = run(&mut trunk, Time::ZERO + 60 * SECOND);
    assert_eq!(ends(&told), [(at, Side::Near, End::Reset), (at, Side::Far, End::Reset)]);
    assert_eq!((told.len(), trunk.next_event()), (2, None));
    assert_eq!(trunk.send(at, Side::Far, vec![1]), Err(Refused::Closed));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let play = |seed| {
        let mut trunk = trunk(BAD, seed);
        trunk.write(Time::ZERO, Side::Near, 0, vec![5; 200_000]).expect("it is open");
        run(&mut trunk, Time::ZERO + 5 * SECOND)
    };
    assert!(play(1) == play(1) && play(1) != play(2));
    assert_eq!(trunk(BAD, 1).send(Time::ZERO, Side::Near, vec![0; PACKET_MAX + 1]), Err(Refused::TooLong));
}

#[test]
fn a_stall_is_told_until_what_waits_comes() {
    let mut stalls = 0;
    for seed in 0..40 {
        let mut trunk = trunk(WanProfile { loss: Loss::bursts(100_000, 6), ..BAD }, seed);
        let (mut waits, mut until) = (Vec::new(), Time::ZERO);
        for n in 0..100_u32 {
            let sent = until;
            trunk.write(sent, Side::Near, 0, n.to_be_bytes().into()).unwrap();
            until = sent + 100 * MS;
            let _ = run(&mut trunk, until);
            waits.extend(trunk.take_stall());
        }
        let told = waits.iter().map(|(since, until)| until.since(*since)).max();
        assert!(told.is_none_or(|told| told >= SECOND), "{told:?}");
        stalls += waits.len();
    }
    assert!(stalls > 0);
}
