//! Links are watched by the events with a deadline that cross them.

use core::time::Duration;

use whimbrel_event::{Reliability, Time};
use whimbrel_net::link::watch::LinkCondition;
use whimbrel_net::traces::RerouteCause;
use whimbrel_net::{Channel, Net, Routing};
use whimbrel_wire::{Flash, Frame, LOSS_MAX, LinkReport};

use crate::fabric::node::{Setup, host_of, number_of};
use crate::fabric::reception::Delivered;
use crate::fabric::{Content, Fabric, Trouble};
use crate::scenarios::{MILLI, SECOND};

/// The events' deadline, and so the time between two reports: 25 ms.
const DEADLINE_MS: u32 = 100;
const REPORT: Duration = Duration::from_millis(25);

/// The events' interval.
const EVERY: Duration = Duration::from_millis(10);

pub const SILENT: Trouble = Trouble { more: Duration::ZERO, is_silent: true };

pub fn slower(millis: u32) -> Trouble {
    Trouble { more: MILLI * millis, is_silent: false }
}

/// A world whose nodes publish events of topic `a` with a deadline.
pub struct Watched {
    pub fabric: Fabric,
    /// The number of the next event.
    next: u32,
    deadline_ms: u32,
}

impl Watched {
    /// Nodes with wires, of that many milliseconds, and the nodes that want all of `a`. All clocks
    /// differ.
    fn of(
        nodes: usize,
        wires: &[([usize; 2], u32)],
        wanting: &[usize],
        change: fn(&mut Net),
        routing: Routing,
    ) -> Watched {
        let setup = |number: usize| Setup {
            change,
            routing,
            clock_ppm: [100, -100, 0, 50, -50][number],
            ..Setup::named(format!("b{number}"))
        };
        let mut fabric = Fabric::new((0..nodes).map(setup));
        for (pair, millis) in wires {
            fabric.link(*pair, MILLI * *millis);
        }
        fabric.run(SECOND * 2);
        for node in wanting {
            fabric.subscribe(*node, "a");
        }
        fabric.run(SECOND);
        Watched { fabric, next: 0, deadline_ms: DEADLINE_MS }
    }

    /// Nodes 0 and 1, which want all of `a`, a link of 10 ms between them (wire 0), and a way of 24
    /// ms over node 2; node 3 is behind node 2.
    pub fn new(change: fn(&mut Net), routing: Routing) -> Watched {
        let wires = [([0, 1], 10), ([0, 2], 12), ([2, 1], 12), ([2, 3], 10)];
        Watched::of(4, &wires, &[0, 1], change, routing)
    }

    /// From node 3 to node 4, which wants all of `a`, go the wires 0, 1 and 2 over the nodes 2 and
    /// 1, of 10, 40 and 40 ms. Over node 0 the second part takes 44 ms. Events have 120 ms, of
    /// which 29 are their margin.
    pub fn with_little_margin(change: fn(&mut Net)) -> Watched {
        let wires = [([3, 2], 10), ([2, 1], 40), ([1, 4], 40), ([2, 0], 22), ([0, 1], 22)];
        let world = Watched::of(5, &wires, &[4], change, Routing::Reactive);
        Watched { deadline_ms: 120, ..world }
    }

    fn good() -> Watched {
        Watched::new(|_| {}, Routing::Reactive)
    }

    /// Nodes publish an event each for some time.
    pub fn flow(&mut self, nodes: &[usize], span: Duration) {
        for _ in 0..span.as_millis() / EVERY.as_millis() {
            for node in nodes {
                self.publish(*node);
            }
            self.fabric.run(EVERY);
        }
    }

    fn publish(&mut self, node: usize) {
        self.next += 1;
        let payload = self.next.to_be_bytes();
        let (reliability, deadline_ms) = (Reliability::Reliable, Some(self.deadline_ms));
        self.fabric.publish(node, Content { topic: "a", payload: &payload, reliability, deadline_ms });
    }

    /// The events of a node that another one got after their deadline, or has not got although it
    /// is past.
    pub fn late(&self, from: usize, to: usize) -> Vec<u32> {
        let is_in_time = |id| self.fabric.has_within(to, id, MILLI * self.deadline_ms);
        let published = self.fabric.ledger.published.iter().filter(|(id, _)| number_of(id.pubend.host()) == from);
        let is_due = |at: Time| self.fabric.now.since(at) > MILLI * self.deadline_ms;
        let late = published.filter(|(id, published)| is_due(published.at) && !is_in_time(**id));
        late.map(|(_, published)| u32::from_be_bytes((*published.payload).try_into().expect("four bytes"))).collect()
    }

