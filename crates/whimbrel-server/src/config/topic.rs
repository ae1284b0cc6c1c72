//! `[[topic]]`: settings for the topics that match a filter.

use std::sync::Arc;

use miette::NamedSource;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_core::store::{Persistence, Profile};

use super::problem::{Place, Problem};
use super::settings::Settings;
use super::source::{Faults, Source};
use super::value::{Kind, Value};

/// Profiles at most: each new topic is compared with them until one matches.
const PROFILES_MAX: usize = 1024;

const PERSISTENCE: Kind = Kind::Choice(&["auto", "persistent", "volatile"]);

const TOPIC: &str =
    "write [[topic]] with `filter`, a topic filter, and `persistence`: \"auto\", \"persistent\" or \"volatile\"";

/// Keys reserved for later versions.
const LATER: [&str; 7] = ["reliability", "deadline", "paths", "importance", "expiry", "transport", "domains"];

/// The tables of `whimbrel.toml`; the first that matches a topic counts.
#[derive(Debug, Default)]
pub(super) struct Asked {
    profiles: Vec<(Profile, Place)>,
}

/// Checks the profiles as a whole. Problems are added to the settings. Without a journal no topic
/// can be logged.
pub(super) fn load(settings: &mut Settings) -> Vec<Profile> {
    let Asked { profiles } = std::mem::take(&mut settings.topics);
    if let Some((_, place)) = profiles.get(PROFILES_MAX) {
        let problem = Problem::new(format!("there are more than {PROFILES_MAX} topic profiles"));
        settings.problems.push(problem.at(Some(place), "one too many").help("write fewer, with wildcards"));
    }
    profiles.into_iter().map(|(profile, _)| profile).collect()
}

impl Settings {
    /// Reads the value of `topic`.
    pub(super) fn read_topics(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[[topic]]", help: TOPIC };
        let DeValue::Array(entries) = value.get_ref() else {
            return self.problems.push(source.wrong("`topic` is no list", value.span()));
        };
        for entry in entries.iter() {
            match read_topic(&source, entry) {
                Ok(profile) => self.topics.profiles.push((profile, source.place(entry.span()))),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }
}

fn read_topic(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<Profile, Vec<Problem>> {
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `topic` is no table", entry.span())]);
    };
    let (mut filter, mut persistence, mut faults) = (None, Persistence::default(), Faults::default());
    for (key, value) in table.iter() {
        match &**key.get_ref() {
            "filter" => filter = faults.take(source.filter(value)),
            "persistence" => {
                let read = faults.take(source.read("persistence", PERSISTENCE, value));
                persistence = read.as_ref().map_or(persistence, read_persistence);
            }
            later if LATER.contains(&later) => {
                let problem = Problem::new(format!("`{later}` of [[topic]] is not available in this version"));
                let problem = problem.at(Some(&source.place(key.span())), "not available yet");
                faults.add(problem.help("remove it; the name is reserved for a later version"));
            }
            _ => faults.add(source.unknown(key)),
        }
    }
    if !table.contains_key("filter") {
        faults.add(source.wrong("a topic profile has no `filter`", entry.span()));
    }
    faults.or(filter.map(|filter| Profile { filter, persistence }))
}

fn read_persistence(value: &Value) -> Persistence {
    match value {
        Value::Text(text) if text == "persistent" => Persistence::Persistent,
        Value::Text(text) if text == "volatile" => Persistence::Volatile,
        _ => Persistence::Auto,
    }
}
