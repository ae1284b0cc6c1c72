//! TLS and WebSocket, with certificates on both sides, against a real server.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use whimbrel_client::{Client, Error, Event, Options, Publish, QoS, ReasonCode, Tls};
use whimbrel_server::Server;
use whimbrel_server::config::{Config, Listener};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Wanted};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Rules that let bus-7 do everything, and no other client anything.
const CONFIGURATION: &str = r##"
tls_cert = "broker-north.pem"
tls_key = "broker-north.key"
tls_ca = "ca.pem"
listen_tls = "127.0.0.1:0"
listen_wss = "127.0.0.1:0"
listen_http = "127.0.0.1:0"
listen_overlay = "off"

[[rule]]
principals = ["bus-7"]
actions = ["publish", "subscribe"]
topics = ["#"]
"##;

/// A broker that knows clients by their certificates.
struct City {
    directory: TempDir,
    server: Server,
}

impl City {
    async fn start() -> City {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        authority::make_authority(place, "city", YEAR).expect("an authority");
        for (role, name) in [(Role::Broker, "north"), (Role::Client, "bus-7"), (Role::Client, "bus-8")] {
            let hosts: &[String] = if role == Role::Broker { &["localhost".to_owned()] } else { &[] };
            authority::make(place, place, &Wanted { role, name, hosts, valid: YEAR }).expect("a certificate");
        }
        let config = load(place, CONFIGURATION);
        let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
        City { directory, server }
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn port(&self, listener: Listener) -> u16 {
        self.server.ready().address(listener).expect("it is open").port()
    }

    fn options(&self, scheme: &str, listener: Listener) -> Options {
        let address = format!("{scheme}://localhost:{}", self.port(listener));
        Options::new(address).tls(Tls::Authority(self.file("ca.pem"))).timeout(Duration::from_secs(20))
    }

    fn shown(&self, options: Options, name: &str) -> Options {
        options.certificate(self.file(&format!("client-{name}.pem")), self.file(&format!("client-{name}.key")))
    }
}

fn load(place: &Path, text: &str) -> Config {
    let file = place.join("whimbrel.toml");
    std::fs::write(&file, absolute(place, text)).expect("it can be written");
    let config = Config::load(Some(&file), &[]);
    config.unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(|it| it.line()).collect::<Vec<_>>()))
}

/// Settings that name files name them where the configuration is.
fn absolute(place: &Path, text: &str) -> String {
    ["broker-north.pem", "broker-north.key", "ca.pem"].iter().fold(text.to_owned(), |text, name| {
        text.replace(&format!("\"{name}\""), &format!("{:?}", place.join(name).display().to_string()))
    })
}

/// Publishes and gets back a message that is larger than one write of the transport.
async fn goes_there_and_back(options: Options) {
    let (client, mut events) = Client::connect(options).await.expect("accepted");
    assert_eq!(client.subscribe(&[("a/#", QoS::AtLeastOnce)]).await.expect("answered"), [ReasonCode::GRANTED_QOS_1]);
    let payload: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    client.publish(Publish::new("a/b", payload.clone()).qos(QoS::AtLeastOnce)).await.expect("accepted");
    match tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("in time") {
        Some(Event::Message(message)) => assert!(message.payload == payload, "as it was sent"),
        other => panic!("not a message: {other:?}"),
    }
    client.disconnect().await;
}

