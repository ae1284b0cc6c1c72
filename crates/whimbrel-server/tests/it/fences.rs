//! Fences of a running server: read at the start, read again when asked to or when files change,
//! kept when that fails.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::{DEADLINE, get, metric};
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Override};
use whimbrel_server::{Outcome, Server};

/// Never, as far as a test is concerned.
const NEVER: Duration = Duration::from_secs(100_000);

const DEPOT: &str = "[[fence]]\nname = \"depot\"\nfile = \"depot.json\"\n";
const SQUARE: &str = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,52],[20,50]]]}"#;
const TRIANGLE: &str = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,50]]]}"#;
const OPEN: &str = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,51]]]}"#;

/// A directory with a configuration, and a server that has it.
struct Site {
    directory: tempfile::TempDir,
    server: Server,
}

impl Site {
    async fn start(fences: &str, files: &[(&str, &str)], poll: Duration) -> Site {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        write("whimbrel.toml", fences);
        files.iter().for_each(|(name, text)| write(name, text));
        let set = |key, text: &str| Override { key, given: Given::Flag, text: text.to_owned() };
        let listeners = KEYS.iter().filter(|key| key.name.starts_with("listen_") && !key.is_later());
        let mut overrides: Vec<Override> = listeners.map(|key| set(key, "127.0.0.1:0")).collect();
        overrides.push(set(KEYS.iter().find(|key| key.name == "dev").expect("a setting"), "true"));
        let config = Config::load(Some(&directory.path().join("whimbrel.toml")), &overrides);
        let mut config = config.unwrap_or_else(|problems| panic!("{problems:?}"));
        config.limits.fence_poll = poll;
        let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
        Site { directory, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the file can be written");
    }

    /// How many fences are in force, and how often they were changed, found unchanged, and refused.
    async fn numbers(&self) -> [u64; 4] {
        let page = get(&self.server, "/metrics").await.1;
        let number = |name: &str| {
            let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("{name} is not in:\n{page}")).parse().expect("a whole number")
        };
        let reloads = |result: &str| number(&format!("whimbrel_fence_reloads_total{{result=\"{result}\"}}"));
        [number("whimbrel_fences"), reloads("changed"), reloads("unchanged"), reloads("refused")]
    }
}

#[tokio::test]
async fn fences_are_read_again_when_asked_to() {
    let site = Site::start(DEPOT, &[("depot.json", SQUARE)], NEVER).await;
    assert_eq!(site.numbers().await, [1, 0, 0, 0]);
    assert_eq!(site.server.reload().await, Some(Outcome::Unchanged));

    site.write("depot.json", TRIANGLE);
    assert_eq!(site.server.reload().await, Some(Outcome::Changed));
    assert_eq!(site.numbers().await, [1, 1, 1, 0]);

    site.write("whimbrel.toml", &format!("{DEPOT}[[fence]]\nname = \"yard\"\ngeojson = '{SQUARE}'\n"));
    assert_eq!(site.server.reload().await, Some(Outcome::Changed));
    assert_eq!(site.numbers().await, [2, 2, 1, 0]);

    site.write("whimbrel.toml", "");
    assert_eq!(site.server.reload().await, Some(Outcome::Changed));
    assert_eq!(site.numbers().await, [0, 3, 1, 0]);
}

#[tokio::test]
async fn a_mistake_anywhere_leaves_all_fences_as_they_were() {
    let site = Site::start(DEPOT, &[("depot.json", SQUARE)], NEVER).await;
    let more = |text: &str| format!("{text}\n{DEPOT}[[fence]]\nname = \"yard\"\ngeojson = '{SQUARE}'\n");
    let mut refused = 0;
    for wrong in
        ["name = ", "no_such_setting = 1", "workers = \"two\"", "[[fence]]\nname = \"depot\"\nfile = \"depot.json\""]
    {
        site.write("whimbrel.toml", &more(wrong));
        assert_eq!(site.server.reload().await, Some(Outcome::Refused), "{wrong}");
        refused += 1;
        assert_eq!(site.numbers().await, [1, 0, 0, refused], "{wrong}");
    }
    site.write("whimbrel.toml", &more(""));
    site.write("depot.json", OPEN);
    assert_eq!(site.server.reload().await, Some(Outcome::Refused));
    std::fs::remove_file(site.path("depot.json")).expect("the file exists");
    assert_eq!(site.server.reload().await, Some(Outcome::Refused));
    assert_eq!(site.numbers().await, [1, 0, 0, refused + 2]);
    site.write("depot.json", SQUARE);
    assert_eq!(site.server.reload().await, Some(Outcome::Changed));
    assert_eq!(site.numbers().await, [2, 1, 0, refused + 2]);
}

#[tokio::test]
async fn changed_files_are_noticed() {
    let site = Site::start(DEPOT, &[("depot.json", SQUARE)], Duration::from_millis(5)).await;
    site.write("depot.json", OPEN);
    metric(&site.server, "whimbrel_fence_reloads_total{result=\"refused\"} 1").await;
    std::fs::remove_file(site.path("depot.json")).expect("the file exists");
    metric(&site.server, "whimbrel_fence_reloads_total{result=\"refused\"} 2").await;
    assert_eq!(site.numbers().await, [1, 0, 0, 2]);
    site.write("depot.json", TRIANGLE);
    metric(&site.server, "whimbrel_fence_reloads_total{result=\"changed\"} 1").await;
    site.write("whimbrel.toml", "");
    metric(&site.server, "whimbrel_fences 0").await;
    assert_eq!(site.numbers().await, [0, 2, 0, 2], "each change is read once");
}

#[tokio::test]
async fn without_a_configuration_file_there_is_nothing_to_read_again() {
    let server = crate::common::start(|_| {}).await;
    let again = tokio::time::timeout(DEADLINE, server.reload()).await.expect("an answer");
    assert_eq!(again, None);
}

#[tokio::test]
async fn one_file_may_have_thousands_of_fences() {
    let feature = |n| {
        let geometry =
            format!(r#"{{"type":"Point","coordinates":[{},{}]}}"#, f64::from(n % 360 - 180), f64::from(n / 360));
        format!(r#"{{"type":"Feature","properties":{{"name":"stop {n}","radius":50}},"geometry":{geometry}}}"#)
    };
    let stops: Vec<String> = (0..5000).map(feature).collect();
    let all = |stops: &[String]| format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, stops.join(","));
    let site = Site::start("[[fence]]\nfile = \"stops.json\"\n", &[("stops.json", &all(&stops))], NEVER).await;
    assert_eq!(site.numbers().await, [5000, 0, 0, 0]);
    site.write("stops.json", &all(&stops[..4000]));
    assert_eq!(site.server.reload().await, Some(Outcome::Changed));
    assert_eq!(site.numbers().await, [4000, 1, 0, 0]);
}
