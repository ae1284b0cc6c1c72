//! Configuration: precedence, what is refused, and how the refusal is shown.

use std::path::PathBuf;
use std::time::Duration;

use miette::{GraphicalReportHandler, GraphicalTheme};
use whimbrel_core::cache::{Capacity, PartitionPlan, Plan, Policy};
use whimbrel_core::{CacheInterest, Pace, Routing};
use whimbrel_event::Deployment;
use whimbrel_selector::Selector;
use whimbrel_server::config::peer::PeerTerms;
use whimbrel_server::config::schema::{KEYS, Key};
use whimbrel_server::config::{Certificate, Config, Given, Listener, Override, Problem};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Wanted};
use whimbrel_server::overlay::Dscp;

fn key(path: &str) -> &'static Key {
    KEYS.iter().find(|key| key.path() == path).expect("a setting of the table")
}

fn given(given: Given, path: &str, text: &str) -> Override {
    Override { key: key(path), given, text: text.to_owned() }
}

fn flag(path: &str, text: &str) -> Override {
    given(Given::Flag, path, text)
}

/// A file in a directory that lives as long as the test needs it.
struct File {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> File {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("whimbrel.toml");
        std::fs::write(&path, text).expect("the file can be written");
        File { directory, path }
    }

    fn load(&self, overrides: &[Override]) -> Result<Config, String> {
        let shown = |problems: Vec<Problem>| problems.iter().map(render).collect::<Vec<_>>().join("\n");
        let directory = format!("{}/", self.directory.path().display());
        Config::load(Some(&self.path), overrides).map_err(|problems| shown(problems).replace(&directory, ""))
    }

    fn refusal(&self, overrides: &[Override]) -> String {
        self.load(overrides).expect_err("this configuration is wrong")
    }
}

fn render(problem: &Problem) -> String {
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    handler.render_report(&mut text, problem).expect("rendering to a string");
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Whether a refusal says this, however its lines are broken.
#[track_caller]
fn assert_says(refusal: &str, words: &str) {
    let joined = refusal.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(words), "\"{words}\" is not in:\n{refusal}");
}

fn listen(config: &Config, listener: Listener) -> Option<String> {
    config.listen.iter().find(|(other, _)| *other == listener).map(|(_, address)| address.to_string())
}