async fn refused(options: Options) -> Error {
    match Client::connect(options).await {
        Ok(_) => panic!("it was let in"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn certificates_let_clients_in_over_tls_and_websocket_at_every_listener() {
    let city = City::start().await;
    let ways = [("mqtts", Listener::Tls), ("wss", Listener::Wss), ("wss", Listener::Http)];
    for (scheme, listener) in ways {
        goes_there_and_back(city.shown(city.options(scheme, listener), "bus-7")).await;
    }
    let prepared = whimbrel_client::tls_config(
        &Tls::Authority(city.file("ca.pem")),
        Some(&whimbrel_client::Identity {
            certificate: city.file("client-bus-7.pem"),
            key: city.file("client-bus-7.key"),
        }),
    )
    .expect("the files are read");
    goes_there_and_back(city.options("wss", Listener::Http).tls(Tls::Prepared(prepared))).await;
}

#[tokio::test]
async fn who_shows_no_certificate_or_one_without_rights_is_refused_with_the_cause() {
    let city = City::start().await;
    let error = refused(city.options("mqtts", Listener::Tls)).await;
    assert!(matches!(error, Error::NotBelieved(_)), "{error}");
    assert!(!error.is_temporary());
    let error = refused(city.options("wss", Listener::Http)).await;
    assert!(matches!(&error, Error::Upgrade { status: 401, text } if text.contains("certificate")), "{error}");
    for (scheme, listener) in [("mqtts", Listener::Tls), ("wss", Listener::Http)] {
        let error = refused(city.shown(city.options(scheme, listener), "bus-8")).await;
        assert!(matches!(error, Error::Refused { reason: ReasonCode::NOT_AUTHORIZED, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_as_the_cause() {
    let city = City::start().await;
    for (scheme, listener) in [("mqtts", Listener::Tls), ("wss", Listener::Wss)] {
        let error = refused(city.shown(city.options(scheme, listener).tls(Tls::System), "bus-7")).await;
        assert!(matches!(&error, Error::Untrusted(why) if why.contains("no authority")), "{error}");
        assert!(!error.is_temporary());
    }
    let port = city.port(Listener::Tls);
    let elsewhere = Options::new(format!("mqtts://127.0.0.1:{port}")).tls(Tls::Authority(city.file("ca.pem")));
    let error = refused(city.shown(elsewhere, "bus-7")).await;
    assert!(matches!(&error, Error::Untrusted(why) if why.contains("127.0.0.1")), "{error}");
    goes_there_and_back(city.shown(city.options("mqtts", Listener::Tls).tls(Tls::Insecure), "bus-7")).await;
}

#[tokio::test]
async fn files_of_certificates_that_cannot_be_used_are_named() {
    let city = City::start().await;
    let options = || city.options("mqtts", Listener::Tls);
    let error = refused(options().certificate(city.file("client-bus-7.pem"), city.file("client-bus-8.key"))).await;
    assert!(matches!(&error, Error::Certificate { file, .. } if file.ends_with("client-bus-8.key")), "{error}");
    let error = refused(options().certificate(city.file("none.pem"), city.file("client-bus-8.key"))).await;
    assert!(matches!(&error, Error::Certificate { file, .. } if file.ends_with("none.pem")), "{error}");
    let error = refused(options().tls(Tls::Authority(city.file("client-bus-7.key")))).await;
    assert!(matches!(&error, Error::Authority { .. }), "{error}");
}

#[tokio::test]
async fn a_wrong_port_is_told_in_both_directions() {
    let directory = tempfile::tempdir().expect("a directory");
    let listeners = ["mqtt", "tls", "ws", "wss", "http"].map(|name| format!("listen_{name} = \"127.0.0.1:0\"\n"));
    let config = load(directory.path(), &format!("dev = true\nlisten_overlay = \"off\"\n{}", listeners.concat()));
    let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
    let told = async |scheme: &str, listener| {
        let port = server.ready().address(listener).expect("it is open").port();
        let options = Options::new(format!("{scheme}://localhost:{port}")).tls(Tls::Insecure);
        let error = refused(options).await;
        (error.is_temporary(), error.to_string())
    };
    // A peer that only closes the connection may be busy: another attempt is made.
    for (scheme, listener, words, only_closes) in [
        ("mqtt", Listener::Tls, "mqtts://", false),
        ("mqtt", Listener::Wss, "mqtts://", false),
        ("mqtt", Listener::Ws, "ws://", false),
        ("mqtt", Listener::Http, "HTTP is spoken there", false),
        ("mqtts", Listener::Mqtt, "no TLS is spoken there", true),
        ("mqtts", Listener::Http, "no TLS is spoken there", false),
        ("wss", Listener::Ws, "ws://", false),
        ("ws", Listener::Wss, "wss://", false),
        ("ws", Listener::Mqtt, "no WebSocket is spoken there", true),
        ("wss", Listener::Tls, "mqtts://", true),
    ] {
        let (is_temporary, text) = told(scheme, listener).await;
        assert!(text.contains(words), "{scheme}:// at {}: {text}", listener.name());
        assert_eq!(is_temporary, only_closes, "{scheme}:// at {}: {text}", listener.name());
    }
    let port = server.ready().address(Listener::Http).expect("it is open").port();
    let error = refused(Options::new(format!("ws://localhost:{port}/metrics"))).await;
    assert!(matches!(error, Error::Upgrade { status: 200, .. }), "{error}");
    goes_there_and_back(Options::new(format!("ws://localhost:{port}"))).await;
}
