//! `[[topic]]`: settings for the topics that match a filter. Profiles that are made over the API
//! have the same keys and values.

use std::sync::Arc;
use std::time::Duration;

use miette::NamedSource;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_core::{Availability, DEADLINE_MAX, PROFILES_MAX, Persistence, Profile, TopicPaths, TopicTransport};
use whimbrel_event::{IMPORTANCE_MAX, Reliability};

use super::problem::{Place, Problem};
use super::settings::Settings;
use super::source::{Faults, Source};
use super::value::{Kind, Value};

/// The longest expiry of a profile, ms: that of MQTT, 136 years.
const EXPIRY_MAX_MS: u64 = u32::MAX as u64 * 1_000;

/// The longest period of a profile, ms: a day.
const PERIOD_MAX_MS: u64 = 86_400_000;

/// The words for what is logged.
pub(crate) const PERSISTENCES: [(&str, Persistence); 3] =
    [("auto", Persistence::Auto), ("persistent", Persistence::Persistent), ("volatile", Persistence::Volatile)];

/// The words for guarantees.
pub(crate) const RELIABILITIES: [(&str, Reliability); 2] =
    [("reliable", Reliability::Reliable), ("best-effort", Reliability::BestEffort)];

/// The words for how best-effort events go over links.
pub(crate) const TRANSPORTS: [(&str, TopicTransport); 2] =
    [("stream", TopicTransport::Stream), ("datagram", TopicTransport::Datagram)];

/// The words for paths.
pub(crate) const PATHS: [(&str, TopicPaths); 3] =
    [("1", TopicPaths::One), ("2", TopicPaths::Two), ("targeted", TopicPaths::Targeted)];

/// The keys of a profile beside its filter, with their values.
pub(crate) const KEYS: [(&str, Kind); 10] = [
    ("persistence", Kind::Choice(&[PERSISTENCES[0].0, PERSISTENCES[1].0, PERSISTENCES[2].0])),
    ("reliability", Kind::Choice(&[RELIABILITIES[0].0, RELIABILITIES[1].0])),
    ("deadline", Kind::Duration(1, DEADLINE_MAX.as_millis() as u64)),
    ("period", Kind::Duration(1, PERIOD_MAX_MS)),
    ("rate", Kind::Rate),
    ("importance", Kind::Count(1, IMPORTANCE_MAX as u64)),
    ("expiry", Kind::Duration(1, EXPIRY_MAX_MS)),
    ("transport", Kind::Choice(&[TRANSPORTS[0].0, TRANSPORTS[1].0])),
    ("paths", Kind::Choice(&[PATHS[0].0, PATHS[1].0, PATHS[2].0])),
    ("availability", Kind::Ratio(*Availability::RANGE_PPM.start(), *Availability::RANGE_PPM.end())),
];

const TOPIC: &str = "write [[topic]] with `filter`, a topic filter, and some of `persistence` (\"auto\", \"persistent\" or \
                     \"volatile\"), `reliability` (\"reliable\" or \"best-effort\"), `deadline` (\"50 ms\"), `period` (\"5 s\"), \
                     `rate` (\"100/s\" or \"64 KiB/s\"), `importance` (1 to 10), `expiry` (\"10 s\"), `transport` \
                     (\"stream\" or \"datagram\"), and `paths` (1, 2 or \"targeted\") or `availability` (0.9999)";

/// Keys reserved for later versions.
const LATER: [&str; 1] = ["domains"];

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
    let (mut filter, mut profile, mut faults) = (None, Profile::default(), Faults::default());
    for (key, value) in table.iter() {
        let name = &**key.get_ref();
        if name == "filter" {
            filter = faults.take(source.filter(value));
        } else if let Some((_, kind)) = KEYS.iter().find(|(known, _)| *known == name) {
            if let Some(read) = faults.take(source.read(name, *kind, value)) {
                set(&mut profile, name, &read);
            }
        } else if LATER.contains(&name) {
            let problem = Problem::new(format!("`{name}` of [[topic]] is not available in this version"));
            let problem = problem.at(Some(&source.place(key.span())), "not available yet");
            faults.add(problem.help("remove it; the name is reserved for a later version"));
        } else {
            faults.add(source.unknown(key));
        }
    }
    if !table.contains_key("filter") {
        faults.add(source.wrong("a topic profile has no `filter`", entry.span()));
    }
    if let Some(why) = contradiction(&profile) {
        faults.add(source.wrong(why, entry.span()));
    }
    faults.or(filter.map(|filter| Profile { filter, ..profile }))
}

/// Sets one of [`KEYS`] to a value that was read.
pub(crate) fn set(profile: &mut Profile, key: &str, value: &Value) {
    match (key, value) {
        ("persistence", Value::Text(word)) => profile.persistence = value_of(&PERSISTENCES, word),
        ("reliability", Value::Text(word)) => profile.reliability = Some(value_of(&RELIABILITIES, word)),
        ("deadline", Value::Duration(deadline)) => profile.deadline = Some(whole_millis(*deadline)),
        ("period", Value::Duration(period)) => profile.period = Some(whole_millis(*period)),
        ("transport", Value::Text(word)) => profile.transport = value_of(&TRANSPORTS, word),
        ("paths", Value::Text(word)) => profile.paths = value_of(&PATHS, word),
        ("availability", Value::Real(share)) => {
            profile.availability = Availability::of_ppm((share * 1e6).round() as u32)
        }
        ("rate", Value::Rate(rate)) => profile.rate = Some(*rate),
        ("importance", Value::Number(importance)) => profile.importance = Some(*importance as u8),
        ("expiry", Value::Duration(expiry)) => profile.expiry = Some(whole_millis(*expiry)),
        _ => unreachable!("each key is read as its kind"),
    }
}

/// Why settings do not go together, if so.
pub(crate) fn contradiction(profile: &Profile) -> Option<&'static str> {
    let Profile { paths, availability, deadline, .. } = profile;
    match (*paths != TopicPaths::One, availability.is_some(), deadline.is_some()) {
        (true, true, _) => Some("a topic profile has `paths` and `availability`, which chooses how many there are"),
        (true, false, false) => Some("a topic profile has `paths`, and no `deadline`"),
        (false, true, false) => Some("a topic profile has `availability`, and no `deadline`"),
        _ => None,
    }
}

/// A duration of at least a millisecond, without the part of one.
fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}

/// What a checked word stands for.
fn value_of<T: Copy>(words: &[(&str, T)], word: &str) -> T {
    words.iter().find(|(known, _)| *known == word).expect("it is one of the choices").1
}

/// The word for a value.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, known)| *known == value).expect("there is a word for each").0
}