#[test]
fn defaults_are_on_loopback() {
    let config = File::new("").load(&[flag("dev", "true")]).expect("defaults with --dev are a configuration");
    assert_eq!(listen(&config, Listener::Mqtt).as_deref(), Some("127.0.0.1:1883"));
    assert_eq!(listen(&config, Listener::Tls).as_deref(), Some("127.0.0.1:8883"));
    assert_eq!(listen(&config, Listener::Ws).as_deref(), Some("127.0.0.1:8083"));
    assert_eq!(listen(&config, Listener::Wss).as_deref(), Some("127.0.0.1:8084"));
    assert_eq!(listen(&config, Listener::Http).as_deref(), Some("127.0.0.1:8080"));
    assert!(matches!(config.certificate, Certificate::Made));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn flags_before_variables_before_the_file() {
    let file = File::new("dev = true\nname = \"file\"\ndrain_timeout = \"1s\"\nlisten_ws = \"off\"\nworkers = 3\n");
    let overrides = [
        given(Given::Variable, "name", "variable"),
        given(Given::Variable, "drain_timeout", "2s"),
        flag("name", "flag"),
    ];
    let config = file.load(&overrides).expect("a configuration");
    assert_eq!(config.name, "flag");
    assert_eq!(config.limits.drain_timeout, Duration::from_secs(2));
    assert_eq!(config.workers, 3);
    assert_eq!(listen(&config, Listener::Ws), None);
}

#[test]
fn without_dev_it_explains() {
    let text = File::new("dev = false\n").refusal(&[]);
    assert_eq!(
        text,
        "  × the broker does not start without --dev or a source of identity: it could not tell who its
  │ clients are
   ╭─[whimbrel.toml:1:7]
 1 │ dev = false
   ·       ──┬──
   ·         ╰── off
   ╰────
  help: name a file of passwords ([identity] passwords = \"FILE\"; `whimbrel passwd` makes it) or
        keys of tokens ([[identity.key]]), or give --tls-ca, --tls-cert and --tls-key (`whimbrel
        cert` makes them): then brokers and clients show certificates. See docs/trust.md. Or give
        --dev: then everyone who can reach a listener may publish and subscribe to everything; it
        listens on loopback only, or on private addresses that --listen-… names, and never on
        public ones
"
    );
}

#[test]
fn every_problem_is_shown_at_its_line() {
    let file =
        File::new("dev = true\nlisten-mqt = \"127.0.0.1:1\"\nworkers = \"two\"\n[limits]\nmax_pocket_size = 5\n");
    assert_eq!(
        file.refusal(&[]),
        "  × there is no setting `listen-mqt`
   ╭─[whimbrel.toml:2:1]
 1 │ dev = true
 2 │ listen-mqt = \"127.0.0.1:1\"
   · ─────┬────
   ·      ╰── unknown
 3 │ workers = \"two\"
   ╰────
  help: did you mean `listen_mqtt`?

  × `workers` has the wrong type: string
   ╭─[whimbrel.toml:3:11]
 2 │ listen-mqt = \"127.0.0.1:1\"
 3 │ workers = \"two\"
   ·           ──┬──
   ·             ╰── here
 4 │ [limits]
   ╰────
  help: write a whole number from 0 to 256

  × there is no setting `max_pocket_size` in [limits]
   ╭─[whimbrel.toml:5:1]
 4 │ [limits]
 5 │ max_pocket_size = 5
   · ───────┬───────
   ·        ╰── unknown
   ╰────
  help: did you mean `max_packet_size`?
"
    );
}

#[test]
fn flags_and_variables_are_pointed_at_too() {
    let text = File::new("dev = true\n").refusal(&[given(Given::Variable, "listen_mqtt", "127.0.0.1")]);
    assert_eq!(
        text,
        "  × `listen_mqtt` has no port
   ╭─[environment:1:22]
 1 │ WHIMBREL_LISTEN_MQTT=127.0.0.1
   ·                      ────┬────
   ·                          ╰── here
   ╰────
  help: write the port too, such as \"127.0.0.1:0\" for any free one
"
    );
    let text = File::new("dev = true\n").refusal(&[flag("drain_timeout", "5")]);
    assert_says(&text, "[command line:1:17] 1 --drain-timeout 5 ");
}

#[test]
fn broken_toml_is_pointed_at() {
    let text = File::new("dev = true\nname = whimbrel\n").refusal(&[]);
    assert_says(&text, "not valid TOML");
    assert_says(&text, "[whimbrel.toml:2:8]");
}

#[test]
fn a_setting_in_the_wrong_table_is_recognised() {
    let text = File::new("dev = true\nreceive_maximum = 5\n").refusal(&[]);
    assert_says(&text, "did you mean `receive_maximum` in [limits]?");
    let text = File::new("dev = true\n[limit]\n").refusal(&[]);
    assert_says(&text, "did you mean [limits]?");
    let text = File::new("[limits]\ndev = true\n").refusal(&[]);
    assert_says(&text, "did you mean `dev` at the top level, before any [table]?");
}

#[test]
fn a_missing_file_is_an_error() {
    let problems = Config::load(Some("/nonexistent/whimbrel.toml".as_ref()), &[]).expect_err("there is no such file");
    assert!(problems[0].to_string().contains("/nonexistent/whimbrel.toml"), "{}", problems[0]);
}

#[test]
fn listeners_must_not_clash() {
    let text = File::new("dev = true\nlisten_ws = \"127.0.0.1:1883\"\n").refusal(&[]);
    assert_says(&text, "`listen_mqtt` and `listen_ws` cannot share 127.0.0.1:1883");
    assert_says(&text, "[whimbrel.toml:2:13]");
}

#[test]
fn dev_keeps_to_loopback_and_named_private_addresses() {
    let file = File::new("dev = true\n");
    let config = file.load(&[flag("listen_mqtt", "192.168.7.5:1883")]).expect("private addresses may be named");
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].contains("192.168.7.5:1883, a private address"), "{}", config.warnings[0]);
    for (address, why) in [
        ("203.0.113.5:1883", "it is a public address"),
        ("0.0.0.0:1883", "it is every address of this machine, public ones too"),
        ("[::]:1883", "it is every address of this machine, public ones too"),
        ("[2001:db8::1]:1883", "it is a public address"),
    ] {
        let text = file.refusal(&[flag("listen_mqtt", address)]);
        assert_says(&text, &format!("`listen_mqtt` must not be {address} with --dev: {why}"));
    }
}

#[test]
fn discovery_takes_dev_and_is_on_by_default_where_others_could_be_found() {
    let file = File::new("");
    let with = |flags: &[(&str, &str)]| {
        let flags: Vec<Override> = flags.iter().map(|(path, text)| flag(path, text)).collect();
        file.load(&[&[flag("dev", "true")], &flags[..]].concat()).map(|config| config.discover)
    };
    assert_eq!(with(&[]), Ok(false), "brokers on loopback do not find each other unasked");
    assert_eq!(with(&[("discover", "on")]), Ok(true));
    assert_eq!(with(&[("listen_mqtt", "10.0.0.5:1883")]), Ok(true));
    assert_eq!(with(&[("listen_overlay", "192.168.1.5:7117")]), Ok(true));
    assert_eq!(with(&[("listen_http", "192.168.1.5:8080")]), Ok(false), "it is not announced");
    assert_eq!(with(&[("listen_mqtt", "10.0.0.5:1883"), ("discover", "off")]), Ok(false));
    let closed = with(&[("discover", "on"), ("listen_mqtt", "off"), ("listen_overlay", "off")]);
    assert_says(&closed.expect_err("nothing is open"), "there is nothing to announce");
    for flags in [&[][..], &certified(&file, "city", "north")] {
        let refusal = file.refusal(&[flags, &[flag("discover", "true")]].concat());
        assert_says(&refusal, "`discover` is only for --dev: multicast DNS does not authenticate other brokers");
        assert_says(&refusal, "name the other brokers with --peer HOST:PORT");
    }
}

#[test]
fn what_comes_later_is_refused_clearly() {
    let file = File::new("dev = true\nlisten_quic = \"off\"\n");
    file.load(&[]).expect("asking for nothing is no mistake");
    let refusal = file.refusal(&[flag("listen_quic", "127.0.0.1:0")]);
    assert_says(&refusal, "`listen_quic` is not available in this version");
}

