//! Tokens, silence and catch-up while events have their ticks and wait for their pass; and after a
//! restart.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{CheckpointToken, EventId, PubendId, Qos, Qos::*, Reliability, Tick, Time, split_mix};

use crate::stream::Streams;
use crate::{
    Accepted, Durability, Filter, Granted, Input, Limits, Link, NOTICE_TOPIC, Refusal, Start, SubscriptionSpec,
};
use common::{CLEAN, Client, Got, KEPT, Rig, START, Told, plain};

#[path = "../../tests/common/mod.rs"]
mod common;

const BUS: u32 = 2;

fn semi<'a>(qos: Qos, start: Start<'a>) -> Filter<'a> {
    let (plain, durability) = (plain("t", qos), Durability::SemiDurable);
    let spec = SubscriptionSpec { durability, notices: true, named: true, ..plain.spec };
    Filter { spec, start, wants_token: true, ..plain }
}

fn token(granted: Result<Granted, Refusal>) -> CheckpointToken {
    granted.expect("granted").begins.expect("asked for")
}

/// A rig with a publisher on link 1 and the client of a subscription.
fn rig() -> Rig {
    let limits = Limits { silence_after: Duration::from_secs(1), ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "publisher", CLEAN);
    rig.attach(BUS, "bus", CLEAN);
    rig
}

/// An event gets its tick in the stream of reliable events to which the publisher is bound, and
/// waits.
fn assign(rig: &mut Rig) -> EventId {
    rig.advance(Duration::from_millis(1));
    let binding = rig.core.sessions.get(rig.core.sessions.of(Link(1))).binding;
    rig.core.streams.own.assign(binding, Reliability::Reliable, rig.now)
}

/// An event that waited passes.
fn pass(rig: &mut Rig, id: EventId, payload: &str) {
    rig.core.set_plain_way(false);
    rig.core.streams.held = Some(id);
    let is_reliable = id.pubend.reliability() == Reliability::Reliable;
    rig.publish(1, "t", payload, if is_reliable { AtLeastOnce } else { AtMostOnce });
    assert_eq!(rig.core.streams.held, None);
}

fn payloads(got: &[Got]) -> Vec<&str> {
    got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| &*got.payload).collect()
}

/// A member of a notice's JSON.
fn member<'a>(got: &'a Got, name: &str) -> &'a str {
    got.payload.split_once(&format!(r#""{name}":""#)).and_then(|(_, rest)| rest.split_once('"')).expect("a member").0
}

fn is_silence(got: &Got) -> bool {
    got.topic == NOTICE_TOPIC && member(got, "kind") == "silence"
}

fn gaps(got: &[Got]) -> Vec<(&str, u64)> {
    let gaps = got.iter().filter(|got| got.topic == NOTICE_TOPIC && !is_silence(got));
    gaps.map(|got| (member(got, "reason"), member(got, "to").parse().expect("a tick"))).collect()
}

fn come_back(rig: &mut Rig, start: Start<'_>) -> CheckpointToken {
    rig.detach(BUS, false);
    rig.attach(BUS, "bus", CLEAN);
    token(rig.subscribe_granted(BUS, semi(AtLeastOnce, start)))
}

/// The token of a SUBACK that is written while an event waits, and the deliveries to the client
/// that resumes with it.
fn resumed_over_a_waiting_event(rig: &mut Rig) -> (CheckpointToken, EventId, Vec<Got>) {
    let id = assign(rig);
    rig.advance(Duration::from_millis(5));
    let start = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)));
    rig.detach(BUS, false);
    pass(rig, id, "waited");
    rig.publish(1, "t", "after", AtLeastOnce);
    come_back(rig, Start::Token(&start, &[]));
    (start, id, rig.settled_events(BUS))
}

#[test]
fn the_token_of_a_suback_names_a_stream_in_which_an_event_waits_with_what_has_passed() {
    let mut rig = rig();
    rig.publish(1, "t", "before", AtLeastOnce);
    let (start, id, got) = resumed_over_a_waiting_event(&mut rig);
    assert!(start.position(id.pubend).is_some_and(|tick| tick < id.tick));
    let others = start.pubends().filter(|(pubend, _)| *pubend != id.pubend);
    assert!(others.into_iter().all(|(_, tick)| tick > id.tick), "silence goes on where nothing waits");
    assert_eq!(payloads(&got), ["waited", "after"]);
    assert_eq!(gaps(&got), []);
}

