//! A Rust source for the rules: its syntax tree, its words without comments, and its test lines.

use std::ops::RangeInclusive;

use anyhow::{Result, anyhow};
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// One word or sign of the source. Comments are left out; literals are distinct from names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A name or keyword.
    Name(String),
    /// `::`.
    PathSeparator,
    /// Any other sign or bracket.
    Sign(char),
    /// A literal, as written.
    Literal(String),
}

/// A Rust source.
pub struct RustFile {
    /// Path below the workspace root, with `/`.
    pub path: String,
    /// Lines, the first at index 0.
    pub lines: Vec<String>,
    /// Syntax tree.
    pub syntax: syn::File,
    /// Words, each with its line (from 1).
    pub words: Vec<(Word, usize)>,
    /// The lines (from 1) that are comments or doc comments.
    pub comment_lines: Vec<usize>,
    /// Whether the whole file is test code.
    pub is_test: bool,
    test_lines: Vec<RangeInclusive<usize>>,
    /// Modules declared as `#[cfg(test)] mod name;`: their files are tests.
    test_modules: Vec<String>,
}

impl RustFile {
    /// Parses a source.
    ///
    /// # Errors
    /// When it is not Rust.
    pub fn parse(path: &str, text: &str) -> Result<RustFile> {
        let no_tokens = |e: proc_macro2::LexError| anyhow!("line {}: {e}", e.span().start().line);
        let stream: TokenStream = text.parse().map_err(no_tokens)?;
        let no_syntax = |e: syn::Error| anyhow!("line {}: {e}", e.span().start().line);
        let syntax = syn::parse2(stream.clone()).map_err(no_syntax)?;
        let mut words = Vec::new();
        let mut texts = Vec::new();
        texts_of(stream.clone(), &mut texts);
        flatten(stream, &mut words);
        let in_text = |line: usize| texts.iter().any(|text: &RangeInclusive<usize>| text.contains(&line));
        let comments = text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
        let comment_lines = comments.map(|(_, line)| line).filter(|line| !in_text(*line)).collect();
        let mut tests = TestItems::default();
        tests.visit_file(&syntax);
        Ok(RustFile {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            syntax,
            words,
            comment_lines,
            is_test: path.split('/').any(|part| matches!(part, "tests" | "benches" | "fuzz_targets")),
            test_lines: tests.lines,
            test_modules: tests.modules,
        })
    }

    /// Whether the line (from 1) is test code.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// The number of lines that count against the budget: all but those of inline tests.
    pub fn counted_lines(&self) -> usize {
        (1..=self.lines.len()).filter(|line| !self.is_test_line(*line)).count()
    }

    /// The first line with unsafe code, or with an attribute that permits it.
    pub fn mentions_unsafe(&self) -> Option<usize> {
        let is_unsafe = |word: &Word| matches!(word, Word::Name(name) if name == "unsafe" || name == "unsafe_code");
        self.words.iter().find(|(word, _)| is_unsafe(word)).map(|(_, line)| *line)
    }

    /// Whether an item that begins on `line` (from 1) is excused by `tidy: table` and a reason in
    /// the comment above it.
    pub fn is_table(&self, line: usize) -> bool {
        let above = self.lines[..line.saturating_sub(1).min(self.lines.len())].iter().rev();
        above.take_while(|text| is_comment_or_attribute(text)).any(|text| has_marker(text, "table"))
    }

    /// Whether the whole file is excused by `tidy: table` and a reason on its first line.
    pub fn is_table_file(&self) -> bool {
        self.lines.first().is_some_and(|line| has_marker(line, "table"))
    }

    /// The package of the file: the name of its folder.
    pub fn package(&self) -> &str {
        let below = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        below.split('/').next().unwrap_or_default()
    }

    /// Whether it is a source of a crate: no test, benchmark or example.
    pub fn is_production(&self) -> bool {
        !self.is_test && self.path.contains("/src/")
    }

    /// Whether the file is the root of a library or program.
    pub fn is_root(&self) -> bool {
        let own = self.path.split_once("/src/").map_or("", |(_, own)| own);
        matches!(own, "lib.rs" | "main.rs") || own.strip_prefix("bin/").is_some_and(|name| !name.contains('/'))
    }