#[test]
fn several_paths_of_a_topic_take_a_deadline() {
    let refusal = File::new("dev = true\n[[topic]]\nfilter = \"a\"\npaths = 2\n").refusal(&[]);
    assert_says(&refusal, "a topic profile has `paths`, and no `deadline`");
    assert_says(&refusal, "[whimbrel.toml:2:");
    let file = File::new("dev = true\n[[topic]]\nfilter = \"a\"\ndeadline = \"50 ms\"\npaths = 2\n");
    let profile = &file.load(&[]).expect("a configuration").topics[0];
    assert_eq!(profile.paths, whimbrel_core::TopicPaths::Two);
    let of = |lines: &str| File::new(&format!("dev = true\n[[topic]]\nfilter = \"a\"\n{lines}\n"));
    assert_says(&of("paths = 3").refusal(&[]), "`paths`");
    let profile = |lines: &str| {
        let file = of(&format!("deadline = \"50 ms\"\n{lines}"));
        file.load(&[]).expect("a configuration").topics[0].clone()
    };
    assert_eq!(profile("paths = \"targeted\"").paths, whimbrel_core::TopicPaths::Targeted);
    let target = profile("availability = 0.9999").availability;
    assert_eq!(target, whimbrel_core::Availability::of_ppm(999_900));
    assert_says(&of("availability = 0.9").refusal(&[]), "a topic profile has `availability`, and no `deadline`");
    assert_says(&of("deadline = \"1 s\"\navailability = 0.2").refusal(&[]), "0.5 to 0.999999");
    let both = of("deadline = \"1 s\"\npaths = 2\navailability = 0.9").refusal(&[]);
    assert_says(&both, "`paths` and `availability`");
}

#[test]
fn peers_are_gathered_from_repeated_options_which_prevail_over_the_file() {
    let file = File::new("dev = true\n[overlay]\npeers = [\"a.example:7117\"]\nlinks = 0\n");
    let config = file.load(&[]).expect("a configuration");
    assert_eq!(config.overlay.peers, ["a.example:7117"]);
    assert_eq!(config.overlay.links_wanted, 0);
    let twice = [flag("overlay.peers", "b.example:1"), flag("overlay.peers", "10.0.0.5:2")];
    assert_eq!(file.load(&twice).expect("a configuration").overlay.peers, ["b.example:1", "10.0.0.5:2"]);
    let refusal = file.refusal(&[flag("overlay.peers", "b.example")]);
    assert_says(&refusal, "`overlay.peers` has \"b.example\", which is no host and port");
}

#[test]
fn routing_and_preset_are_chosen_by_name() {
    let load = |text: &str| File::new(&format!("dev = true\n[overlay]\n{text}\n"));
    let of = |text: &str| {
        let overlay = load(text).load(&[]).expect("a configuration").overlay;
        (overlay.routing, overlay.pace)
    };
    assert_eq!(of(""), (Routing::Reactive, Pace::DEFAULT));
    assert_eq!(of("routing = \"direct\"\npreset = \"paper\""), (Routing::Direct, Pace::PAPER));
    assert_eq!(of("routing = \"best\"\npreset = \"default\""), (Routing::Best, Pace::DEFAULT));
    let refusal = load("routing = \"quick\"").refusal(&[]);
    assert_says(&refusal, "`overlay.routing` is not known");
    assert_says(&refusal, "one of direct, best, reactive");
    assert_says(&refusal, "[whimbrel.toml:3:");
    assert_says(&load("preset = \"fast\"").refusal(&[]), "one of default, paper");
}

#[test]
fn links_to_some_brokers_have_terms() {
    let load = |text: &str| File::new(&format!("dev = true\n[[overlay.peer]]\n{text}\n"));
    let more =
        "name = \"sat-1\"\ncost = \"200 ms\"\ncap = \"64 KiB\"\n[[overlay.peer]]\nname = \"south\"\ncost = \"1 s\"";
    let terms = load(more).load(&[]).expect("a configuration").overlay.terms;
    let of = |name: &str, millis, cap| PeerTerms { name: name.into(), cost: Some(Duration::from_millis(millis)), cap };
    assert_eq!(terms, [of("sat-1", 200, Some(64 << 10)), of("south", 1_000, None)]);
    let twice = "name = \"a\"\ncost = \"1 ms\"\n[[overlay.peer]]\nname = \"a\"\ncap = \"1 MiB\"";
    assert_says(&load(twice).refusal(&[]), "there are two [[overlay.peer]] for \"a\"");
    assert_says(&load("cost = \"1 ms\"").refusal(&[]), "a peer has no `name`");
    assert_says(&load("name = \"a\"").refusal(&[]), "a peer has neither `cost` nor `cap`");
    assert_says(&load("name = \"a b\"").refusal(&[]), "`name` is no name of a broker");
    assert_says(&load("name = \"a\"\ncap = \"1 KiB\"").refusal(&[]), "`cap`");
    let refusal = load("name = \"a\"\nprice = 1").refusal(&[]);
    assert_says(&refusal, "there is no setting `price` in [[overlay.peer]]");
    assert_says(&refusal, "[whimbrel.toml:4:");
}

