//! Which task gets the machine when, without sockets: nothing else runs on the test's thread until
//! the test waits.

use whimbrel_core::PeerLink;
use whimbrel_mqtt::Output;

use super::super::inbox::PIECE;
use super::*;

const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01";
const CONNACK_AND_PINGRESP: usize = 4 + 2;
const PINGREQ: &[u8] = b"\xc0\x00";
const PUBLISH: &[u8] = b"\x30\x0d\x00\x01f0123456789";
const READ: usize = 64 << 10;
const ENOUGH: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config { sys_interval: None, ..Config::default() }
}

fn open(hub: &Hub) -> (Line, Arc<Port>) {
    hub.open(None, Origin::Tcp, Caller::default())
}

fn connect(hub: &Hub, name: u8) -> (Line, Arc<Port>) {
    let (mut line, port) = open(hub);
    hub.bytes(&mut line, None, &[CONNECT, &[name]].concat());
    assert_eq!(port.backlog(), 4, "CONNACK");
    (line, port)
}

/// Publishes that fill one read.
fn long_input() -> Vec<u8> {
    PUBLISH.repeat(READ / PUBLISH.len())
}

fn published(owner: &Owner<'_>) -> u64 {
    owner.machine.broker.stats().publishes_in
}

#[tokio::test]
async fn others_are_answered_before_a_long_input_is_finished() {
    let hub = Hub::new(config(), 1);
    let (mut flood, _) = connect(&hub, b'f');
    let (mut calm, port) = connect(&hub, b'c');
    let mut owner = hub.wait_and_own();
    hub.bytes(&mut flood, None, &long_input());
    hub.bytes(&mut calm, None, PINGREQ);
    hub.take_turn(&mut owner);
    assert_eq!(port.backlog(), CONNACK_AND_PINGRESP);
    let handled = published(&owner) as usize * PUBLISH.len();
    assert!(handled <= PIECE, "only a piece of the long input: {handled} bytes");
    hub.let_go(owner);
    hub.finish(hub.wait_and_own());
    assert_eq!(published(&hub.wait_and_own()) as usize, long_input().len() / PUBLISH.len());
}

#[tokio::test]
async fn a_long_input_that_nobody_waits_for_is_handled_in_one_turn() {
    let hub = Hub::new(config(), 1);
    let (mut flood, _) = connect(&hub, b'f');
    let mut owner = hub.wait_and_own();
    hub.bytes(&mut flood, None, &long_input());
    assert!(!hub.may_read(&mut flood), "it has brought as much as may wait");
    hub.take_turn(&mut owner);
    assert_eq!(published(&owner) as usize, long_input().len() / PUBLISH.len());
    assert!(hub.may_read(&mut flood));
}

#[tokio::test]
async fn what_finds_the_machine_free_but_the_inbox_not_empty_comes_after_what_waits() {
    let hub = Hub::new(config(), 1);
    let (mut line, port) = open(&hub);
    let owner = hub.wait_and_own();
    hub.bytes(&mut line, None, &[CONNECT, b"a"].concat());
    // Dropped without `finish`, so the inbox keeps its pieces.
    drop(owner);
    hub.bytes(&mut line, None, PINGREQ);
    assert_eq!((port.backlog(), port.is_closing()), (CONNACK_AND_PINGRESP, false));
}

#[tokio::test]
async fn a_connection_number_is_free_again_only_after_all_that_its_connection_left() {
    let hub = Hub::new(config(), 1);
    let (mut flood, _) = connect(&hub, b'f');
    let Source::Conn(conn) = flood.source() else { panic!("a client's connection") };
    let mut owner = hub.wait_and_own();
    hub.bytes(&mut flood, None, &long_input());
    hub.gone(flood, true);
    while published(&owner) as usize != long_input().len() / PUBLISH.len() {
        assert!(owner.machine.ports.port(conn).is_some());
        hub.take_turn(&mut owner);
    }
    drop(owner);
    hub.finish(hub.wait_and_own());
    assert_eq!((open(&hub).0.source(), hub.is_inbox_empty()), (Source::Conn(conn), true));
}

#[tokio::test]
async fn a_deadline_that_has_come_with_an_input_is_met_by_the_owner() {
    let mut config = config();
    config.limits.connect_timeout = Duration::ZERO;
    let hub = Hub::new(config, 1);
    // Its CONNECT may be unread.
    assert!(open(&hub).1.is_to_be_read_out(), "the timer's task has not run");
}

#[tokio::test]
async fn work_that_never_ends_leaves_turns_to_others_and_to_reading() {
    let hub = Hub::new(Config { sys_interval: Some(Duration::ZERO), ..Config::default() }, 1);
    let (mut line, port) = connect(&hub, b'c');
    assert_eq!(hub.armed.load(Ordering::SeqCst), AT_ONCE, "the owner has handed over");
    // Real readiness of a socket, which the runtime has to look for, comes through although the
    // timer's task always has work.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let both = async { tokio::join!(TcpStream::connect(address), listener.accept()) };
    let (client, accepted) = tokio::time::timeout(ENOUGH, both).await.expect("others have their turns");
    drop((client.expect("the listener accepts"), accepted.expect("a client connects")));
    hub.bytes(&mut line, None, PINGREQ);
    assert_eq!(port.backlog(), CONNACK_AND_PINGRESP);
}

