//! Certificates that are read again while the broker runs: what it shows, whom it believes, and who
//! has to go.

use std::path::{Path, PathBuf};

use crate::common::authority::{Authority, read};
use crate::common::{CONNECT, PING, address, audited, metric, packet, shakes_hands, soon, speaks_tls};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use whimbrel_server::config::{Config, Listener};
use whimbrel_server::{Outcome, Server};

use whimbrel_server::identity::Role;

/// A broker with a configuration file.
struct Broker {
    directory: tempfile::TempDir,
    server: Server,
}

fn config(directory: &Path, city: &Authority, peers: &[String], more: &str) -> PathBuf {
    let path = |name: &str| directory.join(name).display().to_string();
    let ca = city.path().join("ca.pem").display().to_string();
    let text = format!(
        "tls_cert = {:?}\ntls_key = {:?}\ntls_ca = {ca:?}\ntls_crl = {:?}\nlisten_tls = \"127.0.0.1:0\"\nlisten_wss = \"127.0.0.1:0\"\n\
         listen_http = \"127.0.0.1:0\"\nhttp_plain = true\nlisten_overlay = \"127.0.0.1:0\"\n[overlay]\npeers = {peers:?}\n[identity]\naudit = \"audit.jsonl\"\n\
         [[rule]]\nprincipals = [\"*\"]\nactions = [\"publish\", \"subscribe\"]\ntopics = [\"#\"]\n\
         [[rule]]\nprincipals = [\"anonymous\"]\nactions = [\"observe\"]\n{more}",
        path("broker.pem"),
        path("broker.key"),
        path("revoked.pem"),
    );
    let file = directory.join("whimbrel.toml");
    std::fs::write(&file, text).expect("it can be written");
    file
}

impl Broker {
    async fn start(city: &Authority, name: &str, peers: &[String]) -> Broker {
        let directory = tempfile::tempdir().expect("a directory");
        renew(directory.path(), city, name);
        std::fs::write(directory.path().join("revoked.pem"), city.revoke(&[])).expect("it can be written");
        let file = config(directory.path(), city, peers, "");
        let config = Config::load(Some(&file), &[]);
        let config =
            config.unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(|it| it.line()).collect::<Vec<_>>()));
        let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
        Broker { directory, server }
    }

    fn at(&self) -> String {
        address(&self.server, Listener::Overlay).to_string()
    }

    async fn audited(&self, expected: serde_json::Value) {
        audited(&self.directory.path().join("audit.jsonl"), &expected).await;
    }

    async fn reload(&self) -> Outcome {
        self.server.reload().await.expect("there is a file")
    }
}

/// North and south, which dials it.
async fn linked(city: &Authority) -> (Broker, Broker) {
    let north = Broker::start(city, "north", &[]).await;
    let south = Broker::start(city, "south", &[north.at()]).await;
    for broker in [&north, &south] {
        metric(&broker.server, "whimbrel_links 1").await;
    }
    (north, south)
}

/// Puts a new certificate with its key where a broker has its own.
fn renew(directory: &Path, city: &Authority, name: &str) {
    let new = tempfile::tempdir().expect("a directory");
    let made = city.make_in(new.path(), Role::Broker, name);
    std::fs::copy(made.certificate, directory.join("broker.pem")).expect("it can be written");
    std::fs::copy(made.key, directory.join("broker.key")).expect("it can be written");
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().expect("it has shown one")[0].clone()
}