#[test]
fn packets_are_marked_by_a_name_or_a_number() {
    let load = |text: &str| File::new(&format!("dev = true\n[overlay]\n{text}\n"));
    let of = |text: &str| load(text).load(&[]).expect("a configuration").overlay.dscp;
    assert_eq!(of(""), Dscp::default());
    assert_eq!(of("dscp = \"af41\""), of("dscp = \"34\""));
    let refusal = load("dscp = \"64\"").refusal(&[]);
    assert_says(&refusal, "`overlay.dscp` is no code point");
    assert_says(&refusal, "[whimbrel.toml:3:");
}

#[test]
fn links_are_compressed_unless_that_is_off() {
    let load = |text: &str| File::new(&format!("dev = true\n[overlay]\n{text}\n"));
    let of = |text: &str| load(text).load(&[]).expect("a configuration").overlay.compresses;
    assert!(of("") && of("compression = \"auto\"") && !of("compression = \"off\""));
    assert_says(&load("compression = \"best\"").refusal(&[]), "one of auto, off");
}

#[test]
fn a_place_has_both_coordinates_and_lies_on_the_earth() {
    let place = |text: &str, given: &[Override]| {
        let file = File::new(&format!("dev = true\n{text}"));
        file.load(given).expect("a configuration").telling.place.map(|place| (place.lat, place.lon))
    };
    assert_eq!(place("", &[]), None);
    assert_eq!(place("place = { lat = 52.23, lon = -21 }\n", &[]), Some((52.23, -21.0)));
    assert_eq!(place("[place]\nlat = -90.0\nlon = 180\n", &[]), Some((-90.0, 180.0)));
    assert_eq!(place("[place]\nlat = 1\nlon = 2\n", &[flag("place.lat", "-3.5")]), Some((-3.5, 2.0)));
    let refusal = |text: &str| File::new(&format!("dev = true\n{text}")).refusal(&[]);
    assert_says(&refusal("[place]\nlon = 1\n"), "`place.lon` is given without `place.lat`");
    let far = refusal("place = { lat = 90.1, lon = 1 }\n");
    assert_says(&far, "`place.lat` is out of range");
    assert_says(&far, "write degrees such as 52.23, from -90 to 90");
    assert_says(&refusal("place = { lat = \"52\", lon = 1 }\n"), "`place.lat` has the wrong type");
}

#[test]
fn an_overlay_listener_may_have_the_number_of_a_tcp_port() {
    let file = File::new("dev = true\nlisten_overlay = \"127.0.0.1:1883\"\n");
    let config = file.load(&[]).expect("UDP and TCP ports are apart");
    assert_eq!(listen(&config, Listener::Overlay).as_deref(), Some("127.0.0.1:1883"));
    assert_eq!(
        listen(&File::new("dev = true\n").load(&[]).expect("defaults"), Listener::Overlay).as_deref(),
        Some("127.0.0.1:7117")
    );
}

/// An authority in the file's directory, and the settings of a broker that it certifies.
fn certified(file: &File, deployment: &str, name: &str) -> Vec<Override> {
    let directory = file.directory.path();
    let year = Duration::from_secs(365 * 86_400);
    authority::make_authority(directory, deployment, year).expect("an authority");
    let wanted = Wanted { role: Role::Broker, name, hosts: &[], valid: year };
    let made = authority::make(directory, directory, &wanted).expect("a certificate");
    let paths = [("tls_cert", made.certificate), ("tls_key", made.key), ("tls_ca", directory.join("ca.pem"))];
    paths.into_iter().map(|(key, path)| flag(key, path.to_str().expect("text"))).collect()
}

#[test]
fn with_an_authority_a_broker_needs_no_dev_and_has_the_name_in_its_certificate() {
    let file = File::new("");
    let given = certified(&file, "city", "north");
    let config = file.load(&given).expect("a configuration");
    assert!(!config.dev && matches!(config.certificate, Certificate::Known(_)));
    assert_eq!((config.name.as_str(), config.broker.name.as_str()), ("north", "north"));
    assert_eq!(config.broker.core.deployment, Deployment::named("city"));
    assert_eq!((listen(&config, Listener::Mqtt), listen(&config, Listener::Ws)), (None, None));
    assert!(listen(&config, Listener::Tls).is_some() && listen(&config, Listener::Overlay).is_some());

    let with = |more: Override| [given.clone(), vec![more]].concat();
    assert!(file.load(&with(flag("name", "north"))).is_ok());
    assert_says(&file.refusal(&with(flag("name", "south"))), "`name` is \"south\", but the certificate says \"north\"");
    assert_says(&file.refusal(&with(flag("deployment", "harbour"))), "but the certificate says \"city\"");
    assert_says(
        &file.refusal(&with(flag("listen_mqtt", "127.0.0.1:0"))),
        "`listen_mqtt` must be \"off\" without --dev",
    );
    assert!(file.load(&with(flag("listen_mqtt", "off"))).is_ok());
    assert_says(&file.refusal(&with(flag("dev", "true"))), "`tls_ca` is given with `dev`");
    assert_says(&file.refusal(&given[2..]), "`tls_ca` is given without `tls_cert` and `tls_key`");
    assert_says(&file.refusal(&given[..2]), "does not start without --dev or a source of identity");
}

