//! The house rules: the workspace keeps them, and each of them notices its breach.

use std::path::Path;

use xtask::tidy::layers::{check_outside, check_with};
use xtask::tidy::metadata::Metadata;
use xtask::tidy::ratchet::{self, Measure, Row};
use xtask::tidy::rust::{RustFile, mark_test_files};
use xtask::tidy::tables::{self, LAYERS, Layer, SEAMS, Seam};
use xtask::tidy::{
    Finding, advisories, budgets, comments, commits, composition, cycles, faults, hashes, names, purity, seams,
    signatures, supply, text,
};

const CORE: &str = "crates/whimbrel-core/src/sample.rs";
const NOTHING: [&str; 0] = [];

fn parse(path: &str, text: &str) -> RustFile {
    RustFile::parse(path, text).expect("the sample is Rust")
}

fn rules(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn the_workspace_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let report = xtask::tidy::run(root).expect("tidy can look at the workspace");
    let listing: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(listing.is_empty(), "\n{}\n", listing.join("\n"));
    assert!(report.files > 50 && report.packages > 50, "it looked at too little: {report:?}");
}

// ---- layers

/// A workspace of `event`, `core` and `server`; what each uses as (user, used, kind).
fn workspace(edges: &[(&str, &str, Option<&str>)], others: &[&str]) -> Metadata {
    let members = ["event", "core", "server"];
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let package = |name: &&str| {
        serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": "Apache-2.0", "license_file": null,
            "description": "a sample", "manifest_path": manifest })
    };
    let node = |name: &&str| {
        let deps: Vec<_> = edges
            .iter()
            .filter(|(user, ..)| user == name)
            .map(|(_, used, kind)| serde_json::json!({ "pkg": used, "dep_kinds": [{ "kind": kind }] }))
            .collect();
        serde_json::json!({ "id": name, "deps": deps })
    };
    let all: Vec<&str> = members.iter().chain(others).copied().collect();
    let answer = serde_json::json!({
        "packages": all.iter().map(package).collect::<Vec<_>>(),
        "workspace_members": members,
        "resolve": { "nodes": all.iter().map(node).collect::<Vec<_>>() },
    });
    Metadata::parse(answer.to_string().as_bytes()).expect("the sample has the shape of cargo's answer")
}

const SAMPLE_LAYERS: &[Layer] = &[
    Layer { name: "event", pure: true, uses: &[], tests_use: &[] },
    Layer { name: "core", pure: true, uses: &["event"], tests_use: &[] },
    Layer { name: "server", pure: false, uses: &["core"], tests_use: &["event"] },
];

#[test]
fn edges_in_the_table_pass() {
    let edges = [("core", "event", None), ("server", "core", None), ("server", "event", Some("dev"))];
    assert_eq!(check_with(&workspace(&edges, &[]), SAMPLE_LAYERS), []);
}

#[test]
fn an_edge_upwards_is_found() {
    let findings = check_with(&workspace(&[("core", "server", None)], &[]), SAMPLE_LAYERS);
    assert_eq!(rules(&findings), ["layers"]);
    assert_eq!(findings[0].place, "core");
}

#[test]
fn what_tests_may_use_the_crate_itself_may_not() {
    let findings = check_with(&workspace(&[("server", "event", None)], &[]), SAMPLE_LAYERS);
    assert_eq!(rules(&findings), ["layers"]);
}

#[test]
fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
    assert_eq!(rules(&check_with(&workspace(&[], &[]), &SAMPLE_LAYERS[..2])), ["layers"]);
    let gone = [Layer { name: "gone", pure: true, uses: &[], tests_use: &[] }];
    let layers: Vec<Layer> = gone.into_iter().chain(SAMPLE_LAYERS.iter().map(copy)).collect();
    assert_eq!(rules(&check_with(&workspace(&[], &[]), &layers)), ["layers"]);
}

fn copy(layer: &Layer) -> Layer {
    Layer { name: layer.name, pure: layer.pure, uses: layer.uses, tests_use: layer.tests_use }
}

#[test]
fn a_pure_crate_that_reaches_tokio_through_another_is_found() {
    let edges = [("core", "helper", None), ("helper", "tokio", None)];
    let findings = check_with(&workspace(&edges, &["helper", "tokio"]), SAMPLE_LAYERS);
    assert_eq!(rules(&findings), ["purity"]);
    assert!(findings[0].message.contains("helper -> tokio"), "{}", findings[0].message);
}

#[test]
fn what_only_tests_reach_does_not_taint_a_pure_crate() {
    let edges = [("core", "proptest", Some("dev")), ("proptest", "rand", None), ("server", "tokio", None)];
    assert_eq!(check_with(&workspace(&edges, &["proptest", "rand", "tokio"]), SAMPLE_LAYERS), []);
}

#[test]
fn a_crate_without_description_licence_or_lints_is_found() {
    let mut metadata = workspace(&[], &[]);
    let bare = metadata.packages.iter_mut().find(|package| package.name == "core").expect("it is in the sample");
    bare.description = None;
    bare.license = None;
    bare.manifest_path = "no/such/Cargo.toml".into();
    assert_eq!(rules(&check_with(&metadata, SAMPLE_LAYERS)), ["manifest", "manifest", "manifest"]);
}

