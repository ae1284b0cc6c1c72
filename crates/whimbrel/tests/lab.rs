//! `whimbrel lab` as a person or a script uses it.

use std::process::Command;

#[test]
fn the_lab_prints_one_object_keeps_it_and_says_by_its_exit_status_whether_goals_were_met() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
        command.args(["lab", "semi-durable", "--quick", "--seeds", "1", "--row", "loss", "--json", "--out"]);
        command.arg(folder.path()).output().expect("it can be run")
    };
    let first = run();
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).expect("one object of JSON");
    assert_eq!((&report["experiment"], &report["driver"]), (&"semi-durable".into(), &"virtual".into()));
    let rows = report["rows"].as_array().expect("rows");
    let met = |id: &str| rows.iter().find(|row| row["id"] == id).map(|row| row["met"] == true);
    assert_eq!((met("loss-silent"), met("loss-covered")), (Some(true), Some(true)), "{report:#}");
    assert_eq!(first.status.success(), rows.iter().all(|row| row["met"] != false));
    let kept = std::fs::read(folder.path().join("semi-durable-virtual.json")).expect("the report");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&kept).expect("JSON"), report);
    assert_eq!(run().stdout, first.stdout, "what was measured is taken up again");
}

/// Runs the lab in short, as these arguments say, and gives the object that it prints.
fn quick(arguments: &[&str], folder: &std::path::Path) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.arg("lab").args(arguments).args(["--quick", "--seeds", "1", "--json", "--out"]).arg(folder);
    let output = command.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {told}"))
}

/// The figure of a row.
fn ours(report: &serde_json::Value, id: &str) -> Option<f64> {
    report["rows"].as_array()?.iter().find(|row| row["id"] == id)?["ours"].as_f64()
}

#[test]
fn durable_subscribers_at_linked_brokers_lose_nothing_and_each_event_is_logged_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = quick(&["durable", "--real"], folder.path());
    assert_eq!((&report["experiment"], &report["driver"]), (&"durable".into(), &"real".into()));
    let ours = |id: &str| ours(&report, id);
    for id in ["rates-wrong", "one-broker-wrong", "star-wrong", "crash-wrong", "chain-wrong", "modelled-wrong"] {
        assert_eq!(ours(id), Some(0.0), "{id}: {report:#}");
    }
    assert_eq!([ours("log-writes"), ours("star-log-writes")], [Some(1.0); 2], "{report:#}");
    // Two bytes say which of the subscriptions one is, and seven where the event before is that it
    // wanted.
    assert_eq!(ours("record-size"), Some(1.0 + 25.0 * 9.0), "{report:#}");
    let rates = ["aggregate-rate", "one-broker-rate", "four-shbs", "catch-up", "catch-up-of-all", "latency-5-hops"];
    let others = ["acknowledge-25", "acknowledge-200", "record-data", "record-speed", "modelled-rate"];
    for id in rates.into_iter().chain(others) {
        assert!(ours(id).is_some_and(|ours| ours > 0.0), "{id}: {report:#}");
    }
    for chart in ["durable-disconnections", "durable-crash", "durable-star", "durable-scaling"] {
        assert!(folder.path().join(format!("{chart}.svg")).is_file(), "{chart}");
    }
}

#[test]
fn simulated_durable_subscribers_lose_nothing_through_absences_a_crash_and_five_hops() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = quick(&["durable", "--row", "absences,crash,chain"], folder.path());
    assert_eq!(&report["driver"], &"virtual");
    for id in ["absences-wrong", "crash-wrong", "chain-wrong"] {
        assert_eq!(ours(&report, id), Some(0.0), "{id}: {report:#}");
    }
    assert_eq!(ours(&report, "log-writes"), Some(1.0), "{report:#}");
    for chart in ["durable-virtual-disconnections", "durable-virtual-crash"] {
        assert!(folder.path().join(format!("{chart}.svg")).is_file(), "{chart}");
    }
}

#[test]
fn mobile_subscribers_get_what_they_missed_at_either_of_two_linked_brokers() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = quick(&["semi-durable", "--real", "--row", "peaks"], folder.path());
    for id in ["peak-publish", "throughput", "pwp-peak", "random-peak", "durable-peak"] {
        assert!(ours(&report, id).is_some_and(|ours| ours > 0.0), "{id}: {report:#}");
    }
}

#[test]
fn a_row_that_does_not_exist_is_a_failure_that_names_those_that_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    let folder = tempfile::tempdir().expect("a folder");
    command.args(["lab", "semi-durable", "--row", "nonsense", "--out"]).arg(folder.path());
    let output = command.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("loss-silent"), "{told}");
}
