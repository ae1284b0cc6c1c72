//! Commands that connect as clients: over TLS and WebSocket, through the loss of a broker, to the
//! wrong port.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Ends, broker, broker_at, ready_with, run, text, whimbrel};

/// Makes an authority with a broker's certificate for localhost and a client's, and the broker's
/// configuration.
fn city(place: &Path) {
    let made = |arguments: &[&str]| {
        let output = whimbrel(&["cert"]).args(arguments).current_dir(place).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    made(&["ca", "--out", ".", "--deployment", "city"]);
    made(&["broker", "--ca", ".", "--name", "north", "--host", "localhost"]);
    made(&["client", "--ca", ".", "--name", "ops"]);
    let rules = "[[rule]]\nprincipals = [\"ops\"]\nactions = [\"publish\", \"subscribe\"]\ntopics = [\"#\"]\n\
                 [[rule]]\nprincipals = [\"ops\"]\nactions = [\"observe\", \"administer\"]\n";
    let path = |name: &str| place.join(name).display().to_string();
    let files = format!(
        "tls_ca = {:?}\ntls_cert = {:?}\ntls_key = {:?}\n",
        path("ca.pem"),
        path("broker-north.pem"),
        path("broker-north.key")
    );
    let listeners =
        "listen_tls = \"127.0.0.1:0\"\nlisten_wss = \"off\"\nlisten_http = \"127.0.0.1:0\"\nlisten_overlay = \"off\"\n";
    std::fs::write(place.join("whimbrel.toml"), [&files, listeners, rules].concat()).expect("written");
}

/// That broker, and its ports for TLS and HTTPS.
fn north(place: &Path) -> (Ends, u16, u16) {
    let mut serve = whimbrel(&["serve", "--config", "whimbrel.toml", "--control", "control.sock"]);
    serve.current_dir(place);
    let (broker, ready) = ready_with(serve);
    assert_eq!(ready["http_tls"], true, "{ready}");
    let port = |name: &str| {
        let address: std::net::SocketAddr = ready[name].as_str().expect("its address").parse().expect("an address");
        address.port()
    };
    let (tls, http) = (port("tls"), port("http"));
    (broker, tls, http)
}

fn output(mut command: Command) -> (bool, String, String) {
    let output = command.output().expect("it runs");
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn certificates_let_commands_in_over_tls_websocket_and_https() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    city(place);
    let (_broker, tls, http) = north(place);
    let in_place = |arguments: &[&str]| {
        let mut command = whimbrel(arguments);
        command.current_dir(place).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command
    };
    let shown = ["--cert", "client-ops.pem", "--key", "client-ops.key"];
    let mqtts = format!("mqtts://localhost:{tls}");
    let wss = format!("wss://localhost:{http}");
    let publish = ["pub", "-u", &mqtts, "a", "over TLS", "-q", "1", "-r"];

    let (_, _, said) = output(in_place(&[&publish[..], &shown].concat()));
    assert!(said.contains("certificate is not trusted") && said.contains("--ca FILE"), "{said}");
    let (_, _, said) = output(in_place(&[&publish[..], &["--ca", "ca.pem"]].concat()));
    assert!(said.contains("wants one") && said.contains("--cert FILE"), "{said}");
    // An authority of the system is trusted without being named.
    let mut trusted = in_place(&[&publish[..], &shown].concat());
    trusted.env("SSL_CERT_FILE", place.join("ca.pem"));
    let (is_well, _, said) = output(trusted);
    assert!(is_well, "{said}");
    let all = [&shown[..], &["--ca", "ca.pem"]].concat();
    let (is_well, got, said) = output(in_place(&[&["sub", "-u", &wss, "a", "--count", "1"][..], &all].concat()));
    assert!(is_well && got == "over TLS\n", "{got} {said}");

    let api = format!("https://localhost:{http}");
    let (is_well, got, said) = output(in_place(&[&["status", "--api", &api, "--json"][..], &all].concat()));
    assert!(is_well && got.contains("north"), "{got} {said}");
    let (_, _, said) = output(in_place(&["status", "--api", &api]));
    assert!(said.contains("certificate is not trusted") && said.contains("--ca FILE"), "{said}");
    let (_, _, said) = output(in_place(&["status", "--api", &api, "--ca", "ca.pem"]));
    assert!(said.contains("not signed in"), "{said}");
    let (_, _, said) = output(in_place(&["status", "--api", &format!("http://localhost:{http}")]));
    assert!(said.contains("https://"), "{said}");

    let bench = ["bench", "conn", "-u", &wss, "-n", "5", "--seconds", "0.1", "--json"];
    let (is_well, got, said) = output(in_place(&[&bench[..], &all].concat()));
    let got: serde_json::Value = serde_json::from_str(&got).unwrap_or_else(|error| panic!("{error}: {got} {said}"));
    assert!(is_well && got["connected"] == 5 && got["connect_us"]["count"] == 5, "{got} {said}");
    let (is_well, _, said) = output(in_place(&["bench", "conn", "-u", &wss, "--ca", "ca.pem"]));
    assert!(!is_well && said.contains("HTTP status 401"), "{said}");
}

#[test]
fn reload_and_drain_are_asked_for_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    city(place);
    let (mut broker, _, http) = north(place);
    let in_place = |arguments: &[&str]| {
        let mut command = whimbrel(arguments);
        command.current_dir(place);
        output(command)
    };
    let control = ["--control", "control.sock"];
    assert_eq!(in_place(&[&["reload"][..], &control].concat()).1, "read again: nothing has changed\n");
    let file = place.join("whimbrel.toml");
    let rules = std::fs::read_to_string(&file).expect("it is there");
    let more = "[[rule]]\nprincipals = [\"bus-*\"]\nactions = [\"publish\"]\ntopics = [\"fleet/%u/#\"]\n";
    std::fs::write(&file, rules.clone() + more).expect("written");
    let over_https = ["--api", &format!("https://localhost:{http}"), "--ca", "ca.pem"];
    let shown = ["--cert", "client-ops.pem", "--key", "client-ops.key"];
    let (is_well, got, said) = in_place(&[&["reload"][..], &over_https, &shown].concat());
    assert!(is_well && got == "read again: in force\n", "{got} {said}");
    // Mistakes in the file keep no command from a broker whose socket is named.
    std::fs::write(&file, rules + "nonsense = 1\n").expect("written");
    let (is_well, _, said) = in_place(&[&["reload"][..], &control].concat());
    assert!(!is_well && said.contains("mistakes"), "{said}");
    let (is_well, got, said) = in_place(&[&["drain"][..], &control].concat());
    assert!(is_well && got == "draining: 0 connections are told to go\nthe broker has ended\n", "{got} {said}");
    assert!(broker.0.try_wait().expect("it is known").is_some_and(|status| status.success()), "it has ended well");
    let (is_well, _, said) = in_place(&[&["drain"][..], &control].concat());
    assert!(!is_well && said.contains("Is it running"), "{said}");
}

