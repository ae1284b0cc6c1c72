//! Strangers at the port of the links, who have got through the handshake and mean harm. The broker
//! stays, its memory is bounded, its log names what they did, and a link beside them loses nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use whimbrel_client::HostId;
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Wanted};
use whimbrel_server::identity::credentials::{self, Credentials};
use whimbrel_server::overlay::LINKS_MAX;
use whimbrel_sim::wan::WanProfile;
use whimbrel_wire::{
    Cutter, Digest, FRAME_BYTES_MAX, Frame, Goodbye, Hello, InterestEntry, InterestUpdate, LinkEnd, LinkStateFrame,
};

use crate::broker::{Broker, until};
use crate::judge::demand;
use crate::world::World;

/// What must come comes by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a stranger that takes nothing says something, so that it is not silent.
const MURMUR: Duration = Duration::from_millis(500);

/// A broker that holds what a stranger makes it hold has no more memory than before and this.
const GROWTH_MAX: u64 = 48 << 20;

/// Connections that a stranger makes.
const CONNECTIONS: usize = 1_000;

/// Those that it makes at once.
const AT_ONCE: usize = 32;

/// Who says what no broker would say, over a link as brokers have it.
struct Stranger {
    _endpoint: Endpoint,
    connection: Connection,
    sending: Vec<SendStream>,
    receiving: Vec<RecvStream>,
}

fn endpoint(credentials: &Credentials) -> Endpoint {
    let mut transport = TransportConfig::default();
    // Small windows: what it does not read stays with the broker.
    transport.stream_receive_window(VarInt::from_u32(64 << 10)).receive_window(VarInt::from_u32(128 << 10));
    transport.keep_alive_interval(Some(Duration::from_secs(1)));
    let crypto = QuicClientConfig::try_from(credentials.client.clone()).expect("credentials of a broker");
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    let mut endpoint = Endpoint::client(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("a free port");
    endpoint.set_default_client_config(config);
    endpoint
}

impl Stranger {
    async fn try_at(endpoint: Endpoint, address: SocketAddr) -> Result<Stranger, ConnectionError> {
        let connection = endpoint.connect(address, "broker.whimbrel").expect("it can be dialled").await?;
        let (mut sending, mut receiving) = (Vec::new(), Vec::new());
        for number in 0..3_u8 {
            let mut stream = connection.open_uni().await?;
            // If that fails, the connection has ended, which the next one tells.
            let _ = stream.write_all(&[number]).await;
            sending.push(stream);
        }
        for _ in 0..3 {
            let mut stream = connection.accept_uni().await?;
            let mut number = [0];
            let _ = stream.read_exact(&mut number).await;
            receiving.push((number[0], stream));
        }
        receiving.sort_by_key(|(number, _)| *number);
        let receiving = receiving.into_iter().map(|(_, stream)| stream).collect();
        Ok(Stranger { _endpoint: endpoint, connection, sending, receiving })
    }

    async fn at(credentials: &Credentials, address: SocketAddr) -> Stranger {
        let shaken = timeout(PATIENCE, Stranger::try_at(endpoint(credentials), address)).await;
        shaken.expect("the broker answers in time").expect("it believes the certificate")
    }

    async fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.write(&bytes).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // The broker may have hung up in the middle.
        let _ = self.sending[0].write_all(bytes).await;
    }

    /// The next frame of the broker's control stream that `wanted` takes something of.
    async fn hears<T>(&mut self, cutter: &mut Cutter, wanted: impl Fn(&Frame<'_>) -> Option<T>) -> T {
        let comes = async {
            let mut buffer = vec![0; 4096];
            loop {
                let count = self.receiving[0].read(&mut buffer).await.expect("it is open").expect("it is open");
                let mut chunk = &buffer[..count];
                let mut found = None;
                while let Some(bytes) = cutter.next(&mut chunk).expect("brokers send frames") {
                    let frame = Frame::decode(bytes).expect("brokers send frames that make sense");
                    found = found.or_else(|| wanted(&frame));
                }
                if let Some(found) = found {
                    return found;
                }
            }
        };
        timeout(PATIENCE, comes).await.expect("the broker says it in time")
    }

    /// Waits until the broker has ended the link; its words.
    async fn is_hung_up(&self) -> String {
        let ended = timeout(PATIENCE, self.connection.closed()).await.expect("the broker ends the link in time");
        match ended {
            ConnectionError::ApplicationClosed(close) => String::from_utf8_lossy(&close.reason).into_owned(),
            other => panic!("the broker ended it by {other}"),
        }
    }
}

/// A hello that a broker would say; the deployment is that of `--dev` and of unnamed ones.
fn hello<'a>(name: &'a str, deployment: u64, host: u64) -> Hello<'a> {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later").as_nanos() as u64;
    Hello {
        major: whimbrel_wire::MAJOR,
        minor: whimbrel_wire::MINOR,
        deployment,
        host: HostId::new(host),
        incarnation: now,
        name,
        time: now,
        reliable: 4,
        further: 4,
        birth: whimbrel_client::Tick(now),
        version: "",
    }
}

