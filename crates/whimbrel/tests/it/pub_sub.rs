//! `whimbrel pub` and `whimbrel sub` as people use them, against `whimbrel serve`.

use std::io::Write;
use std::process::Stdio;

use crate::common::{Ends, broker, run, text, whimbrel};

#[test]
fn a_retained_message_is_published_and_read_back_with_all_that_came_with_it() {
    let (_broker, url) = broker();
    let publish =
        ["pub", "--url", &url, "--retain", "--qos", "1", "--property", "fuel=7", "fleet/7/position", "52.2,21.0"];
    let output = run(&publish);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = run(&["sub", "--url", &url, "--qos", "1", "--count", "1", "--json", "fleet/#"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let got: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!((got["topic"].as_str(), got["retain"].as_bool()), (Some("fleet/7/position"), Some(true)), "{got}");
    assert!(got.to_string().contains("52.2,21.0") && got.to_string().contains("fuel"), "{got}");
}

#[test]
fn lines_of_standard_input_arrive_in_order() {
    let (_broker, url) = broker();
    // A kept session, so that it does not matter when the subscriber is there.
    let subscribe = ["sub", "--url", &url, "--id", "reader", "--session", "60", "--qos", "1", "lines"];
    let within = [&subscribe[..], &["--within", "1", "--count", "1"]].concat();
    assert!(!run(&within).status.success(), "nothing has been published yet, and it says so");
    let mut publish = whimbrel(&["pub", "--url", &url, "--qos", "1", "lines", "-"]);
    let mut publish = Ends(publish.stdin(Stdio::piped()).spawn().expect("the publisher starts"));
    let mut input = publish.0.stdin.take().expect("its input is piped");
    for n in 0..500 {
        writeln!(input, "line {n}").expect("it reads");
    }
    drop(input);
    assert!(publish.0.wait().expect("it ends").success());
    let output = run(&[&subscribe[..], &["--count", "500"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected: String = (0..500).map(|n| format!("line {n}\n")).collect();
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn what_cannot_be_done_is_said_and_tells_in_the_exit_status() {
    let (_broker, url) = broker();
    let refused = run(&["pub", "--url", &url, "--qos", "1", "$SYS/mine", "x"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("not authorized"), "{}", text(&refused.stderr));
    let nobody = run(&["pub", "--url", "mqtt://127.0.0.1:1", "a", "x"]);
    assert!(!nobody.status.success() && !nobody.stderr.is_empty());
    let wrong = run(&["sub", "--url", "ftp://127.0.0.1", "a"]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("mqtt://"), "{}", text(&wrong.stderr));
}

#[test]
fn a_selector_picks_messages_by_their_properties() {
    let (_broker, url) = broker();
    for speed in ["40", "60"] {
        let topic = format!("fleet/{speed}");
        let attribute = format!("speed={speed}");
        let output = run(&["pub", "--url", &url, "-q", "1", "--retain", "--attribute", &attribute, &topic, speed]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = run(&["sub", "--url", &url, "--selector", "speed > 50", "--within", "1", "--count", "2", "fleet/+"]);
    assert_eq!(text(&output.stdout), "60\n");
    assert!(!output.status.success(), "only one of two came: {}", text(&output.stderr));
    let output = run(&["sub", "--url", &url, "--selector", "speed <= 50", "--count", "1", "fleet/+"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "40\n");
}

#[test]
fn what_is_no_selector_is_shown_before_anything_is_connected() {
    // No broker listens there: an attempt to connect would be another error.
    let wrong = run(&["sub", "--url", "mqtt://127.0.0.1:1", "--selector", "speed > 50 AND AND fuel < 3", "t"]);
    let said = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(said.contains("speed > 50 AND AND fuel < 3") && said.contains("--selector"), "{said}");
    let empty = run(&["sub", "--url", "mqtt://127.0.0.1:1", "--selector", "speed >", "t"]);
    let said = text(&empty.stderr);
    assert_eq!(empty.status.code(), Some(2), "{said}");
    assert!(said.contains("speed >") && said.contains("a value or a condition is expected"), "{said}");
}

#[test]
fn a_selector_needs_mqtt_5() {
    let wrong = run(&["sub", "--url", "mqtt://127.0.0.1:1", "-V", "3.1.1", "--selector", "speed > 50", "t"]);
    let said = text(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("3.1.1") && said.contains("--selector"), "{said}");
}

#[test]
fn the_brokers_words_on_a_refusal_are_shown() {
    let (_broker, url) = broker();
    // Which fences there are is only known to the broker.
    let refused = run(&["sub", "--url", &url, "--selector", "within('atlantis')", "t"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("refused by the broker") && said.contains("position 8") && said.contains("fence"), "{said}");
    let unread = run(&["sub", "--url", &url, "--property", "w-replier=yes", "t"]);
    assert!(text(&unread.stderr).contains("w-replier is neither on nor off"), "{}", text(&unread.stderr));
}

#[test]
fn importance_is_a_property_from_1_to_10() {
    let (_broker, url) = broker();
    let output = run(&["pub", "--url", &url, "-q", "1", "--retain", "--importance", "9", "t", "x"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = run(&["sub", "--url", &url, "--count", "1", "--json", "t"]);
    assert!(text(&output.stdout).contains(r#"["w-importance","9"]"#), "{}", text(&output.stdout));
    assert_eq!(run(&["pub", "--url", &url, "--importance", "11", "t", "x"]).status.code(), Some(2));
}