    /// By how much the ages of a node's events are off the truth at most, microseconds.
    pub fn age_off_us(&self, at: usize) -> u64 {
        let off = |delivered: &Delivered| {
            let published = &self.fabric.ledger.published[&delivered.id];
            let truth = self.fabric.global(at, delivered.arrived).since(published.at).as_micros() as u64;
            truth.abs_diff(delivered.age_us)
        };
        self.fabric.node(at).told.delivered.iter().map(off).max().unwrap_or(0)
    }

    /// The condition of the direction between two nodes, as the sending one judges it.
    fn condition(&self, from: usize, to: usize) -> LinkCondition {
        let mut links = self.fabric.node(from).net.neighbours();
        links.find(|peer| peer.host() == Some(host_of(to))).map_or(LinkCondition::Dark, |peer| peer.condition())
    }

    /// How a node knows the direction between two others: delay in milliseconds, loss.
    pub fn known(&self, at: usize, from: usize, to: usize) -> Option<(u32, u16)> {
        let end = self.fabric.node(at).net.topology().link(host_of(from), host_of(to))?;
        Some((end.delay_us / 1_000, end.loss))
    }

    /// How long until every node knows the direction by a condition, while node 0 publishes.
    fn until_known(&mut self, from: usize, to: usize, is_it: impl Fn((u32, u16)) -> bool) -> Duration {
        let began = self.fabric.now;
        for number in 0..5_000 {
            if number % 10 == 0 {
                self.publish(0);
            }
            if (0..4).all(|at| self.known(at, from, to).is_some_and(&is_it)) {
                break;
            }
            self.fabric.run(MILLI);
        }
        self.fabric.now.since(began)
    }
}

/// The most that the reaction may take: three reports, and one round trip and a half of 20 ms.
pub const REACTION: Duration = Duration::from_millis(3 * 25 + 30);

#[test]
fn a_direction_that_becomes_silent_is_known_to_all_and_passed_round() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut world = Watched::good();
        world.flow(&[0], SECOND * 5);
        assert_eq!(world.condition(0, 1), LinkCondition::Good);
        assert!(world.late(0, 1).is_empty());
        world.fabric.trouble(0, from, SILENT);
        // Whichever direction it is, only the one that events cross is watched: 0 to 1.
        let took = world.until_known(0, 1, |(_, loss)| loss == LOSS_MAX);
        // The nodes farthest away are told over two links.
        assert!(took <= REACTION + MILLI * 24, "{took:?} from {from} to {to}");
        assert_eq!(world.condition(0, 1), LinkCondition::Dark);
        world.flow(&[0], SECOND);
        // They have left before the reaction; those not too old have gone by the other way.
        let late = world.late(0, 1);
        assert!(late.len() <= 8, "{late:?}");
        let stats = world.fabric.node(0).net.stats();
        assert!(stats.detours > 0 && stats.flashes_out > 0 && stats.conditions_changed == 1, "{stats:?}");
        assert!(stats.detours <= 64 && world.fabric.node(3).net.stats().flashes_in <= 2);
        world.fabric.run(SECOND * 3);
        world.fabric.check().expect("each event has arrived once, in order");
    }
}

#[test]
fn packets_that_the_connection_has_lost_are_a_second_witness_while_events_flow() {
    let mut world = Watched::good();
    world.flow(&[0], SECOND);
    // What it counts once may be of a hole that is over.
    world.fabric.packets(0, 0, 100, 80);
    assert_eq!(world.condition(0, 1), LinkCondition::Good);
    world.flow(&[0], MILLI * 500);
    world.fabric.packets(0, 0, 100, 80);
    assert_eq!(world.condition(0, 1), LinkCondition::Lossy(800));
    world.flow(&[0], MILLI * 100);
    assert_eq!(world.known(3, 0, 1), Some((10, 800)), "all are told");
    let sent = |world: &Watched| world.fabric.node(2).net.stats().events_relayed;
    let before = sent(&world);
    world.flow(&[0], SECOND);
    assert!(sent(&world) - before > 90, "its delay counts five times, so another way is better");
    for _ in 0..4 {
        world.flow(&[0], MILLI * 500);
        world.fabric.packets(0, 0, 100, 0);
    }
    assert_eq!(world.known(3, 0, 1), Some((10, 0)));
    // Without events, probes are what counts.
    world.fabric.run(SECOND * 20);
    (0..9).for_each(|_| world.fabric.packets(0, 0, 100, 50));
    assert_eq!(world.condition(0, 1), LinkCondition::Good);
}