#[test]
fn the_simulator_never_uses_the_server() {
    let sim = LAYERS.iter().find(|layer| layer.name == "whimbrel-sim").expect("it has a row");
    assert!(!sim.uses.contains(&"whimbrel-server") && !sim.tests_use.contains(&"whimbrel-server"));
}

#[test]
fn a_package_from_outside_that_a_crate_does_not_list_is_found() {
    let edges = [("core", "event", None), ("core", "hashbrown", None), ("core", "proptest", Some("dev"))];
    let metadata = workspace(&edges, &["hashbrown", "proptest"]);
    assert_eq!(check_outside(&metadata, &[("core", &["hashbrown"])]), []);
    let findings = check_outside(&metadata, &[("core", &[])]);
    assert_eq!(rules(&findings), ["layers"]);
    assert!(findings[0].message.contains("`hashbrown`"), "{}", findings[0].message);
    assert_eq!(rules(&check_outside(&metadata, &[("core", &["hashbrown", "gone"])])), ["stale-row"]);
}

// ---- seams

const SEAM: Seam = Seam { user: "whimbrel-net", of: "whimbrel-wire", names: &["BrokerMessage", "Move"], reason: "so" };

fn crossings(path: &str, text: &str) -> usize {
    seams::check_with(&[parse(path, text)], &SEAM).len()
}

#[test]
fn names_behind_a_seam_are_found_in_every_spelling() {
    let samples = [
        "use whimbrel_wire::BrokerMessage;",
        "use whimbrel_wire::{Frame, Move as Message};",
        "use whimbrel_wire as wire;\nfn f(it: &wire::Move<'_>) {}",
        "use whimbrel_wire::{self};\nconst KIND: u8 = whimbrel_wire::BrokerMessage::READ_ASK;",
        "fn f(it: whimbrel_wire::Move<'_>) {}",
        "use whimbrel_wire::*;",
        "pub use whimbrel_wire::BrokerMessage as Said;",
    ];
    for sample in samples {
        assert!(crossings("crates/whimbrel-net/src/rpc.rs", sample) > 0, "not found in: {sample}");
    }
}

#[test]
fn other_names_tests_and_other_crates_cross_no_seam() {
    let fine = "\
        use whimbrel_wire::{Frame, MessageFrame};
        // whimbrel_wire::BrokerMessage in a comment
        enum Step { Move, BrokerMessage }
        fn f(step: Step) -> bool { matches!(step, Step::Move) }
        #[cfg(test)]
        mod tests { use whimbrel_wire::BrokerMessage; }";
    assert_eq!(crossings("crates/whimbrel-net/src/rpc.rs", fine), 0);
    let crossing = "use whimbrel_wire::BrokerMessage;";
    assert_eq!(crossings("crates/whimbrel-net/tests/it/rpc.rs", crossing), 0);
    assert_eq!(crossings("crates/whimbrel-core/src/overlay/messages.rs", crossing), 0);
}

#[test]
fn a_body_that_a_seam_does_not_list_and_a_name_that_is_gone_are_found() {
    let message = |bodies: &str| {
        let text = format!("macro_rules! messages {{ () => {{}}; }}\nstruct Move;\nmessages! {{ {bodies} }}");
        parse("crates/whimbrel-wire/src/message.rs", &text)
    };
    assert_eq!(seams::check_rows(&[message("1 Move(Move<'a>),")], &SEAM), []);
    let findings = seams::check_rows(&[message("1 Move(Move<'a>), 2 Asked(Ask),")], &SEAM);
    assert!(matches!(&*findings, [one] if one.message.ends_with("does not list `Ask`")), "{findings:?}");
    let gone = parse("crates/whimbrel-wire/src/message.rs", "messages! { 1 Move(Move), }");
    let findings = seams::check_rows(&[gone], &SEAM);
    assert!(matches!(&*findings, [one] if one.message.contains("lists `Move`, which")), "{findings:?}");
}

#[test]
fn the_network_layer_may_name_no_body_of_a_message() {
    let seam = SEAMS.iter().find(|seam| seam.user == "whimbrel-net").expect("it has a row");
    for source in ["use whimbrel_wire::BrokerMessage;", "use whimbrel_wire::Where;", "use whimbrel_wire::ReadTold;"] {
        let findings = seams::check_with(&[parse("crates/whimbrel-net/src/rpc.rs", source)], seam);
        assert_eq!(rules(&findings), ["seam"]);
    }
}

// ---- purity

#[test]
fn the_drivers_within_a_pure_crate_are_single_files() {
    assert!(!tables::is_pure("crates/whimbrel-journal/src/file.rs"));
    assert!(tables::is_pure("crates/whimbrel-journal/src/log/mod.rs"));
    assert!(tables::is_pure("crates/whimbrel-journal/src/recover.rs"));
    assert!(tables::DRIVER_FILES.iter().all(|(path, why)| path.ends_with(".rs") && !why.is_empty()));
}

fn impurities(text: &str) -> usize {
    purity::check(&parse(CORE, text)).len()
}

