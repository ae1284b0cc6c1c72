//! `whimbrel plan` as an operator meets it.

use std::fs;

use crate::common::{text, whimbrel};

#[test]
fn links_are_proposed_as_configuration() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let plan = |arguments: &[&str]| {
        let output = whimbrel(&["plan"]).args(arguments).current_dir(place.path()).output().expect("it runs");
        (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
    };
    let rows = "src,dst,rtt_ms\nnorth,east,10\neast,south,10\nnorth,south,18\n";
    fs::write(place.path().join("trips.csv"), rows).expect("it is written");
    let (code, out, err) = plan(&["trips.csv", "--broker", "south"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.ends_with("\n# south\n[overlay]\npeers = [\"east:7117\", \"north:7117\"]\nlinks = 2\n"), "{out}");
    let (code, out, err) = plan(&["nothing.csv"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("cannot read nothing.csv"), "{err}");
    assert_eq!(plan(&["trips.csv", "--stretch", "0.5"]).0, 2);
    // Over north it takes 14.6 ms from east to south: half of 10 and of 18, and 0.6 ms.
    let (code, out, err) = plan(&["trips.csv", "--disjoint", "12 ms", "--broker", "south"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("both within 12ms (0.3 ms for each link included): 1 of 3\n"), "{out}");
    assert!(out.contains(" with south that cannot have them, whatever measured pairs are linked: 1\n"), "{out}");
    assert!(out.contains("\n#   east, south: a second way takes 14.6 ms\n\n# south\n"), "{out}");
    assert_eq!(plan(&["trips.csv", "--disjoint", "50"]).0, 2);
}