#[tokio::test]
async fn a_new_certificate_is_shown_from_then_on_and_connections_stay() {
    let city = Authority::new("city");
    let (north, south) = linked(&city).await;
    let bus = city.make(Role::Client, "bus-7");
    let mut before = speaks_tls(&north.server, &city, Some(bus.clone())).await.expect("it is let in");
    let first = read(&north.directory.path().join("broker.pem"));
    assert_eq!(shown(&before), first);

    renew(north.directory.path(), &city, "north");
    let second = read(&north.directory.path().join("broker.pem"));
    assert_ne!(first, second);
    assert_eq!(north.reload().await, Outcome::Changed);
    north.audited(json!({ "event": "reloaded", "why": "another certificate of this broker" })).await;
    before.write_all(PING).await.expect("the connection is open");
    assert_eq!(soon("PINGRESP", packet(&mut before)).await, Some((0xd0, Vec::new())), "the old connection stays");
    drop(before);
    let after = speaks_tls(&north.server, &city, Some(bus.clone())).await.expect("it is let in");
    assert_eq!(shown(&after), second);
    metric(&south.server, "whimbrel_links 1").await;
    metric(&south.server, "whimbrel_link_reconnects_total 0").await;
    // A broker that dials shows it too, and one that is dialled.
    let east = Broker::start(&city, "east", &[north.at(), south.at()]).await;
    metric(&east.server, "whimbrel_links 2").await;

    // A key that is not that certificate's, as while both are being written: what was stays.
    std::fs::copy(&bus.key, north.directory.path().join("broker.key")).expect("it can be written");
    assert_eq!(north.reload().await, Outcome::Refused);
    let again = speaks_tls(&north.server, &city, Some(bus)).await.expect("it is let in");
    assert_eq!(shown(&again), second);
    north.audited(json!({ "event": "refused", "action": "reload" })).await;
}

#[tokio::test]
async fn whoever_is_revoked_has_to_go_and_is_not_let_in_again() {
    let city = Authority::new("city");
    let (north, south) = linked(&city).await;
    let (seven, eight) = (city.make(Role::Client, "bus-7"), city.make(Role::Client, "bus-8"));
    let mut bus = speaks_tls(&north.server, &city, Some(seven.clone())).await.expect("it is let in");
    let mut other = speaks_tls(&north.server, &city, Some(eight.clone())).await.expect("it is let in");

    let revoked = [read(&seven.certificate), read(&south.directory.path().join("broker.pem"))];
    let list = city.revoke(&revoked.each_ref());
    std::fs::write(north.directory.path().join("revoked.pem"), list).expect("it can be written");
    assert_eq!(north.reload().await, Outcome::Changed);
    north.audited(json!({ "event": "reloaded", "why": "other lists of revoked certificates" })).await;
    let (first, body) = soon("a goodbye", packet(&mut bus)).await.expect("a packet");
    assert_eq!((first, body[0]), (0xe0, 0x87));
    assert!(speaks_tls(&north.server, &city, Some(seven)).await.is_none());
    let why = "the certificate was revoked by its authority";
    north.audited(json!({ "event": "refused", "action": "connect", "why": why })).await;
    metric(&north.server, "whimbrel_links 0").await;
    north.audited(json!({ "event": "refused", "action": "peer", "principal": "south", "why": why })).await;
    // It dials again, and does not get so far as to have a name.
    north.audited(json!({ "event": "refused", "action": "peer", "principal": null, "why": why })).await;
    other.write_all(PING).await.expect("the connection is open");
    assert_eq!(soon("PINGRESP", packet(&mut other)).await, Some((0xd0, Vec::new())), "others stay");
    speaks_tls(&north.server, &city, Some(eight)).await.expect("others are let in");
}

