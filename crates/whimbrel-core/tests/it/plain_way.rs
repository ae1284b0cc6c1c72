//! The plain way: the same outputs as by the general one, over random inputs.

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_core::cache::{Capacity, PartitionPlan, Plan, Policy};
use whimbrel_core::{Delivery, Durability, Filter, Input, Link, Publish, Settlement, Stats, SubscriptionSpec};
use whimbrel_event::Qos::{self, AtLeastOnce, AtMostOnce, ExactlyOnce};
use whimbrel_selector::Selector;

use crate::common::{CLEAN, Client, KEPT, Rig, Told, each_option, event, plain};

const LINKS: u32 = 4;
const TOPICS: [&str; 4] = ["t/a", "t/b", "t/a/c", "$own"];
const FILTERS: [&str; 6] = ["t/a", "t/b", "t/#", "+/a", "$share/g/t/a", "$share/g/t/#"];

/// One thing that happens at a broker.
#[derive(Clone, Debug)]
enum Happening {
    Attach { link: u32, is_kept: bool, window: u16 },
    Detach { link: u32 },
    Subscribe { link: u32, filter: usize, spec: SubscriptionSpec, is_selective: bool },
    Unsubscribe { link: u32, filter: usize },
    Publish { link: u32, topic: usize, qos: Qos, retain: bool, number: Option<u64> },
    Answer { link: u32, nth: usize, by: Settlement },
    Release { link: u32 },
    Room { link: u32, room: usize },
    Pass { span: Duration },
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(AtMostOnce), Just(AtLeastOnce), Just(ExactlyOnce)]
}

fn happening() -> impl Strategy<Value = Happening> {
    let link = 0..LINKS;
    let specs = each_option();
    let spec = (0..specs.len(), qos()).prop_map(move |(at, qos)| SubscriptionSpec { qos, ..specs[at] });
    let plain_spec = qos().prop_map(SubscriptionSpec::new);
    let spec = prop_oneof![3 => plain_spec, 1 => spec];
    let by = prop_oneof![
        6 => Just(Settlement::Acknowledged),
        2 => Just(Settlement::Received),
        2 => Just(Settlement::Completed),
        1 => Just(Settlement::Refused)
    ];
    let numbers = prop_oneof![8 => Just(None), 1 => (0..6_u64).prop_map(Some)];
    prop_oneof![
        2 => (link.clone(), any::<bool>(), prop_oneof![Just(1_u16), Just(3), Just(10)])
            .prop_map(|(link, is_kept, window)| Happening::Attach { link, is_kept, window }),
        1 => link.clone().prop_map(|link| Happening::Detach { link }),
        4 => (link.clone(), 0..FILTERS.len(), spec, prop::bool::weighted(0.1))
            .prop_map(|(link, filter, spec, is_selective)| Happening::Subscribe { link, filter, spec, is_selective }),
        1 => (link.clone(), 0..FILTERS.len()).prop_map(|(link, filter)| Happening::Unsubscribe { link, filter }),
        20 => (link.clone(), 0..TOPICS.len(), qos(), prop::bool::weighted(0.1), numbers)
            .prop_map(|(link, topic, qos, retain, number)| Happening::Publish { link, topic, qos, retain, number }),
        12 => (link.clone(), prop_oneof![4 => Just(0), 1 => 0..3_usize], by)
            .prop_map(|(link, nth, by)| Happening::Answer { link, nth, by }),
        1 => link.clone().prop_map(|link| Happening::Release { link }),
        1 => (link, 0..3_usize).prop_map(|(link, room)| Happening::Room { link, room }),
        1 => (1..5_000_u64).prop_map(|millis| Happening::Pass { span: Duration::from_millis(millis) })
    ]
}

/// A broker, the clients at its links, and what each client has not answered.
struct Side {
    rig: Rig,
    attached: [bool; LINKS as usize],
    unanswered: [Vec<u16>; LINKS as usize],
    published: usize,
}

