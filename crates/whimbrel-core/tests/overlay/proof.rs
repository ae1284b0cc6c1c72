//! Another process may have become a broker. What a broker says of its streams and of itself waits
//! for a commit then: a former owner of its log does not get one.

use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_core::{Channel, Input, Limits, PeerInput};
use whimbrel_event::{HostId, Qos};
use whimbrel_wire::{Frame, LinkStateFrame};

use super::SECOND;
use super::common::plain;
use super::net::{Net, frame};

fn mesh_of_owners(count: usize) -> Net {
    Net::mesh_within(count, &Limits { has_successors: true, ..Limits::default() })
}

#[test]
fn the_interest_of_others_is_in_force_when_the_owner_has_proven_itself() {
    let mut net = mesh_of_owners(2);
    net.attach(0, 1, "s");
    net.attach(1, 1, "p");
    net.nodes[1].stalls_until = net.now.after(SECOND * 10);
    net.subscribe(0, 1, plain("t", Qos::AtLeastOnce));
    net.advance(SECOND * 5);
    assert_eq!(net.nodes[0].side.pending, ["b1".into()], "it is not known to own its log");
    net.advance(SECOND * 6);
    net.publish(1, 1, "t", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(0, 1), ["one"]);
    net.subscribe(0, 1, plain("u", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(net.nodes[0].side.pending, [], "a commit is enough");
}

/// The greatest incarnation of a broker that it has told of itself, and the frame with it.
type Told = Rc<RefCell<(u64, Vec<u8>)>>;

fn watch(net: &mut Net, node: usize, host: HostId) -> Told {
    let told = Told::default();
    let seen = Rc::clone(&told);
    net.drops = Box::new(move |from, _, bytes| {
        if let Some(Frame::LinkState(state)) = frame(bytes).filter(|_| from == node)
            && state.host == host
            && state.incarnation > seen.borrow().0
        {
            *seen.borrow_mut() = (state.incarnation, bytes.to_vec());
        }
        false
    });
    told
}

#[test]
fn a_greater_incarnation_is_outbid_when_the_owner_has_proven_itself() {
    let mut net = mesh_of_owners(3);
    let host = net.nodes[1].core.host();
    let told = watch(&mut net, 1, host);
    net.advance(SECOND * 40);
    let (before, bytes) = told.borrow().clone();
    let Some(Frame::LinkState(state)) = frame(&bytes) else { panic!("it tells of itself") };
    let greater = before + 1_000_000_000;
    let mut bytes = Vec::new();
    Frame::LinkState(LinkStateFrame { incarnation: greater, ..state }).encode(&mut bytes);
    net.nodes[1].stalls_until = net.now.after(SECOND * 10);
    let (_, link) = net.ends(0)[0];
    net.input(0, Input::Peer(PeerInput::Bytes { link, channel: Channel::Control, bytes: &bytes }));
    net.advance(SECOND * 5);
    assert_eq!(told.borrow().0, before, "the other one may be its successor");
    net.advance(SECOND * 6);
    assert_eq!(told.borrow().0, greater + 1, "it has none");
}