#[test]
fn events_that_were_on_a_link_when_it_became_dark_arrive_by_another_way_in_time() {
    let mut world = Watched::good();
    world.flow(&[0], SECOND * 5);
    // A hole that no later event shows: only the detour can fill it in time.
    world.fabric.trouble(0, 0, SILENT);
    world.publish(0);
    world.fabric.run(SECOND);
    let late = world.late(0, 1);
    // 20 ms + 5 ms + 62 ms until it is overdue, and then 24 ms.
    assert!(late.len() <= 1, "{late:?}");
    let delivered = &world.fabric.node(1).told.delivered;
    let last = delivered.last().expect("it has arrived");
    assert_eq!((last.payload.to_vec(), last.is_answer), (world.next.to_be_bytes().to_vec(), false));
    assert!((80_000..140_000).contains(&last.age_us), "{} µs", last.age_us);
    assert_eq!(world.fabric.node(0).net.stats().detours, 1);
}

#[test]
fn a_slow_direction_is_passed_round_and_its_delay_is_told() {
    let mut world = Watched::good();
    world.flow(&[0], SECOND * 20);
    world.fabric.trouble(0, 0, slower(60));
    let took = world.until_known(0, 1, |(delay, loss)| delay > 40 || loss == LOSS_MAX);
    assert!(took <= REACTION + MILLI * 24, "{took:?}");
    world.flow(&[0], SECOND * 2);
    assert!(world.late(0, 1).is_empty(), "70 ms are within the deadline, and so is the other way");
    world.fabric.trouble(0, 0, Trouble::default());
    world.flow(&[0], SECOND * 30);
    assert_eq!(world.condition(0, 1), LinkCondition::Good, "probes tell that it is fast again");
    assert_eq!(world.known(3, 0, 1), Some((10, 0)));
    assert!(world.fabric.node(0).net.stats().conditions_changed <= 4);
    world.fabric.check().expect("each event has arrived once, in order");
}

#[test]
fn a_broker_on_the_way_sends_an_event_round_a_link_that_uses_up_its_share() {
    let mut world = Watched::with_little_margin(|_| {});
    world.flow(&[3], SECOND * 20);
    let before = world.fabric.node(2).net.stats().clone();
    assert_eq!((before.reroutes, before.conditions_changed), ([0; 4], 0));
    // Not enough for a slow direction, and too much for both.
    world.fabric.trouble(1, 2, slower(18));
    world.fabric.trouble(2, 1, slower(18));
    world.flow(&[3], SECOND * 2);
    // Until it is reported: 10 + 18 + 2 × 40 + 30 ms.
    let late = world.late(3, 4);
    assert!(late.iter().all(|number| *number <= 2_000 + 15), "{late:?}");
    let stats = world.fabric.node(2).net.stats();
    let of = |cause: RerouteCause| stats.reroutes[cause as usize];
    assert!(of(RerouteCause::Slow) > 150 && stats.conditions_changed == 0, "{stats:?}");
    world.fabric.run(SECOND);
    world.fabric.check().expect("each event has arrived once, in order");
}

#[test]
fn ages_are_right_within_milliseconds_for_ten_minutes_and_when_a_direction_becomes_slow() {
    let mut world = Watched::good();
    for minute in 0..12 {
        let slow = if minute % 4 == 3 { 3 } else { 0 };
        world.fabric.trouble(0, 0, slower(slow));
        world.flow(&[0], SECOND * 60);
    }
    world.fabric.run(SECOND);
    let off = world.age_off_us(1);
    assert!(off <= 3_000, "{off} µs off the truth");
}

#[test]
fn the_first_events_of_a_link_that_is_slow_have_the_right_age() {
    let mut world = Watched::good();
    world.fabric.run(SECOND * 30);
    world.fabric.trouble(0, 0, slower(300));
    world.flow(&[0], MILLI * 50);
    world.fabric.run(SECOND);
    let ages: Vec<u64> = world.fabric.node(1).told.delivered.iter().map(|delivered| delivered.age_us).collect();
    assert_eq!(ages.len(), 5);
    let off = world.age_off_us(1);
    assert!(off <= 3_000, "{off} µs off the truth, {ages:?}");
}

#[test]
fn noise_of_a_fifth_changes_no_condition() {
    let mut world = Watched::good();
    let mut random = 7;
    for _ in 0..3_000 {
        for wire in 0..4 {
            for from in [0, 1, 2, 3] {
                if world.fabric.wires().nth(wire).is_some_and(|(nodes, ..)| nodes.contains(&from)) {
                    let micros = whimbrel_event::split_mix(&mut random) % 4_000;
                    let trouble = Trouble { more: Duration::from_micros(micros), is_silent: false };
                    world.fabric.trouble(wire, from, trouble);
                }
            }
        }
        world.flow(&[0, 1], EVERY * 2);
    }
    for node in 0..4 {
        let stats = world.fabric.node(node).net.stats();
        assert_eq!((stats.conditions_changed, stats.detours, stats.repairs), (0, 0, 0), "at {node}");
    }
    assert_eq!((world.late(0, 1), world.late(1, 0)), (vec![], vec![]));
}