impl Side {
    fn new(has_plain_way: bool) -> Side {
        let mut rig = Rig::new();
        rig.core.set_plain_way(has_plain_way);
        Side { rig, attached: [false; LINKS as usize], unanswered: Default::default(), published: 0 }
    }

    fn happen(&mut self, happening: &Happening) {
        let rig = &mut self.rig;
        let attached = |link: &u32| self.attached[*link as usize];
        match happening {
            Happening::Attach { link, is_kept, window } if !attached(link) => {
                let client = Client { window: *window, ..if *is_kept { KEPT } else { CLEAN } };
                rig.edges.room.remove(link);
                rig.attach(*link, &format!("client {link}"), client);
                self.attached[*link as usize] = true;
            }
            Happening::Detach { link } if attached(link) => {
                rig.detach(*link, true);
                self.attached[*link as usize] = false;
                self.unanswered[*link as usize].clear();
            }
            Happening::Subscribe { link, filter, spec, is_selective } if attached(link) => {
                let selector = Selector::parse("JMSPriority > 4").expect("a selector");
                let selector = Some(&selector).filter(|_| *is_selective);
                let filter = Filter { selector, spec: *spec, ..plain(FILTERS[*filter], spec.qos) };
                rig.input(Input::Subscribe { link: Link(*link), tag: 1, filters: &[filter] });
            }
            Happening::Unsubscribe { link, filter } if attached(link) => {
                rig.input(Input::Unsubscribe { link: Link(*link), tag: 2, filters: &[FILTERS[*filter]] });
            }
            Happening::Publish { link, topic, qos, retain, number } if attached(link) => {
                self.published += 1;
                let payload = self.published.to_string();
                let event = event(TOPICS[*topic], &payload, *qos);
                let tag = if *qos == AtMostOnce { 0 } else { 7 };
                let (retain, number) = (*retain, *number);
                rig.input(Input::Publish(Publish { link: Link(*link), tag, retain, number, event: &event }));
            }
            Happening::Answer { link, nth, by } if attached(link) => {
                let unanswered = &mut self.unanswered[*link as usize];
                if *nth < unanswered.len() {
                    rig.settle(*link, unanswered.remove(*nth), *by);
                }
            }
            Happening::Release { link } if attached(link) => {
                rig.input(Input::Release { link: Link(*link), tag: 7 });
            }
            Happening::Room { link, room } if attached(link) => {
                match room {
                    0 => rig.edges.room.remove(link),
                    room => rig.edges.room.insert(*link, *room),
                };
                rig.input(Input::Writable { link: Link(*link) });
            }
            Happening::Pass { span } => rig.advance(*span),
            _ => {}
        }
        // A client that was kicked is gone.
        for link in 0..LINKS {
            let told = self.rig.edges.told.get(&link).map_or(&[][..], |told| told);
            if told.iter().any(|told| matches!(told, Told::Kicked(_))) {
                self.attached[link as usize] = false;
            }
        }
    }

