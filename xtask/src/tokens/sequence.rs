//! The tokens of a Rust source that count, and the first difference of two sequences.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, LineColumn, Spacing, TokenStream, TokenTree};

/// Derives that read doc comments: for command lines, and for schemas.
const READERS: &[&str] = &["Args", "JsonSchema", "Parser", "Subcommand", "ValueEnum"];

/// Keywords that a tuple in parentheses can follow; after any other name parentheses are a call or
/// a parameter list.
const BEFORE_TUPLE: &[&str] =
    &["as", "break", "dyn", "else", "if", "impl", "in", "let", "match", "move", "mut", "ref", "return", "while"];

/// The tokens of a source that count.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The tokens, each with its line, from 1.
    tokens: Vec<(String, usize)>,
    /// The doc comments that a macro may read, as written.
    pub read_docs: Vec<String>,
}

/// The first place at which two sources differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// Line in the new source, from 1.
    pub line: usize,
    /// The token there, in backquotes, or `the end`.
    pub new: String,
    /// Line in the old source, from 1.
    pub old_line: usize,
    /// The token there, in backquotes, or `the end`.
    pub old: String,
}

/// The tokens of a source, in order.
///
/// Names, signs, brackets, literals with all of their content, and attributes count. Not counted
/// are: comments; doc comments, and with them the code of their doctests; white space; a comma
/// before a closing bracket or `>`, because rustfmt adds and removes it, except the comma of a
/// possible tuple of one, and those of a macro call. Other changes of rustfmt (the order of
/// imports, the braces of a match arm) count.
///
/// # Errors
/// When the text is not Rust.
pub fn of(text: &str) -> Result<Sequence> {
    let stream: TokenStream = text.parse().map_err(|e| anyhow!("{e}"))?;
    let mut reader =
        Reader { lines: text.lines().collect(), sequence: Sequence::default(), docs: Vec::new(), in_macro: 0 };
    reader.read(stream, false);
    let Reader { mut sequence, docs, .. } = reader;
    let has_reader = sequence.tokens.iter().any(|(token, _)| READERS.contains(&token.as_str()));
    sequence.read_docs =
        docs.into_iter().filter(|(_, in_macro)| *in_macro || has_reader).map(|(text, _)| text).collect();
    Ok(sequence)
}

impl Sequence {
    /// The first token that differs in `new`.
    pub fn first_difference(&self, new: &Sequence) -> Option<Difference> {
        let same = self.tokens.iter().zip(&new.tokens).take_while(|(old, new)| old.0 == new.0).count();
        let at = |sequence: &Sequence| match sequence.tokens.get(same) {
            Some((token, line)) => (format!("`{token}`"), *line),
            None => ("the end".into(), sequence.tokens.last().map_or(1, |(_, line)| *line)),
        };
        let differs = same < self.tokens.len().max(new.tokens.len());
        let ((old, old_line), (new, line)) = (at(self), at(new));
        differs.then_some(Difference { line, new, old_line, old })
    }
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    sequence: Sequence,
    /// Each doc comment, and whether it is in a macro call.
    docs: Vec<(String, bool)>,
    /// The number of open macro calls.
    in_macro: usize,
}

impl Reader<'_> {
    /// Reads the trees within one pair of brackets; `is_call` if they are those of a macro call.
    fn read(&mut self, stream: TokenStream, is_call: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut index = 0;
        while let Some(tree) = trees.get(index) {
            if self.is_doc_comment(&trees[index..]) {
                let inner = usize::from(is_sign(trees.get(index + 1), '!'));
                if let Some(attribute) = trees.get(index + 1 + inner) {
                    self.docs.push((attribute.to_string(), self.in_macro > 0));
                }
                index += 2 + inner;
                continue;
            }
            let before = &trees[..index];
            let next = trees.get(index + 1);
            match tree {
                TokenTree::Group(group) => {
                    let calls = is_macro_call(before);
                    let (open, close) = brackets(group.delimiter());
                    self.push(open, group.span_open().start());
                    self.in_macro += usize::from(calls);
                    self.read(group.stream(), calls);
                    self.in_macro -= usize::from(calls);
                    // `(a,)` is a tuple, `(a)` is not.
                    if group.delimiter() == Delimiter::Parenthesis && is_single(group) && may_be_tuple(before) {
                        self.push(",", group.span_close().start());
                    }
                    self.push(close, group.span_close().start());
                }
                TokenTree::Punct(sign) if sign.as_char() == ',' && !is_call && ends_list(next) => {}
                TokenTree::Punct(sign) => {
                    // `a && b` is not `a & &b`; for no other pair of signs are both spellings valid
                    // code.
                    let pair = matches!(sign.as_char(), '&' | '|') && is_sign(next, sign.as_char());
                    let glued = pair && sign.spacing() == Spacing::Joint;
                    let text = if glued { format!("{0}{0}", sign.as_char()) } else { sign.to_string() };
                    self.push(&text, sign.span().start());
                    index += usize::from(glued);
                }
                other => self.push(&other.to_string(), other.span().start()),
            }
            index += 1;
        }
    }

    fn push(&mut self, token: &str, place: LineColumn) {
        self.sequence.tokens.push((token.to_owned(), place.line));
    }

    /// Whether a doc comment begins here; the parser turns it into `#[doc = "…"]` at the place of
    /// the comment.
    fn is_doc_comment(&self, trees: &[TokenTree]) -> bool {
        let Some(TokenTree::Punct(sign)) = trees.first() else { return false };
        let LineColumn { line, column } = sign.span().start();
        let text = line.checked_sub(1).and_then(|at| self.lines.get(at)).copied().unwrap_or_default();
        let mut rest = text.chars().skip(column);
        sign.as_char() == '#' && rest.next() == Some('/')
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

fn is_sign(tree: Option<&TokenTree>, sign: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Whether a list ends here: with its bracket, or with `>`.
fn ends_list(next: Option<&TokenTree>) -> bool {
    next.is_none() || is_sign(next, '>')
}

/// Whether brackets after these trees are those of `name!` or `macro_rules! name`.
fn is_macro_call(before: &[TokenTree]) -> bool {
    let mut back = before.iter().rev();
    match (back.next(), back.next()) {
        (Some(TokenTree::Punct(sign)), Some(TokenTree::Ident(_))) => sign.as_char() == '!',
        (Some(TokenTree::Ident(_)), Some(TokenTree::Punct(sign))) => {
            sign.as_char() == '!' && matches!(back.next(), Some(TokenTree::Ident(_)))
        }
        _ => false,
    }
}

/// Whether the only comma of the group is its last token.
fn is_single(group: &proc_macro2::Group) -> bool {
    let mut trees = group.stream().into_iter().filter(|tree| is_sign(Some(tree), ','));
    let last = group.stream().into_iter().last();
    trees.next().is_some() && trees.next().is_none() && is_sign(last.as_ref(), ',')
}

/// Whether parentheses after these trees can be those of a tuple, not of a call or a parameter
/// list.
fn may_be_tuple(before: &[TokenTree]) -> bool {
    match before.last() {
        Some(TokenTree::Ident(name)) => BEFORE_TUPLE.contains(&name.to_string().as_str()),
        Some(TokenTree::Punct(_)) | None => !is_macro_call(before),
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(TokenTree::Literal(_)) => true,
    }
}
