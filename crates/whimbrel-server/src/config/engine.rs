//! `[engine]`: the replicated engine that has the journal, too.

use std::path::PathBuf;

use axum::http::Uri;
use whimbrel_engine::Acknowledgement;

use super::problem::Problem;
use super::settings::Settings;
use crate::engine::{Adoption, EngineOptions};

/// The port of monitoring, where no address is named.
const MONITOR_PORT: u16 = 8222;

/// Beginnings of the addresses of servers.
const SCHEMES: [&str; 2] = ["nats", "tls"];

/// Reads and checks the table. Without servers there is no engine.
pub(super) fn load(settings: &mut Settings) -> Option<EngineOptions> {
    let servers = listed(settings, "engine.servers");
    if servers.is_empty() {
        for given in ["ack", "patience", "monitor", "credentials", "ca"].map(|name| format!("engine.{name}")) {
            if let Some(place) = settings.place(&given).cloned() {
                let problem = Problem::new(format!("`{given}` is given, and `engine.servers` is not"));
                settings.problems.push(problem.at(Some(&place), "here").help("name the servers, or leave it out"));
            }
        }
        return None;
    }
    let hosts =
        servers.iter().filter_map(|server| host(settings, "engine.servers", server, &SCHEMES)).collect::<Vec<_>>();
    let named = listed(settings, "engine.monitor");
    for address in &named {
        host(settings, "engine.monitor", address, &["http"]);
    }
    let monitors = match named.is_empty() {
        true => hosts.iter().map(|host| format!("http://{host}:{MONITOR_PORT}")).collect(),
        false => named,
    };
    check_name(settings);
    Some(EngineOptions {
        broker: settings.text("name"),
        servers,
        acknowledgement: match &*settings.text("engine.ack") {
            "local" => Acknowledgement::Local,
            "engine" => Acknowledgement::Engine,
            _ => Acknowledgement::Both,
        },
        patience: settings.duration("engine.patience"),
        monitors,
        credentials: settings.path("engine.credentials"),
        authorities: settings.path("engine.ca"),
        takes: false,
        adoption: Adoption::default(),
    })
}

/// The data directory of a broker that has an engine and names none: in the system's temporary
/// directory, as its engine has everything that is in it. `None`: it has no engine.
pub(super) fn default_directory(settings: &Settings) -> Option<PathBuf> {
    let (user, name) = (rustix::process::getuid().as_raw(), settings.text("name"));
    let has_engine = !listed(settings, "engine.servers").is_empty();
    has_engine.then(|| std::env::temp_dir().join(format!("whimbrel-{name}-{user}")))
}

/// A list of addresses, which may have commas between them.
fn listed(settings: &Settings, path: &str) -> Vec<String> {
    let texts = settings.texts(path);
    let parts = texts.iter().flat_map(|text| text.split(','));
    parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The host of an address, which must have one of these schemes.
fn host(settings: &mut Settings, path: &str, address: &str, schemes: &[&str]) -> Option<String> {
    let uri = address.parse::<Uri>().ok();
    // Secrets in addresses would stand in logs.
    let has_secret = |uri: &Uri| uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let is_of_scheme = |uri: &Uri| schemes.contains(&uri.scheme_str().unwrap_or_default());
    let is_right = |uri: &Uri| is_of_scheme(uri) && !has_secret(uri) && uri.path().len() <= 1;
    match uri.filter(is_right).and_then(|uri| uri.host().map(str::to_owned)) {
        Some(host) => Some(host),
        None => {
            let example =
                format!("{}://10.0.0.1:{}", schemes[0], if path == "engine.servers" { 4222 } else { MONITOR_PORT });
            let problem = Problem::new(format!("`{path}` has {address:?}, which is no address of a server"));
            let problem = problem.at(settings.place(path), "here").help(format!(
                "write addresses such as {example}; credentials have a file of their own (engine.credentials)"
            ));
            settings.problems.push(problem);
            None
        }
    }
}

/// The name decides which stream is the broker's: it must be given, and fit into subjects.
fn check_name(settings: &mut Settings) {
    let name = settings.text("name");
    let problem = if settings.place("name").is_none() {
        Problem::new("a broker with an engine has no `name`, by which it is found there")
            .at(settings.place("engine.servers"), "the engine")
            .help("give it a name of its own that it keeps on any machine, such as --name north")
    } else if name.contains('.') {
        Problem::new("the name of a broker with an engine has a `.`")
            .at(settings.place("name"), "here")
            .help("use letters, digits, '-' and '_': the name is a part of a subject of the engine")
    } else {
        return;
    };
    settings.problems.push(problem);
}