#[test]
fn who_comes_back_while_an_event_waits_gets_it_live_and_once() {
    for comes_twice in [false, true] {
        let mut rig = rig();
        let first = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)));
        rig.publish(1, "t", "before", AtLeastOnce);
        let before = rig.settled_events(BUS)[0].id;
        let id = assign(&mut rig);
        let mut begins = come_back(&mut rig, Start::Token(&first, &[before]));
        if comes_twice {
            begins = come_back(&mut rig, Start::Token(&begins, &[]));
        }
        assert_eq!(begins.position(id.pubend), Some(before.tick));
        assert_eq!(rig.settled_events(BUS), []);
        assert_eq!(rig.core.stats().subscriptions_lagging, 0, "what waits does not hold it up");
        pass(&mut rig, id, "waited");
        assert_eq!(payloads(&rig.settled_events(BUS)), ["waited"]);
        come_back(&mut rig, Start::Token(&first, &[before, id]));
        assert_eq!(rig.settled_events(BUS), []);
    }
}

#[test]
fn silence_is_told_up_to_an_event_that_waits() {
    let mut rig = rig();
    rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)).expect("granted");
    let id = assign(&mut rig);
    rig.advance(Duration::from_secs(1));
    let notice = rig.settled_events(BUS).into_iter().find(is_silence).expect("a notice");
    let told: CheckpointToken = member(&notice, "token").parse().expect("a token");
    let [from, to] = ["from", "to"].map(|name| member(&notice, name).parse::<u64>().expect("a tick"));
    assert!(from <= to && to < id.tick.0, "{from} to {to}");
    assert!(told.position(id.pubend).is_some_and(|tick| tick < id.tick));
    assert_eq!(told.common(), Tick(START.after(Duration::from_secs(1)).as_nanos()));
    pass(&mut rig, id, "waited");
    assert_eq!(payloads(&rig.settled_events(BUS)), ["waited"]);
    come_back(&mut rig, Start::Token(&told, &[]));
    assert_eq!(payloads(&rig.settled_events(BUS)), ["waited"], "the token does not cover it");
    rig.events(BUS);
    rig.advance(Duration::from_secs(1));
    let notice = rig.settled_events(BUS).into_iter().find(is_silence).expect("a notice");
    assert_eq!(member(&notice, "to"), rig.now.as_nanos().to_string());
}

#[test]
fn a_token_of_silence_that_others_are_told_too_is_from_before_the_event_that_waits() {
    let mut rig = rig();
    rig.attach(3, "car", CLEAN);
    rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)).expect("granted");
    rig.subscribe_granted(3, semi(AtLeastOnce, Start::Own)).expect("granted");
    let span = Duration::from_secs(1) - Duration::from_nanos(1);
    rig.advance(span);
    let id = {
        let binding = rig.core.sessions.get(rig.core.sessions.of(Link(1))).binding;
        rig.core.streams.own.assign(binding, Reliability::Reliable, rig.now + Duration::from_nanos(1))
    };
    rig.advance(Duration::from_nanos(1));
    for link in [BUS, 3] {
        let notice = rig.settled_events(link).into_iter().find(is_silence).expect("a notice");
        let told: CheckpointToken = member(&notice, "token").parse().expect("a token");
        assert!(told.position(id.pubend).is_some_and(|tick| tick < id.tick));
    }
}

#[test]
fn the_first_event_of_a_stream_may_wait_while_the_beginning_is_named() {
    let mut rig = rig();
    assert!(rig.core.streams.positions().eq(rig.core.streams.births()), "nothing before it is still to come");
    let id = assign(&mut rig);
    let begins = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Earliest)));
    let begins = come_back(&mut rig, Start::Token(&begins, &[]));
    pass(&mut rig, id, "waited");
    assert_eq!(payloads(&rig.settled_events(BUS)), ["waited"]);
    come_back(&mut rig, Start::Token(&begins, &[]));
    let got = rig.settled_events(BUS);
    assert_eq!((payloads(&got), gaps(&got)), (vec!["waited"], vec![]));
}