#[test]
fn clocks_files_sockets_threads_and_ambient_randomness_are_found_in_every_spelling() {
    let samples = [
        "use std::net::TcpStream;",
        "use std::{fmt, fs::File};",
        "use std::time::{Duration, Instant};",
        "use std::time;\nfn f() { time::Instant::now(); }",
        "use std as s;\nfn f() { s::process::exit(1) }",
        "extern crate std as s;\nfn f() { s::process::exit(1) }",
        "use std::collections::*;",
        "use std::collections::HashMap as Map;",
        "fn f() { std::thread::yield_now() }",
        "fn f() -> ::std::time::SystemTime { panic!() }",
        "fn f() { assert!(std::env::var(\"X\").is_ok()) }",
        "fn f(s: foldhash::fast::RandomState) {}",
        "fn f() { println!(\"x\") }",
        "async fn f() {}",
        "fn f() { let r = thread_rng(); }",
        "mod inner { use std::io::Read; }",
    ];
    for sample in samples {
        assert!(impurities(sample) > 0, "not found in: {sample}");
    }
}

#[test]
fn names_that_only_look_alike_pass() {
    let fine = "\
        use std::collections::{BTreeMap, VecDeque};
        use std::time::Duration;
        // std::net::TcpStream in a comment
        /// std::fs in a doc comment
        fn f(net: u8) -> &'static str { let thread = net; let _ = thread; \"std::env::var println! async\" }
        #[cfg(test)]
        mod tests { use std::time::Instant; fn now() -> Instant { Instant::now() } }";
    assert_eq!(purity::check(&parse(CORE, fine)), []);
}

#[test]
fn purity_holds_for_sources_of_pure_crates_only() {
    assert!(tables::is_pure(CORE));
    assert!(tables::is_pure("crates/whimbrel-mqtt/src/codec/mod.rs"));
    assert!(!tables::is_pure("crates/whimbrel-core/tests/delivery.rs"));
    assert!(!tables::is_pure("crates/whimbrel-server/src/lib.rs"));
}

// ---- hash order

fn walks(text: &str) -> usize {
    hashes::check(&[parse(CORE, text)]).len()
}

#[test]
fn walking_a_hash_table_is_found_in_every_spelling() {
    let samples = [
        "struct S { m: HashMap<u8, u8> } impl S { fn f(&self) { for x in &self.m {} } }",
        "struct S { m: hashbrown::HashTable<u8> } impl S { fn f(&mut self) { self.m.retain(|_| true); } }",
        "fn f(m: &HashSet<u8>) -> usize { m.iter().count() }",
        "type Map = HashMap<u8, u8, FixedState>; fn f(m: &mut Map) { m.drain(); }",
        "use hashbrown::HashMap as Map; fn f(m: Map<u8, u8>) { for x in m {} }",
        "fn f() { let m = HashMap::new(); m.keys(); }",
        "fn f() { let m: HashMap<u8, u8> = make(); (&m).values(); }",
    ];
    for sample in samples {
        assert_eq!(walks(sample), 1, "in: {sample}");
    }
}

#[test]
fn looking_up_in_a_hash_table_and_walking_a_tree_pass() {
    let fine = "struct S { m: HashMap<u8, u8>, t: BTreeMap<u8, u8> }
        impl S { fn f(&self) { self.m.get(&1); for x in &self.t {} self.t.iter(); } }
        #[cfg(test)] mod tests { fn f(s: super::S) { s.m.iter(); } }";
    assert_eq!(walks(fine), 0);
    let outside = parse("crates/whimbrel-server/src/x.rs", "fn f(m: &HashSet<u8>) { m.iter(); }");
    assert_eq!(hashes::check(&[outside]), []);
}

// ---- budgets

fn file_of(lines: usize) -> String {
    format!("//! Sample.\n{}", "static X: u8 = 1;\n".repeat(lines - 1))
}

fn broken_budgets(text: &str) -> Vec<&'static str> {
    rules(&budgets::check(&parse("crates/x/src/lib.rs", text)))
}

#[test]
fn long_files_are_found() {
    assert_eq!(broken_budgets(&file_of(500)), NOTHING);
    assert_eq!(broken_budgets(&file_of(501)), ["file-lines"]);
    let excused = |lines: usize| format!("// tidy: table — one row per reason code\n{}", file_of(lines - 1));
    assert_eq!(broken_budgets(&excused(1000)), NOTHING);
    assert_eq!(broken_budgets(&excused(1001)), ["file-lines"]);
}

#[test]
fn inline_tests_do_not_count() {
    let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", file_of(500), "fn f() {}\n".repeat(100));
    assert_eq!(broken_budgets(&text), NOTHING);
}

#[test]
fn test_files_and_test_modules_in_files_of_their_own_do_not_count() {
    assert_eq!(rules(&budgets::check(&parse("crates/x/tests/long.rs", &file_of(600)))), NOTHING);
    let mut sources = [
        parse("crates/x/src/lib.rs", "//! X.\n#[cfg(test)]\nmod cases;"),
        parse("crates/x/src/cases.rs", &file_of(600)),
        parse("crates/x/src/cases/more.rs", &file_of(600)),
        parse("crates/x/src/other.rs", &file_of(600)),
    ];
    mark_test_files(&mut sources);
    let broken: Vec<usize> = sources.iter().map(|source| budgets::check(source).len()).collect();
    assert_eq!(broken, [0, 0, 0, 1]);
}

