//! Settings gathered from the command line, the environment and a file, before they are checked
//! together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use miette::NamedSource;
use toml::de::{DeTable, DeValue};
use whimbrel_event::Domains;

use super::Fixed;
use super::fence::{Entry, Watched};
use super::partition::Asked;
use super::peer::{self, PEER, PeerTerms};
use super::problem::{Place, Problem};
use super::schema::{self, BUFFER, FENCE, KEY, KEYS, Key, PARTITION, QUOTA, RULE, SECTIONS, TOPIC};
use super::value::{Refusal, Value};
use super::{access, topic};

/// The largest configuration file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Least similarity of two names for one to be suggested for the other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.8;

/// Source of a setting given outside of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// As a flag.
    Flag,
    /// As an environment variable.
    Variable,
}

/// A setting that was given outside of the file.
#[derive(Clone, Debug)]
pub struct Override {
    /// The setting.
    pub key: &'static Key,
    /// Its source.
    pub given: Given,
    /// Its value as text.
    pub text: String,
}

impl Override {
    fn place(&self) -> Place {
        let (flag, variable) = self.key.flag.unwrap_or_default();
        let (name, before) = match self.given {
            Given::Flag => ("command line", format!("--{flag} ")),
            Given::Variable => ("environment", format!("{variable}=")),
        };
        let span = before.len()..before.len() + self.text.len();
        Place::in_line(name, before + &self.text, span)
    }
}

/// All settings, each with the place of its value.
#[derive(Default)]
pub struct Settings {
    values: BTreeMap<String, (Value, Place)>,
    /// Problems found so far.
    pub problems: Vec<Problem>,
    /// Fences of the file.
    pub(super) fences: Vec<Entry>,
    /// Partitions of the cache, and its interest.
    pub(super) division: Asked,
    /// Topic profiles of the file.
    pub(super) topics: topic::Asked,
    /// Terms of the links to some brokers, of the file.
    pub(super) peer_terms: Vec<PeerTerms>,
    /// Rules, quotas and keys of the file.
    pub(super) access: access::Asked,
    /// The files that were opened.
    pub(super) watched: Vec<Watched>,
}

impl Settings {
    /// Reads a file's text. `path` is for messages, and relative paths in the text start at its
    /// directory.
    pub fn read_file(&mut self, path: &Path, text: String) {
        let source = Arc::new(NamedSource::new(path.display().to_string(), text).with_language("TOML"));
        let (table, errors) = DeTable::parse_recoverable(source.inner());
        for error in &errors {
            let place = Place::new(&source, error.span().unwrap_or(0..0));
            self.problems.push(
                Problem::new("the configuration file is not valid TOML")
                    .at(Some(&place), error.message())
                    .help("texts stand in quotes, tables begin with [name]; see https://toml.io"),
            );
        }
        if errors.is_empty() {
            let directory = path.parent().unwrap_or(Path::new(""));
            self.start_access_at(directory);
            self.read_table(&source, "", table.get_ref());
            if let Some(fences) = table.get_ref().get(FENCE) {
                self.read_fences(&source, directory, fences);
            }
            if let Some(partitions) = table.get_ref().get(PARTITION) {
                self.read_partitions(&source, partitions);
            }
            if let Some(rules) = table.get_ref().get(RULE) {
                self.read_rules(&source, rules);
            }
            if let Some(quotas) = table.get_ref().get(QUOTA) {
                self.read_quotas(&source, quotas);
            }
            if let Some(topics) = table.get_ref().get(TOPIC) {
                self.read_topics(&source, topics);
            }
            if let Some(buffer) = table.get_ref().get(BUFFER) {
                self.read_buffer(&source, buffer);
            }
        }
    }

    /// Opens and reads a file.
    pub fn open_file(&mut self, path: &Path) {
        self.watched.push(Watched::look(path));
        let read = match std::fs::metadata(path) {
            Ok(about) if about.len() > MAX_FILE => Err(format!("it is larger than {MAX_FILE} bytes")),
            _ => std::fs::read_to_string(path).map_err(|error| error.to_string()),
        };
        match read {
            Ok(text) => self.read_file(path, text),
            Err(error) => self.problems.push(
                Problem::new(format!("cannot read the configuration file {}: {error}", path.display()))
                    .help("name an existing, readable TOML file with --config"),
            ),
        }
    }

    /// Reads flags and variables. They prevail over the file, and later ones over earlier ones, but
    /// lists are joined.
    pub fn read_overrides(&mut self, overrides: &[Override]) {
        let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for given in overrides {
            let place = given.place();
            match given.key.kind.read_text(&given.text) {
                Ok(Value::Peers(more)) => {
                    let list = lists.entry(given.key.path()).or_default();
                    list.extend(more);
                    self.set(given.key, Value::Peers(list.clone()), place);
                }
                Ok(value) => self.set(given.key, value, place),
                Err(refusal) => self.refuse(given.key, refusal, &place),
            }
        }
    }