#[test]
fn who_wants_what_came_after_a_moment_does_not_get_what_waited_then() {
    let mut rig = rig();
    let id = assign(&mut rig);
    rig.advance(Duration::from_millis(1));
    let begins = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Since(rig.now))));
    let same = assign(&mut rig);
    // The token is good at once, after a notice, and when the client returns silently.
    let begins = come_back(&mut rig, Start::Token(&begins, &[]));
    rig.advance(Duration::from_secs(1));
    let notice = rig.settled_events(BUS).into_iter().find(is_silence).expect("a notice");
    let told: CheckpointToken = member(&notice, "token").parse().expect("a token");
    assert_eq!(told.position(id.pubend), begins.position(id.pubend));
    come_back(&mut rig, Start::Token(&told, &[]));
    pass(&mut rig, id, "before");
    pass(&mut rig, same, "after");
    assert_eq!(payloads(&rig.settled_events(BUS)), ["after"]);
    let since = Time::from_nanos(id.tick.0 - 1);
    come_back(&mut rig, Start::Since(since));
    assert_eq!(payloads(&rig.settled_events(BUS)), ["before", "after"]);
}

#[test]
fn a_client_that_keeps_its_position_may_acknowledge_it_while_an_event_waits() {
    let mut rig = rig();
    let asked = |start| {
        let asked = semi(AtLeastOnce, start);
        Filter { spec: SubscriptionSpec { by_token: true, ..asked.spec }, ..asked }
    };
    let acknowledge = |rig: &mut Rig, token: &CheckpointToken| {
        rig.input(Input::Acknowledge { link: Link(BUS), tag: 9, qos: AtLeastOnce, identifier: 0, token });
        rig.take(BUS).into_iter().find_map(|told| match told {
            Told::Accepted { tag: 9, result } => Some(result),
            _ => None,
        })
    };
    rig.attach(BUS, "bus", KEPT);
    let id = assign(&mut rig);
    let begins = token(rig.subscribe_granted(BUS, asked(Start::Since(rig.now))));
    assert_eq!(acknowledge(&mut rig, &begins), Some(Accepted::Routed { matched: true }));
    let mut ahead = begins.clone();
    ahead.advance(EventId { tick: Tick(rig.now.as_nanos() + 1), ..id }).expect("it fits");
    assert_eq!(acknowledge(&mut rig, &ahead), Some(Accepted::Refused(Refusal::FutureStart)));
    for _ in 0..2 {
        rig.detach(BUS, false);
        rig.attach(BUS, "bus", KEPT);
        rig.subscribe_granted(BUS, asked(Start::Own)).expect("its own position");
    }
    pass(&mut rig, id, "before");
    rig.publish(1, "t", "after", AtLeastOnce);
    assert_eq!(payloads(&rig.settled_events(BUS)), ["after"]);
}

#[test]
fn a_stream_that_waits_for_long_can_be_left_unnamed() {
    let mut rig = rig();
    let id = assign(&mut rig);
    rig.core.streams.own.reserve(Tick(rig.now.as_nanos()));
    rig.advance(Duration::from_secs(100));
    let other = Tick(rig.now.as_nanos());
    let quiet = rig.core.streams.own.assign(3, Reliability::BestEffort, rig.now);
    pass(&mut rig, quiet, "other");
    assert_eq!(quiet.tick, other);
    let begins = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::After(&[quiet]))));
    assert!(begins.pubends().all(|(pubend, tick)| tick <= id.tick || pubend == quiet.pubend), "all is reserved");
    come_back(&mut rig, Start::Token(&begins, &[]));
    assert!(gaps(&rig.settled_events(BUS)).iter().all(|gap| gap.0 == "assumed"));
}

