//! The reader of traces and the judge of acknowledgements on invented traces, and on real ones.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_client::QoS;

use crate::book::{Condition, Keeper, Name};
use crate::broker::{Plan, Store};
use crate::publisher;
use crate::rig::Storm;
use crate::subscriber;
use crate::sync::{Findings, TooEarly, check};
use crate::trace::{self, Call, Step};

const SOCKET: &str = "9<TCP:[127.0.0.1:1883->127.0.0.1:5000]>";
const FILE: &str = "4</data/00000000.segment>";
const EVENT: Name = Name { publisher: 1, number: 7 };

/// PUBLISH with QoS 1, packet identifier 3, to `t`, with event 7 of publisher 1.
const READ: &str =
    r#"recvfrom(9<TCP:[127.0.0.1:1883->127.0.0.1:5000]>, "2\25\0\1t\0\3\0storm-1-000007;", 65536, 0, NULL, NULL) = 23"#;

/// PUBACK 3, behind another packet.
const PUBACK: &str = r#"writev(9<TCP:[127.0.0.1:1883->127.0.0.1:5000]>, [{iov_base="\320\0", iov_len=2}, {iov_base="@\2\0\3", iov_len=4}], 2) = 6"#;

fn write() -> String {
    format!(r#"pwrite64({FILE}, "frame\0\1storm-1-000007;\377", 23, 4096) = 23"#)
}

fn sync() -> String {
    format!("fdatasync({FILE}) = 0")
}

fn found(lines: &[&str]) -> Findings {
    // All by one thread, unless the line says which.
    let line = |line: &&str| line.strip_prefix('@').map_or_else(|| format!("100 {line}"), str::to_owned);
    let text: Vec<String> = lines.iter().map(line).collect();
    check(&trace::read(&text.join("\n")))
}

fn why(lines: &[&str]) -> Vec<&'static str> {
    let findings = found(lines);
    assert_eq!(findings.acknowledged, 1, "{findings:?}");
    assert!(findings.too_early.iter().all(|early| early.event == EVENT));
    findings.too_early.iter().map(|early| early.why).collect()
}

