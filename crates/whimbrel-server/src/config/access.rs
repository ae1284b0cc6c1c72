//! `[identity]`, `[[identity.key]]`, `[[rule]]` and `[[quota]]`: authentication and access rules.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::NamedSource;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_access::{Action, Actions, Meter, Quota, QuotaError, Rule, RuleFault, Rules};

use super::fence::Watched;
use super::problem::{Place, Problem};
use super::settings::Settings;
use super::source::{Faults, Source};
use super::value::{Kind, Value};
use crate::access::passwords::Passwords;
use crate::access::tokens::{ALGORITHMS, KEYS_MAX, KeyPlan, Tokens, files};
use crate::access::{Plan, audit};

const RULE: &str = "write [[rule]] with `principals`, `actions` (publish, subscribe, peer, administer, observe), `topics`, and if \
    wanted `client_ids`, `max_importance`, `min_deadline_ms`";

const QUOTA: &str = "write [[quota]] with `principals` and some of `connections`, `publishes_per_second`, `bytes_per_second`, \
    `subscriptions`";

const KEY: &str =
    "write [[identity.key]] with `algorithm` (HS256, RS256, ES256 or EdDSA), `file`, and `id` if tokens name their key";

/// Least similarity of two names for one to be suggested for the other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.8;

/// The tables of `whimbrel.toml`.
#[derive(Debug, Default)]
pub(super) struct Asked {
    rules: Vec<(Rule, Place)>,
    quotas: Vec<(Quota, Place)>,
    keys: Vec<(KeyPlan, Place)>,
    /// The directory of the file, where relative paths begin.
    directory: PathBuf,
}

impl Asked {
    /// Whether there are keys of tokens.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Place of the first rule, or else of the first quota.
    pub(super) fn first(&self) -> Option<&Place> {
        self.rules.first().map(|(_, place)| place).or(self.quotas.first().map(|(_, place)| place))
    }
}

/// Whether clients can authenticate by password or token.
pub(super) fn has_source(settings: &Settings) -> bool {
    settings.path("identity.passwords").is_some() || settings.access.has_keys()
}

/// Checks the tables as a whole. Problems are added to the settings. With `--dev` all of it is
/// ignored.
pub(super) fn load(settings: &mut Settings, warnings: &mut Vec<String>) -> Arc<Plan> {
    let asked = std::mem::take(&mut settings.access);
    let disconnects_denied = settings.text("denied") == "disconnect";
    if settings.switch("dev") {
        if asked.first().is_some() || asked.has_keys() || settings.path("identity.passwords").is_some() {
            warnings.push("[identity], [[rule]] and [[quota]] mean nothing with --dev: everything is allowed".into());
        }
        return Arc::new(Plan { disconnects_denied, ..Plan::of_development() });
    }
    let passwords = passwords(settings, &asked.directory);
    let tokens = tokens(settings, &asked);
    let (written, places): (Vec<Rule>, Vec<Place>) = asked.rules.into_iter().unzip();
    // Each rule was checked as it was read; together there may be too many.
    let rules = Rules::new(&written).unwrap_or_else(|error| {
        if settings.problems.is_empty() {
            let problem = Problem::new(error.fault.to_string()).at(places.get(error.rule), "one too many");
            settings.problems.push(problem.help("write fewer rules, with patterns and wildcards"));
        }
        Rules::default()
    });
    warn(&written, warnings);
    let quotas: Arc<[Quota]> = asked.quotas.into_iter().map(|(quota, _)| quota).collect();
    let audit = match settings.text("identity.audit").as_str() {
        "" => audit::Place::Nowhere,
        "-" => audit::Place::Log,
        path => audit::Place::File(asked.directory.join(path)),
    };
    let origins = settings.texts("identity.origins");
    let rules = Arc::new(rules);
    Arc::new(Plan { dev: false, passwords, tokens, written, rules, quotas, origins, audit, disconnects_denied })
}

/// Warns of rules that are allowed and probably not meant.
fn warn(rules: &[Rule], warnings: &mut Vec<String>) {
    if rules.is_empty() {
        warnings.push("there is no [[rule]]: nobody may publish, subscribe or use the API".into());
    }
    for (at, rule) in rules.iter().enumerate() {
        let has_client_id = rule.topics.iter().any(|topic| topic.split('/').any(|level| level == "%c"));
        if has_client_id && rule.client_ids.is_none() {
            let number = at + 1;
            warnings.push(format!(
                "rule {number} has %c in its topics and no `client_ids`: whoever connects chooses the client id, and so the topics"
            ));
        }
    }
}

