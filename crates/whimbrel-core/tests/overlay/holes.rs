//! The time until a hole in another broker's stream is filled.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use whimbrel_core::Channel;
use whimbrel_event::Qos;
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::plain;
use super::net::{Net, frame};

/// Silence follows the events that it is about; if no best-effort event was sent, it takes one
/// frame.
#[test]
fn silence_takes_a_frame_of_its_own_behind_events_of_best_effort() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(1, 1, plain("a", Qos::AtMostOnce));
    net.advance(SECOND);
    let count = Rc::new(Cell::new([0, 0]));
    let counted = Rc::clone(&count);
    net.drops = Box::new(move |from, channel, bytes| {
        if from == 0 && matches!(frame(bytes), Some(Frame::Silence(_))) {
            let [reliable, best_effort] = counted.get();
            let is_reliable = channel == Channel::Reliable;
            counted.set([reliable + u32::from(is_reliable), best_effort + u32::from(!is_reliable)]);
        }
        false
    });
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND * 30);
    let [reliable, best_effort] = count.take();
    assert!(reliable > 5 && best_effort == 0, "{reliable} {best_effort}");
    net.publish(0, 1, "a", "two", Qos::AtMostOnce);
    net.advance(SECOND * 30);
    let [reliable, best_effort] = count.take();
    assert!(best_effort > 5 && reliable < best_effort, "{reliable} {best_effort}");
    assert_eq!(net.payloads(1, 1), ["one", "two"]);
}

/// Events lost on a link before the first one arrives again.
const LOST: usize = 10_000;

/// Two brokers; events of the first that the second wants are lost as long as the switch is on.
fn world(delay: Duration) -> (Net, Rc<Cell<bool>>) {
    let mut net = Net::new(2);
    net.join(0, 1, delay);
    net.advance(SECOND * 2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(1, 1, plain("a", Qos::AtMostOnce));
    net.advance(SECOND * 2);
    let is_lossy = Rc::new(Cell::new(true));
    let loses = Rc::clone(&is_lossy);
    net.drops = Box::new(move |node, channel, _| node == 0 && channel == Channel::Reliable && loses.get());
    (net, is_lossy)
}

/// Has events lost, and one more sent; returns the time until all have arrived.
fn time_to_fill(delay: Duration) -> Duration {
    let (mut net, is_lossy) = world(delay);
    let mut lost: Vec<String> = Vec::new();
    for number in 0..LOST {
        lost.push(number.to_string());
        net.publish(0, 1, "a", &lost[number], Qos::AtLeastOnce);
        net.told(0, 1);
    }
    is_lossy.set(false);
    lost.push("last".to_owned());
    net.publish(0, 1, "a", "last", Qos::AtLeastOnce);
    let (began, mut got) = (net.now, Vec::new());
    while got.len() < lost.len() {
        assert!(net.now.since(began) < SECOND * 120, "{} of {} have come", got.len(), lost.len());
        net.advance(Duration::from_millis(1));
        got.extend(net.payloads(1, 1));
    }
    assert!(got == lost, "all in their order");
    let sent = net.nodes[0].core.overlay_stats().expect("it is one of many").net.events_answered;
    assert!(sent <= LOST as u64 * 11 / 10, "{sent} events were sent again for {LOST}");
    net.now.since(began)
}

#[test]
fn a_large_hole_is_filled_as_fast_as_answers_come() {
    let took = time_to_fill(Duration::from_millis(1));
    assert!(took < Duration::from_millis(500), "{LOST} events took {took:?}");
    let took = time_to_fill(Duration::from_millis(40));
    // An answer for each way there and back.
    assert!(took < Duration::from_millis(80 * (LOST as u64 / 256 + 5)), "{LOST} events took {took:?}");
}

#[test]
fn nothing_that_is_asked_for_in_vain_is_asked_for_more_and_more_often() {
    let (mut net, _) = world(Duration::from_millis(1));
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    // The last of two arrives, and no answer ever does.
    net.drops = Box::new(move |node, channel, _| {
        let comes = node == 0 && channel == Channel::Reliable;
        counted.set(counted.get() + u32::from(comes));
        comes && counted.get() != 2
    });
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    let before = net.nodes[1].core.overlay_stats().expect("it is one of many").nacks_out;
    net.advance(SECOND * 20);
    let asked = net.nodes[1].core.overlay_stats().expect("it is one of many").nacks_out - before;
    assert!((20..=26).contains(&asked), "asked {asked} times");
}
