//! What retained messages may cost when there is no room for more.

use core::time::Duration;

use crate::common::{CLEAN, Rig, event};
use whimbrel_core::{Accepted, Input, Limits, Link, Publish, Refusal};
use whimbrel_event::Qos::AtLeastOnce;

use crate::common::Told;

fn retain(rig: &mut Rig, topic: &str, lifetime: Option<Duration>) -> Told {
    let mut event = event(topic, "x", AtLeastOnce);
    event.expires = lifetime.map(|lifetime| rig.now.after(lifetime));
    rig.input(Input::Publish(Publish { link: Link(1), tag: 7, retain: true, number: None, event }));
    rig.take(1).remove(0)
}

const REFUSED: Told = Told::Accepted { tag: 7, result: Accepted::Refused(Refusal::TooMuchRetained) };

#[test]
fn what_has_expired_makes_room_and_is_looked_for_once_a_second() {
    let mut rig = Rig::with(Limits { retained_max: 2, ..Limits::default() });
    rig.attach(1, "p", CLEAN);
    let routed = Told::Accepted { tag: 7, result: Accepted::Routed { matched: false } };
    assert_eq!(retain(&mut rig, "short", Some(Duration::from_millis(500))), routed);
    assert_eq!(retain(&mut rig, "long", None), routed);
    assert_eq!(retain(&mut rig, "more", None), REFUSED);
    // Expired, but the last look was less than a second ago.
    rig.advance(Duration::from_millis(600));
    assert_eq!(retain(&mut rig, "more", None), REFUSED);
    rig.advance(Duration::from_millis(400));
    assert_eq!(retain(&mut rig, "more", None), routed);
    assert_eq!(rig.core.stats().retained, 2);
}
