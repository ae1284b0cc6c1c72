//! `whimbrel passwd` as an operator meets it, and a broker that lets in whom it has made.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{text, whimbrel};

/// Runs it with a password on standard input; exit status, output and errors.
fn passwd(file: &Path, arguments: &[&str], password: &str) -> (i32, String, String) {
    let mut command = whimbrel(&["passwd"]);
    command.arg(file).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // It may not ask, and end before.
    let _ = child.stdin.take().expect("a pipe").write_all(password.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    (output.status.code().expect("by itself"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn users_are_added_changed_and_removed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("passwords");
    let done = |out: &str| (0, out.to_owned(), String::new());
    assert_eq!(passwd(&file, &["ann"], "one\n"), done("ann: added\n"));
    assert_eq!(passwd(&file, &["bob"], "two"), done("bob: added\n"));
    let before = fs::read_to_string(&file).expect("it was written");
    assert_eq!(passwd(&file, &["ann"], "three\r\n"), done("ann: has another password\n"));
    assert_eq!(passwd(&file, &["bob", "--delete"], ""), done("bob: removed\n"));
    let after = fs::read_to_string(&file).expect("it was written");
    assert!(after.starts_with("ann:$argon2id$") && !after.contains("bob") && !before.contains(after.trim()), "{after}");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);

    let refused = |arguments: &[&str], password: &str, words: &str| {
        let (code, out, err) = passwd(&file, arguments, password);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(words), "{err}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), after, "nothing is changed");
    };
    refused(&["eve", "--delete"], "", "has no user \"eve\"");
    refused(&["eve"], "\n", "from 1 to 1024 bytes");
    refused(&["eve"], &"x".repeat(2000), "from 1 to 1024 bytes");
    refused(&["anonymous"], "x\n", "do not say who they are");
}

#[test]
fn a_broker_lets_in_whom_it_has_made() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("passwords");
    assert_eq!(passwd(&file, &["ann"], "one\n").0, 0);
    let rules = "listen_ws = \"off\"\nlisten_http = \"off\"\nlisten_mqtt = \"127.0.0.1:0\"\n[identity]\npasswords = \"passwords\"\n\
                 [[rule]]\nprincipals = [\"ann\"]\nactions = [\"publish\"]\ntopics = [\"a\"]\n";
    let configuration = place.path().join("whimbrel.toml");
    fs::write(&configuration, rules).expect("it can be written");
    let (_broker, url) = crate::common::ready(whimbrel(&["serve", "--config", configuration.to_str().expect("text")]));
    let publish = |user: &str| {
        let address = url.trim_start_matches("mqtt://");
        let mut stream = std::net::TcpStream::connect(address).expect("the listener accepts");
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        let body = [text("MQTT"), vec![5, 0xc2, 0, 60, 0], text("x"), text(user), text("one")].concat();
        stream.write_all(&[&[0x10, body.len() as u8], &body[..]].concat()).expect("the connection is open");
        let mut answer = [0; 4];
        std::io::Read::read_exact(&mut stream, &mut answer).expect("an answer");
        answer[3]
    };
    assert_eq!((publish("ann"), publish("bob")), (0, 0x86));
}