#[test]
fn a_certificate_that_is_not_of_the_authority_is_refused_at_once() {
    let (file, other) = (File::new(""), File::new(""));
    let (given, others) = (certified(&file, "city", "north"), certified(&other, "city", "north"));
    let mixed = [given[..2].to_vec(), vec![others[2].clone()]].concat();
    assert_says(&file.refusal(&mixed), "the certificate is not of this deployment's authority");
}

#[test]
fn partitions_have_filters_selectors_capacities_and_policies() {
    let file = File::new(
        r##"dev = true
deployment = "harbour"
[limits]
silence_after = "5s"
tracked_queue = "64 KiB"
[buffer]
subscribe = ["fleet/#", { filter = "alarm/#", selector = "level > 3" }]
ceiling = "2 GiB"
[[partition]]
filter = "alarm/#"
selector = "level > 3"
capacity = "3000 events"
policy = "priority"
lifetime = "60 s"
protected = "12.5 %"
[[partition]]
filter = "fleet/+/position"
capacity = "30 s"
ceiling = "32 MiB"
policy = "value"
[[partition]]
filter = "fleet/#"
capacity = "64 MB"
[[partition]]
filter = "#"
capacity = "1 event"
policy = "random"
"##,
    );
    let config = file.load(&[]).expect("a configuration");
    let level = Selector::parse("level > 3").expect("a selector");
    let partition = |filter: &str, selector: Option<&Selector>, capacity, policy| PartitionPlan {
        filter: filter.into(),
        selector: selector.cloned(),
        capacity,
        policy,
    };
    let seconds = Duration::from_secs;
    let expected = [
        partition(
            "alarm/#",
            Some(&level),
            Capacity::Events(3000),
            Policy::Priority { protected: 125, lifetime: seconds(60) },
        ),
        partition("fleet/+/position", None, Capacity::Time { keep: seconds(30), ceiling: 32 << 20 }, Policy::Value),
        partition("fleet/#", None, Capacity::Bytes(64_000_000), Policy::Lrp),
        partition("#", None, Capacity::Events(1), Policy::Random),
    ];
    assert_eq!(config.division.plan.partitions, expected);
    assert_eq!(config.division.plan.ceiling, 2 << 30);
    let interest = |filter: &str, selector| CacheInterest { filter: filter.into(), selector };
    assert_eq!(config.division.buffer, [interest("fleet/#", None), interest("alarm/#", Some(level))]);
    let core = &config.broker.core;
    assert_eq!((core.silence_after, core.tracked_queue_bytes), (seconds(5), 64 << 10));
    assert_eq!(core.deployment, Deployment::named("harbour"));
}

#[test]
fn partitions_have_defaults() {
    let file = File::new("dev = true\n[[partition]]\nfilter = \"a\"\ncapacity = \"1 m\"\npolicy = \"priority\"\n");
    let division = file.load(&[]).expect("a configuration").division;
    let partition = &division.plan.partitions[0];
    assert_eq!(partition.capacity, Capacity::Time { keep: Duration::from_secs(60), ceiling: 64 << 20 });
    assert_eq!((partition.policy, &division.plan.default), (Policy::PRIORITY, &Plan::default().default));
    assert_eq!(division.buffer, []);
    let plain = File::new("dev = true\n").load(&[]).expect("a configuration").division;
    assert_eq!(plain.plan.partitions, []);
}

