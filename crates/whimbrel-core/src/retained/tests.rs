//! Retained messages: what a topic's state costs, and when it ends.

use core::time::Duration;

use whimbrel_event::{
    Attributes, Domains, Event, EventId, EventRef, Headers, IMPORTANCE_DEFAULT, PubendId, Publisher, Qos, Reliability,
    Tick, Time,
};

use super::{Bounds, Retained, TOMBSTONE_LIFETIME};

const NOW: Time = Time::from_nanos(1_000);

const ROOM: Bounds = Bounds { messages: 10, bytes: 10_000, packed: 10_000 };

fn event(tick: u64, payload: &str) -> Event {
    let event = EventRef {
        topic: "t",
        attributes: Attributes::EMPTY,
        payload: payload.as_bytes(),
        headers: Headers { retain: true, ..Headers::EMPTY },
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance: IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    };
    Event::keep(EventId { pubend: PubendId(16), tick: Tick(tick) }, NOW, &event)
}

#[test]
fn one_that_another_broker_tells_and_that_has_no_room_ends_an_older_one() {
    let mut retained = Retained::new(1);
    assert!(retained.learn(NOW, event(10, "old"), ROOM).is_news);
    let newer = event(20, &"x".repeat(1_000));
    let full = Bounds { bytes: 1_000, ..ROOM };
    let outcome = retained.learn(NOW, newer.clone(), full);
    assert!(outcome.is_refused && outcome.is_news, "{outcome:?}");
    assert_eq!((retained.len(), retained.bytes(), retained.get("t").is_some()), (0, 0, false));
    let outcome = retained.learn(NOW, newer.clone(), full);
    assert!(outcome.is_refused && !outcome.is_news, "there is nothing older any more: {outcome:?}");
    assert!(retained.version("t").is_some_and(|known| known < (Tick(20), PubendId(16))), "it may come again");
    assert!(retained.learn(NOW, newer, ROOM).is_news);
    assert_eq!((retained.len(), retained.get("t").map(|event| event.view().payload.len())), (1, Some(1_000)));
}

#[test]
fn one_that_is_deleted_twice_at_one_moment_is_forgotten_once() {
    let mut retained = Retained::new(1);
    for tick in [10, 20] {
        assert!(retained.bury(NOW, "t", (Tick(tick), PubendId(16))));
    }
    assert!(retained.bury(NOW + TOMBSTONE_LIFETIME + Duration::from_secs(1), "u", (Tick(30), PubendId(16))));
    assert_eq!(retained.topics_from("").collect::<Vec<_>>(), ["u"]);
    assert_eq!(retained.hashes().iter().filter(|hash| **hash != 0).count(), 1);
}

#[test]
fn one_that_is_withheld_ends_an_older_one_and_gives_way_to_its_own_message() {
    let mut retained = Retained::new(1);
    let version = (Tick(20), PubendId(16));
    assert!(retained.learn(NOW, event(10, "old"), ROOM).is_news);
    assert!(retained.withhold("t", version) && !retained.withhold("t", version));
    assert_eq!((retained.len(), retained.get("t").is_some(), retained.is_withheld("t", version)), (0, false, true));
    assert_eq!(retained.labelled().collect::<Vec<_>>(), [("t", true)]);
    let withheld = *retained.hashes();
    let domains = Domains::of(["eu"]).expect("a valid name");
    let plain = event(20, "new");
    let mut labelled = plain.view();
    labelled.headers.domains = domains.label();
    let labelled = Event::keep(EventId { pubend: version.1, tick: version.0 }, NOW, &labelled);
    assert!(retained.learn(NOW, labelled, ROOM).is_news);
    assert_eq!((retained.labelled().collect::<Vec<_>>(), retained.withheld), (vec![("t", false)], 0));
    assert_eq!((retained.label("t").as_str(), retained.is_withheld("t", version)), ("eu", false));
    assert_ne!(*retained.hashes(), withheld);
    assert_eq!(retained.withhold_outside(&domains).len(), 0);
    assert_eq!(retained.withhold_outside(&Domains::default()).len(), 1, "it has left the domain");
    assert_eq!((*retained.hashes(), retained.len(), retained.is_withheld("t", version)), (withheld, 0, true));
    assert!(retained.bury(NOW, "t", (Tick(30), PubendId(16))));
    assert_eq!(retained.labelled().count(), 0);
}