#[test]
fn without_reaction_nothing_is_sent_round_and_all_are_told_all_the_same() {
    let mut world = Watched::new(|_| {}, Routing::Best);
    world.flow(&[0], SECOND * 5);
    world.fabric.trouble(0, 0, SILENT);
    let took = world.until_known(0, 1, |(_, loss)| loss == LOSS_MAX);
    assert!(took <= REACTION + MILLI * 24, "{took:?}");
    world.flow(&[0], MILLI * 200);
    let stats = world.fabric.node(0).net.stats();
    assert_eq!((stats.detours, stats.reroutes, stats.repairs), (0, [0; 4], 0));
    assert!(world.fabric.node(2).net.stats().events_relayed > 0, "later events take the better way");
}

#[test]
fn a_link_without_events_of_a_deadline_carries_nothing_of_this() {
    let mut fabric = Fabric::line(2, MILLI);
    fabric.run(SECOND * 2);
    fabric.subscribe(1, "a");
    fabric.run(SECOND);
    let before = frames_out(&fabric);
    for _ in 0..100 {
        fabric.publish_topic(0, "a");
        fabric.run(EVERY);
    }
    // Events, probes, echoes and silence.
    let after = frames_out(&fabric);
    assert!(after - before <= 100 + 2 * 3 + 2 * 11, "{}", after - before);
}

fn frames_out(fabric: &Fabric) -> u64 {
    (0..2).flat_map(|node| fabric.node(node).net.neighbours()).map(|peer| peer.counters.frames_out).sum()
}

/// A flash about the direction from node 2 to node 1, as node 0 may get it from anywhere.
fn flash(world: &Watched, number: u64, ahead: u64) -> Flash {
    let state = world.fabric.node(0).net.topology().get(host_of(2)).expect("it is known");
    let (host, incarnation, sequence) = (state.host, state.incarnation, state.sequence + ahead);
    Flash { host, incarnation, sequence, number, neighbour: host_of(1), delay_us: 700_000, loss: 0 }
}

fn give(world: &mut Watched, to: usize, flash: Flash) {
    let mut frame = Vec::new();
    Frame::Flash(flash).encode(&mut frame);
    let link = world.fabric.node(to).net.neighbours().next().expect("it has links").link;
    world.fabric.bytes(to, link, Channel::Control, &frame);
}

#[test]
fn a_flash_holds_until_a_later_link_state_and_old_and_foreign_ones_are_refused() {
    let mut world = Watched::good();
    let good = flash(&world, 5, 0);
    give(&mut world, 0, good);
    assert_eq!(world.known(0, 2, 1), Some((700, 0)));
    let older = Flash { delay_us: 1_000, ..flash(&world, 4, 0) };
    give(&mut world, 0, older);
    assert_eq!(world.known(0, 2, 1), Some((700, 0)), "an older one");
    let refused = world.fabric.node(0).net.stats().flashes_refused;
    let strangers = [
        Flash { host: host_of(9), ..good },
        Flash { neighbour: host_of(9), ..good },
        Flash { incarnation: good.incarnation + 1, ..good },
        flash(&world, 9, 17),
    ];
    for stranger in strangers {
        give(&mut world, 0, stranger);
    }
    let stats = world.fabric.node(0).net.stats();
    assert_eq!((stats.flashes_refused - refused, stats.flashes_in), (4, 1));
    // It has reached its broker, which never sent it.
    world.fabric.run(SECOND);
    assert_eq!(world.fabric.node(2).net.stats().flashes_refused, 1);
    for at in 0..4 {
        assert_eq!(world.known(at, 2, 1), Some((12, 0)), "at {at}");
    }
    give(&mut world, 0, good);
    assert_eq!(world.known(0, 2, 1), Some((12, 0)), "it was replayed");
}

#[test]
fn reports_of_events_that_were_never_sent_are_counted_and_harm_nothing() {
    let mut world = Watched::good();
    world.flow(&[0], SECOND);
    let link = world.fabric.node(0).net.neighbours().next().expect("it has links").link;
    for highest in 0..1_000_u16 {
        let report = LinkReport { number: 100, highest: highest * 60, excess_us: u32::MAX, missing: u64::MAX - 1 };
        let mut frame = Vec::new();
        Frame::LinkReport(report).encode(&mut frame);
        world.fabric.bytes(0, link, Channel::Datagram, &frame);
    }
    assert!(world.fabric.node(0).net.stats().bad_reports > 400);
    world.flow(&[0], SECOND * 20);
    world.fabric.run(SECOND);
    world.fabric.check().expect("each event has arrived once, in order");
}

const _: () = assert!(REPORT.as_millis() as u32 * 4 == DEADLINE_MS);
