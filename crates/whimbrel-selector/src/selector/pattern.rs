//! `LIKE` patterns.

use super::error::Problem;
use super::expr::{Pattern, Piece};

/// Parses a pattern whose literal begins at `start`.
///
/// # Errors
/// If the escape character stands before a character that needs no escape.
pub(super) fn parse(pattern: &str, escape: Option<char>, start: usize) -> Result<Vec<Piece>, Problem> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut at = start + 1;
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        let length = |c: char| if c == '\'' { 2 } else { c.len_utf8() };
        let width = length(c);
        if Some(c) == escape {
            match characters.next() {
                Some(next) if next == c || matches!(next, '%' | '_') => {
                    text.push(next);
                    at += length(next);
                }
                next => {
                    let end = at + width + next.map_or(0, length);
                    let cause = format!("behind the escape character, %, _ or {c} itself is expected");
                    return Err(Problem::new(at, end, cause));
                }
            }
        } else if matches!(c, '%' | '_') {
            pieces.push(Piece::Text(core::mem::take(&mut text).into()));
            pieces.push(if c == '%' { Piece::AnyRun } else { Piece::AnyOne });
        } else {
            text.push(c);
        }
        at += width;
    }
    pieces.push(Piece::Text(text.into()));
    Ok(simplify(pieces))
}

/// The pieces without redundancy: no text is empty, and in a row of wildcards the single characters
/// come first and are followed by at most one run.
fn simplify(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut simple: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (simple.last_mut(), piece) {
            (_, Piece::Text(text)) if text.is_empty() => {}
            (Some(Piece::AnyRun), Piece::AnyRun) => {}
            (Some(last @ Piece::AnyRun), Piece::AnyOne) => {
                *last = Piece::AnyOne;
                simple.push(Piece::AnyRun);
            }
            (_, piece) => simple.push(piece),
        }
    }
    simple
}

/// The pattern's text, and whether it needs `\` as escape character.
pub(super) fn write(pattern: &Pattern) -> (String, bool) {
    let escapes = pattern.0.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(['%', '_'])));
    let mut written = String::new();
    for piece in &pattern.0 {
        match piece {
            Piece::AnyOne => written.push('_'),
            Piece::AnyRun => written.push('%'),
            Piece::Text(text) => {
                for c in text.chars() {
                    if escapes && matches!(c, '%' | '_' | '\\') {
                        written.push('\\');
                    }
                    written.push(c);
                }
            }
        }
    }
    (written, escapes)
}