#[tokio::test]
async fn without_an_input_the_timer_meets_deadlines() {
    let mut config = config();
    config.limits.connect_timeout = Duration::from_millis(2);
    let hub = Hub::new(config, 1);
    let (_line, port) = open(&hub);
    let closed = async {
        while !port.is_closing() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ENOUGH, closed).await.expect("the connection is closed for saying nothing");
}

/// The overlay of a hub that listens and dials `peers`.
fn plan(peers: Vec<String>) -> crate::overlay::Plan {
    let credentials = crate::identity::credentials::of_development().expect("there is randomness");
    let listen = "127.0.0.1:0".parse().expect("an address");
    crate::overlay::Plan {
        listen,
        is_open: true,
        peers,
        credentials,
        access: None,
        dscp: Default::default(),
        compresses: true,
        caps: Default::default(),
        faults: Default::default(),
    }
}

fn with_others(name: &str) -> whimbrel_core::OverlayConfig {
    whimbrel_core::OverlayConfig {
        name: name.into(),
        version: "".into(),
        addresses: Vec::new(),
        interest_max: 256,
        expects_peers: true,
        links_wanted: 0,
        surcharges: Default::default(),
        domains: Default::default(),
        routing: whimbrel_core::Routing::default(),
        pace: whimbrel_core::Pace::DEFAULT,
        moves_sessions: true,
    }
}

/// Two hubs with a link between them, and the first hub's number of it.
async fn linked() -> (Arc<Hub>, Arc<Hub>, PeerLink) {
    let (a, b) = (Hub::new(config(), 1), Hub::new(config(), 2));
    let mut plan = plan(Vec::new());
    let address = a.open_overlay(&plan, with_others("a")).expect("a free port");
    plan.peers = vec![address.to_string()];
    b.open_overlay(&plan, with_others("b")).expect("a free port");
    until(|| [&a, &b].iter().all(|hub| hub.overlay_account().links.len() == 1)).await;
    (a, b, PeerLink(0))
}

#[tokio::test]
async fn a_connection_that_waits_for_its_session_is_read_on_so_that_its_end_is_noticed() {
    let hub = Hub::new(config(), 1);
    // The peer does not exist, so no broker can be asked where sessions are.
    hub.open_overlay(&plan(vec!["127.0.0.1:1".into()]), with_others("a")).expect("a free port");
    let seeking = || hub.look(|broker, _, _| broker.core().roam_gauges().map(|gauges| gauges.seeking));
    let (mut line, port) = open(&hub);
    hub.bytes(&mut line, None, &[CONNECT, b"w"].concat());
    assert_eq!((seeking(), port.backlog(), port.is_paused()), (Some(1), 0, false));
    hub.bytes(&mut line, None, &long_input());
    assert!(!port.is_paused(), "it may bring some of what it is about to do");
    hub.bytes(&mut line, None, &long_input());
    assert!(port.is_paused() && !port.is_closing(), "but not all");
    hub.gone(line, true);
    assert_eq!(seeking(), Some(1), "what it has brought is handled once it has its session");
    let (mut line, _) = open(&hub);
    hub.bytes(&mut line, None, &[CONNECT, b"v"].concat());
    assert_eq!(seeking(), Some(2));
    hub.gone(line, true);
    assert_eq!(seeking(), Some(1), "one that has brought nothing else is not waited for");
}

/// Waits until `is_so`; the runtime does everything else meanwhile.
async fn until(mut is_so: impl FnMut() -> bool) {
    let comes = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ENOUGH, comes).await.expect("it becomes so");
}

/// The other broker hangs up on bytes that are no frame: so the test sees that it has read them.
#[tokio::test]
async fn what_the_machine_sends_to_another_broker_is_written_when_the_machine_is_let_go_of() {
    let (a, b, link) = linked().await;
    a.run(|machine, _| assert_eq!(machine.ports.peer_bytes(link, Channel::Reliable, &[7; 100_000]), 100_000));
    until(|| [&a, &b].iter().all(|hub| hub.overlay_account().links.is_empty())).await;
}

#[tokio::test]
async fn a_link_that_the_core_hangs_up_gets_nothing_more_and_its_number_is_free_when_it_has_ended() {
    let (a, b, link) = linked().await;
    a.run(|machine, _| {
        machine.ports.peer_hang_up(link, whimbrel_core::HangUp::Double);
        assert_eq!(machine.ports.peer_bytes(link, Channel::Control, b"late"), 0);
    });
    until(|| [&a, &b].iter().all(|hub| hub.overlay_account().links.is_empty())).await;
    let mut free = Vec::new();
    until(|| {
        a.run(|machine, _| free = machine.ports.free_links().to_vec());
        free == [link.0]
    })
    .await;
}

#[tokio::test]
async fn input_of_a_link_waits_its_turn_like_that_of_a_client() {
    let (a, ..) = linked().await;
    let mut line = Line::new(Source::Link(PeerLink(0)));
    let owner = a.wait_and_own();
    a.bytes(&mut line, Some(Channel::BestEffort), &long_input());
    assert!(!a.may_read(&mut line), "it has brought as much as may wait");
    a.finish(owner);
    assert!(a.may_read(&mut line) && a.is_inbox_empty());
}
