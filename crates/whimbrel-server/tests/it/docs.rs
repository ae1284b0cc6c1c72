//! The tables in `docs/` say what the program says. `WHIMBREL_WRITE_DOCS=1` makes these tests write
//! them.

use std::fmt::Write;
use std::path::PathBuf;

use crate::common::{get, start};
use whimbrel_server::config::schema::{KEYS, Key};

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";

/// Compares what is between the marks of a document, or writes it.
fn check(document: &str, generated: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).expect("the document exists");
    let (before, rest) = text.split_once(BEGIN).expect("the mark of the beginning");
    let (between, after) = rest.split_once(END).expect("the mark of the end");
    if std::env::var_os("WHIMBREL_WRITE_DOCS").is_some() {
        std::fs::write(&path, [before, BEGIN, generated, END, after].concat()).expect("the document can be written");
        return;
    }
    let differs = between.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        between == generated,
        "docs/{document} is out of date, first at {differs:?}; run this test with WHIMBREL_WRITE_DOCS=1"
    );
}

fn rows(keys: impl Iterator<Item = &'static Key>) -> String {
    let mut text = "| key | flag, variable | default | what it is | values |\n|---|---|---|---|---|\n".to_owned();
    for key in keys {
        let flag = match key.flag {
            Some((flag, variable)) => format!("`--{flag}`, `{variable}`"),
            None => "file only".to_owned(),
        };
        let default = if key.default.is_empty() { "none".to_owned() } else { format!("`{}`", key.default) };
        writeln!(text, "| `{}` | {flag} | {default} | {} | {} |", key.name, key.help, key.kind.values())
            .expect("a string");
    }
    text
}

#[test]
fn configuration() {
    let section = |name: &'static str| rows(KEYS.iter().filter(move |key| key.section == name && !key.is_later()));
    let mut text = format!("\n### Top level\n{}", section(""));
    for name in ["log", "place", "telemetry", "identity", "overlay", "journal", "engine", "limits"] {
        write!(text, "\n### `[{name}]`\n{}", section(name)).expect("a string");
    }
    text += "\n### Reserved for later versions\nAsking for one of these is an error that says so.\n\n| key | flag, variable | what it will be |\n|---|---|---|\n";
    for key in KEYS.iter().filter(|key| key.is_later()) {
        let (flag, variable) = key.flag.expect("reserved settings have flags");
        writeln!(text, "| `{}` | `--{flag}`, `{variable}` | {} |", key.name, key.help).expect("a string");
    }
    check("configuration.md", &(text + "\n"));
}

/// What a schema of the API's description is called.
fn kind(schema: &serde_json::Value) -> String {
    match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        Some(name) => format!("[`{name}`](#{})", name.to_lowercase()),
        None if schema["type"] == "array" => format!("list of {}", kind(&schema["items"])),
        None => match &schema["type"] {
            serde_json::Value::Array(types) => {
                types.iter().filter_map(|name| name.as_str()).collect::<Vec<_>>().join(" or ")
            }
            serde_json::Value::String(name) => name.clone(),
            _ => {
                let any: Vec<_> = schema["anyOf"].as_array().into_iter().flatten().map(kind).collect();
                if any.is_empty() { "anything".into() } else { any.join(" or ") }
            }
        },
    }
}

fn words(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

#[tokio::test]
async fn api() {
    let server = start(|_| {}).await;
    let page = get(&server, "/api/v1/openapi.json").await.1;
    let document: serde_json::Value = serde_json::from_str(&page).expect("it is JSON");
    let mut text =
        "\n## Routes\n\n| request | query | what it does | answer | needs |\n|---|---|---|---|---|\n".to_owned();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in operations.as_object().expect("operations") {
            let fields =
                operation["parameters"].as_array().into_iter().flatten().filter(|field| field["in"] == "query");
            let fields: Vec<_> =
                fields.map(|field| format!("`{}`: {}", words(&field["name"]), words(&field["description"]))).collect();
            let content = operation["responses"]["200"]["content"].as_object().expect("contents");
            let (media_type, content) = content.iter().next().expect("a content");
            let answer = if media_type == "application/json" { kind(&content["schema"]) } else { media_type.clone() };
            let needs = words(&operation["description"]);
            let needs = needs.split('`').nth(1).map_or("to sign in".to_owned(), |action| format!("`{action}`"));
            let (verb, summary) = (verb.to_uppercase(), words(&operation["summary"]));
            writeln!(text, "| `{verb} {path}` | {} | {summary} | {answer} | {needs} |", fields.join("; "))
                .expect("a string");
        }
    }
    text += "\n## Answers\n";
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        write!(text, "\n### {name}\n{}\n\n", words(&schema["description"])).expect("a string");
        if schema["anyOf"].is_array() {
            writeln!(text, "{}.", kind(schema)).expect("a string");
            continue;
        }
        text += "| field | kind | what it tells |\n|---|---|---|\n";
        for (field, schema) in schema["properties"].as_object().expect("properties") {
            writeln!(text, "| `{field}` | {} | {} |", kind(schema), words(&schema["description"])).expect("a string");
        }
    }
    check("api.md", &(text + "\n"));
}

#[tokio::test]
async fn metrics() {
    let server = start(|_| {}).await;
    let page = get(&server, "/metrics").await.1;
    let mut text = "\n| metric | kind | what it tells |\n|---|---|---|\n".to_owned();
    let mut help = "";
    for line in page.lines() {
        if let Some((_, words)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            help = words;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            writeln!(text, "| `{name}{suffix}` | {kind} | {} |", help.trim_end_matches('.')).expect("a string");
        }
    }
    check("metrics.md", &(text + "\n"));
}