    fn read_table(&mut self, source: &Arc<NamedSource<String>>, section: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let (key_place, value_place) = (Place::new(source, name.span()), Place::new(source, value.span()));
            let top_level = section.is_empty();
            match (schema::find(section, name.get_ref()), value.get_ref()) {
                (Some(key), value) => match key.kind.read_toml(value) {
                    Ok(value) => self.set(key, value, value_place),
                    Err(refusal) => self.refuse(key, refusal, &value_place),
                },
                (None, DeValue::Table(inner)) if top_level && SECTIONS.contains(&&**name.get_ref()) => {
                    self.read_table(source, name.get_ref(), inner);
                }
                // These are read separately, as they are not tables of settings.
                (None, _) if section == "identity" && *name.get_ref() == KEY => self.read_keys(source, value),
                (None, _) if section == "overlay" && *name.get_ref() == PEER => {
                    let (terms, problems) = peer::read(source, value);
                    self.peer_terms = terms;
                    self.problems.extend(problems);
                }
                (None, _)
                    if top_level && [FENCE, PARTITION, TOPIC, BUFFER, RULE, QUOTA].contains(&&**name.get_ref()) => {}
                (None, _) => self.problems.push(unknown_key(section, name.get_ref()).at(Some(&key_place), "unknown")),
            }
        }
    }

    fn set(&mut self, key: &Key, value: Value, place: Place) {
        self.values.insert(key.path(), (value, place));
    }

    fn refuse(&mut self, key: &Key, refusal: Refusal, place: &Place) {
        self.problems.push(
            Problem::new(format!("`{}` {}", key.path(), refusal.what)).at(Some(place), "here").help(refusal.help),
        );
    }

    /// Sorts the problems in reading order.
    pub fn sort_problems(&mut self) {
        self.problems.sort_by(|a, b| a.order().cmp(&b.order()));
    }

    /// Place of a setting's value; `None` if it has its default.
    pub fn place(&self, path: &str) -> Option<&Place> {
        self.values.get(path).map(|(_, place)| place)
    }

    fn value(&self, path: &str) -> Value {
        if let Some((value, _)) = self.values.get(path) {
            return value.clone();
        }
        let key = KEYS.iter().find(|key| key.path() == path).expect("settings are looked up by names of the table");
        match key.default {
            "" => Value::Nothing,
            text => key.kind.read_text(text).expect("defaults are valid"),
        }
    }

    /// The given settings that are not read again, and their values.
    pub fn fixed(&self) -> Fixed {
        let is_again = |path: &str| path.starts_with("identity.") || path.starts_with("tls_");
        let fixed = self.values.iter().filter(|(path, _)| !is_again(path));
        fixed.map(|(path, (value, _))| (path.clone(), format!("{value:?}"))).collect()
    }

    /// A setting that is on or off.
    pub fn switch(&self, path: &str) -> bool {
        matches!(self.value(path), Value::Switch(true))
    }

    /// A text; empty if it was not given and has no default.
    pub fn text(&self, path: &str) -> String {
        if let Value::Text(text) = self.value(path) { text } else { String::new() }
    }

    /// A list of `HOST:PORT`.
    pub fn peers(&self, path: &str) -> Vec<String> {
        if let Value::Peers(peers) = self.value(path) { peers } else { Vec::new() }
    }

    /// A list of texts.
    pub fn texts(&self, path: &str) -> Vec<String> {
        if let Value::Texts(texts) = self.value(path) { texts } else { Vec::new() }
    }

    /// A list of domains.
    pub fn domains(&self, path: &str) -> Domains {
        if let Value::Domains(domains) = self.value(path) { domains } else { Domains::default() }
    }

    /// A list of networks.
    pub fn networks(&self, path: &str) -> Vec<IpNet> {
        if let Value::Networks(networks) = self.value(path) { networks } else { Vec::new() }
    }

    /// Sets a text known from elsewhere, at `place`, unless it was given.
    pub fn adopt(&mut self, path: &str, text: &str, place: Place) {
        self.values.entry(path.to_owned()).or_insert_with(|| (Value::Text(text.to_owned()), place));
    }

    /// A path, if it was given.
    pub fn path(&self, path: &str) -> Option<PathBuf> {
        Some(self.text(path)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// A listener's address; `None` if it is off.
    pub fn listen(&self, path: &str) -> Option<SocketAddr> {
        if let Value::Listen(address) = self.value(path) { address } else { None }
    }

    /// A number.
    pub fn number(&self, path: &str) -> u64 {
        if let Value::Number(number) = self.value(path) { number } else { 0 }
    }

    /// A number from 0 to 1.
    pub fn ratio(&self, path: &str) -> f64 {
        if let Value::Real(ratio) = self.value(path) { ratio } else { 0.0 }
    }

    /// Degrees, if they were given.
    pub fn degrees(&self, path: &str) -> Option<f64> {
        if let Value::Real(degrees) = self.value(path) { Some(degrees) } else { None }
    }

    /// A duration.
    pub fn duration(&self, path: &str) -> Duration {
        if let Value::Duration(duration) = self.value(path) { duration } else { Duration::ZERO }
    }
}

fn unknown_key(section: &str, name: &str) -> Problem {
    let message = match section {
        "" => format!("there is no setting `{name}`"),
        section => format!("there is no setting `{name}` in [{section}]"),
    };
    let help = match nearest(section, name) {
        Some(near) => format!("did you mean {near}?"),
        None => "docs/configuration.md lists all settings".to_owned(),
    };
    Problem::new(message).help(help)
}

/// The most similar known name, those of the same table first.
fn nearest(section: &str, name: &str) -> Option<String> {
    let name = name.replace('-', "_").to_lowercase();
    let sections = SECTIONS.iter().map(|other| (*other, format!("[{other}]"), 0.05));
    let lists = [FENCE, PARTITION, TOPIC, RULE, QUOTA].map(|list| (list, format!("[[{list}]]"), 0.05));
    let sections = sections.chain(lists).chain([(BUFFER, format!("[{BUFFER}]"), 0.05)]);
    let sections = sections.filter(|_| section.is_empty());
    let keys = KEYS.iter().map(|key| match key.section {
        same if same == section => (key.name, format!("`{}`", key.name), 0.05),
        "" => (key.name, format!("`{}` at the top level, before any [table]", key.name), 0.0),
        other => (key.name, format!("`{}` in [{other}]", key.name), 0.0),
    });
    let scored = sections.chain(keys).map(|(other, shown, bonus)| (strsim::jaro_winkler(&name, other) + bonus, shown));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, shown)| shown)
}