#[test]
fn mistakes_in_partitions_are_shown_at_their_line() {
    let entry = |lines: &str| format!("dev = true\n[[partition]]\n{lines}\n");
    let fine = "filter = \"a\"\ncapacity = \"1 MB\"\n";
    for (text, says, line) in [
        (entry("filter = \"a/#/b\"\ncapacity = \"1 MB\""), "is no topic filter", 3),
        (entry("filter = 7\ncapacity = \"1 MB\""), "`filter` has the wrong type", 3),
        (entry("capacity = \"1 MB\""), "a partition has no `filter`", 2),
        (entry("filter = \"a\""), "a partition has no `capacity`", 2),
        (entry("filter = \"a\"\ncapacity = 5"), "`capacity` has no unit", 4),
        (entry("filter = \"a\"\ncapacity = \"5\""), "`capacity` has no unit", 4),
        (entry("filter = \"a\"\ncapacity = \"0 events\""), "`capacity` is not a number of events", 4),
        (entry("filter = \"a\"\ncapacity = \"1 B\""), "`capacity` is out of range", 4),
        (entry("filter = \"a\"\ncapacity = \"90 days\""), "`capacity` is out of range", 4),
        (entry("filter = \"a\"\ncapacity = \"5 bananas\""), "`capacity` is not a duration", 4),
        (entry(&format!("{fine}ceiling = \"1 MB\"")), "`ceiling` is for a capacity that is a time", 5),
        (entry(&format!("{fine}policy = \"best\"")), "`policy` is not known", 5),
        (entry(&format!("{fine}lifetime = \"5 s\"")), "`lifetime` is for the policy", 5),
        (entry(&format!("{fine}policy = \"priority\"\nprotected = \"120 %\"")), "`protected` is not a share", 6),
        (entry(&format!("{fine}selector = \"speed >\"")), "selector, position", 5),
        (entry(&format!("{fine}selector = \"within('nowhere')\"")), "fence", 5),
        (entry(&format!("{fine}polcy = \"lrp\"")), "there is no setting `polcy` in [[partition]]", 5),
        ("dev = true\n[partition]\nfilter = \"a\"\n".to_owned(), "`partition` is no list", 2),
        ("dev = true\n[buffer]\nsubscribe = \"a\"\n".to_owned(), "`subscribe` is no list", 3),
        ("dev = true\n[buffer]\nsubscribe = [\"a#\"]\n".to_owned(), "is no topic filter", 3),
        ("dev = true\n[buffer]\nsubscribe = [{ selector = \"a = 1\" }]\n".to_owned(), "has no `filter`", 3),
        ("dev = true\n[buffer]\nsubscribe = [{ filter = \"a\", selector = \"a\\\"\" }]\n".to_owned(), "selector", 3),
        ("dev = true\n[buffer]\nceiling = \"5\"\n".to_owned(), "`ceiling` is out of range", 3),
        ("dev = true\n[buffer]\nsub = []\n".to_owned(), "there is no setting `sub` in [buffer]", 3),
        ("dev = true\n[buffer]\nceiling = \"10 MB\"\n".to_owned(), "more than", 3),
        ("dev = true\n[[partitions]]\n".to_owned(), "did you mean [[partition]]?", 2),
    ] {
        let refusal = File::new(&text).refusal(&[]);
        assert_says(&refusal, says);
        assert_says(&refusal, &format!("[whimbrel.toml:{line}:"));
    }
    let many = format!("dev = true\n{}", "[[partition]]\nfilter = \"a\"\ncapacity = \"1 KiB\"\n".repeat(256));
    assert_says(&File::new(&many).refusal(&[]), "there are more than 255 partitions");
}