    /// The paths in the code: the names, the line, and whether the path is called, or constructs a
    /// tuple struct.
    pub fn paths(&self) -> Vec<(Vec<String>, usize, bool)> {
        let mut paths = Vec::new();
        let mut at = 0;
        while let Some((word, line)) = self.words.get(at) {
            let before = at.checked_sub(1).map(|before| &self.words[before].0);
            let (path, length) = path_at(&self.words[at..]);
            at += length;
            let follows = [Word::Sign('.'), Word::PathSeparator, Word::Name("fn".into()), Word::Sign('\'')];
            if matches!(word, Word::Name(_)) && !before.is_some_and(|before| follows.contains(before)) {
                let next = self.words.get(at).map(|(next, _)| next);
                paths.push((path, *line, matches!(next, Some(Word::Sign('(' | '!')))));
            }
        }
        paths
    }

    /// `path:line`.
    pub fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }
}

fn is_comment_or_attribute(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("#[")
}

/// Whether a comment carries the marker `tidy: KIND — reason`.
pub fn has_marker(line: &str, kind: &str) -> bool {
    let Some((_, rest)) = line.split_once("tidy: ") else { return false };
    let Some(reason) = rest.strip_prefix(kind) else { return false };
    reason.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '—' | ':')).len() >= 8
}

/// Marks the files of modules that other files declare as tests.
pub fn mark_test_files(sources: &mut [RustFile]) {
    let mut places = Vec::new();
    for source in sources.iter() {
        let folder = match source.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder.to_owned(),
            _ => source.path.trim_end_matches(".rs").to_owned(),
        };
        places.extend(source.test_modules.iter().map(|name| format!("{folder}/{name}")));
    }
    for source in sources {
        let stem = source.path.trim_end_matches(".rs");
        source.is_test |= places.iter().any(|place| stem == place || stem.starts_with(&format!("{place}/")));
    }
}

/// The path that begins here, and its number of words.
pub fn path_at(words: &[(Word, usize)]) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut length = 0;
    while let Some((Word::Name(name), _)) = words.get(length) {
        path.push(name.clone());
        length += 1;
        if !matches!(words.get(length), Some((Word::PathSeparator, _))) {
            break;
        }
        if !matches!(words.get(length + 1), Some((Word::Name(_), _))) {
            break;
        }
        length += 1;
    }
    (path, length.max(1))
}

/// The lines on which a literal continues.
fn texts_of(stream: TokenStream, texts: &mut Vec<RangeInclusive<usize>>) {
    for tree in stream {
        match tree {
            TokenTree::Literal(literal) => {
                let (start, end) = (literal.span().start().line, literal.span().end().line);
                if start < end {
                    texts.push(start + 1..=end);
                }
            }
            TokenTree::Group(group) => texts_of(group.stream(), texts),
            _ => {}
        }
    }
}

fn flatten(stream: TokenStream, words: &mut Vec<(Word, usize)>) {
    let mut half_separator = false;
    for tree in stream {
        let line = tree.span().start().line;
        let was_half = std::mem::take(&mut half_separator);
        match tree {
            TokenTree::Ident(name) => words.push((Word::Name(name.to_string()), line)),
            TokenTree::Literal(literal) => words.push((Word::Literal(literal.to_string()), line)),
            TokenTree::Punct(sign) if sign.as_char() == ':' && was_half => {
                words.pop();
                words.push((Word::PathSeparator, line));
            }
            TokenTree::Punct(sign) => {
                half_separator = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                words.push((Word::Sign(sign.as_char()), line));
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ('(', ')'),
                    proc_macro2::Delimiter::Brace => ('{', '}'),
                    proc_macro2::Delimiter::Bracket => ('[', ']'),
                    proc_macro2::Delimiter::None => (' ', ' '),
                };
                words.push((Word::Sign(open), line));
                flatten(group.stream(), words);
                words.push((Word::Sign(close), group.span_close().end().line));
            }
        }
    }
}

/// Finds items under `#[cfg(test)]`.
#[derive(Default)]
struct TestItems {
    lines: Vec<RangeInclusive<usize>>,
    modules: Vec<String>,
}

impl TestItems {
    fn note(&mut self, attributes: &[syn::Attribute], whole: proc_macro2::Span) -> bool {
        let Some(attribute) = attributes.iter().find(|attribute| is_test_attribute(attribute)) else { return false };
        self.lines.push(attribute.span().start().line..=whole.end().line);
        true
    }
}

fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    let path = attribute.path();
    let cfg_test = path.is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|arg| arg.is_ident("test"));
    cfg_test || path.segments.last().is_some_and(|last| last.ident == "test")
}

impl<'ast> Visit<'ast> for TestItems {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !self.note(&item.attrs, item.span()) {
            syn::visit::visit_item_mod(self, item);
        } else if item.content.is_none() {
            self.modules.push(item.ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !self.note(&item.attrs, item.span()) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !self.note(&item.attrs, item.span()) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.attrs, item.span());
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note(&item.attrs, item.span());
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.attrs, item.span());
    }
}
