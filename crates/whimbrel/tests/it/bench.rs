//! The load generator against this broker, at a size at which nothing is measured: what it judges
//! has to hold at any speed.

use std::process::Command;

/// Runs a part of `whimbrel bench semi-durable` and returns the rows of its JSON.
fn rows(arguments: &[&str]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("rows.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.args(["bench", "semi-durable", "--json"]).arg(&json).args(arguments);
    let output = command.output().expect("the program runs");
    let text = std::fs::read_to_string(&json);
    let text = text.unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    report["rows"].as_array_mut().map(std::mem::take).expect("rows")
}

fn figure(rows: &[serde_json::Value], measure: &str) -> f64 {
    let row = rows.iter().find(|row| row["measure"].as_str().is_some_and(|text| text.starts_with(measure)));
    row.and_then(|row| row["ours"].as_f64()).unwrap_or_else(|| panic!("no {measure} in {rows:?}"))
}

#[test]
fn whoever_comes_back_in_a_storm_gets_all_that_was_missed_once_and_in_order() {
    let storm = ["--section", "storm", "--returning", "60", "--staying", "4", "--event-rate", "1000", "--away", "0.3"];
    for how in [&[][..], &["--one-partition"], &["--keep-sessions", "--storm-qos", "1"]] {
        let rows = rows(&[&storm[..], how].concat());
        assert_eq!(figure(&rows, "events missed, repeated, unwanted or out of order"), 0.0, "{how:?}");
        assert!(figure(&rows, "events recovered") > 60.0, "{how:?}: each wants a tenth of 300 events");
        assert!(figure(&rows, "longest token of a SUBACK") <= 64.0, "{how:?}");
    }
}

#[test]
fn loads_of_semi_durable_and_nondurable_subscriptions_lose_nothing() {
    let rows = rows(&["--section", "delivery", "--rounds", "1", "--seconds", "0.02", "--warm-up", "0.01"]);
    for load in ["QoS 0 1→1:", "QoS 0 1→100:", "QoS 1 1→10:"] {
        assert!(figure(&rows, &format!("{load} semi-durable / nondurable")) > 0.0);
    }
}

#[test]
fn a_load_passes_over_every_transport() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.args(["bench", "transports", "--rounds", "1", "--warm-up", "0", "--seconds", "0.05", "--out"]);
    let output = command.arg(folder.path()).output().expect("the program runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let text = std::fs::read_to_string(folder.path().join("transports.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for transport in ["tcp", "tls", "ws", "wss"] {
        let rows = report["rows"].as_array().expect("rows");
        let rate = rows.iter().find(|row| row["id"] == transport && row["unit"] == "1/s").expect("a rate");
        assert!(rate["ours"].as_f64().is_some_and(|rate| rate > 0.0), "{rate}");
    }
}