#[test]
fn a_subscriber_whose_reader_has_gone_ends_although_nothing_more_comes() {
    let (_broker, url) = broker();
    assert!(run(&["pub", "-u", &url, "-q", "1", "-r", "a", "x"]).status.success());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("position").display().to_string();
    for more in [&[][..], &["--durability", "semi-durable"], &["--token-file", &file]] {
        // Standard error goes there too, as with `2>&1`: what is said in the end has no reader
        // either.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut subscribe = whimbrel(&[&["sub", "-u", &url, "a"][..], more].concat());
        subscribe.stdout(writer.try_clone().expect("the same")).stderr(writer);
        let mut process = Ends(subscribe.spawn().expect("it starts"));
        drop(subscribe);
        let mut lines = BufReader::new(reader).lines();
        assert!(lines.any(|line| line.expect("text") == "x"), "it prints");
        drop(lines);
        assert!(process.0.wait().expect("it ends").success(), "{more:?}");
    }
}

#[test]
fn other_commands_whose_reader_has_gone_end_without_a_panic() {
    let (_broker, url) = broker();
    let mut bench = whimbrel(&["bench", "conn", "-u", &url, "--seconds", "0.1", "-n", "3"]);
    let mut bench = Ends(bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    drop(bench.0.stdout.take());
    let mut said = String::new();
    bench.0.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(bench.0.wait().expect("it ends").success() && !said.contains("panicked"), "{said}");
}

#[test]
fn a_plain_subscriber_comes_back_when_its_broker_does() {
    let (broker, url) = broker();
    let address = url.strip_prefix("mqtt://").expect("its address").to_owned();
    assert!(run(&["pub", "-u", &url, "-q", "1", "-r", "a", "first"]).status.success());
    let mut subscribe = whimbrel(&["sub", "-u", &url, "a", "--count", "2"]);
    let mut subscribe = Ends(subscribe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut printed = BufReader::new(subscribe.0.stdout.take().expect("its output is piped")).lines();
    assert_eq!(printed.next().expect("a line").expect("text"), "first");
    drop(broker);
    let (_again, url) = broker_at(&address);
    // What is retained comes to a client that subscribes later, whenever that is.
    assert!(run(&["pub", "-u", &url, "-q", "1", "-r", "a", "second"]).status.success());
    assert_eq!(printed.next().expect("a line").expect("text"), "second");
    assert!(subscribe.0.wait().expect("it ends").success());
    let mut said = String::new();
    subscribe.0.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("no connection") && said.contains("connected again"), "{said}");
}

#[test]
fn a_subscriber_whose_client_id_another_takes_ends() {
    let (_broker, url) = broker();
    let subscribe = || {
        let mut command = whimbrel(&["sub", "-u", &url, "--id", "board", "a"]);
        Ends(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"))
    };
    assert!(run(&["pub", "-u", &url, "-q", "1", "-r", "a", "x"]).status.success());
    let mut first = subscribe();
    let mut line = String::new();
    BufReader::new(first.0.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it is subscribed");
    let _second = subscribe();
    let mut said = String::new();
    first.0.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(!first.0.wait().expect("it ends").success() && said.contains("the connection is over"), "{said}");
}

#[test]
fn what_is_at_the_other_end_is_told_where_it_is_no_broker() {
    let nobody = run(&["pub", "--url", "mqtt://127.0.0.1:1", "a", "x"]);
    assert!(text(&nobody.stderr).contains("Is a broker running there?"), "{}", text(&nobody.stderr));
    let (_broker, url) = broker();
    let port = url.rsplit(':').next().expect("a port");
    let secure = run(&["sub", "--url", &format!("mqtts://127.0.0.1:{port}"), "a"]);
    assert!(text(&secure.stderr).contains("without TLS it is mqtt://"), "{}", text(&secure.stderr));
    let http = run(&["status", "--api", &format!("http://127.0.0.1:{port}")]);
    assert!(text(&http.stderr).contains("--listen-http"), "{}", text(&http.stderr));
}

#[test]
fn variables_that_mean_nothing_are_warned_of() {
    let (_broker, url) = broker();
    let mut publish = whimbrel(&["pub", "a", "x"]);
    publish.env("WHIMBREL_URL", &url).env("WHIMBREL_PASSWORT", "x").env("WHIMBREL_SERVICE_HOST", "10.0.0.1");
    let (is_well, _, said) = output(publish);
    assert!(is_well && said.contains("WHIMBREL_PASSWORT means nothing; did you mean WHIMBREL_PASSWORD?"), "{said}");
    assert!(!said.contains("WHIMBREL_SERVICE_HOST"), "{said}");
    let mut check = whimbrel(&["serve", "--dev", "--check"]);
    check.env("WHIMBREL_LISTEN_MQT", "127.0.0.1:1884");
    let (is_well, _, said) = output(check);
    assert!(is_well && said.contains("did you mean WHIMBREL_LISTEN_MQTT?"), "{said}");
}

#[test]
fn a_load_of_ones_own_is_delivered_and_measured() {
    let (_broker, url) = broker();
    let mut subscribe =
        whimbrel(&["bench", "sub", "-u", &url, "load/#", "-n", "2", "--count", "500", "--seconds", "60", "--json"]);
    let mut subscribe = Ends(subscribe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    BufReader::new(subscribe.0.stderr.as_mut().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "2 subscribed to load/#\n");
    let load = ["bench", "pub", "-u", &url, "load/{client}/x", "-n", "3", "--rate", "300", "--seconds", "1", "--json"];
    let publish = run(&load);
    let sent: serde_json::Value = serde_json::from_slice(&publish.stdout).expect("JSON");
    // 100 of each of the three, but for what is due at the very end.
    let count = sent["sent"].as_u64().expect("a number");
    assert!(publish.status.success() && (290..=310).contains(&count), "{sent}");
    assert_eq!((&sent["acknowledged"], &sent["acknowledge_us"]["count"]), (&sent["sent"], &sent["sent"]), "{sent}");
    let mut got = String::new();
    subscribe.0.stdout.take().expect("piped").read_to_string(&mut got).expect("text");
    let got: serde_json::Value = serde_json::from_str(&got).expect("JSON");
    assert!(subscribe.0.wait().expect("it ends").success(), "{got}");
    assert!(got["received"].as_u64() >= Some(500) && got["lost"] == 0 && got["repeated"] == 0, "{got}");
    assert!(got["delivery_us"]["p50"].as_u64() > Some(0), "{got}");
}

#[test]
fn a_load_without_a_rate_has_no_more_in_flight_than_it_may() {
    let (_broker, url) = broker();
    let publish =
        run(&["bench", "pub", "-u", &url, "a", "-n", "2", "--rate=0", "--unacked=1", "--seconds=1", "--json"]);
    let sent: serde_json::Value = serde_json::from_slice(&publish.stdout).expect("JSON");
    assert!(publish.status.success() && sent["acknowledged"] == sent["sent"], "{sent}");
    // As many are in flight on average as are sent in the time until one is acknowledged; the mean
    // is right within a hundredth.
    let mean = sent["acknowledge_us"]["mean"].as_f64().expect("a number") / 1e6;
    assert!(sent["sent_per_second"].as_f64().expect("a number") * mean <= 2.0 * 1.05, "{sent}");
}