#[test]
fn long_functions_are_found() {
    let function = |lines: usize| format!("//! X.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
    assert_eq!(broken_budgets(&function(70)), NOTHING);
    assert_eq!(broken_budgets(&function(71)), ["function-lines"]);
    let marked = function(71).replace("fn f()", "// tidy: table — one arm per packet type\n#[inline]\nfn f()");
    assert_eq!(broken_budgets(&marked), NOTHING);
    let without_reason = function(71).replace("fn f()", "// tidy: table\nfn f()");
    assert_eq!(broken_budgets(&without_reason), ["function-lines"]);
    let method = format!("//! X.\nimpl A {{ {} }}", function(71).replace("//! X.\n", ""));
    assert_eq!(broken_budgets(&method), ["function-lines"]);
}

#[test]
fn a_file_that_does_not_say_what_it_is_for_is_found() {
    assert_eq!(broken_budgets("fn f() {}"), ["module-docs"]);
}

// ---- wording

fn words(path: &str, text: &str) -> Vec<&'static str> {
    let mut findings = text::check(path, text);
    if path.ends_with(".rs") {
        findings.extend(text::check_rust(&parse(path, text)));
    }
    rules(&findings)
}

#[test]
fn unfinished_work_is_found() {
    let marker = concat!("TO", "DO");
    assert_eq!(words("docs/x.md", &format!("{marker}: more")), ["unfinished"]);
    assert_eq!(words("src/x.rs", &format!("// {marker}(me)")), ["unfinished"]);
    assert_eq!(words("src/x.rs", &format!("fn f() {{ {}!() }}", "todo")), ["unfinished"]);
    assert_eq!(words("src/x.rs", &format!("fn f() {{ {}!(1) }}", "dbg")), ["unfinished"]);
    assert_eq!(words("scripts/x.sh", "mktemp -t run.XXXXXX"), NOTHING);
}

#[test]
fn paths_of_one_machine_and_registry_hosts_are_found() {
    let own = concat!("/wo", "rk/main");
    assert_eq!(words("docs/x.md", &format!("see {own}")), ["machine-path"]);
    assert_eq!(words("docs/x.md", "see home/work/lamp or $(CURDIR)/work/"), NOTHING);
    let temporary = concat!("/t", "mp/x");
    assert_eq!(words("src/x.rs", &format!("fn f() -> &'static str {{ \"{temporary}\" }}")), ["machine-path"]);
    assert_eq!(words("tests/x.rs", &format!("fn f() -> &'static str {{ \"{temporary}\" }}")), NOTHING);
    assert_eq!(words("scripts/x.sh", &format!("cd {temporary}")), ["machine-path"]);
    let host = concat!("crates", ".io");
    assert_eq!(words("README.md", host), ["registry"]);
    assert_eq!(words("Cargo.lock", host), NOTHING);
}

#[test]
fn sleeping_tests_are_found() {
    let sleep = "fn f() { std::thread::sleep(D) }";
    assert_eq!(words("crates/x/tests/a.rs", sleep), ["sleeping-test"]);
    assert_eq!(words("crates/x/src/a.rs", sleep), NOTHING);
    let inline = "#[cfg(test)] mod tests { async fn f() { tokio::time::sleep(D).await } }";
    assert_eq!(words("crates/x/src/a.rs", inline), ["sleeping-test"]);
    let pause = "#[tokio::test(start_paused = true)] async fn f() { tokio::time::sleep(D).await }";
    assert_eq!(words("crates/x/tests/a.rs", pause), NOTHING);
    assert_eq!(words("crates/x/tests/a.rs", &pause.replace("tokio::time::", "std::thread::")), ["sleeping-test"]);
    let poll = "// tidy: poll — until the port answers\nfn f() { std::thread::sleep(D) }";
    assert_eq!(words("crates/x/tests/a.rs", poll), NOTHING);
    assert_eq!(words("tests/clients/a.py", "    time.sleep(1)"), ["sleeping-test"]);
    assert_eq!(words("tests/clients/a.py", "# tidy: poll — until it is bound\ntime.sleep(0.01)"), NOTHING);
    assert_eq!(words("tests/clients/a.mjs", "await new Promise(r => setTimeout(r, 100))"), ["sleeping-test"]);
    assert_eq!(words("tests/clients/run", "sleep 1"), ["sleeping-test"]);
}

#[test]
fn ignored_tests_are_found() {
    assert_eq!(words("tests/a.rs", "#[test]\n#[ignore]\nfn f() {}"), ["ignored-test"]);
    assert_eq!(words("tests/a.rs", "#[ignore = \"slow\"]\nfn f() {}"), ["ignored-test"]);
    assert_eq!(words("tests/a.rs", "fn ignore() { ignore() }"), NOTHING);
}

