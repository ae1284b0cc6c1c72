//! What must hold for any selector and any event.

use whimbrel_selector::{Compiled, Selector};

use super::evaluate::World;
use super::event::Event;
use super::fences::Rectangles;
use super::generate::{self, Choices};
use super::operations::{Mix, operations};
use super::parse::{Node, parse};

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
    fences: Rectangles,
}

impl Forms {
    /// Of a text that the language allows; the canonical text must be canonical.
    pub fn new(text: &str, selector: &Selector, fences: Rectangles) -> Forms {
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
        let compiled = Compiled::new(selector).with_fences(fences.build());
        Forms { text: text.to_owned(), naive, canonical, naive_canonical, compiled, fences }
    }

    /// All forms have the same value for the event.
    pub fn agree(&mut self, event: &Event) -> Option<bool> {
        let fences = |name: &str, lat: f64, lon: f64| self.fences.contains(name, lat, lon);
        let world = World::new(event, &fences);
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
            let mut forms = Forms::new(&text, &selector, Rectangles::some(c));
            for _ in 0..6 {
                tally.note(forms.agree(&generate::event(c)));
            }
        }
        Err(error) => assert!(may_refuse(&error.to_string()), "{text}\n{error}"),
    }
}

/// What a selector covers is true only where it is true itself.
/// Returns whether one covered the other.
pub fn covering(c: &mut Choices<'_>) -> bool {
    let (wide, narrow) = if c.flag() {
        (generate::common_selector(c), generate::common_selector(c))
    } else {
        let wide = generate::selector(c);
        let other = if c.flag() { wide.clone() } else { generate::selector(c) };
        (wide, format!("({other}) AND ({})", generate::selector(c)))
    };
    let (Ok(wide_selector), Ok(narrow_selector)) = (Selector::parse(&wide), Selector::parse(&narrow)) else {
        return false;
    };
    if !wide_selector.covers(&narrow_selector) {
        return false;
    }
    let fences = Rectangles::some(c);
    let mut forms = [&wide, &narrow].map(|text| {
        let selector = Selector::parse(text).expect("parsed before");
        Forms::new(text, &selector, fences.clone())
    });
    for _ in 0..12 {
        let event = if c.flag() { generate::event(c) } else { generate::common_event(c) };
        let [wide_value, narrow_value] = forms.each_mut().map(|forms| forms.agree(&event));
        assert!(narrow_value != Some(true) || wide_value == Some(true), "{wide} covers {narrow}: {event:?}");
    }
    true
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
            let mut forms = Forms::new(text, &selector, Rectangles::some(c));
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

/// What the fuzz target does: the bytes are a text themselves, and decide what else is looked at.
pub fn any_bytes(bytes: &[u8]) {
    any_text(&String::from_utf8_lossy(bytes), &mut Choices::Bytes(bytes));
    generated(&mut Choices::Bytes(bytes), &mut Tally::default());
    let c = &mut Choices::Bytes(bytes);
    any_text(&damaged(c), c);
    covering(&mut Choices::Bytes(bytes));
    operations(&mut Choices::Bytes(bytes), 7, Mix { operations: 300, most: 120, filters: 4, common: 8 });
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
