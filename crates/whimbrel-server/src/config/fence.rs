//! `[[fence]]`: named shapes, written in the configuration file or in GeoJSON files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use miette::NamedSource;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use whimbrel_core::Profile;
use whimbrel_selector::{FenceError, Fences, FencesBuilder};

use super::partition::{self, Division};
use super::problem::{Place, Problem};
use super::settings::{Override, Settings};
use super::source::Faults;
use super::{Certificate, Fixed, access, identity, topic};
use crate::access::Plan;

/// The largest GeoJSON file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// GeoJSON files at most: they are looked at every few seconds.
const FILES_MAX: usize = 1024;

const EXAMPLE: &str = "write [[fence]] with `name` and `geojson` or `file`, or only `file` if its features have names";

/// One `[[fence]]`.
#[derive(Debug)]
pub(super) struct Entry {
    /// The fence's name. Without one, the features of its file name their own fences.
    name: Option<String>,
    shapes: Shapes,
    place: Place,
}

#[derive(Debug)]
enum Shapes {
    /// GeoJSON.
    Text(String),
    /// A path relative to the working directory.
    File(PathBuf),
}

/// State of a file before it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    path: PathBuf,
    /// Time of change, bytes and inode; `None`: the file did not exist.
    state: Option<(SystemTime, u64, u64)>,
}

impl Watched {
    /// A file's present state.
    pub fn look(path: &Path) -> Watched {
        let state = std::fs::metadata(path).and_then(|about| Ok((about.modified()?, about.len(), about.ino())));
        Watched { path: path.to_owned(), state: state.ok() }
    }

    /// The same file's present state.
    pub fn look_again(&self) -> Watched {
        Watched::look(&self.path)
    }
}

/// Fences, and their files.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The fences that were read without a mistake.
    pub fences: Arc<Fences>,
    /// The configuration file and all GeoJSON files that it names.
    pub watched: Vec<Watched>,
}

/// Parts of a configuration file that are read again while the broker runs.
#[derive(Debug)]
pub struct Again {
    /// Fences.
    pub sources: Sources,
    /// The division of the cache.
    pub division: Division,
    /// Topic profiles.
    pub topics: Vec<Profile>,
    /// Authentication and access rules.
    pub access: Arc<Plan>,
    /// The certificate that the broker shows, and those that it believes; `None`: there is a
    /// mistake in it.
    pub certificate: Option<Certificate>,
    /// The given settings that count only after a restart.
    pub fixed: Fixed,
    /// Settings that are allowed and probably not meant.
    pub warnings: Vec<String>,
    /// Mistakes in any part of the file.
    pub problems: Vec<Problem>,
}

/// Reads a configuration file for its fences, partitions, topics, certificates and access rules.
/// Other settings are checked, too, but not used. Settings given outside of the file prevail.
pub fn read_again(file: Option<&Path>, overrides: &[Override]) -> Again {
    let (mut settings, mut warnings) = (Settings::default(), Vec::new());
    if let Some(file) = file {
        settings.open_file(file);
    }
    settings.read_overrides(overrides);
    let certificate = identity::load(&mut settings);
    let access = access::load(&mut settings, &mut warnings);
    let sources = load(&mut settings);
    let division = partition::load(&mut settings, &sources.fences);
    let topics = topic::load(&mut settings);
    settings.sort_problems();
    let fixed = settings.fixed();
    Again { sources, division, topics, access, certificate, fixed, warnings, problems: settings.problems }
}

/// Reads the shapes of the entries. Problems are added to the settings.
pub(super) fn load(settings: &mut Settings) -> Sources {
    let mut builder = FencesBuilder::new();
    let mut files = 0;
    for entry in std::mem::take(&mut settings.fences) {
        let text = match entry.shapes {
            Shapes::Text(text) => Ok((text, String::new())),
            Shapes::File(path) => {
                files += 1;
                settings.watched.push(Watched::look(&path));
                let shown = format!("{}: ", path.display());
                if files > FILES_MAX { Err(too_many()) } else { read(&path).map(|text| (text, shown)) }
            }
        };
        let problems = match text {
            Err(problem) => vec![problem],
            Ok((text, shown)) => {
                let refused = match &entry.name {
                    Some(name) => builder.insert_geojson(name, &text).err().into_iter().collect(),
                    None => builder.insert_features(&text).err().unwrap_or_default(),
                };
                refused.iter().map(|error: &FenceError| refusal(&shown, error)).collect()
            }
        };
        settings.problems.extend(problems.into_iter().map(|(problem, label)| problem.at(Some(&entry.place), label)));
    }
    Sources { fences: Arc::new(builder.build()), watched: std::mem::take(&mut settings.watched) }
}