#[test]
fn unsafe_code_is_found() {
    assert_eq!(words("src/x.rs", "fn f() { unsafe { g() } }"), ["unsafe"]);
    assert_eq!(words("src/x.rs", "#![allow(unsafe_code)]"), ["unsafe"]);
    assert_eq!(words("src/x.rs", "// unsafe\nconst X: &str = \"unsafe\";"), NOTHING);
}

#[test]
fn rows_that_excuse_nothing_are_found() {
    let sources = [parse("src/x.rs", "//! X.")];
    let rows = [("src/x.rs", "a reason"), ("src/gone.rs", "a reason")];
    assert_eq!(tables::check_file_rows(&sources, &rows, &[]).len(), 2);
    assert_eq!(tables::check_file_rows(&sources, &[], &rows).len(), 2);
    let needed = [parse("src/x.rs", "fn f() { unsafe { g() } }")];
    assert_eq!(tables::check_file_rows(&needed, &rows[..1], &[]), []);
}

// ---- counts that may only fall

fn row(rule: &str, subject: &str, number: usize) -> Row {
    Row { rule: rule.into(), subject: subject.into(), number }
}

fn measure(subject: &str, count: usize) -> Measure {
    Measure { rule: "methods", subject: subject.into(), limit: 8, count, what: "methods", places: vec!["a.rs".into()] }
}

#[test]
fn a_count_passes_within_its_limit_or_with_exactly_the_number_of_its_row() {
    let check = |count: usize, rows: &[Row]| rules(&ratchet::check(rows, &[measure("a", count)]));
    let rows = [row("methods", "a", 20)];
    assert_eq!(check(8, &[]), NOTHING);
    assert_eq!(check(9, &[]), ["methods"]);
    assert_eq!(check(20, &rows), NOTHING);
    assert_eq!(check(21, &rows), ["methods"]);
    assert_eq!(check(19, &rows), ["ratchet"]);
    assert_eq!(check(9, &[row("methods", "b", 20)]), ["methods", "ratchet"], "the row of another excuses nothing");
}

#[test]
fn a_finding_tells_the_number_to_write() {
    let message = |count: usize| ratchet::check(&[row("methods", "a", 20)], &[measure("a", count)]).remove(0).message;
    assert!(message(19).contains("lower the number to 19"), "{}", message(19));
    assert!(message(7).contains("remove the row"), "{}", message(7));
    assert!(message(30).contains("30 methods; there may be 20: a.rs"), "{}", message(30));
}

#[test]
fn numbers_are_lowered_and_never_raised() {
    let text = "# why\nmethods\ta\t20\nmethods\tb\t20\nmethods\tc\t20\nmethods\tgone\t20\n";
    let measures = [measure("a", 19), measure("b", 21), measure("c", 8)];
    let lower = ratchet::lower(text, &measures).expect("the rows are well-formed");
    assert_eq!(lower, "# why\nmethods\ta\t19\nmethods\tb\t20\n");
}

#[test]
fn rows_that_are_malformed_or_double_are_errors() {
    assert_eq!(ratchet::parse("# x\n\nr\ts u\t3\n").expect("it is well-formed"), [row("r", "s u", 3)]);
    for bad in ["r s 3", "r\ts", "r\ts\tmany", "r\ts\t3\t4", "r\ts\t3\nr\ts\t4"] {
        assert!(ratchet::parse(bad).is_err(), "{bad}");
    }
    assert!(!ratchet::parse(ratchet::ROWS).expect("the committed rows are well-formed").is_empty());
}

/// What a rule counts, as (subject, count), where it counts anything.
fn counts(measures: &[Measure], rule: &str) -> Vec<(String, usize)> {
    let own = measures.iter().filter(|measure| measure.rule == rule && measure.count > 0);
    own.map(|measure| (measure.subject.clone(), measure.count)).collect()
}

fn count_of(subject: &str, count: usize) -> (String, usize) {
    (subject.to_owned(), count)
}

fn core(name: &str, text: &str) -> RustFile {
    parse(&format!("crates/whimbrel-core/src/{name}"), text)
}

// ---- composition

#[test]
fn files_with_an_impl_of_the_composition_are_counted() {
    let sources = [
        core("a.rs", "impl Broker { fn a(&self) {} }\nimpl Broker {}"),
        core("b.rs", "impl fmt::Debug for crate::Broker {}"),
        core("c.rs", "impl Other {}\n#[cfg(test)]\nimpl Broker {}"),
        core("tests/d.rs", "impl Broker {}"),
        parse("crates/whimbrel-mqtt/src/a.rs", "impl Broker {}"),
        parse("crates/whimbrel-net/src/a.rs", "impl<T> Net<T> {}"),
    ];
    let expected = [count_of("whimbrel-core", 2), count_of("whimbrel-net", 1)];
    assert_eq!(counts(&composition::measure(&sources), "composition-files"), expected);
}

