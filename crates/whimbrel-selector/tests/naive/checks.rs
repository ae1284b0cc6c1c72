//! What must hold for any selector and any event.

use whimbrel_selector::{Compiled, Selector};

use super::evaluate::World;
use super::event::Event;
use super::generate::{self, Choices};
use super::parse::{Node, parse};

/// No fence is known.
pub fn no_fences(_: &str, _: f64, _: f64) -> Option<bool> {
    None
}

/// How many values of each kind there were.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub yes: usize,
    pub no: usize,
    pub unknown: usize,
}

impl Tally {
    pub fn note(&mut self, value: Option<bool>) {
        match value {
            Some(true) => self.yes += 1,
            Some(false) => self.no += 1,
            None => self.unknown += 1,
        }
    }
}

/// The selector in all its forms.
pub struct Forms {
    text: String,
    naive: Node,
    canonical: String,
    naive_canonical: Node,
    compiled: Compiled,
}

impl Forms {
    /// Of a text that the language allows; the canonical text must be canonical.
    pub fn new(text: &str, selector: &Selector) -> Forms {
        let naive = parse(text).unwrap_or_else(|cause| panic!("{text}: {cause}"));
        let canonical = selector.to_string();
        match Selector::parse_canonical(&canonical) {
            Ok(again) => {
                assert_eq!(again, *selector, "{text}\n{canonical}");
                assert_eq!(again.to_string(), canonical, "{text}");
            }
            Err(error) => panic!("{text}\n{canonical}\n{error}"),
        }
        let naive_canonical = parse(&canonical).unwrap_or_else(|cause| panic!("{text}\n{canonical}: {cause}"));
        Forms { text: text.to_owned(), naive, canonical, naive_canonical, compiled: Compiled::new(selector) }
    }

    /// All forms have the same value for the event.
    pub fn agree(&mut self, event: &Event) -> Option<bool> {
        let world = World::new(event, &no_fences);
        let expected = world.truth(&self.naive);
        let (text, canonical) = (&self.text, &self.canonical);
        let payload = || String::from_utf8_lossy(&event.payload);
        assert_eq!(self.compiled.value(event), expected, "{text}\n{canonical}\n{event:?}\n{}", payload());
        assert_eq!(world.truth(&self.naive_canonical), expected, "{text}\n{canonical}\n{event:?}\n{}", payload());
        expected
    }
}

/// One generated selector against a few events.
pub fn generated(c: &mut Choices<'_>, tally: &mut Tally) {
    let text = generate::selector(c);
    match Selector::parse(&text) {
        Ok(selector) => {
            let mut forms = Forms::new(&text, &selector);
            for _ in 0..6 {
                tally.note(forms.agree(&generate::event(c)));
            }
        }
        Err(error) => assert!(may_refuse(&error.to_string()), "{text}\n{error}"),
    }
}

/// Generated selectors may be too long, too deep or too large; nothing else is wrong with them.
fn may_refuse(error: &str) -> bool {
    ["a selector has at most", "nested at most"].into_iter().any(|cause| error.contains(cause))
}

/// Any text: parsing does not panic, and what is accepted means what the naive parser takes it for.
pub fn any_text(text: &str, c: &mut Choices<'_>) -> bool {
    match Selector::parse(text) {
        Ok(selector) => {
            let Ok(_) = parse(text) else { return true };
            let mut forms = Forms::new(text, &selector);
            for _ in 0..4 {
                forms.agree(&generate::event(c));
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

const SNIPPETS: [&str; 40] = [
    "'", "\"", "(", ")", "%", "_", " AND ", " OR ", " NOT ", "NOT", " IN ", "LIKE", " IS NULL", "BETWEEN", "=", "<",
    ">", "<>", "-", "+", "*", "/", ".", ",", "0x", "1e", "_1", "''", "json('$", "within('", "ESCAPE '", "\\", "é",
    "😀", "\u{0}", "\t", "9", "JMSType", "a", "TRUE",
];

/// A generated selector, damaged here and there.
pub fn damaged(c: &mut Choices<'_>) -> String {
    let mut text = generate::selector(c);
    for _ in 0..1 + c.below(4) {
        let mut at = c.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match c.below(4) {
            0 | 1 => text.insert_str(at, c.one_of(&SNIPPETS)),
            2 => {
                let end = text[at..].char_indices().nth(1 + c.below(3)).map_or(text.len(), |(i, _)| at + i);
                text.replace_range(at..end, "");
            }
            _ => {
                let end = text[at..].char_indices().nth(c.below(20)).map_or(text.len(), |(i, _)| at + i);
                let part = text[at..end].to_owned();
                text.insert_str(at, &part);
            }
        }
    }
    text
}