fn refusal(file: &str, error: &FenceError) -> (Problem, String) {
    let fence = error.fence().map_or_else(|| "a fence is refused".into(), |name| format!("fence {name:?} is refused"));
    let problem = Problem::new(format!("{fence}: {file}{}{}", within(error), error.cause())).help(error.advice());
    (problem, if error.place().is_empty() { "here".into() } else { error.place().to_owned() })
}

fn within(error: &FenceError) -> String {
    if error.place().is_empty() { String::new() } else { format!("{}: ", error.place()) }
}

fn too_many() -> (Problem, String) {
    let problem = Problem::new(format!("there are more than {FILES_MAX} files of fences"));
    (
        problem.help("put many fences into one file: features with names need no [[fence]] of their own"),
        "one too many".into(),
    )
}

fn read(path: &Path) -> Result<String, (Problem, String)> {
    let text = match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => Err("it is no file".to_owned()),
        Ok(about) if about.len() > FILE_MAX => Err(format!("it is larger than {FILE_MAX} bytes")),
        _ => std::fs::read_to_string(path).map_err(|error| error.to_string()),
    };
    text.map_err(|error| {
        let problem = Problem::new(format!("cannot read the fences in {}: {error}", path.display()));
        (
            problem.help("name a readable GeoJSON file; a relative path starts at the configuration file"),
            "this one".into(),
        )
    })
}

impl Settings {
    /// Reads the value of `fence`, from a file in this directory.
    pub(super) fn read_fences(
        &mut self,
        source: &Arc<NamedSource<String>>,
        directory: &Path,
        value: &Spanned<DeValue<'_>>,
    ) {
        let DeValue::Array(entries) = value.get_ref() else {
            let place = Place::new(source, value.span());
            return self.problems.push(Problem::new("`fence` is no list").at(Some(&place), "here").help(EXAMPLE));
        };
        for entry in entries.iter() {
            let place = |span| Place::new(source, span);
            match read_entry(entry, directory, place) {
                Ok(entry) => self.fences.push(entry),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }
}

fn read_entry(
    entry: &Spanned<DeValue<'_>>,
    directory: &Path,
    place: impl Fn(std::ops::Range<usize>) -> Place,
) -> Result<Entry, Vec<Problem>> {
    let here = place(entry.span());
    let wrong = |message: &str, place: &Place| Problem::new(message).at(Some(place), "here").help(EXAMPLE);
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![wrong("an entry of `fence` is no table", &here)]);
    };
    let (mut name, mut shapes, mut faults) = (None, None, Faults::default());
    for (key, value) in table.iter() {
        let at = place(value.span());
        let given = match (&**key.get_ref(), value.get_ref()) {
            ("name", DeValue::String(text)) => {
                name = Some(text.to_string());
                continue;
            }
            ("file", DeValue::String(path)) => Shapes::File(directory.join(&**path)),
            ("geojson", DeValue::String(text)) => Shapes::Text(text.to_string()),
            ("geojson", DeValue::Table(table)) => Shapes::Text(json_object(table).to_string()),
            ("name" | "file" | "geojson", other) => {
                faults.add(wrong(&format!("`{}` has the wrong type: {}", key.get_ref(), other.type_str()), &at));
                continue;
            }
            _ => {
                let message = format!("there is no setting `{}` in [[fence]]", key.get_ref());
                faults.add(Problem::new(message).at(Some(&place(key.span())), "unknown").help(EXAMPLE));
                continue;
            }
        };
        if shapes.replace((given, at.clone())).is_some() {
            faults.add(wrong("a fence has both `geojson` and `file`", &at));
        }
    }
    if !table.contains_key("geojson") && !table.contains_key("file") {
        faults.add(wrong("a fence has neither `geojson` nor `file`", &here));
    }
    if !table.contains_key("name") && !table.contains_key("file") {
        faults.add(wrong("a fence has no `name`", &here));
    }
    faults.or(shapes.map(|(shapes, place)| Entry { name, shapes, place }))
}

fn json_object(table: &DeTable<'_>) -> Value {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
}

/// A TOML value as JSON. A value that JSON does not have (infinities, dates) becomes text, which is
/// no coordinate.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(on) => Value::Bool(*on),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::String(number.as_str().to_owned()), Value::from),
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map_or_else(|| Value::String(number.as_str().to_owned()), Value::Number),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => json_object(table),
    }
}