#[test]
fn methods_of_a_type_are_counted_over_all_files() {
    let functions = |count: usize| (0..count).map(|n| format!("fn f{n}() {{}}")).collect::<String>();
    let file = |name: &str, count: usize| core(name, &format!("impl Session {{ {} }}", functions(count)));
    let methods = |sources: &[RustFile]| counts(&composition::measure(sources), "methods");
    assert_eq!(methods(&[file("a.rs", 60), file("b.rs", 60)]), []);
    assert_eq!(methods(&[file("a.rs", 60), file("b.rs", 61)]), [count_of("whimbrel-core::Session", 121)]);
    assert_eq!(methods(&[file("a.rs", 120), core("b.rs", "impl Clone for Session { fn clone(&self) {} }")]), []);
    let test = core("b.rs", "impl Session { #[cfg(test)] fn only_in_tests() {} }");
    assert_eq!(methods(&[file("a.rs", 120), test]), []);
}

#[test]
fn deref_is_found_where_no_row_excuses_it() {
    let sources = [core("a.rs", "impl Deref for A { type Target = B; }\nimpl core::ops::DerefMut for A {}")];
    assert_eq!(counts(&composition::measure(&sources), "deref"), [count_of("whimbrel-core::A", 2)]);
    let pointer = [core("a.rs", "impl<T> Deref for Lazy<T> { type Target = T; }")];
    assert_eq!(counts(&composition::measure(&pointer), "deref"), []);
    let excused = [("whimbrel-core", "A", "a reason"), ("whimbrel-core", "B", "a reason")];
    assert_eq!(rules(&composition::check_rows(&sources, &excused)), ["stale-row"]);
}

// ---- signatures

fn tuples(text: &str) -> usize {
    signatures::measure(&[core("a.rs", text)]).iter().map(|measure| measure.count).sum()
}

#[test]
fn tuples_as_parameters_are_found() {
    let samples = [
        "pub fn f(a: (u8, u8)) {}",
        "pub(crate) fn f((a, b): (u8, u8)) {}",
        "impl A { pub(super) fn f(&self, a: &(u8, u8)) {} }",
        "impl A { pub(in crate::a) fn f(a: &mut (u8, u8)) {} }",
        "trait T { fn f(a: ((u8, u8), u8)); }",
    ];
    for sample in samples {
        assert_eq!(tuples(sample), 1, "in: {sample}");
    }
    assert_eq!(tuples("pub fn f(a: (u8, u8), b: (u8, u8)) {}"), 2);
}

#[test]
fn tuples_in_private_functions_and_within_other_types_pass() {
    let samples = [
        "fn f(a: (u8, u8)) {}",
        "pub(self) fn f(a: (u8, u8)) {}",
        "impl T for A { fn f(a: (u8, u8)) {} }",
        "pub fn f(a: &[(u8, u8)], b: impl Iterator<Item = (u8, u8)>, c: Option<(u8, u8)>, d: [(u8, u8); 2]) {}",
        "pub fn f(g: fn((u8, u8)), h: &dyn Fn((u8, u8)), u: ()) -> (u8, u8) { let k = |a: (u8, u8)| a; k((1, 2)) }",
        "#[cfg(test)] mod tests { pub fn f(a: (u8, u8)) {} }",
    ];
    for sample in samples {
        assert_eq!(tuples(sample), 0, "in: {sample}");
    }
}

// ---- cycles

/// The files of the largest cycle of a crate with these files, as (name, text).
fn cycle(files: &[(&str, &str)]) -> usize {
    let sources: Vec<RustFile> = files.iter().map(|(name, text)| core(name, &text.replace("; ", ";\n"))).collect();
    cycles::measure(&sources).iter().map(|measure| measure.count).sum()
}

#[test]
fn files_that_name_each_other_are_a_cycle_in_every_spelling() {
    let samples = [
        ("use crate::b::B; pub struct A;", "use super::a::A; pub struct B;"),
        ("pub struct A(super::b::B);", "pub struct B(crate::a::A);"),
        ("use crate::b; pub struct A(b::B);", "use crate::{a::{self as other}}; pub struct B(other::A);"),
        ("use crate::b::*; pub struct A(B);", "fn f() { use crate::a::A; } pub struct B;"),
        ("use crate::B; pub struct A;", "use crate::A as Other; pub struct B;"),
        ("pub struct A; fn f() { assert!(crate::b::g()) }", "pub fn g() -> bool { crate::a::A; true }"),
        (
            "pub struct A; mod b { pub fn g() {} } fn b() {} fn f() { crate::b::g() }",
            "use crate::a::A; pub fn g() {} fn b() {} pub struct B;",
        ),
        ("pub struct A; mod inner { fn f(b: super::super::b::B) {} }", "pub struct B(crate::a::A);"),
    ];
    let root = "mod a; mod b; pub use a::A; pub(crate) use self::b::B;";
    for (a, b) in samples {
        assert_eq!(cycle(&[("lib.rs", root), ("a.rs", a), ("b/mod.rs", b)]), 2, "in: {a} {b}");
    }
}