    /// All that was told since the last look, and what the broker counts and waits for.
    fn look(&mut self) -> impl PartialEq + core::fmt::Debug + use<> {
        let told = core::mem::take(&mut self.rig.edges.told);
        for (link, told) in &told {
            let tags = told.iter().filter_map(|told| match told {
                Told::Event(got) if got.tag != 0 => Some(got.tag),
                Told::Release { tag, .. } => Some(*tag),
                _ => None,
            });
            self.unanswered[*link as usize].extend(tags);
        }
        let edges = &mut self.rig.edges;
        let streams = (core::mem::take(&mut edges.knowledge), core::mem::take(&mut edges.held));
        let stats = Stats { events_plain: 0, ..self.rig.core.stats() };
        (told, streams, edges.paused.clone(), stats, self.rig.core.next_deadline())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn both_ways_tell_the_same(happenings in prop::collection::vec(happening(), 1..120)) {
        let [mut short, mut general] = [true, false].map(Side::new);
        for happening in &happenings {
            [&mut short, &mut general].into_iter().for_each(|side| side.happen(happening));
            let (one, other) = (short.look(), general.look());
            prop_assert_eq!(one, other, "after {:?}", happening);
        }
        prop_assert_eq!(general.rig.core.stats().events_plain, 0);
    }
}

/// The sizes of what is passed for every message: an event goes by reference.
#[test]
fn inputs_and_deliveries_are_small() {
    assert!(size_of::<Publish<'_>>() <= 48, "{}", size_of::<Publish<'_>>());
    assert!(size_of::<Delivery<'_>>() <= 40, "{}", size_of::<Delivery<'_>>());
    assert!(size_of::<Input<'_>>() <= 104, "{}", size_of::<Input<'_>>());
}

/// The events of a broker that went by the plain way, of one published by client 1 and wanted by
/// client 2. `prepare` makes something special.
fn plain_events(prepare: impl FnOnce(&mut Rig), publish: impl FnOnce(&mut Rig)) -> u64 {
    let mut rig = Rig::new();
    rig.attach(1, "publisher", KEPT);
    rig.attach(2, "subscriber", KEPT);
    rig.subscribe(2, "t/#", AtLeastOnce).expect("granted");
    prepare(&mut rig);
    let before = rig.core.stats().events_plain;
    publish(&mut rig);
    assert_eq!(rig.events(2).len(), 1, "the subscriber gets it on either way");
    rig.core.stats().events_plain - before
}

fn publish_plain(rig: &mut Rig) {
    rig.publish(1, "t/a", "x", AtLeastOnce);
}

#[test]
fn an_event_without_anything_special_goes_the_plain_way() {
    assert_eq!(plain_events(|_| (), publish_plain), 1);
    assert_eq!(plain_events(|_| (), |rig| rig.publish(1, "t/a", "x", AtMostOnce)), 1);
}

#[test]
fn whatever_is_special_about_an_event_excludes_the_plain_way() {
    let numbered = |rig: &mut Rig| {
        let event = event("t/a", "x", AtLeastOnce);
        rig.input(Input::Publish(Publish { link: Link(1), tag: 7, retain: false, number: Some(1), event: &event }));
    };
    assert_eq!(plain_events(|_| (), numbered), 0);
    assert_eq!(plain_events(|_| (), |rig| rig.publish(1, "t/a", "x", ExactlyOnce)), 0);
    assert_eq!(plain_events(|_| (), |rig| rig.publish_as(1, "t/a", "x", AtLeastOnce, true)), 0);
}

#[test]
fn whatever_is_special_about_a_subscription_excludes_the_plain_way() {
    let other = |filter: Filter<'_>| {
        plain_events(
            |rig| {
                rig.attach(3, "other", KEPT);
                rig.subscribe_as(3, filter).expect("granted");
            },
            publish_plain,
        )
    };
    let selector = Selector::parse("JMSPriority > 4").expect("a selector");
    let spec = SubscriptionSpec::new(AtLeastOnce);
    let semi_durable = SubscriptionSpec { durability: Durability::SemiDurable, ..spec };
    let no_local = SubscriptionSpec { no_local: true, ..spec };
    assert_eq!(other(plain("t/a", AtLeastOnce)), 1);
    assert_eq!(other(Filter { selector: Some(&selector), ..plain("t/a", AtLeastOnce) }), 0);
    assert_eq!(other(Filter { spec: semi_durable, ..plain("t/a", AtLeastOnce) }), 0);
    assert_eq!(other(Filter { spec: no_local, ..plain("t/a", AtLeastOnce) }), 0);
    assert_eq!(other(plain("$share/g/t/a", AtLeastOnce)), 0);
}

#[test]
fn a_partition_of_the_cache_that_covers_the_topic_excludes_the_plain_way() {
    let divided = |filter: &str| {
        let (capacity, policy) = (Capacity::Events(10), Policy::Lrp);
        let partition = PartitionPlan { filter: filter.into(), selector: None, capacity, policy };
        let plan = Plan { partitions: vec![partition], ..Plan::default() };
        plain_events(|rig| rig.core.set_cache(rig.now, plan), publish_plain)
    };
    assert_eq!(divided("t/#"), 0);
    assert_eq!(divided("other/#"), 1);
}