/// What it has shown was believed, and it is no connection of a client yet.
#[tokio::test]
async fn whoever_is_revoked_between_its_handshake_and_its_upgrade_has_to_go() {
    let city = Authority::new("city");
    let north = Broker::start(&city, "north", &[]).await;
    let (seven, eight) = (city.make(Role::Client, "bus-7"), city.make(Role::Client, "bus-8"));
    let list = city.revoke(&[&read(&seven.certificate)]);
    let mut slow = Vec::new();
    for client in [seven, eight] {
        let shaken = shakes_hands(&north.server, Listener::Wss, &city, Some(client)).await;
        slow.push(shaken.expect("it is believed"));
    }
    // The broker runs in this thread: while it answers this, it judges what was shown.
    metric(&north.server, "whimbrel_listener_accepted_total{listener=\"wss\"} 2").await;
    std::fs::write(north.directory.path().join("revoked.pem"), list).expect("it can be written");
    assert_eq!(north.reload().await, Outcome::Changed);
    let upgrade = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    let mut is_there = Vec::new();
    for mut stream in slow {
        let _ = stream.write_all(upgrade).await;
        // A frame with a mask of zeros, and in it CONNECT.
        let _ = stream.write_all(&[&[0x82, 0x80 | CONNECT.len() as u8, 0, 0, 0, 0], CONNECT].concat()).await;
        let mut came = Vec::new();
        let connack = |came: &[u8]| came.windows(2).any(|pair| pair == [0x20, 0x03] || pair[0] == 0x20 && pair[1] > 3);
        let answered = async {
            let mut piece = [0; 512];
            while let Ok(count @ 1..) = stream.read(&mut piece).await {
                came.extend_from_slice(&piece[..count]);
                let body = came.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
                if body.is_some_and(|body| connack(&came[body..])) {
                    return true;
                }
            }
            false
        };
        is_there.push(soon("an answer or the end", answered).await);
    }
    assert_eq!(is_there, [false, true]);
}

#[tokio::test]
async fn what_needs_a_start_is_refused_or_named() {
    let city = Authority::new("city");
    let north = Broker::start(&city, "north", &[]).await;
    config(north.directory.path(), &city, &["127.0.0.1:1".into()], "[limits]\nmax_sessions = 5\n");
    assert_eq!(north.reload().await, Outcome::Changed);
    let why = "counts once the broker is started again: \"overlay.peers\", \"limits.max_sessions\"";
    north.audited(json!({ "event": "reloaded", "why": why })).await;

    renew(north.directory.path(), &city, "south");
    assert_eq!(north.reload().await, Outcome::Refused);
    let bus = city.make(Role::Client, "bus-7");
    speaks_tls(&north.server, &city, Some(bus)).await.expect("it is let in by what was before");
}

#[tokio::test]
async fn another_authority_takes_the_place_of_one_that_is_not_believed_any_more() {
    let (city, next) = (Authority::new("city"), Authority::new("city"));
    let (north, _south) = linked(&city).await;
    let (old, new) = (city.make(Role::Client, "bus-7"), next.make(Role::Client, "bus-8"));
    let mut bus = speaks_tls(&north.server, &city, Some(old.clone())).await.expect("it is let in");
    assert!(speaks_tls(&north.server, &city, Some(new.clone())).await.is_none());

    // Both for a while, with a certificate of the old one; then the new one alone.
    city.believe(&next);
    let text = std::fs::read_to_string(city.path().join("believed.pem")).expect("a file");
    std::fs::write(city.path().join("ca.pem"), text).expect("it can be written");
    assert_eq!(north.reload().await, Outcome::Changed);
    for client in [&old, &new] {
        speaks_tls(&north.server, &city, Some(client.clone())).await.expect("it is let in");
    }
    std::fs::copy(next.path().join("ca.pem"), city.path().join("ca.pem")).expect("it can be written");
    renew(north.directory.path(), &next, "north");
    assert_eq!(north.reload().await, Outcome::Refused, "the list is of an authority that is none any more");
    std::fs::write(north.directory.path().join("revoked.pem"), next.revoke(&[])).expect("it can be written");
    assert_eq!(north.reload().await, Outcome::Changed);
    let (first, body) = soon("a goodbye", packet(&mut bus)).await.expect("a packet");
    assert_eq!((first, body[0]), (0xe0, 0x87));
    let why = "the certificate is not of this deployment's authority";
    north.audited(json!({ "event": "refused", "action": "connect", "principal": "bus-7", "why": why })).await;
    metric(&north.server, "whimbrel_links 0").await;
    north.audited(json!({ "event": "refused", "action": "peer", "principal": "south", "why": why })).await;
    assert!(speaks_tls(&north.server, &next, Some(old)).await.is_none());
    speaks_tls(&north.server, &next, Some(new)).await.expect("it is let in");
}
