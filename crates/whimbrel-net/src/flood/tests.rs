//! Tests of what is told to neighbours.

use whimbrel_event::{Deployment, Tick};

use super::*;
use crate::link::peers::PeerIdentity;
use crate::{Config, Identity};

const LINK: PeerLink = PeerLink(0);

/// The delay and loss that are announced after `times` probes that each took `away` to come
/// back.
fn told_after(net: &mut Net, away: Duration, times: u32) -> (u32, u16) {
    for _ in 0..times {
        let estimate = &mut net.peers.get_mut(LINK).expect("it is there").estimate;
        let sent = Time::from_nanos(1 << 60);
        let sequence = estimate.sent();
        estimate.echo(sent + away, sequence, sent, Duration::ZERO).expect("it was asked");
        estimate.news();
    }
    let neighbour = net.own_state().neighbours[0];
    (neighbour.delay_us, neighbour.loss)
}

/// A host with one neighbour.
fn linked(now: Time) -> Net {
    let config = Config {
        name: "b0".into(),
        version: "".into(),
        addresses: Vec::new(),
        interest_max: 256,
        expects_peers: true,
        links_wanted: 0,
        surcharges: Default::default(),
        domains: Default::default(),
        release_mark: usize::MAX,
        young_for: Duration::from_secs(1),
        examined_kinds: &[],
        routing: crate::Routing::Best,
        pace: crate::Pace::DEFAULT,
    };
    let identity = Identity {
        host: HostId::new(1 << 8),
        incarnation: 1,
        deployment: Deployment(1),
        birth: Tick(0),
        reliable: 1,
        further: 0,
    };
    let mut net = Net::new(now, identity, false, config);
    net.peers.insert(Peer::new(now, LINK, true, None, usize::MAX));
    let who = PeerIdentity {
        host: HostId::new(2 << 8),
        incarnation: 1,
        name: "b1".into(),
        version: "".into(),
        minor: whimbrel_wire::MINOR,
        ahead: 0,
    };
    net.peers.bring_up(LINK, who);
    net
}

/// Takes what it is given.
struct Nowhere;

impl LinkOutput for Nowhere {}

/// Another process has told a greater interest as that of this host, and nobody has its link
/// state.
#[test]
fn an_interest_of_this_host_that_it_has_not_told_is_outbid() {
    let now = Time::from_nanos(1 << 60);
    let mut net = linked(now);
    let host = net.identity.host;
    let (base, removed, added) = (None, Vec::new(), Vec::new());
    let mut update = InterestUpdate { host, incarnation: 7, version: 1, base, removed, added, age_ms: 0 };
    for (incarnation, version, then, is_new) in
        [(7, 1, 8, true), (7, 9, 8, false), (8, u64::MAX, 9, true), (8, u64::MAX, 9, false)]
    {
        (update.incarnation, update.version) = (incarnation, version);
        let mut io = Io { now, out: &mut Nowhere, maps: &[] };
        let event = net.on_interest(&mut io, LINK, &update, &mut None);
        assert_eq!(matches!(event, Some(NetEvent::Outbid)), is_new);
        let again = net.on_interest(&mut Io { now, out: &mut Nowhere, maps: &[] }, LINK, &update, &mut None);
        assert!(again.is_none(), "it is told once");
        if is_new {
            assert_eq!(net.outbid(now, then - 2), Some(then - 1), "that is not proven");
        }
        assert_eq!(net.outbid(now, then - 1), None);
        assert_eq!(net.identity.incarnation, then);
        assert_eq!(net.interests.version_of(host), Some((then, net.own_interest.version())));
    }
    assert_eq!(net.stats.outbid, 4, "each of the two was heard twice");
}

#[test]
fn a_link_that_is_hardly_slower_is_told_as_it_was() {
    let now = Time::from_nanos(1 << 60);
    let mut net = linked(now);
    let millis = Duration::from_millis;
    assert_eq!(told_after(&mut net, millis(40), 1), (20_000, 0));
    assert_eq!(told_after(&mut net, millis(43), 20), (20_000, 0));
    let (delay, _) = told_after(&mut net, millis(80), 20);
    assert!(delay > 30_000, "{delay} µs");
}
