//! Thin links: more events over the same path, neighbours that do not know how, and those that
//! mean harm.

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ApplicationClose, ClientConfig, Connection, ConnectionError, Endpoint, SendStream, TransportConfig, VarInt,
};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::*;

/// Bytes a millisecond of a thin link: 1 Mbit/s.
const THIN: u64 = 125;

/// What is sent before the other end has what was sent earlier, at most.
const AHEAD: usize = 96 << 10;

/// Numbers without a pattern.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next(256) as u8).collect()
    }
}

/// Events of a fleet as a link has them: a frame's head with a tick, a topic, and JSON.
fn fleet(count: u64) -> Vec<Vec<u8>> {
    let mut numbers = Numbers(42);
    let mut tick = 1_767_225_600_000_000_000_u64;
    let mut event = |at: u64| {
        let (bus, line) = (1_000 + numbers.next(300), numbers.next(40));
        let (lat, lon) = (520_000 + numbers.next(9_000), 130_000 + numbers.next(9_000));
        let (speed, at) = (numbers.next(700), 1_767_225_600 + at / 20);
        tick += 1_000_000 + numbers.next(5_000_000);
        let json = format!(
            "{{\"vehicle\":\"bus-{bus}\",\"line\":\"{line}\",\"lat\":{}.{:04},\"lon\":{}.{:04},\"speed\":{}.{},\"t\":{at}}}",
            lat / 10_000,
            lat % 10_000,
            lon / 10_000,
            lon % 10_000,
            speed / 10,
            speed % 10,
        );
        let topic = format!("city/bus/{bus}/position");
        let mut frame = vec![0x12, (json.len() + topic.len() + 19) as u8, 3, 0x80];
        frame.extend(0x0abc_def0_1234_5671_u64.to_be_bytes());
        frame.extend(tick.to_be_bytes());
        frame.push(topic.len() as u8);
        frame.extend(topic.as_bytes());
        frame.extend(json.as_bytes());
        frame
    };
    (0..count).map(&mut event).collect()
}

fn received(links: &[Seen], channel: Channel) -> usize {
    links.first().and_then(|link| link.bytes.get(&number(channel))).map_or(0, Vec::len)
}

/// Bytes of links that were compressed at an end, and those that came of them.
fn packed(end: &End) -> (u64, u64) {
    end.counts.account().links.first().map_or((0, 0), |link| (link.plain, link.packed))
}

/// Two ends, and a path of that rate to the second one.
async fn thinly_linked(rate: u64, compresses: bool) -> (End, End, NarrowPath, Arc<Port>) {
    let plan = Plan { compresses, ..End::plan(&development(), free(), &[]) };
    let a = End::of(&plan).expect("a free port");
    let path = NarrowPath::to(a.address(), rate).await;
    let b = End::start(&development(), free(), &[path.address]);
    let to_b = a.port().await;
    b.port().await;
    (a, b, path, to_b)
}

/// What a path carries in a steady state.
struct Carried {
    events_a_second: f64,
    bytes_an_event: f64,
    packed: (u64, u64),
}

