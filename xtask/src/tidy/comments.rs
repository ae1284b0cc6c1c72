//! The width and the wording of comments.

use std::collections::BTreeMap;

use super::ratchet::Measure;
use super::rust::RustFile;
use super::tables::{UNWORDED_FILES, VAGUE_WORDS, WORDED_CRATES};

/// Columns of a comment line, indentation included.
pub const COMMENT_COLUMNS: usize = 100;
/// Lines with vague words in a thousand comment lines.
pub const VAGUE_PER_MILLE: usize = 3;

/// Counts comment lines that are too wide in each crate, tests included, and those with vague words
/// in the crates of [`WORDED_CRATES`], tests not included.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let mut measures = wide(sources);
    measures.extend(WORDED_CRATES.iter().map(|package| vague(sources, package)));
    measures
}

fn wide(sources: &[RustFile]) -> Vec<Measure> {
    let mut packages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources {
        let lines = source.comment_lines.iter().copied().filter(|line| is_wide(&source.lines[line - 1]));
        let places = lines.map(|line| source.place(line));
        packages.entry(source.package()).or_default().extend(places);
    }
    let what = "comment lines are wider than 100 columns; wrap them";
    let over = packages.into_iter().filter(|(_, places)| !places.is_empty());
    over.map(|(package, places)| Measure::of_places("comment-columns", package, what, places)).collect()
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > COMMENT_COLUMNS && !is_unbreakable(line)
}

/// Whether the comment is one address or path, after a list marker or the name of a link.
fn is_unbreakable(line: &str) -> bool {
    let words: Vec<&str> = text_of(line).split_whitespace().collect();
    let is_label = |word: &str| matches!(word, "-" | "*") || (word.starts_with('[') && word.ends_with("]:"));
    let rest = if words.first().is_some_and(|word| is_label(word)) { &words[1..] } else { &words[..] };
    matches!(rest, [word] if word.contains('/') || word.contains("::"))
}

/// A comment line without its marker.
fn text_of(line: &str) -> &str {
    line.trim_start().trim_start_matches('/').trim_start_matches('!')
}

fn vague(sources: &[RustFile], package: &str) -> Measure {
    let (mut all, mut places) = (0, Vec::new());
    let is_worded = |source: &&RustFile| {
        let excused = UNWORDED_FILES.iter().any(|(start, _)| source.path.starts_with(start));
        source.package() == package && source.is_production() && !excused
    };
    for source in sources.iter().filter(is_worded) {
        let lines = source.comment_lines.iter().filter(|line| !source.is_test_line(**line));
        for line in lines {
            all += 1;
            if is_vague(&source.lines[line - 1]) {
                places.push(source.place(*line));
            }
        }
    }
    let what = "comment lines have a word such as `whoever` or `so many`; name the thing of the code that is meant";
    Measure::of_places("vague-words", package, what, places).within(all * VAGUE_PER_MILLE / 1000)
}

/// Whether the line has one of [`VAGUE_WORDS`], as a whole word and in any case.
pub fn is_vague(line: &str) -> bool {
    let words = text_of(line).split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    VAGUE_WORDS.iter().any(|phrase| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        words.windows(phrase.len()).any(|part| part.iter().eq(phrase.iter()))
    })
}