#[test]
fn a_trace_is_read_with_its_files_bytes_and_results() {
    let steps = trace::read(&format!("100 {PUBACK}\n101 +++ exited with 0 +++"));
    let file = SOCKET[2..SOCKET.len() - 1].to_owned();
    let call = Call { name: "writev".into(), descriptor: 9, file, bytes: b"\xd0\0@\x02\0\x03".to_vec() };
    assert!(call.is_socket());
    assert_eq!(steps, [Step::Begin(call.clone()), Step::End(call, 6)]);
    let steps = trace::read(
        "100 fdatasync(4</d/f> <unfinished ...>\n101 <... x resumed>) = 1\n100 <... fdatasync resumed>) = -1 EIO (E)",
    );
    let call = Call { name: "fdatasync".into(), descriptor: 4, file: "/d/f".into(), bytes: Vec::new() };
    assert_eq!(steps, [Step::Begin(call.clone()), Step::End(call, -1)]);
    let steps = trace::read(r#"100 write(1</d/f>, "\"a\\\n\t\v\1775\0", 9) = 9"#);
    assert!(matches!(&steps[1], Step::End(Call { bytes, .. }, 9) if bytes == b"\"a\\\n\t\x0b\x7f5\0"), "{steps:?}");
}

#[test]
fn an_acknowledgement_after_its_sync_is_right() {
    assert_eq!(why(&[READ, &write(), &sync(), PUBACK]), [""; 0]);
}

#[test]
fn an_acknowledgement_before_its_sync_is_found() {
    assert_eq!(why(&[READ, PUBACK, &write(), &sync()]), ["it was never written"]);
    assert_eq!(why(&[READ, &write(), PUBACK, &sync()]), ["it was written and not synced"]);
}

#[test]
fn a_sync_counts_when_it_has_returned_and_covers_what_was_written_when_it_began() {
    let begun = format!("@101 fdatasync({FILE} <unfinished ...>");
    let ended = "@101 <... fdatasync resumed>) = 0";
    assert_eq!(why(&[READ, &write(), &begun, ended, PUBACK]), [""; 0]);
    assert_eq!(why(&[READ, &write(), &begun, PUBACK, ended]), ["its sync had not returned"]);
    assert_eq!(why(&[READ, &begun, &write(), ended, PUBACK]), ["it was written and not synced"]);
    let writing = format!(r#"@101 pwrite64({FILE}, "storm-1-000007;", 15, 4096 <unfinished ...>"#);
    let wrote = "@101 <... pwrite64 resumed>) = 15";
    assert_eq!(why(&[READ, &writing, &sync(), wrote, PUBACK]), ["it was written and not synced"]);
    assert_eq!(why(&[READ, &writing, wrote, &sync(), PUBACK]), [""; 0]);
}

#[test]
fn a_sync_that_fails_or_is_of_another_file_covers_nothing() {
    let failed = format!("fdatasync({FILE}) = -1 EIO (Input/output error)");
    assert_eq!(why(&[READ, &write(), &failed, PUBACK]), ["it was written and not synced"]);
    assert_eq!(why(&[READ, &write(), "fdatasync(5</data/other>) = 0", PUBACK]), ["it was written and not synced"]);
    let short = write().replace("= 23", "= 5");
    assert_eq!(why(&[READ, &short, &sync(), PUBACK]), ["it was never written"]);
}

#[test]
fn pubrec_counts_as_puback_and_a_refusal_needs_no_sync() {
    let publish = READ.replace("\"2\\25", "\"4\\25");
    let pubrec = PUBACK.replace("\"@\\2", "\"P\\2");
    assert_eq!(why(&[&publish, &pubrec]), ["it was never written"]);
    assert_eq!(why(&[&publish, &write(), &sync(), &pubrec]), [""; 0]);
    let refused = PUBACK.replace("\"@\\2\\0\\3\"", "\"@\\3\\0\\3\\227\"").replace("= 6", "= 7");
    let findings = found(&[READ, &refused]);
    assert_eq!((findings.refused, findings.too_early.len()), (1, 0));
}

#[test]
fn packets_may_be_cut_anywhere() {
    let (first, second) = ("recvfrom(", r#", 65536, 0, NULL, NULL) = "#);
    let parts = [(r#""2\25\0\1t\0\3"#, 7), (r#""\0storm-1-000007;"#, 16)];
    let lines = parts.map(|(bytes, length)| format!("{first}{SOCKET}, {bytes}\"{second}{length}"));
    assert_eq!(why(&[&lines[0], &lines[1], PUBACK]), ["it was never written"]);
    let acks =
        [r#""@\2""#, r#""\0\3""#].map(|bytes| format!("sendto({SOCKET}, {bytes}, 2, MSG_NOSIGNAL, NULL, 0) = 2"));
    assert_eq!(why(&[READ, &acks[0], &write(), &sync(), &acks[1]]), [""; 0]);
}

/// Whether strace can trace here; says what is missing.
fn can_trace() -> bool {
    let can = Command::new("strace").args(["-D", "-o", "/dev/null", "true"]).output();
    let is_able = can.as_ref().is_ok_and(|output| output.status.success());
    if !is_able {
        println!("not run: this test needs strace with the right to trace ({can:?})");
    }
    is_able
}

/// Waits until the tracer has written its last line, and reads the trace.
fn finished(file: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let text = String::from_utf8_lossy(&std::fs::read(file).expect("there is a trace")).into_owned();
        let first = text.split_whitespace().next().unwrap_or_default();
        let end = text.lines().next_back().unwrap_or_default();
        if end.starts_with(first) && end.ends_with("+++") {
            return text;
        }
        assert!(Instant::now() < deadline, "the tracer does not finish: {end}");
        // tidy: poll — the tracer's last line
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A storm without kills around a traced broker.
async fn traced(store: Store) -> Findings {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("trace");
    let file_text = file.display().to_string();
    // The tracer is not the broker's parent, so that the broker is the process that was started.
    let before = ["strace", "-D", "-f", "-yy", "-s", "4194304", "-o", &file_text, "-e", trace::CALLS];
    let plan = Plan::new(store).before(&before);
    let habits = |number, qos| publisher::Habits { each: 40, ..publisher::Habits::new(number, qos) };
    let publishers = vec![habits(1, QoS::AtLeastOnce), habits(2, QoS::ExactlyOnce)];
    let everything = [("storm/#", Condition::Any)];
    let subscriber = subscriber::Habits::new("witness", Keeper::AtLeastOnce, &everything);
    let limit = Duration::from_secs(60);
    let storm = Storm { plan, seed: 5, rounds: 1, kills: false, publishers, subscribers: vec![subscriber], limit };
    let book = storm.rage().await;
    assert!(book.published.iter().all(|event| event.is_accepted()), "nobody disturbs the publishers");
    let findings = check(&trace::read(&finished(&file)));
    // Now and then the tracer's text lacks a few calls; what it has is judged, and it must have
    // nearly all.
    let (judged, all) = (findings.acknowledged, book.published.len());
    assert!(judged <= all && judged * 10 >= all * 9, "the trace has {judged} of {all} acknowledgements");
    findings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_data_directory_every_acknowledgement_is_found_to_be_too_early() {
    if !can_trace() {
        return;
    }
    let findings = traced(Store::Memory).await;
    assert_eq!(findings.too_early.len(), findings.acknowledged);
    let is_unwritten = |early: &TooEarly| early.why == "it was never written";
    assert!(findings.too_early.iter().all(is_unwritten), "{:?}", findings.too_early);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledgement_is_written_before_its_sync_has_returned() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let findings = traced(Store::at(directory.path())).await;
    assert_eq!(findings.too_early, [], "of {}", findings.acknowledged);
}