#[test]
fn fences_are_shapes_in_the_file_or_in_files_beside_it() {
    let square = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,50]]]}"#;
    let file = File::new(&format!(
        "dev = true
[[fence]]
name = \"text\"
geojson = '{square}'
[[fence]]
name = \"file\"
file = \"yard.json\"
[[fence]]
file = \"stops.json\"
[[fence]]
name = \"table\"
[fence.geojson]
type = \"Feature\"
properties.radius = 500
geometry = {{ type = \"Point\", coordinates = [21, 52.0] }}
"
    ));
    let write = |name, text: &str| std::fs::write(file.directory.path().join(name), text).expect("a file");
    write("yard.json", square);
    let stop = format!(r#"{{"type":"Feature","properties":{{"name":"stop"}},"geometry":{square}}}"#);
    write("stops.json", &format!(r#"{{"type":"FeatureCollection","features":[{stop}]}}"#));
    let config = file.load(&[]).expect("a configuration");
    assert_eq!(config.fences.fences.names().collect::<Vec<_>>(), ["file", "stop", "table", "text"]);
    let mut found = Vec::new();
    config.fences.fences.for_each_containing(52.001, 21.0, &mut |name| found.push(name));
    assert_eq!(found, ["table"]);
}

#[test]
fn wrong_fences_are_shown_at_their_line() {
    let square = r#"'{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,50]]]}'"#;
    let file =
        File::new("dev = true\n[[fence]]\nname = \"depot\"\ngeojson = '{\"type\":\"Point\",\"coordinates\":[1,2]}'\n");
    assert_eq!(
        file.refusal(&[]),
        "  × fence \"depot\" is refused: a Point is a fence only with a radius
   ╭─[whimbrel.toml:4:11]
 3 │ name = \"depot\"
 4 │ geojson = '{\"type\":\"Point\",\"coordinates\":[1,2]}'
   ·           ───────────────────┬──────────────────
   ·                              ╰── here
   ╰────
  help: put it into a Feature with the property \"radius\" in metres
"
    );
    let cases = [
        ("fence = 5", "`fence` is no list"),
        ("fence = [5]", "an entry of `fence` is no table"),
        ("[fence]\nname = \"a\"", "`fence` is no list"),
        ("[[fence]]\nname = \"a\"", "a fence has neither `geojson` nor `file`"),
        ("[[fence]]\nname = 5\ngeojson = \"\"", "`name` has the wrong type: integer"),
        (&format!("[[fence]]\ngeojson = {square}"), "a fence has no `name`"),
        (&format!("[[fence]]\nname = \"a\"\ngeojson = {square}\nfile = \"a\""), "both `geojson` and `file`"),
        (
            &format!("[[fence]]\nname = \"a\"\ngeojson = {square}\nradius = 5"),
            "there is no setting `radius` in [[fence]]",
        ),
        (&format!("[[fence]]\nname = \"\"\ngeojson = {square}"), "the name is empty"),
        ("[[fence]]\nname = \"a\"\nfile = \"nothing.json\"", "cannot read the fences in nothing.json: No such file"),
        ("[[fence]]\nname = \"a\"\nfile = \".\"", "it is no file"),
        (
            "[[fence]]\nname = \"a\"\ngeojson = { type = \"Polygon\", coordinates = [[[0, inf]]] }",
            "coordinates[0][0]: a position",
        ),
        ("[[fence]]\nfile = \"whimbrel.toml\"", "a fence is refused: whimbrel.toml: line 1, column 1: this is no JSON"),
        ("[[fences]]\nname = \"a\"", "did you mean [[fence]]?"),
    ];
    for (text, words) in cases {
        let refusal = File::new(&format!("dev = true\n{text}\n")).refusal(&[]);
        assert_says(&refusal, words);
        assert_says(&refusal, "[whimbrel.toml:");
    }
}

#[test]
fn each_wrong_feature_of_a_file_is_named() {
    let file = File::new("dev = true\n[[fence]]\nfile = \"stops.json\"\n");
    let square = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,52],[20,50]]]}"#;
    let feature = |id: &str, geometry: &str| {
        format!(r#"{{"type":"Feature","id":"{id}","properties":{{"area":1e400}},"geometry":{geometry}}}"#)
    };
    let open = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,51]]]}"#;
    let features = [feature("a", square), feature("b", open), feature("c", "null"), feature("d", square)].join(",");
    let path = file.directory.path().join("stops.json");
    std::fs::write(path, format!(r#"{{"type":"FeatureCollection","features":[{features}]}}"#)).expect("a file");
    let refusal = file.refusal(&[]);
    assert_says(
        &refusal,
        "fence \"b\" is refused: stops.json: features[1].geometry.coordinates[0][3]: the ring is not closed",
    );
    assert_says(&refusal, "fence \"c\" is refused: stops.json: features[2].geometry: the feature has no geometry");
    assert!(!refusal.contains("fence \"a\"") && !refusal.contains("fence \"d\""), "{refusal}");
}

#[test]
fn certificates_are_checked_at_the_start() {
    let ours = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = File::new("dev = true\n");
    let write = |name: &str, text: String| {
        let path = file.directory.path().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path.display().to_string()
    };
    let cert = write("cert.pem", ours.cert.pem());
    let key = write("key.pem", ours.signing_key.serialize_pem());
    let other_key = write("other.pem", other.signing_key.serialize_pem());
    let empty = write("empty.pem", String::new());
    let both = |cert: &str, key: &str| [flag("tls_cert", cert), flag("tls_key", key)];

    let config = file.load(&both(&cert, &key)).expect("a certificate and its key");
    assert!(matches!(config.certificate, Certificate::Files(_)));
    assert_says(&file.refusal(&both(&cert, &other_key)), "it does not belong to the certificate");
    assert_says(&file.refusal(&both(&empty, &key)), "it holds no certificate");
    assert_says(&file.refusal(&both(&cert, &empty)), "--tls-key");
    assert_says(&file.refusal(&both("/nonexistent.pem", &key)), "--tls-cert /nonexistent.pem");
    assert_says(&file.refusal(&[flag("tls_cert", &cert)]), "`tls_cert` is given without `tls_key`");
    assert_says(&file.refusal(&[flag("tls_key", &key)]), "`tls_key` is given without `tls_cert`");
}

#[test]
fn names_are_plain() {
    let file = File::new("dev = true\n");
    for name in ["a b", "a/b", "ä", &"x".repeat(65)] {
        assert!(
            file.refusal(&[flag("name", name)]).contains("`name` is longer than 64 bytes or has unusual"),
            "{name}"
        );
    }
}

#[test]
fn what_becomes_of_those_who_publish_what_they_may_not_is_a_setting() {
    for (text, disconnects) in [("", false), ("denied = \"drop\"", false), ("denied = \"disconnect\"", true)] {
        let config = File::new(&format!("dev = true\n{text}\n")).load(&[]).expect("a configuration");
        assert_eq!(config.access.of_edge().disconnects_denied, disconnects, "{text}");
    }
    assert_says(&File::new("dev = true\ndenied = \"kick\"\n").refusal(&[]), "drop");
}

#[test]
fn rules_and_quotas_are_judged_at_their_lines() {
    let says = |text: &str, words: &str| {
        let file = File::new(&format!("[identity]\npasswords = \"users\"\n{text}"));
        std::fs::write(file.directory.path().join("users"), "").expect("it can be written");
        assert_says(&file.refusal(&[]), words);
    };
    let rule = |rest: &str| format!("[[rule]]\nprincipals = [\"*\"]\nactions = [\"publish\"]\n{rest}");
    says(&rule(""), "a rule for publishing or subscribing has no `topics`");
    says(&rule("topics = [\"a/#/b\"]"), "\"a/#/b\" is no topic filter");
    says(&rule("topics = [\"bus-%u\"]"), "has %u or %c as a part of a level");
    says(&rule("topics = [\"$share/g/a\"]"), "is the filter of a shared subscription");
    says(&rule("topic = [\"a\"]"), "did you mean `topics`?");
    says(&rule("topics = [\"a\"]\nmax_importance = 11"), "`max_importance` is out of range");
    says("[[rule]]\nprincipals = [\"*\"]\nactions = [\"publsh\"]\n", "did you mean \"publish\"?");
    says("[[rule]]\nprincipals = [\"%u\"]\nactions = [\"peer\"]\n", "%u stands for the principal");
    says("[[rule]]\nactions = [\"peer\"]\n", "a rule names no `principals`");
    says("[[quota]]\nprincipals = [\"*\"]\n", "a quota bounds nothing");
    says("[[quota]]\nprincipals = [\"*\"]\nconnection = 1\n", "did you mean `connections`?");
    says("[[rules]]\n", "did you mean [[rule]]?");
    says("audits = \"-\"\n", "did you mean `audit`?");
    says("token_issuer = \"x\"\n", "there is no key for tokens");
    says("[[identity.key]]\nalgorithm = \"HS256\"\nfile = \"none\"\n", "the key cannot be used");
    says("[[identity.key]]\nalgorithm = \"none\"\nfile = \"none\"\n", "`algorithm` is not known");
    let file = File::new("[identity]\npasswords = \"users\"\n");
    std::fs::write(file.directory.path().join("users"), "ann:secret\n").expect("it can be written");
    assert_says(&file.refusal(&[]), "users:1: the hash of \"ann\" is none");
}

#[test]
fn with_passwords_a_broker_needs_no_dev_and_no_certificate() {
    let file = File::new(
        "[identity]\npasswords = \"users\"\n[[rule]]\nprincipals = [\"*\"]\nactions = [\"publish\"]\ntopics = [\"%c\"]\n",
    );
    std::fs::write(file.directory.path().join("users"), "# nobody yet\n").expect("it can be written");
    let config = file.load(&[]).expect("a configuration");
    assert!(!config.dev && matches!(config.certificate, Certificate::None));
    let open: Vec<Listener> = config.listen.iter().map(|(listener, _)| *listener).collect();
    assert_eq!(open, [Listener::Mqtt, Listener::Ws, Listener::Http]);
    assert!(config.warnings.iter().any(|warning| warning.contains("whoever connects chooses the client id")));
    let far = file.load(&[flag("listen_mqtt", "10.1.2.3:1883")]).expect("a configuration");
    assert!(far.warnings.iter().any(|warning| warning.contains("passwords can be read")), "{:?}", far.warnings);
    assert_says(&file.refusal(&[flag("listen_tls", "127.0.0.1:0")]), "there is no certificate to show");
    assert_says(&file.refusal(&[flag("listen_overlay", "127.0.0.1:0")]), "nothing tells who the other brokers are");
    assert_says(&file.refusal(&[flag("overlay.peers", "10.0.0.5:7117")]), "are given without `tls_ca`");
}

#[test]
fn whoever_may_send_a_proxy_header_must_be_named() {
    let dev = |text: &str| File::new(&format!("dev = true\n{text}"));
    let config = dev("proxy_listeners = [\"tls\", \"mqtt\"]\nproxy_from = [\"10.0.0.0/8\", \"::1\"]\n").load(&[]);
    let config = config.expect("a configuration");
    assert_eq!(config.proxy.listeners, [Listener::Mqtt, Listener::Tls]);
    let from: Vec<String> = config.proxy.from.iter().map(ToString::to_string).collect();
    assert_eq!(from, ["10.0.0.0/8", "::1/128"]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);

    assert_says(&dev("proxy_listeners = [\"mqtt\"]\n").refusal(&[]), "nobody may send the PROXY header");
    let text = dev("proxy_listeners = [\"overlay\"]\nproxy_from = [\"proxy.example\"]\n").refusal(&[]);
    assert_says(&text, "`proxy_listeners` has \"overlay\", which is not known");
    assert_says(&text, "write a list of some of mqtt, tls, ws, wss, http");
    assert_says(&text, "`proxy_from` has \"proxy.example\", which is no network");

    let flags = [flag("proxy_listeners", "mqtt,ws"), flag("proxy_from", "10.0.0.5"), flag("listen_ws", "off")];
    let config = dev("").load(&flags).expect("a configuration");
    assert!(config.warnings.iter().any(|warning| warning.contains("names ws, and `listen_ws` is off")));
    let config = dev("proxy_from = \"10.0.0.5\"\n").load(&[]).expect("a configuration");
    assert!(config.warnings.iter().any(|warning| warning.contains("means nothing without `proxy_listeners`")));
}

#[test]
fn others_are_told_addresses_that_can_be_dialled() {
    let dev = |text: &str| File::new(&format!("dev = true\n{text}"));
    let config = dev("[overlay]\nadvertise = [\"north.example.org:7117\", \"[2001:db8::1]:7117\"]\n").load(&[]);
    let advertise = config.expect("a configuration").overlay.advertise;
    assert_eq!(advertise, ["north.example.org:7117", "[2001:db8::1]:7117"]);
    let wrong = |value: &str| dev(&format!("[overlay]\nadvertise = {value}\n")).refusal(&[]);
    assert_says(&wrong("\"north\""), "`overlay.advertise` has \"north\", which is no host and port");
    assert_says(&wrong("\"0.0.0.0:7117\""), "which nobody can dial");
    assert_says(&wrong("\"[::]:7117\""), "which nobody can dial");
    assert_says(&wrong(&format!("\"{}.example:7117\"", "n".repeat(60))), "which is longer than 64 bytes");
    assert_says(&wrong("[\"a:1\", \"b:1\", \"c:1\", \"d:1\", \"e:1\"]"), "has more than 4 entries");
    let off = [flag("listen_overlay", "off"), flag("overlay.advertise", "a:1")];
    let warnings = dev("").load(&off).expect("a configuration").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("nobody can dial it")), "{warnings:?}");
}