#[cfg(feature = "mutants")]
#[test]
fn silence_over_an_event_that_waits_would_lose_it() {
    let mut rig = rig();
    rig.core.build_in(crate::Mutant::ClosesOverWaiting);
    rig.publish(1, "t", "before", AtLeastOnce);
    let (_, _, got) = resumed_over_a_waiting_event(&mut rig);
    assert_eq!((payloads(&got), gaps(&got)), (vec!["after"], vec![]), "lost without a word");
}

/// A broker that is restored as the host of another, with the ticks up to `last` behind it.
fn restarted(old: &Rig, last: Tick) -> Rig {
    let mut rig = Rig { now: old.now, ..Rig::with_seed(Limits::default(), 8) };
    rig.core.resume_host(old.core.host(), Tick(START.as_nanos()), [last; Streams::COUNT]);
    rig
}

/// A client of a broker comes back to it after a restart.
fn back_after_a_restart(build_in: impl Fn(&mut Rig)) -> (Tick, Vec<Got>) {
    let mut old = rig();
    let start = token(old.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)));
    old.publish(1, "t", "had", AtLeastOnce);
    let had = old.settled_events(BUS)[0].id;
    old.detach(BUS, false);
    old.publish(1, "t", "missed", AtLeastOnce);
    let last = Tick(old.now.after(Duration::from_millis(500)).as_nanos());
    let mut rig = Rig { now: old.now, ..Rig::with_seed(Limits::default(), 8) };
    build_in(&mut rig);
    rig.core.resume_host(old.core.host(), Tick(START.as_nanos()), [last; Streams::COUNT]);
    rig.attach(1, "publisher", CLEAN);
    rig.publish(1, "t", "new", AtLeastOnce);
    rig.attach(BUS, "bus", CLEAN);
    rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Token(&start, &[had]))).expect("its host lives on");
    (last, rig.settled_events(BUS))
}