fn passwords(settings: &mut Settings, directory: &Path) -> Option<Passwords> {
    let path = directory.join(settings.path("identity.passwords")?);
    settings.watched.push(Watched::look(&path));
    match Passwords::read(&path) {
        Ok(passwords) => Some(passwords),
        Err(fault) => {
            let problem = Problem::new(format!("the passwords cannot be used: {fault}"));
            let problem = problem.at(settings.place("identity.passwords"), "this file");
            settings.problems.push(problem.help("`whimbrel passwd FILE USER` makes the file, users and hashes"));
            None
        }
    }
}

fn tokens(settings: &mut Settings, asked: &Asked) -> Option<Tokens> {
    let (issuer, audience) = (settings.text("identity.token_issuer"), settings.text("identity.token_audience"));
    let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (issuer, audience) = (named(&issuer), named(&audience));
    if asked.keys.is_empty() {
        for (setting, text) in [("identity.token_issuer", &issuer), ("identity.token_audience", &audience)] {
            if text.is_some() {
                let problem = Problem::new(format!("`{setting}` is given, and there is no key for tokens"));
                settings.problems.push(problem.at(settings.place(setting), "here").help(KEY));
            }
        }
        return None;
    }
    if let Some((_, place)) = asked.keys.get(KEYS_MAX) {
        let problem = Problem::new(format!("there are more than {KEYS_MAX} keys for tokens"));
        settings.problems.push(problem.at(Some(place), "one too many").help("remove keys that are not used any more"));
        return None;
    }
    let plans: Vec<KeyPlan> = asked.keys.iter().map(|(plan, _)| plan.clone()).collect();
    settings.watched.extend(files(&plans).map(Watched::look));
    match Tokens::read(&plans, issuer.as_deref(), audience.as_deref()) {
        Ok(tokens) => Some(tokens),
        Err((at, fault)) => {
            let place = asked.keys.get(at).map(|(_, place)| place);
            settings
                .problems
                .push(Problem::new(format!("the key cannot be used: {fault}")).at(place, "here").help(KEY));
            None
        }
    }
}

impl Settings {
    /// Sets the directory where relative paths of `[identity]` begin.
    pub(super) fn start_access_at(&mut self, directory: &Path) {
        self.access.directory = directory.to_owned();
    }

