//! Events with a deadline between real brokers, over a direct link that fails, becomes slow or
//! loses packets without a word, and another way.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout};
use whimbrel_client::{Client, Event, Events, Options, Publish, QoS, Receipt, Subscription};
use whimbrel_sim::wan::{Loss, WanProfile};

use crate::broker::Broker;
use crate::world::World;

/// Between two events.
const PACE: Duration = Duration::from_millis(10);

/// Between two events of a flow that loads a link.
const PACE_UNDER_LOAD: Duration = Duration::from_millis(2);

/// Bytes of such an event.
const LOAD_BYTES: usize = 1_000;

/// A link is silent for two seconds before probes alone find it dead: a shorter pause was a
/// reaction to the events' own reports.
const PAUSE_MAX: Duration = Duration::from_millis(1_500);

/// How long the link is in trouble: longer than brokers need without such reports.
const TROUBLE: Duration = Duration::from_secs(4);

/// What has to happen does within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The index of the first stream of the deadline class.
const FIRST_OF_CLASS: u8 = 8;

const LINK: WanProfile = WanProfile { delay: Duration::from_millis(4), ..WanProfile::PERFECT };
const SLOW: WanProfile = WanProfile { delay: Duration::from_millis(700), ..WanProfile::PERFECT };
const LOSSY: WanProfile = WanProfile { loss: Loss::independent(300_000), ..LINK };

/// The profile of topics whose events take two paths.
const COPIED: &str = "[[topic]]\nfilter = \"alert/#\"\ndeadline = \"200 ms\"\npaths = 2\n";

/// Between two events that take two paths.
const COPIED_PACE: Duration = Duration::from_millis(20);

/// A publisher at broker 0 and a subscriber at another one.
struct AlarmFlow {
    topic: &'static str,
    qos: QoS,
    publisher: Client,
    subscriber: Events,
    /// Between two events.
    pace: Duration,
    /// What follows the number of an event in its body.
    filling: String,
    sent: u32,
    /// The numbers that have arrived, each with its time.
    arrived: Vec<(u32, Instant)>,
    /// Of what was sent.
    receipts: Vec<Receipt>,
    /// Events have arrived in a stream of the deadline class.
    is_watched: bool,
    /// Keeps the subscriber's connection.
    _client: Client,
}

impl AlarmFlow {
    /// Alarms to broker 2.
    async fn start(world: &World) -> AlarmFlow {
        AlarmFlow::of(world, 2, "alarm/1", QoS::AtLeastOnce).await
    }

    async fn of(world: &World, to: usize, topic: &'static str, qos: QoS) -> AlarmFlow {
        let connect = |site: usize| Client::connect(Options::new(world.brokers[site].url()));
        let (publisher, _) = connect(0).await.expect("broker 0 takes clients");
        let (client, subscriber) = connect(to).await.expect("it takes clients");
        let mut subscriber = subscriber;
        let subscription = Subscription::to(topic).qos(QoS::AtLeastOnce).notices();
        subscriber.during(client.subscribe_to(&subscription)).await.expect("it is granted");
        AlarmFlow {
            topic,
            qos,
            publisher,
            subscriber,
            pace: PACE,
            filling: String::new(),
            sent: 0,
            arrived: Vec::new(),
            receipts: Vec::new(),
            is_watched: false,
            _client: client,
        }
    }

    /// Publishes at a steady pace, and takes what arrives, until a condition holds.
    async fn run(&mut self, is_over: impl Fn(&AlarmFlow) -> bool) {
        let mut pace = interval(self.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !is_over(self) {
            tokio::select! {
                _ = pace.tick() => {
                    self.sent += 1;
                    let body = format!("{}{}", self.sent, self.filling);
                    let publish = Publish::new(self.topic, body).qos(self.qos);
                    self.receipts.push(self.publisher.send(publish).await.expect("its broker lives"));
                }
                event = self.subscriber.next() => self.take(event),
            }
        }
    }

    fn take(&mut self, event: Option<Event>) {
        let Some(Event::Message(message)) = event else { panic!("the subscriber's broker lives") };
        let Some(id) = message.id() else { return };
        let text = std::str::from_utf8(&message.payload).ok().map(|text| text.trim_end_matches('.'));
        let number = text.and_then(|text| text.parse().ok());
        self.arrived.push((number.expect("a number"), Instant::now()));
        self.is_watched |= id.pubend.index() >= FIRST_OF_CLASS;
    }

    /// Waits for what is on its way, and checks that all has arrived once and in order.
    async fn finish(mut self) -> Vec<(u32, Instant)> {
        while self.arrived.last().is_none_or(|(number, _)| *number < self.sent) {
            let event = timeout(PATIENCE, self.subscriber.next()).await.expect("the last event arrives");
            self.take(event);
        }
        for mut receipt in self.receipts {
            receipt.acknowledged().await.expect("it is accepted");
        }
        let numbers: Vec<u32> = self.arrived.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=self.sent).collect::<Vec<_>>());
        self.arrived
    }
}