/// What the broker calls its deployment.
async fn deployment(stranger: &mut Stranger, cutter: &mut Cutter) -> u64 {
    let of_hello = |frame: &Frame<'_>| match frame {
        Frame::Hello(hello) => Some(hello.deployment),
        _ => None,
    };
    stranger.hears(cutter, of_hello).await
}

/// The broker's deployment and host, as its hello tells.
async fn greeting(stranger: &mut Stranger, cutter: &mut Cutter) -> (u64, HostId) {
    let of_hello = |frame: &Frame<'_>| match frame {
        Frame::Hello(hello) => Some((hello.deployment, hello.host)),
        _ => None,
    };
    stranger.hears(cutter, of_hello).await
}

/// Two brokers with a link between them, clients at both, and a stranger's credentials.
async fn world() -> (World, Credentials, SocketAddr) {
    let mut world = World::start(2, &[(0, 1)], WanProfile::PERFECT, 5).await;
    world.load().await;
    let address = world.brokers[0].overlay;
    (world, credentials::of_development().expect("there is randomness"), address)
}

/// The broker lives, its only link to another broker was never interrupted, and its clients miss
/// nothing.
async fn is_undisturbed(mut world: World) {
    assert!(world.brokers[0].is_alive(), "the broker is gone:\n{}", world.brokers[0].log());
    assert_eq!(world.brokers[0].metric("whimbrel_link_reconnects_total", ""), 0.0, "the link beside it was made anew");
    let verdicts = demand(&world.finish().await);
    let told: usize = verdicts.iter().map(|verdict| verdict.told).sum();
    assert_eq!(told, 0, "gaps were told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_what_makes_no_sense_is_hung_up_and_named() {
    let (world, credentials, address) = world().await;
    let mut first = Stranger::at(&credentials, address).await;
    let deployment = deployment(&mut first, &mut Cutter::new()).await;
    let mut encoded = Vec::new();
    Frame::Hello(hello("stranger", deployment, 0x7770)).encode(&mut encoded);
    let (garbage, other_version) = (vec![0x5a; 300], {
        let mut bytes = encoded.clone();
        assert_eq!(bytes[2], whimbrel_wire::MAJOR, "length, type, version");
        bytes[2] += 1;
        bytes
    });
    let mut frames = Vec::new();
    for hello in [hello("stranger", deployment + 1, 0x7770), hello("b1", deployment, 0x7770)] {
        let mut bytes = Vec::new();
        Frame::Hello(hello).encode(&mut bytes);
        frames.push(bytes);
    }
    // 10 MiB as a varint, and the first bytes of a frame of that length.
    let mut huge = vec![0x80, 0x80, 0x80, 0x05, 7];
    huge.resize(FRAME_BYTES_MAX, 7);
    let mut early = Vec::new();
    Frame::Unknown(77).encode(&mut early);
    let twice = [encoded.clone(), encoded.clone()].concat();
    let mut empty = encoded.clone();
    // Both numbers of pubends stand before the birth, which ends the frame with eight bytes.
    let numbers = empty.len() - 10..empty.len() - 8;
    assert_eq!(empty[numbers.clone()], [4, 4], "a hello ends with numbers of pubends and a birth");
    empty[numbers].fill(0);
    let (foreign, taken) = (frames.swap_remove(0), frames.swap_remove(0));
    let sense = "it sent what is no frame";
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("garbage", garbage, sense),
        ("a version", other_version, "it speaks another version of the protocol"),
        ("a deployment", foreign, "it belongs to another deployment"),
        ("a name", taken, "another broker has its name"),
        ("a frame of 10 MiB", huge, sense),
        ("a frame before its hello", early, sense),
        ("two hellos", twice, sense),
        ("a hello without pubends", empty, sense),
    ];
    for (what, bytes, reason) in cases {
        let mut stranger = Stranger::at(&credentials, address).await;
        stranger.write(&bytes).await;
        assert_eq!(stranger.is_hung_up().await, reason, "{what}");
        let port = stranger._endpoint.local_addr().expect("it is bound").port();
        let line = |line: &str| line.contains(&format!(":{port}")) && line.contains(reason);
        until(what, &world.brokers[0], |broker| broker.log().lines().any(line)).await;
    }
    is_undisturbed(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_states_that_are_old_or_false_change_nothing_for_others() {
    let (world, credentials, address) = world().await;
    let mut stranger = Stranger::at(&credentials, address).await;
    let mut cutter = Cutter::new();
    let deployment = deployment(&mut stranger, &mut cutter).await;
    let own = hello("stranger", deployment, 0x7770);
    stranger.say(&Frame::Hello(own)).await;
    // It has nothing, and lacks everything.
    stranger.say(&Frame::Digest(Digest { link_states: Vec::new(), interests: Vec::new(), more: false })).await;
    let of_neighbour = |frame: &Frame<'_>| match frame {
        Frame::LinkState(state) if state.name == "b1" => {
            Some((state.host, state.incarnation, state.sequence, state.birth))
        }
        _ => None,
    };
    let (host, incarnation, sequence, birth) = stranger.hears(&mut cutter, of_neighbour).await;
    let state = |incarnation, sequence| {
        let (addresses, neighbours) = (Vec::new(), Vec::new());
        let (reliable, further, age_ms) = (4, 4, 0);
        let name = "b1";
        Frame::LinkState(LinkStateFrame {
            host,
            incarnation,
            sequence,
            name,
            reliable,
            further,
            birth,
            age_ms,
            addresses,
            neighbours,
            previous: Vec::new(),
            domains: Default::default(),
            protocol: whimbrel_wire::Protocol::OWN,
            later: &[],
        })
    };
    for round in 0..1_000 {
        // Replayed, older, and from before the last start: without any neighbour.
        stranger.say(&state(incarnation, sequence)).await;
        stranger.say(&state(incarnation, sequence.saturating_sub(1 + round % 3))).await;
        stranger.say(&state(incarnation - 1, sequence + round)).await;
    }
    stranger.say(&Frame::Unknown(99)).await;
    until("what it said", &world.brokers[0], |broker| {
        broker.metric("whimbrel_link_received_bytes_total", &stranger_label(&stranger)) > 100_000.0
    })
    .await;
    stranger.connection.close(VarInt::from_u32(0), b"");
    is_undisturbed(world).await;
}

fn stranger_label(stranger: &Stranger) -> String {
    format!(":{}\"", stranger._endpoint.local_addr().expect("it is bound").port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_is_given_up_and_memory_is_bounded() {
    let (world, credentials, address) = world().await;
    let before = world.brokers[0].memory();
    let mut stranger = Stranger::at(&credentials, address).await;
    let (deployment, broker) = greeting(&mut stranger, &mut Cutter::new()).await;
    let own = hello("stranger", deployment, 0x7770);
    stranger.say(&Frame::Hello(own)).await;
    let (host, incarnation) = (own.host, own.incarnation);
    // A way leads to it only if both ends tell of the link.
    let end = LinkEnd { host: broker, port: 0, delay_us: 1_000, loss: 0, surcharge_us: 0 };
    let state = LinkStateFrame {
        host,
        incarnation,
        sequence: 1,
        name: own.name,
        reliable: 4,
        further: 4,
        birth: own.birth,
        age_ms: 0,
        addresses: Vec::new(),
        neighbours: vec![end],
        previous: Vec::new(),
        domains: Default::default(),
        protocol: whimbrel_wire::Protocol::OWN,
        later: &[],
    };
    stranger.say(&Frame::LinkState(state)).await;
    let added = vec![InterestEntry { id: 1, filter: "#", selector: None, durable: false }];
    let (version, base, removed, age_ms) = (1 << 20, None, Vec::new(), 0);
    stranger.say(&Frame::Interest(InterestUpdate { host, incarnation, version, base, removed, added, age_ms })).await;
    // Large events, so that much waits for it soon.
    let url = world.brokers[0].url();
    let flood = tokio::spawn(async move {
        let (client, _events) = whimbrel_client::Client::connect(whimbrel_client::Options::new(url)).await?;
        loop {
            let publish =
                whimbrel_client::Publish::new("flood", vec![7; 60_000]).qos(whimbrel_client::QoS::AtLeastOnce);
            client.publish(publish).await?;
        }
        #[expect(unreachable_code, reason = "it tells the type of the errors")]
        Ok::<(), whimbrel_client::Error>(())
    });
    let mut pace = interval(MURMUR);
    let begun = Instant::now();
    let mut most = 0;
    let ended = loop {
        tokio::select! {
            ended = stranger.connection.closed() => break ended,
            _ = pace.tick() => {
                most = most.max(world.brokers[0].memory());
                let mut murmur = Vec::new();
                Frame::Unknown(99).encode(&mut murmur);
                let _ = stranger.sending[0].write_all(&murmur).await;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "nobody gives it up");
    };
    flood.abort();
    let ConnectionError::ApplicationClosed(close) = ended else { panic!("the broker ended it by {ended}") };
    assert_eq!(String::from_utf8_lossy(&close.reason), "it takes nothing");
    println!("memory: {} MiB before, {} MiB at most", before >> 20, most >> 20);
    assert!(most < before + GROWTH_MAX, "{most} bytes, {before} before");
    is_undisturbed(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_connects_a_thousand_times_takes_no_more_than_the_places() {
    let (world, credentials, address) = world().await;
    let before = world.brokers[0].memory();
    let endpoint = endpoint(&credentials);
    let mut tasks = JoinSet::new();
    let (mut held, mut refused, mut made) = (Vec::new(), 0, 0);
    while made < CONNECTIONS || !tasks.is_empty() {
        if made < CONNECTIONS && tasks.len() < AT_ONCE {
            made += 1;
            tasks.spawn(Stranger::try_at(endpoint.clone(), address));
            continue;
        }
        match timeout(PATIENCE, tasks.join_next()).await.expect("the broker answers").expect("there is one") {
            Ok(Ok(stranger)) => held.push(stranger),
            _ => refused += 1,
        }
    }
    let most = world.brokers[0].memory();
    println!("{} held, {refused} refused; memory {} MiB before, {} MiB then", held.len(), before >> 20, most >> 20);
    assert!(refused > 0 && most < before + GROWTH_MAX, "{most} bytes, {before} before");
    assert!(world.brokers[0].metric("whimbrel_link_failures_total", "cause=\"full\"") > 0.0);
    // None of them has said who it is.
    for stranger in &held {
        stranger.is_hung_up().await;
    }
    until("room", &world.brokers[0], |broker| broker.metric("whimbrel_links", "") <= 1.0).await;
    is_undisturbed(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_goodbye_and_stays_is_hung_up_and_its_place_is_free() {
    let (world, credentials, address) = world().await;
    let endpoint = endpoint(&credentials);
    let mut held = Vec::new();
    // One link is that of the other broker: with a place lost at each goodbye, the last of them
    // would find none.
    for _ in 0..LINKS_MAX {
        let shaken = timeout(PATIENCE, Stranger::try_at(endpoint.clone(), address)).await;
        let mut stranger = shaken.expect("the broker answers in time").expect("there is a place");
        let deployment = deployment(&mut stranger, &mut Cutter::new()).await;
        stranger.say(&Frame::Hello(hello("stranger", deployment, 0x7770))).await;
        stranger.say(&Frame::Goodbye(Goodbye { code: 0, text: "and yet it stays" })).await;
        assert_eq!(stranger.is_hung_up().await, "it has said goodbye");
        // Nothing of it is closed at this end.
        held.push(stranger);
    }
    let broker = &world.brokers[0];
    assert_eq!(broker.metric("whimbrel_overlay_hang_ups_total", "reason=\"left\""), held.len() as f64);
    until("room", broker, |broker| broker.metric("whimbrel_links", "") <= 1.0).await;
    is_undisturbed(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_not_that_of_the_certificate_is_refused() {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let directory: TempDir = tempfile::tempdir().expect("a temporary directory");
    authority::make_authority(directory.path(), "city", YEAR).expect("an authority");
    let make = |name| {
        let wanted = Wanted { role: Role::Broker, name, hosts: &[], valid: YEAR };
        authority::make(directory.path(), directory.path(), &wanted).expect("a certificate")
    };
    let (made, forger) = (make("b0"), make("forger"));
    let authorities = directory.path().join("ca.pem");
    let mut broker = Broker::new(0);
    let path = |path: &std::path::Path| path.display().to_string();
    broker.identity = vec![
        "--tls-ca".into(),
        path(&authorities),
        "--tls-cert".into(),
        path(&made.certificate),
        "--tls-key".into(),
        path(&made.key),
    ];
    tokio::task::block_in_place(|| broker.start());
    let known = credentials::from_files((&forger.certificate, &forger.key), &authorities, None, true);
    let known = known.unwrap_or_else(|error| panic!("{}", error.message)).overlay;
    let mut stranger = Stranger::at(&known, broker.overlay).await;
    let deployment = deployment(&mut stranger, &mut Cutter::new()).await;
    stranger.say(&Frame::Hello(hello("south", deployment, 0x7770))).await;
    let reason = "the name that it gives itself is not that of its certificate";
    assert_eq!(stranger.is_hung_up().await, reason);
    until("the log", &broker, |broker| {
        broker.log().lines().any(|line| line.contains("forger") && line.contains(reason))
    })
    .await;
    // The name of its certificate is another matter.
    let mut stranger = Stranger::at(&known, broker.overlay).await;
    stranger.say(&Frame::Hello(hello("forger", deployment, 0x7770))).await;
    let any_state = |frame: &Frame<'_>| matches!(frame, Frame::LinkState(_) | Frame::Digest(_)).then_some(());
    stranger.hears(&mut Cutter::new(), any_state).await;
}