    /// Reads the value of `rule`.
    pub(super) fn read_rules(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[[rule]]", help: RULE };
        for entry in self.entries(&source, "rule", value) {
            match read_rule(&source, entry) {
                Ok(rule) => self.access.rules.push((rule, source.place(entry.span()))),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }

    /// Reads the value of `quota`.
    pub(super) fn read_quotas(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[[quota]]", help: QUOTA };
        for entry in self.entries(&source, "quota", value) {
            match read_quota(&source, entry) {
                Ok(quota) => self.access.quotas.push((quota, source.place(entry.span()))),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }

    /// Reads the value of `identity.key`.
    pub(super) fn read_keys(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[[identity.key]]", help: KEY };
        for entry in self.entries(&source, "identity.key", value) {
            match read_key(&source, entry) {
                Ok(key) => self.access.keys.push((key, source.place(entry.span()))),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }

    fn entries<'a, 'b>(
        &mut self,
        source: &Source<'_>,
        name: &str,
        value: &'a Spanned<DeValue<'b>>,
    ) -> Vec<&'a Spanned<DeValue<'b>>> {
        match value.get_ref() {
            DeValue::Array(entries) => entries.iter().collect(),
            _ => {
                self.problems.push(source.wrong(format!("`{name}` is no list"), value.span()));
                Vec::new()
            }
        }
    }
}

/// A problem for an unknown key of a table, with the most similar known one.
fn unknown(source: &Source<'_>, key: &Spanned<impl AsRef<str>>, known: &[&str]) -> Problem {
    let name = key.get_ref().as_ref();
    match nearest(name, known) {
        Some(near) => source.unknown(key).help(format!("did you mean `{near}`?")),
        None => source.unknown(key),
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|other| (strsim::jaro_winkler(name, other), *other));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The texts of a list, each with its place.
fn texts(source: &Source<'_>, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<(String, Place)>, Vec<Problem>> {
    let mut faults = Faults::default();
    let texts = match value.get_ref() {
        DeValue::String(text) => vec![(text.to_string(), source.place(value.span()))],
        DeValue::Array(items) => {
            let text = |item: &Spanned<DeValue<'_>>| {
                let text = faults.take(source.text(name, item))?;
                Some((text.to_owned(), source.place(item.span())))
            };
            items.iter().filter_map(text).collect()
        }
        other => {
            faults.add(source.wrong(format!("`{name}` has the wrong type: {}", other.type_str()), value.span()));
            Vec::new()
        }
    };
    faults.or(Some(texts))
}

fn number(source: &Source<'_>, name: &str, bounds: (u64, u64), value: &Spanned<DeValue<'_>>) -> Result<u64, Problem> {
    match source.read(name, Kind::Count(bounds.0, bounds.1), value)? {
        Value::Number(number) => Ok(number),
        _ => Err(source.wrong(format!("`{name}` is no number"), value.span())),
    }
}

/// A rule being read.
#[derive(Default)]
struct RuleDraft {
    rule: Rule,
    /// The rule's texts, and their places.
    places: Vec<(String, Place)>,
    faults: Faults,
    /// Keys whose values could not be read.
    unread: Vec<&'static str>,
}

impl RuleDraft {
    fn texts(&mut self, source: &Source<'_>, name: &'static str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        match texts(source, name, value) {
            Ok(read) => {
                self.places.extend(read.iter().cloned());
                read.into_iter().map(|(text, _)| text).collect()
            }
            Err(problems) => {
                self.unread.push(name);
                problems.into_iter().for_each(|problem| self.faults.add(problem));
                Vec::new()
            }
        }
    }

    /// Whether a fault only follows from a value that could not be read.
    fn is_implied(&self, fault: &RuleFault) -> bool {
        let is_unread = |name: &str| self.unread.contains(&name);
        match fault {
            RuleFault::Nobody => is_unread("principals"),
            RuleFault::Nothing | RuleFault::NotOfClients => is_unread("actions"),
            RuleFault::NoTopics => is_unread("topics"),
            _ => false,
        }
    }

    fn place_of(&self, fault: &RuleFault) -> Option<Place> {
        let text = match fault {
            RuleFault::Principal(text, _)
            | RuleFault::ClientId(text, _)
            | RuleFault::Topic(text, _)
            | RuleFault::Share(text)
            | RuleFault::PartOfLevel(text) => text,
            _ => return None,
        };
        self.places.iter().find(|(other, _)| other == text).map(|(_, place)| place.clone())
    }
}

fn read_rule(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<Rule, Vec<Problem>> {
    const KEYS: &[&str] = &["principals", "actions", "topics", "client_ids", "max_importance", "min_deadline_ms"];
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `rule` is no table", entry.span())]);
    };
    let mut draft = RuleDraft::default();
    for (key, value) in table.iter() {
        match &**key.get_ref() {
            "principals" => draft.rule.principals = draft.texts(source, "principals", value),
            "topics" => draft.rule.topics = draft.texts(source, "topics", value),
            "client_ids" => draft.rule.client_ids = Some(draft.texts(source, "client_ids", value)),
            "actions" => match read_actions(source, value) {
                Ok(actions) => draft.rule.actions = actions,
                Err(problems) => {
                    draft.unread.push("actions");
                    problems.into_iter().for_each(|problem| draft.faults.add(problem));
                }
            },
            "max_importance" => {
                if let Some(read) = draft.faults.take(number(source, "max_importance", (1, 10), value)) {
                    draft.rule.max_importance = read.try_into().unwrap_or(u8::MAX);
                }
            }
            "min_deadline_ms" => {
                let bounds = (0, u32::MAX.into());
                if let Some(read) = draft.faults.take(number(source, "min_deadline_ms", bounds, value)) {
                    draft.rule.min_deadline_ms = read.try_into().unwrap_or(u32::MAX);
                }
            }
            _ => draft.faults.add(unknown(source, key, KEYS)),
        }
    }
    for fault in Rules::faults_of(&draft.rule) {
        if !draft.is_implied(&fault) {
            let place = draft.place_of(&fault).unwrap_or_else(|| source.place(entry.span()));
            draft.faults.add(Problem::new(fault.to_string()).at(Some(&place), "here").help(help(&fault)));
        }
    }
    draft.faults.or(Some(draft.rule))
}

fn help(fault: &RuleFault) -> &'static str {
    match fault {
        RuleFault::Nobody => {
            "name whom it is for, such as principals = [\"bus-*\"]; \"anonymous\" are those who do not say who they are"
        }
        RuleFault::NoTopics => "name them, such as topics = [\"fleet/%u/#\"]; \"#\" is all but those that begin with $",
        RuleFault::NotOfClients => "leave them out, or add \"publish\" or \"subscribe\" to its `actions`",
        RuleFault::Share(_) => "write the filter itself: whoever may subscribe to it may share that",
        RuleFault::PartOfLevel(_) => {
            "%u (the principal) and %c (the client id) stand for a level whole, such as fleet/%u/position"
        }
        _ => RULE,
    }
}

fn read_actions(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Actions, Vec<Problem>> {
    let names = Action::ALL.map(Action::name);
    let (mut actions, mut faults) = (Vec::new(), Faults::default());
    for (text, place) in texts(source, "actions", value)? {
        let action = Action::named(&text).ok_or_else(|| {
            let help = match nearest(&text, &names) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("write some of {}", names.join(", ")),
            };
            Problem::new(format!("there is no action {text:?}")).at(Some(&place), "unknown").help(help)
        });
        actions.extend(faults.take(action));
    }
    faults.or(Some(Actions::of(actions)))
}

fn read_quota(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<Quota, Vec<Problem>> {
    const KEYS: &[&str] = &["principals", "connections", "publishes_per_second", "bytes_per_second", "subscriptions"];
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `quota` is no table", entry.span())]);
    };
    let (mut quota, mut faults) = (Quota::default(), Faults::default());
    let most = u64::from(u32::MAX);
    for (key, value) in table.iter() {
        let count = |name: &str| number(source, name, (1, most), value);
        let small = |read: Option<u64>| read.and_then(|count| NonZeroU32::new(count.try_into().unwrap_or(u32::MAX)));
        match &**key.get_ref() {
            "principals" => match texts(source, "principals", value) {
                Ok(read) => quota.principals = read.into_iter().map(|(text, _)| text).collect(),
                Err(problems) => problems.into_iter().for_each(|problem| faults.add(problem)),
            },
            "connections" => quota.connections = small(faults.take(count("connections"))),
            "subscriptions" => quota.subscriptions = small(faults.take(count("subscriptions"))),
            "publishes_per_second" => {
                quota.publishes_per_second = faults.take(count("publishes_per_second")).and_then(NonZeroU64::new);
            }
            "bytes_per_second" => {
                let read = faults.take(source.read("bytes_per_second", Kind::Size(1, 1 << 40), value));
                if let Some(Value::Number(bytes)) = read {
                    quota.bytes_per_second = NonZeroU64::new(bytes);
                }
            }
            _ => faults.add(unknown(source, key, KEYS)),
        }
    }
    // A quota that was not read completely may seem to lack a value that was not read.
    let quota = faults.or(Some(quota))?;
    let wrong = |error: QuotaError| vec![source.wrong(error.to_string(), entry.span())];
    Meter::check(std::slice::from_ref(&quota)).map(|()| quota).map_err(wrong)
}

fn read_key(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<KeyPlan, Vec<Problem>> {
    const KEYS: &[&str] = &["id", "algorithm", "file"];
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `identity.key` is no table", entry.span())]);
    };
    let (mut id, mut algorithm, mut file, mut faults) = (None, None, None, Faults::default());
    for (key, value) in table.iter() {
        match &**key.get_ref() {
            "id" => id = faults.take(source.text("id", value)).map(str::to_owned),
            "algorithm" => {
                if let Some(Value::Text(text)) = faults.take(source.read("algorithm", Kind::Choice(ALGORITHMS), value))
                {
                    algorithm = Some(text);
                }
            }
            "file" => {
                let name = faults.take(source.text("file", value));
                file = name.map(|name| source.place(value.span()).directory().join(name));
            }
            _ => faults.add(unknown(source, key, KEYS)),
        }
    }
    for (name, is_missing) in [("algorithm", !table.contains_key("algorithm")), ("file", !table.contains_key("file"))] {
        if is_missing {
            faults.add(source.wrong(format!("a key has no `{name}`"), entry.span()));
        }
    }
    faults.or(algorithm.zip(file).map(|(algorithm, file)| KeyPlan { id, algorithm, file }))
}