/// Sends events as fast as they arrive, and measures from `from` to `until`. All of them arrive,
/// in order.
async fn carry(events: &[Vec<u8>], compresses: bool, from: Duration, until: Duration) -> Carried {
    let (a, b, path, to_b) = thinly_linked(THIN, compresses).await;
    let began = Instant::now();
    let (mut sent, mut ends, mut measured) = (Vec::new(), Vec::new(), None);
    let look = |ends: &[usize]| {
        let bytes = received(&b.watcher.links.lock(), Channel::Reliable);
        (Instant::now(), path.carried.load(Ordering::Relaxed), ends.partition_point(|end| *end <= bytes))
    };
    for event in events {
        to_b.send(Channel::Reliable, event);
        to_b.flush();
        sent.extend_from_slice(event);
        ends.push(sent.len());
        let enough = sent.len().saturating_sub(AHEAD);
        b.sees("events", |links| (received(links, Channel::Reliable) >= enough).then_some(())).await;
        if measured.is_none() && began.elapsed() >= from {
            measured = Some(look(&ends));
        }
        if began.elapsed() >= until {
            break;
        }
    }
    assert!(began.elapsed() >= until, "there are enough events");
    let ((at, bytes, count), (last_at, last_bytes, last_count)) = (measured.expect("it was measured"), look(&ends));
    b.sees("all events", |links| (received(links, Channel::Reliable) == sent.len()).then_some(())).await;
    assert!(b.watcher.links.lock()[0].bytes[&number(Channel::Reliable)] == sent, "what arrives is what was sent");
    let count = (last_count - count) as f64;
    Carried {
        events_a_second: count / (last_at - at).as_secs_f64(),
        bytes_an_event: (last_bytes - bytes) as f64 / count,
        packed: packed(&a),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thin_link_carries_more_events_when_they_are_compressed() {
    let (from, until) = (Duration::from_millis(2_500), Duration::from_millis(7_000));
    let events = fleet(60_000);
    let (off, auto) = tokio::join!(carry(&events, false, from, until), carry(&events, true, from, until));
    for (name, carried) in [("off", &off), ("auto", &auto)] {
        let Carried { events_a_second, bytes_an_event, packed } = carried;
        println!(
            "compression {name}: {bytes_an_event:.1} bytes an event on the wire, {events_a_second:.0} events a second, {packed:?} compressed"
        );
    }
    let gain = auto.events_a_second / off.events_a_second;
    println!(
        "{gain:.2} times as many events a second; {:.2} times fewer bytes",
        off.bytes_an_event / auto.bytes_an_event
    );
    assert_eq!(off.packed, (0, 0), "nothing is compressed where it is off");
    assert!(auto.packed.0 > 2 * auto.packed.1, "{:?}", auto.packed);
    assert!(auto.bytes_an_event * 2.0 < off.bytes_an_event, "it saves bytes");
    assert!(gain > 2.0, "{gain}");
}

/// Urgent events wait no longer on a link that is compressed than on one that is full of plain
/// bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_event_overtakes_compressed_bulk() {
    let bulk = fleet(120_000).concat();
    let plain = Duration::from_millis(bulk.len() as u64 / NARROW);
    let found = Overtaking::run(&End::plan(&development(), free(), &[]), &bulk).await;
    assert!(found.median() < OVERTAKES, "{found:?}");
    assert!(found.bulk < plain / 2, "{:?} of {plain:?}: it is compressed", found.bulk);
}

/// Compression is tried where a link is thin, and given up where it does not pay. All arrives in
/// order over three streams, the last of it before the link ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_cannot_be_compressed_go_back_to_the_plain_way() {
    const RATE: u64 = 500;
    const LAST: usize = 200 << 10;
    let (a, b, _path, to_b) = thinly_linked(RATE, true).await;
    let (mut numbers, mut sent) = (Numbers(7), Vec::new());
    let mut send = |len| {
        let bytes = numbers.bytes(len);
        to_b.send(Channel::BestEffort, &bytes);
        to_b.flush();
        sent.extend(bytes);
        sent.len()
    };
    let (mut tried, mut since) = ((0, 0), 0);
    // Compression is given up after an eighth of a MiB: twice that, plain in sequence, shows it.
    while tried == (0, 0) || since < 256 << 10 {
        let len = send(8 << 10);
        let enough = len.saturating_sub(AHEAD);
        b.sees("bytes", |links| (received(links, Channel::BestEffort) >= enough).then_some(())).await;
        let now = packed(&a);
        (tried, since) = (now, if now == tried { since + (8 << 10) } else { 0 });
    }
    assert!(tried.1 > tried.0, "{tried:?}");
    send(LAST);
    a.overlay.close_gate();
    to_b.finish().await;
    b.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    assert!(b.watcher.links.lock()[0].bytes[&number(Channel::BestEffort)] == sent);
}

/// A link that ends while it is compressed loses nothing, and says so at both ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_link_that_ends_loses_nothing() {
    let (a, b, _path, to_b) = thinly_linked(THIN, true).await;
    let mut sent = Vec::new();
    for event in fleet(60_000) {
        to_b.send(Channel::Reliable, &event);
        to_b.send(Channel::BestEffort, &event);
        to_b.flush();
        sent.extend(event);
        let enough = sent.len().saturating_sub(AHEAD);
        b.sees("events", |links| (received(links, Channel::Reliable) >= enough).then_some(())).await;
        if packed(&a).0 > 512 << 10 {
            break;
        }
    }
    a.overlay.close_gate();
    to_b.finish().await;
    b.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    let links = b.watcher.links.lock();
    for channel in [Channel::Reliable, Channel::BestEffort] {
        assert!(links[0].bytes[&number(channel)] == sent, "{channel:?}");
    }
}

