//! Names of one crate that another crate must not use, although it depends on it.

use super::Finding;
use super::rust::{RustFile, Word};
use super::tables::{SEAMS, Seam};
use super::uses::{Uses, is_within};

/// The file that lists the messages between brokers, in the macro of [`MESSAGES`].
const MESSAGE_FILE: &str = "crates/whimbrel-wire/src/message.rs";

/// The macro that is called with a number, a name and a body for each message.
const MESSAGES: &str = "messages";

/// Checks the production sources against the table of seams, and the table itself.
pub fn check(sources: &[RustFile]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = SEAMS.iter().flat_map(|seam| check_with(sources, seam)).collect();
    findings.extend(SEAMS.iter().flat_map(|seam| check_rows(sources, seam)));
    findings
}

/// The names that sources use across a seam.
pub fn check_with(sources: &[RustFile], seam: &Seam) -> Vec<Finding> {
    let of_user = sources.iter().filter(|source| source.is_production() && source.package() == seam.user);
    let mut findings: Vec<Finding> = of_user.flat_map(|source| check_source(source, seam)).collect();
    findings.sort();
    findings.dedup();
    findings
}

fn check_source(source: &RustFile, seam: &Seam) -> Vec<Finding> {
    let uses = Uses::of(source);
    let found = |line: usize, name: &str, why: &str| {
        Finding::new(source.place(line), "seam", format!("`{}::{name}`: {why}", seam.module()))
    };
    let banned = |path: &str| {
        let is_it = |name: &&&str| is_within(path, &format!("{}::{name}", seam.module()));
        seam.names.iter().find(is_it).copied()
    };
    let named = uses.paths.iter().filter_map(|(line, path)| Some(found(*line, banned(path)?, seam.reason)));
    let globs = uses.globs.iter().filter(|(_, module)| *module == seam.module());
    named.chain(globs.map(|(line, _)| found(*line, "*", "name what is used"))).collect()
}

/// Findings about names that a seam lists and are not there, and bodies of messages that it does
/// not list.
pub fn check_rows(sources: &[RustFile], seam: &Seam) -> Vec<Finding> {
    let of_crate = |source: &&RustFile| source.is_production() && source.package() == seam.of;
    let defined: Vec<String> = sources.iter().filter(of_crate).flat_map(|source| types_of(&source.syntax)).collect();
    let finding = |message: String| Finding::new("xtask/src/tidy/tables.rs", "seam", message);
    let is_there = |name: &str| defined.iter().any(|defined| defined == name);
    let stale = seam.names.iter().filter(|name| !is_there(name));
    let mut findings: Vec<Finding> =
        stale.map(|name| finding(format!("the seam of `{}` lists `{name}`, which is not there", seam.user))).collect();
    let bodies = sources.iter().filter(|source| source.path == MESSAGE_FILE).flat_map(bodies_of);
    let missing = bodies.filter(|body| !seam.names.contains(&body.as_str()));
    findings.extend(missing.map(|body| finding(format!("the seam of `{}` does not list `{body}`", seam.user))));
    findings
}

/// The types that a file defines at its top.
fn types_of(file: &syn::File) -> Vec<String> {
    let name = |item: &syn::Item| match item {
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Enum(item) => Some(item.ident.to_string()),
        // The enum that the macro of messages makes.
        syn::Item::Macro(item) => item.mac.path.is_ident(MESSAGES).then(|| "BrokerMessage".to_owned()),
        _ => None,
    };
    file.items.iter().filter_map(name).collect()
}

/// The bodies that the macro of messages is called with: `NUMBER Name(Body…)`.
fn bodies_of(source: &RustFile) -> Vec<String> {
    let words: Vec<&Word> = source.words.iter().map(|(word, _)| word).collect();
    let call = [Word::Name(MESSAGES.into()), Word::Sign('!')];
    let begin = words.windows(2).position(|pair| pair.iter().copied().eq(call.iter())).unwrap_or(words.len());
    let body = |part: &[&Word]| match part {
        [Word::Literal(_), Word::Name(_), Word::Sign('('), Word::Name(body)] => Some(body.clone()),
        _ => None,
    };
    words[begin..].windows(4).filter_map(body).collect()
}
