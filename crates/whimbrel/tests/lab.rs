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

#[test]
fn durable_subscribers_lose_nothing_and_each_event_is_logged_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.args(["lab", "durable", "--quick", "--json", "--out"]).arg(folder.path());
    let output = command.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!((&report["experiment"], &report["driver"]), (&"durable".into(), &"real".into()));
    let rows = report["rows"].as_array().expect("rows");
    let ours = |id: &str| rows.iter().find(|row| row["id"] == id).and_then(|row| row["ours"].as_f64());
    assert_eq!(
        (ours("rates-wrong"), ours("crash-wrong"), ours("log-writes")),
        (Some(0.0), Some(0.0), Some(1.0)),
        "{report:#}"
    );
    // Two bytes say which of the subscriptions one is, and seven where the event before is that it wanted.
    assert_eq!(ours("record-size"), Some(1.0 + 25.0 * 9.0), "{report:#}");
    let rates = ["aggregate-rate", "catch-up", "catch-up-of-all", "acknowledge-25", "acknowledge-200"];
    for id in rates.into_iter().chain(["record-data", "record-speed"]) {
        assert!(ours(id).is_some_and(|ours| ours > 0.0), "{id}: {report:#}");
    }
    for chart in ["durable-disconnections", "durable-crash"] {
        assert!(folder.path().join(format!("{chart}.svg")).is_file(), "{chart}");
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