/// A neighbour of another kind: QUIC without a broker.
struct Stranger {
    _endpoint: Endpoint,
    connection: Connection,
    sending: Vec<SendStream>,
}

impl Stranger {
    /// Dials a broker, and opens the streams of a link. The broker may open `streams` streams.
    async fn at(address: SocketAddr, streams: u32) -> Stranger {
        let mut transport = TransportConfig::default();
        transport.max_concurrent_uni_streams(VarInt::from_u32(streams));
        let crypto = QuicClientConfig::try_from(development().client).expect("credentials of a broker");
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::client(free()).expect("a free port");
        endpoint.set_default_client_config(config);
        let dialed = endpoint.connect(address, "broker.whimbrel").expect("it can be dialled");
        let connection = dialed.await.expect("it answers");
        let mut sending = Vec::new();
        for number in 0..3 {
            sending.push(open(&connection, &[number]).await);
        }
        Stranger { _endpoint: endpoint, connection, sending }
    }

    /// Waits until the broker has closed the link. Returns the reason.
    async fn reason(&self) -> String {
        let close = self.closed().await;
        assert_eq!(close.error_code, VarInt::from_u32(2));
        String::from_utf8_lossy(&close.reason).into_owned()
    }

    /// Waits until the broker has ended the link; how.
    async fn closed(&self) -> ApplicationClose {
        let closed = tokio::time::timeout(DEADLINE, self.connection.closed()).await;
        match closed.expect("the link ends") {
            ConnectionError::ApplicationClosed(close) => close,
            other => panic!("{other}"),
        }
    }
}

async fn open(connection: &Connection, bytes: &[u8]) -> SendStream {
    let mut stream = connection.open_uni().await.expect("the broker allows it");
    // If it fails, the broker has closed the link, which the caller looks at.
    let _ = stream.write_all(bytes).await;
    stream
}

/// The compressed form of bytes, flushed and not ended.
fn compressed(bytes: &[u8], window_log: u32) -> Vec<u8> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::WindowLog(window_log)).expect("a context that is new");
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let mut output = OutBuffer::around(&mut packed[..]);
    let mut input = InBuffer::around(bytes);
    while input.pos() < bytes.len() {
        context.compress_stream(&mut output, &mut input).expect("there is room");
    }
    assert_eq!(context.flush_stream(&mut output), Ok(0));
    let end = output.pos();
    packed.truncate(end);
    packed
}

