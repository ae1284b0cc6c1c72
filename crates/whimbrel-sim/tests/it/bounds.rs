//! What one client may cost the broker: answers that it does not read, packets that it does not
//! complete.

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_mqtt::{ANSWERS_MAX, Config, HIGH_WATER, Limits, Origin};
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Hello, Message};

const PING: [u8; 2] = [0xc0, 0];
const QUOTA_EXCEEDED: u8 = 0x97;

#[test]
fn a_client_that_asks_on_and_on_without_reading_is_disconnected() {
    let mut rig = Rig::new(Config::default(), 1);
    let mute = rig.connect(Hello::v5("mute"));
    let other = rig.connect(Hello::v5("other"));
    rig.stall(mute);
    let pings = PING.repeat(16 << 10);
    for _ in 0..200 {
        rig.send(mute, &pings);
    }
    let most = HIGH_WATER + ANSWERS_MAX + 2 * pings.len();
    assert!(rig.backlog(mute) <= most, "{} bytes wait for a client that does not read", rig.backlog(mute));
    assert_eq!(rig.stats().ended.count(QUOTA_EXCEEDED), 1);
    assert_eq!(rig.stats().connections, 1);
    rig.subscribe(other, "still/served", Qos::AtMostOnce);
}

#[test]
fn a_client_that_reads_may_ask_as_much_as_it_likes() {
    let mut rig = Rig::new(Config::default(), 1);
    let eager = rig.connect(Hello::v5("eager"));
    for _ in 0..200 {
        rig.stall(eager);
        rig.send(eager, &PING.repeat(16 << 10));
        rig.unstall(eager);
    }
    assert!(!rig.is_closed(eager));
    assert_eq!(rig.stats().ended.total(), 0);
}

#[test]
fn incomplete_packets_are_bounded_over_all_connections() {
    let limits = Limits { partial_bytes: 1 << 20, ..Limits::default() };
    let mut rig = Rig::new(Config { limits, ..Config::default() }, 1);
    // The beginning of a CONNECT that says it is 14 MB long.
    let greeting = [0x10, 0xff, 0xff, 0xff, 0x06];
    let hoarders: Vec<_> = (0..40).map(|_| rig.open(Origin::Tcp)).collect();
    for conn in &hoarders {
        rig.send(*conn, &greeting);
        rig.send(*conn, &vec![0; 60 << 10]);
    }
    let open = hoarders.iter().filter(|conn| !rig.is_closed(**conn)).count();
    assert!((10..=20).contains(&open), "{open} hold 64 KiB each of 1 MiB");
    assert_eq!(rig.stats().refused.count(QUOTA_EXCEEDED) as usize, hoarders.len() - open);

    // Others are served, also with a packet in two pieces that is small beside those of the
    // hoarders.
    let console = rig.connect(Hello::v5("console"));
    rig.subscribe(console, "t", Qos::AtMostOnce);
    let bus = rig.connect(Hello::v311("bus"));
    let mut packet = vec![0x30, 0x80, 0xa0, 0x01, 0, 1, b't'];
    packet.resize(4 + 20_480, b'x');
    let (first, second) = packet.split_at(20_000);
    rig.send(bus, first);
    rig.send(bus, second);
    assert_eq!(rig.messages(console).len(), 1);
    for conn in hoarders {
        rig.close(conn);
    }
    rig.publish(bus, Message::new("t", "after"));
    assert_eq!(rig.messages(console).len(), 1);
}