#[test]
fn re_exports_tests_and_one_way_are_no_cycle() {
    let root = "mod a; mod b; pub use a::A;";
    let samples = [
        ("pub struct A;", "use crate::A; pub struct B(A);"),
        ("pub struct A; #[cfg(test)] mod tests { use crate::b::B; }", "use crate::a::A; pub struct B;"),
        ("pub struct A; // crate::b::B\n/// [`crate::b::B`]\nstruct C;", "use crate::a::A; pub struct B;"),
        ("pub use crate::b::B; pub struct A;", "pub struct B(crate::a::A);"),
        ("pub use crate::b::*; pub struct A;", "pub struct B(crate::a::A);"),
    ];
    for (a, b) in samples {
        assert_eq!(cycle(&[("lib.rs", root), ("a.rs", a), ("b.rs", b)]), 0, "in: {a} {b}");
    }
}

#[test]
fn the_largest_of_several_cycles_counts() {
    let edges = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "c"), ("e", "f")];
    assert_eq!(cycles::largest_cycle(&edges.into_iter().collect()), ["c", "d", "e"]);
    assert_eq!(cycles::largest_cycle(&[("a", "b")].into_iter().collect()), NOTHING);
}

// ---- names

#[test]
fn names_of_more_than_one_type_are_counted_in_a_crate_and_in_a_pair() {
    let file = |package: &str, text: &str| parse(&format!("crates/{package}/src/lib.rs"), text);
    let shared = |sources: &[RustFile]| counts(&names::measure_with(sources, SAMPLE_LAYERS), "type-names");
    let twice = "struct A; mod m { enum A {} type B = u8; trait C {} }";
    assert_eq!(shared(&[file("core", twice)]), [count_of("core", 1)]);
    let pair = [file("event", "struct A; struct B;"), file("core", "enum A {} type B = u8;")];
    assert_eq!(shared(&pair), [count_of("core + event", 2)]);
    // The server may not use event, but for its tests.
    assert_eq!(shared(&[file("event", "struct A;"), file("server", "struct A;")]), []);
    assert_eq!(
        shared(&[file("core", "struct A; #[cfg(test)] mod tests { struct A; } impl T for A { type A = u8; }")]),
        []
    );
}

// ---- comments

fn wide(text: &str) -> usize {
    counts(&comments::measure(&[parse("crates/x/src/lib.rs", text)]), "comment-columns").iter().map(|(_, n)| n).sum()
}

#[test]
fn wide_comment_lines_are_found() {
    let line = |start: &str, columns: usize| {
        let text: String = "é ".chars().cycle().take(columns - start.len() - 1).collect();
        format!("{start}{text}é\nstruct S;")
    };
    for start in ["// ", "/// ", "    /// "] {
        assert_eq!(wide(&line(start, 100)), 0, "{start}");
        assert_eq!(wide(&line(start, 101)), 1, "{start}");
    }
    assert_eq!(wide(&line("struct T; // ", 120)), 0, "a line of code is rustfmt's");
    assert_eq!(wide(&format!("const X: &str = \"\n{}\";", line("// ", 120))), 0, "this is a text");
}

#[test]
fn a_comment_that_is_one_address_or_path_may_be_wide() {
    let long = "a/".repeat(60);
    assert_eq!(wide(&format!("// https://example.org/{long}")), 0);
    assert_eq!(wide(&format!("/// [it]: https://example.org/{long}\nstruct S;")), 0);
    assert_eq!(wide(&format!("// - crate::{}", "a::".repeat(60))), 0);
    assert_eq!(wide(&format!("// see https://example.org/{long}")), 1);
    assert_eq!(wide(&format!("// {}", "a".repeat(120))), 1);
}

#[test]
fn vague_words_are_found_whole_and_in_any_case() {
    for line in
        ["// Whoever asks", "    /// the broker that nobody, yet, knows", "//! What came first", "// so many: x"]
    {
        assert!(comments::is_vague(line), "{line}");
    }
    for line in ["// a busybody", "// what_came", "// somewhat", "// so that many", "// What is due came"] {
        assert!(!comments::is_vague(line), "{line}");
    }
}

#[test]
fn vague_lines_are_counted_in_the_crates_of_the_table_but_in_tests() {
    let vague = |path: &str, text: &str| counts(&comments::measure(&[parse(path, text)]), "vague-words");
    let text = "//! Somebody.\n// anybody, nobody\nfn f() {} // nobody\nconst X: &str = \"nobody\";\n\
                #[cfg(test)]\nmod tests {\n// nobody\n}\n";
    assert_eq!(vague(CORE, text), [count_of("whimbrel-core", 2)]);
    assert_eq!(vague("crates/whimbrel-core/tests/a.rs", text), []);
    assert_eq!(vague("crates/whimbrel-server/src/a.rs", text), []);
    assert_eq!(vague(&format!("{}a.rs", tables::UNWORDED_FILES[0].0), text), []);
}

#[test]
fn three_vague_lines_in_a_thousand_pass() {
    let text = format!("{}{}struct S;", "// nobody\n".repeat(3), "// a broker\n".repeat(997));
    let measures = comments::measure(&[parse(CORE, &text)]);
    assert_eq!(ratchet::check(&[], &measures), []);
    let measures = comments::measure(&[parse(CORE, &text.replacen("a broker", "nobody", 1))]);
    assert_eq!(rules(&ratchet::check(&[], &measures)), ["vague-words"]);
}

// ---- commits