/// The gaps of all own streams up to a tick: of best effort nothing was promised.
fn lost_upto(last: Tick) -> [(&'static str, u64); Streams::COUNT] {
    let is_reliable = |at: usize| whimbrel_event::PubendId(at as u64).reliability() == Reliability::Reliable;
    core::array::from_fn(|at| (if is_reliable(at) { "lost" } else { "best-effort" }, last.0))
}

#[test]
fn an_empty_cache_after_a_restart_is_not_taken_for_a_complete_one() {
    let (last, got) = back_after_a_restart(|_| {});
    assert_eq!(payloads(&got), ["new"]);
    assert_eq!(gaps(&got), lost_upto(last));
    let at = |wanted: &dyn Fn(&Got) -> bool| got.iter().position(wanted).expect("it is there");
    assert!(at(&|got| got.payload.contains("lost")) < at(&|got| got.payload == "new"));
}

#[cfg(feature = "mutants")]
#[test]
fn an_empty_cache_that_is_believed_would_hide_what_is_lost() {
    let (_, got) = back_after_a_restart(|rig| rig.core.build_in(crate::Mutant::CacheBelieved));
    assert_eq!((payloads(&got), gaps(&got)), (vec!["new"], vec![]));
}

#[test]
fn after_a_restart_who_knows_more_than_was_lost_misses_nothing() {
    let old = rig();
    let last = Tick(old.now.as_nanos());
    let mut rig = restarted(&old, last);
    rig.core.set_cache(rig.now, crate::cache::Plan::default());
    rig.core.streams.own.reserve(Tick(u64::MAX));
    rig.advance(Duration::from_secs(1));
    rig.attach(1, "publisher", CLEAN);
    rig.attach(BUS, "bus", CLEAN);
    let begins = token(rig.subscribe_granted(BUS, semi(AtLeastOnce, Start::Own)));
    rig.publish(1, "t", "new", AtLeastOnce);
    come_back(&mut rig, Start::Token(&begins, &[]));
    let got = rig.settled_events(BUS);
    assert_eq!((payloads(&got), gaps(&got)), (vec!["new"], vec![]));
    // The oldest that there is has no gap before it, a moment before the restart has.
    come_back(&mut rig, Start::Earliest);
    let got = rig.settled_events(BUS);
    assert_eq!((payloads(&got), gaps(&got)), (vec!["new"], vec![]));
    come_back(&mut rig, Start::Since(Time::from_nanos(last.0 - 1)));
    assert_eq!(gaps(&rig.settled_events(BUS)), lost_upto(last));
}

/// A client that keeps its position, as a program would.
struct Follower {
    link: u32,
    name: &'static str,
    client: Client,
    is_here: bool,
    /// The position as told by the broker, and moved by deliveries since.
    token: Option<CheckpointToken>,
    since: Vec<EventId>,
    /// The client must get all events after that tick.
    from: Tick,
    /// The client must not get events up to that tick.
    without: Tick,
    had: BTreeMap<PubendId, Vec<Tick>>,
}

/// Publishers whose events wait, and clients that come and go, at random.
struct Bustle {
    rig: Rig,
    random: u64,
    waiting: BTreeMap<PubendId, VecDeque<EventId>>,
    passed: Vec<EventId>,
    /// Up to where ticks are reserved, if they have to be.
    reserved: Option<u64>,
    followers: Vec<Follower>,
}

impl Bustle {
    fn new(seed: u64) -> Bustle {
        let limits = Limits { silence_after: Duration::from_nanos(40), tracked_queue_bytes: 600, ..Limits::default() };
        let mut rig = Rig::with(limits);
        rig.attach(1, "publisher", CLEAN);
        let follower = |(link, name, client)| Follower {
            link,
            name,
            client,
            is_here: false,
            token: None,
            since: Vec::new(),
            from: Tick(0),
            without: Tick(0),
            had: BTreeMap::new(),
        };
        let narrow = Client { window: 1, ..CLEAN };
        let followers = [(2, "token", CLEAN), (3, "narrow", narrow), (4, "session", KEPT)].map(follower).into();
        let reserved = seed.is_multiple_of(2).then_some(START.as_nanos());
        reserved.into_iter().for_each(|upto| rig.core.streams.own.reserve(Tick(upto)));
        Bustle { rig, random: seed, waiting: BTreeMap::new(), passed: Vec::new(), reserved, followers }
    }

    fn below(&mut self, count: u64) -> u64 {
        split_mix(&mut self.random) % count
    }

    fn step(&mut self) {
        match self.below(13) {
            0..3 => {
                let span = self.below(30);
                self.rig.advance(Duration::from_nanos(span));
            }
            3..6 => {
                let reliability = [Reliability::Reliable, Reliability::BestEffort][self.below(2) as usize];
                let binding = self.below(2) as u8;
                let id = self.rig.core.streams.own.assign(binding, reliability, self.rig.now);
                self.waiting.entry(id.pubend).or_default().push_back(id);
            }
            6..9 => self.pass_some(),
            9 => self.withdraw_some(),
            10 if self.reserved.is_some() => {
                let upto = self.rig.now.as_nanos() + self.below(40);
                self.reserved = self.reserved.max(Some(upto));
                self.rig.core.streams.own.reserve(Tick(upto));
            }
            _ => {
                let which = self.below(3) as usize;
                self.come_or_go(which);
            }
        }
        if self.below(3) == 0 {
            self.collect();
        }
    }

    fn pass_some(&mut self) {
        let place = self.below(4) as usize;
        let Some(id) = self.waiting.values_mut().nth(place).and_then(VecDeque::pop_front) else { return };
        pass(&mut self.rig, id, "x");
        self.passed.push(id);
    }

    fn withdraw_some(&mut self) {
        let place = self.below(4) as usize;
        let from_end = self.below(2) == 0;
        let Some(queue) = self.waiting.values_mut().nth(place) else { return };
        let Some(id) = (if from_end { queue.pop_back() } else { queue.pop_front() }) else { return };
        self.rig.core.streams.own.withdrawn(id);
    }

    fn come_or_go(&mut self, which: usize) {
        self.collect();
        let (wants_moment, back) = (self.below(4) == 0, self.below(20));
        let now = self.rig.now;
        let follower = &mut self.followers[which];
        follower.is_here = !follower.is_here;
        if !follower.is_here {
            return self.rig.detach(follower.link, false);
        }
        self.rig.attach(follower.link, follower.name, follower.client.clone());
        // A session continues before its client asks for something else.
        self.collect();
        let Bustle { rig, followers, .. } = self;
        let follower = &mut followers[which];
        let start = match &follower.token {
            Some(_) if follower.name == "session" && !wants_moment => Start::Own,
            Some(token) if !wants_moment => Start::Token(token, &follower.since),
            None if !wants_moment => Start::Own,
            _ => Start::Since(Time::from_nanos((now.as_nanos() - back).max(START.as_nanos()))),
        };
        let granted =
            rig.subscribe_granted(follower.link, semi(AtLeastOnce, start)).expect("it was told of that place");
        match start {
            Start::Since(since) => {
                let since = since.as_nanos();
                follower.from = Tick(since);
                follower.without = Tick(self.reserved.map_or(since, |upto| upto.min(since)));
                follower.had = BTreeMap::new();
            }
            // The client begins with the next event that passes.
            Start::Own if follower.token.is_none() => follower.from = Tick(u64::MAX),
            _ => {}
        }
        let begins = granted.begins.expect("asked for");
        if !matches!(start, Start::Token(..)) {
            (follower.token, follower.since) = (Some(begins.clone()), Vec::new());
        }
        self.survives(&begins);
    }

    /// After a crash, only reserved ticks and passed events would be known: a token must name
    /// nothing that could be used again then.
    fn survives(&self, token: &CheckpointToken) {
        let Some(reserved) = self.reserved else { return };
        for (pubend, tick) in token.pubends() {
            let last = self.passed.iter().rev().find(|id| id.pubend == pubend).map_or(0, |id| id.tick.0);
            assert!(tick.0 <= last.max(reserved), "{pubend} is named with {tick}, and {reserved} is reserved");
        }
    }

    /// All connected clients take what there is for them.
    fn collect(&mut self) {
        let mut told = Vec::new();
        for follower in self.followers.iter_mut().filter(|follower| follower.is_here) {
            for got in self.rig.settled_events(follower.link) {
                if is_silence(&got) {
                    let token: CheckpointToken = member(&got, "token").parse().expect("a token");
                    told.push(token.clone());
                    follower.token = Some(token);
                    follower.since.clear();
                    continue;
                }
                assert_eq!(got.payload, "x", "nothing is a gap");
                let had = follower.had.entry(got.id.pubend).or_default();
                assert!(had.last().is_none_or(|last| *last < got.id.tick), "{} again, or late", got.id);
                had.push(got.id.tick);
                follower.since.push(got.id);
            }
        }
        told.iter().for_each(|token| self.survives(token));
    }

    /// All waiting events pass, all clients return, and must have had what they wanted.
    fn finish(mut self) -> usize {
        while self.waiting.values().any(|queue| !queue.is_empty()) {
            self.pass_some();
        }
        let mut told = BTreeMap::new();
        for (id, after, _) in &self.rig.edges.knowledge {
            let before = told.insert(id.pubend, id.tick).unwrap_or(Tick(0));
            assert_eq!(before, *after, "other brokers are told of {id} when it passes, and of no silence before");
        }
        let mut wanted = 0;
        for which in 0..self.followers.len() {
            if !self.followers[which].is_here {
                self.come_or_go(which);
            }
            self.collect();
            let follower = &self.followers[which];
            for id in self.passed.iter().filter(|id| id.tick > follower.from) {
                let had = follower.had.get(&id.pubend).is_some_and(|had| had.contains(&id.tick));
                assert!(had, "{} has not had {id}", follower.name);
                wanted += 1;
            }
            let unwanted = follower.had.values().flatten().find(|tick| **tick <= follower.without);
            assert_eq!(unwanted, None, "{} wanted what came after {}", follower.name, follower.from);
        }
        wanted
    }
}

#[test]
fn nothing_is_lost_or_repeated_however_events_wait_and_clients_come_and_go() {
    let mut wanted = 0;
    for seed in 0..2_000 {
        let mut bustle = Bustle::new(seed);
        for _ in 0..150 {
            bustle.step();
        }
        wanted += bustle.finish();
    }
    assert!(wanted > 40_000, "{wanted} events are not much");
}
