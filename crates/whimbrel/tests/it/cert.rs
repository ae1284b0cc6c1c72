//! `whimbrel cert` as an operator meets it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{run, text};

/// Runs it in a directory; exit status, output and errors.
fn cert(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = crate::common::whimbrel(&["cert"]).args(arguments).current_dir(directory).output().expect("it runs");
    (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_authority_its_brokers_and_its_clients() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let made = |arguments: &[&str]| {
        let (code, out, err) = cert(place.path(), arguments);
        assert_eq!(code, 0, "{err}");
        out
    };
    assert_eq!(made(&["ca", "--out", "ca", "--deployment", "city"]), "ca/ca.pem\nca/ca.key\n");
    let broker = ["broker", "--ca", "ca", "--name", "north", "--host", "north.example.org", "--host", "10.0.0.5"];
    assert_eq!(made(&[&broker[..], &["--out", "north"]].concat()), "north/broker-north.pem\nnorth/broker-north.key\n");
    assert_eq!(made(&["client", "--ca", "ca", "--name", "bus-7"]), "ca/client-bus-7.pem\nca/client-bus-7.key\n");
    for key in ["ca/ca.key", "north/broker-north.key", "ca/client-bus-7.key"] {
        let mode = fs::metadata(place.path().join(key)).expect("it was written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
}

#[test]
fn what_is_refused_says_what_to_do() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let refused = |arguments: &[&str], words: &str| {
        let (code, out, err) = cert(place.path(), arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(words), "{err}");
    };
    refused(&["broker", "--ca", "ca", "--name", "a"], "Make one with `whimbrel cert ca --out ca");
    refused(&["ca", "--out", "ca", "--deployment", "a city"], "use letters, digits");
    assert_eq!(cert(place.path(), &["ca", "--out", "ca", "--deployment", "city"]).0, 0);
    let before = fs::read(place.path().join("ca/ca.key")).expect("it was written");
    refused(&["ca", "--out", "ca", "--deployment", "city"], "ca/ca.pem exists and is not overwritten");
    assert_eq!(fs::read(place.path().join("ca/ca.key")).expect("it is still there"), before);
    refused(&["broker", "--ca", "ca", "--name", "a", "--host", "no host"], "is no host");
    refused(&["client", "--ca", "ca", "--name", "a", "--valid", "200years"], "100 years");

    // A key that is another authority's.
    assert_eq!(cert(place.path(), &["ca", "--out", "other", "--deployment", "city"]).0, 0);
    fs::copy(place.path().join("other/ca.key"), place.path().join("ca/ca.key")).expect("it can be exchanged");
    refused(&["broker", "--ca", "ca", "--name", "a"], "ca.key is not the key of ca.pem");
    assert!(!place.path().join("ca/broker-a.pem").exists() && !place.path().join("ca/broker-a.key").exists());
}

#[test]
fn help_shows_how() {
    let help = text(&run(&["cert", "--help"]).stdout);
    assert!(help.contains("whimbrel cert broker --ca ca --name depot-north"), "{help}");
}