#[test]
fn subjects_of_commits_have_an_area_and_a_width() {
    for fine in ["core: a session ends once", "client, api: no password is shown", "tests/net: x", ".github: y"] {
        assert_eq!(commits::check_one("abc", fine), None);
    }
    for bad in ["A session ends once", "Core: a session ends", "core:", "core: ", ": a", "core - a: b (c: d)", "two"] {
        assert_eq!(rules(&Vec::from_iter(commits::check_one("abc", bad))), ["commit-subject"], "{bad}");
    }
    let subject = |columns: usize| format!("core: {}", "é".repeat(columns - 6));
    assert_eq!(commits::check_one("abc", &subject(72)), None);
    assert!(commits::check_one("abc", &subject(73)).is_some());
}

// ---- built-in faults

#[test]
fn files_that_ask_for_built_in_faults_are_counted() {
    let asks = "#[cfg(feature = \"mutants\")]\nfn f() {}";
    let counted = |sources: &[RustFile]| counts(&faults::measure(sources), "fault-files");
    let sources = [core("a.rs", asks), core("b.rs", "fn f() { cfg!(not(feature = \"mutants\")); }")];
    assert_eq!(counted(&sources), [count_of("whimbrel-core", 2)]);
    let allowed = [core("fault.rs", asks), core("lib.rs", asks), core("fault/list.rs", asks)];
    assert_eq!(counted(&allowed), []);
    let others = [
        core("tests/a.rs", asks),
        core("a.rs", "// feature = \"mutants\"\n#[cfg(test)]\nmod t {\n#[cfg(feature = \"mutants\")]\nfn f() {}\n}"),
        core("b.rs", "#[cfg(feature = \"other\")]\nfn f() {}"),
        parse("crates/whimbrel-sim/src/a.rs", asks),
    ];
    assert_eq!(counted(&others), []);
}

// ---- what it is built from

fn graph(packages: &[(&str, Option<&str>)]) -> Metadata {
    let package = |(name, license): &(&str, Option<&str>)| {
        serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": license, "license_file": null,
            "description": null, "manifest_path": "Cargo.toml" })
    };
    let answer = serde_json::json!({ "packages": packages.iter().map(package).collect::<Vec<_>>(), "workspace_members": [],
        "resolve": { "nodes": [] } });
    Metadata::parse(answer.to_string().as_bytes()).expect("the sample has the shape of cargo's answer")
}

#[test]
fn licences_outside_the_table_are_found() {
    let ring = ("ring", Some("Apache-2.0 AND ISC"));
    let fine = [
        ring,
        ("a", Some("MIT/Apache-2.0")),
        ("b", Some("GPL-3.0 OR MIT")),
        ("c", Some("(MIT OR X11) AND Unicode-3.0")),
    ];
    assert_eq!(supply::check(&graph(&fine)), []);
    for bad in [None, Some("GPL-3.0"), Some("MIT AND AGPL-3.0"), Some("my own")] {
        assert_eq!(rules(&supply::check(&graph(&[ring, ("a", bad)]))), ["licence"], "{bad:?}");
    }
}

#[test]
fn a_second_crypto_provider_is_found() {
    let mit = Some("MIT");
    assert_eq!(rules(&supply::check(&graph(&[("ring", mit), ("aws-lc-sys", mit)]))), ["forbidden-package"]);
    assert_eq!(rules(&supply::check(&graph(&[("ring", mit), ("openssl-sys", mit)]))), ["forbidden-package"]);
    assert_eq!(rules(&supply::check(&graph(&[("ring", mit), ("ring", mit)]))), ["crypto-provider"]);
    assert_eq!(rules(&supply::check(&graph(&[("other", mit)]))), ["crypto-provider"]);
}

#[test]
fn vulnerable_versions_are_found() {
    let table = "[[advisory]]\nid = \"R-1\"\npackage = \"leaky\"\ntitle = \"leaks\"\npatched = [\">=1.2.3\", \">=0.9.8, <0.10.0\"]
        unaffected = [\"<0.5.0\"]";
    let advisories = advisories::parse(table).expect("the sample is a table");
    let concerns = |version: &str| {
        let lock = format!("[[package]]\nname = \"leaky\"\nversion = \"{version}\"");
        advisories::check(&advisories, "Cargo.lock", &lock).expect("the sample is a lock file").len() == 1
    };
    for version in ["1.2.2", "0.9.7", "0.10.0", "0.5.0"] {
        assert!(concerns(version), "{version} is vulnerable");
    }
    for version in ["1.2.3", "2.0.0", "0.9.8", "0.4.9"] {
        assert!(!concerns(version), "{version} is not vulnerable");
    }
}

#[test]
fn the_committed_advisories_would_notice_an_old_lock_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisories.toml");
    let table = std::fs::read_to_string(path).expect("advisories.toml is committed");
    let advisories = advisories::parse(&table).expect("advisories.toml parses");
    let lock = "[[package]]\nname = \"quinn-proto\"\nversion = \"0.11.14\"\n[[package]]\nname = \"rustls\"\nversion = \"0.23.44\"";
    assert_eq!(advisories::check(&advisories, "Cargo.lock", lock).expect("the sample is a lock file").len(), 2);
}