/// Lets a link between brokers 0 and 2 get into trouble while events flow. Returns the longest
/// pause between two arrivals from then on.
async fn longest_pause(seed: u64, trouble: impl Fn(&World)) -> Duration {
    let world = World::start(3, &[(0, 1), (1, 2), (0, 2)], LINK, seed).await;
    let mut flow = AlarmFlow::start(&world).await;
    timeout(PATIENCE, flow.run(|flow| flow.is_watched)).await.expect("streams with a deadline are used");
    let warm = Instant::now();
    flow.run(|_| warm.elapsed() > Duration::from_secs(1)).await;
    trouble(&world);
    let began = Instant::now();
    flow.run(|_| began.elapsed() > TROUBLE).await;
    let arrived = flow.finish().await;
    let times: Vec<Instant> = arrived.iter().map(|(_, at)| *at).filter(|at| *at >= began).collect();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max().expect("events have arrived")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_with_a_deadline_go_round_a_link_that_loses_everything() {
    let pause = longest_pause(21, |world| world.relay(0, 2).cut()).await;
    assert!(pause < PAUSE_MAX, "nothing has arrived for {pause:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_with_a_deadline_go_round_a_link_that_has_become_slow() {
    let pause = longest_pause(22, |world| world.relay(0, 2).set_profile(SLOW, SLOW)).await;
    assert!(pause < Duration::from_millis(650), "nothing has arrived for {pause:?}, as long as the link takes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_with_a_deadline_leave_a_link_that_becomes_lossy_under_load_and_none_is_missing() {
    let world = World::start(3, &[(0, 1), (1, 2), (0, 2)], LINK, 23).await;
    let mut flow = AlarmFlow::start(&world).await;
    (flow.pace, flow.filling) = (PACE_UNDER_LOAD, ".".repeat(LOAD_BYTES));
    timeout(PATIENCE, flow.run(|flow| flow.is_watched)).await.expect("streams with a deadline are used");
    let warm = Instant::now();
    flow.run(|_| warm.elapsed() > Duration::from_secs(1)).await;
    // A stream repeats what is lost, so that its frames are late or missing for a time.
    let causes = ["lossy", "slow", "dark"];
    let of = |cause| world.brokers[0].metric("whimbrel_overlay_reroutes_total", &format!("cause=\"{cause}\""));
    let rerouted = || causes.map(of);
    let before = tokio::task::block_in_place(rerouted);
    // The events' direction only.
    world.relay(0, 2).set_profile(LOSSY, LINK);
    let began = Instant::now();
    flow.run(|_| began.elapsed() > TROUBLE).await;
    let after = tokio::task::block_in_place(rerouted);
    flow.finish().await;
    println!("events that left the link, {causes:?}: {before:?} before, {after:?} after");
    let [before, after] = [before, after].map(|counts| counts.iter().sum::<f64>());
    assert!(after > before, "no event left the lossy link: {before} before, {after} after");
}

/// Best-effort events take two paths, over brokers 1 and 2, to broker 3. Lets the first link of one
/// path get into trouble: none is missing, also of those that were sent before that was known.
async fn none_is_missing(seed: u64, trouble: impl Fn(&World)) {
    let brokers = (0..4).map(|number| Broker::new(number).configured(COPIED)).collect();
    let world = World::join(brokers, &[(0, 1), (0, 2), (1, 3), (2, 3)], LINK, seed).await;
    let mut flow = AlarmFlow::of(&world, 3, "alert/1", QoS::AtMostOnce).await;
    flow.pace = COPIED_PACE;
    timeout(PATIENCE, flow.run(|flow| flow.is_watched)).await.expect("streams with a deadline are used");
    // What was published before is another matter.
    let copied = |world: &World| world.brokers[0].metric("whimbrel_overlay_events_copied_total", "");
    let before = tokio::task::block_in_place(|| copied(&world));
    let warm = Instant::now();
    flow.run(|_| warm.elapsed() > Duration::from_secs(1)).await;
    trouble(&world);
    let began = Instant::now();
    flow.run(|_| began.elapsed() > TROUBLE).await;
    let after = tokio::task::block_in_place(|| copied(&world));
    assert!(after >= before + 50.0, "{before} and {after} events took two paths");
    flow.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_of_the_events_with_two_paths_is_missing_when_a_link_loses_everything() {
    none_is_missing(31, |world| world.relay(0, 1).cut()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_of_the_events_with_two_paths_is_missing_when_a_link_becomes_slow() {
    none_is_missing(32, |world| world.relay(0, 2).set_profile(SLOW, SLOW)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_of_the_events_with_two_paths_is_missing_when_a_link_loses_packets() {
    none_is_missing(33, |world| world.relay(0, 1).set_profile(LOSSY, LOSSY)).await;
}