/// First bytes of successors of reliable events.
const PLAIN: u8 = 0x11;
const PACKED: u8 = 0x21;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_that_allows_no_successor_gets_everything_plain() {
    const ALL: usize = 400 << 10;
    let a = End::start(&development(), free(), &[]);
    for streams in [3, 4] {
        let path = NarrowPath::to(a.address(), THIN).await;
        let stranger = Stranger::at(path.address, streams).await;
        let to_it = a
            .sees("the link", |links| links.iter().find(|link| !link.is_closed).and_then(|link| link.port.clone()))
            .await;
        let sent: Vec<u8> = fleet(4_000).concat()[..ALL].to_vec();
        to_it.send(Channel::BestEffort, &sent);
        to_it.flush();
        let mut numbers = BTreeMap::new();
        for _ in 0..3 {
            let mut stream = stranger.connection.accept_uni().await.expect("the link is up");
            let mut number = [0];
            stream.read_exact(&mut number).await.expect("it has a number");
            numbers.insert(number[0], stream);
        }
        let mut got = vec![0; ALL];
        numbers.get_mut(&2).expect("a stream of bulk").read_exact(&mut got).await.expect("all of it");
        assert!(got == sent, "it is plain");
        let account = a.counts.account();
        assert_eq!(account.links.iter().map(|link| link.plain + link.packed).sum::<u64>(), 0);
        if streams == 4 {
            to_it.send(Channel::Urgent, b"!");
            to_it.flush();
            let mut urgent = stranger.connection.accept_uni().await.expect("the link is up");
            let mut bytes = [0; 2];
            urgent.read_exact(&mut bytes).await.expect("an urgent event");
            assert_eq!(bytes, *b"\x03!");
        }
        stranger.connection.close(VarInt::from_u32(0), b"");
        a.sees("the end of the link", |links| links.iter().all(|link| link.is_closed).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_successor_ends_the_link_with_a_reason() {
    let a = End::start(&development(), free(), &[]);
    let protocol = || {
        let refusals = a.counts.account().refusals;
        refusals.into_iter().find(|(name, _)| *name == "protocol").map_or(0, |(_, count)| count)
    };
    let garbage = [&[PACKED][..], &Numbers(3).bytes(4_096)].concat();
    let wide = [&[PACKED][..], &compressed(&[7; 1_000], 20)].concat();
    let mut cut = [&[PACKED][..], &compressed(&fleet(100).concat(), 16)].concat();
    cut.truncate(500);
    let (unknown, twice) = ("a stream that is none of those of a link", "two successors of a stream at once");
    let cases: [(&[&[u8]], &str); 9] = [
        (&[&garbage], "a compressed stream that cannot be read"),
        (&[&wide], "a compressed stream that cannot be read"),
        (&[&cut, &[PLAIN]], "a compressed stream that ends within a block"),
        (&[&[PLAIN], &[PACKED]], twice),
        (&[&[0x10]], unknown),
        (&[&[0x23]], unknown),
        (&[&[0x31]], unknown),
        (&[&[1]], unknown),
        (&[&[]], "a stream that ends before it tells its channel"),
    ];
    for (before, (streams, reason)) in (0_u64..).zip(cases) {
        let mut stranger = Stranger::at(a.address(), 8).await;
        let mut opened = Vec::new();
        if reason != twice {
            // Now the broker allows one successor at a time.
            opened.push(open(&stranger.connection, &[3]).await);
            stranger.sending[1].finish().expect("it is open");
        }
        for (at, bytes) in streams.iter().enumerate() {
            let mut stream = open(&stranger.connection, bytes).await;
            if at + 1 < streams.len() || bytes.is_empty() {
                // It fails where the broker has closed the link.
                let _ = stream.finish();
            }
            opened.push(stream);
        }
        assert_eq!(stranger.reason().await, reason, "{streams:?}");
        let counted = async {
            while protocol() <= before {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, counted).await.is_ok(), "it is counted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_without_a_successor_ends_the_link() {
    let a = End::start(&development(), free(), &[]);
    let mut stranger = Stranger::at(a.address(), 8).await;
    a.port().await;
    stranger.sending[1].write_all(b"last").await.expect("the link is up");
    stranger.sending[1].finish().expect("it is open");
    assert_eq!(stranger.reason().await, "the streams of a link have ended");
    a.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    assert_eq!(a.watcher.links.lock()[0].bytes[&number(Channel::Reliable)], b"last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_ends_before_it_is_flushed_ends_with_the_reason_of_the_core() {
    let a = End::start(&development(), free(), &[]);
    let mut stranger = Stranger::at(a.address(), 8).await;
    a.port().await.hang_up(HangUp::Garbage);
    // The link's task takes its turn, and sees that the core takes nothing more.
    stranger.sending[1].write_all(b"more").await.expect("the link is up");
    assert_eq!(stranger.closed().await.reason, HangUp::Garbage.text().as_bytes());
}

/// Bytes that decompress to thousands of times their size: they are read like plain ones of that
/// size, and another link is served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_bytes_that_become_very_many_hold_nothing_up() {
    const MANY: usize = 64 << 20;
    let (a, b, _to_b, to_a) = linked().await;
    let bomb = compressed(&vec![0; MANY], 16);
    println!("{} bytes become {MANY}", bomb.len());
    assert!(bomb.len() < 16 << 10);
    let mut stranger = Stranger::at(a.address(), 8).await;
    stranger.sending[2].finish().expect("it is open");
    let _stream = open(&stranger.connection, &[&[0x22], &bomb[..]].concat()).await;
    let of = |links: &[Seen], link: usize, channel| {
        links.get(link).and_then(|link: &Seen| link.bytes.get(&number(channel))).map_or(0, Vec::len)
    };
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    loop {
        let sent = Instant::now();
        to_a.send(Channel::Reliable, b"!");
        to_a.flush();
        rounds += 1;
        a.sees("an event of another link", |links| (of(links, 0, Channel::Reliable) == rounds).then_some(())).await;
        longest = longest.max(sent.elapsed());
        if of(&a.watcher.links.lock(), 1, Channel::BestEffort) == MANY {
            break;
        }
        assert!(sent.elapsed() < DEADLINE);
    }
    println!("{rounds} events of another link meanwhile, {longest:?} at most");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let links = a.watcher.links.lock();
    assert!(links[1].bytes[&number(Channel::BestEffort)].iter().all(|byte| *byte == 0) && !links[1].is_closed);
    drop(b);
}
