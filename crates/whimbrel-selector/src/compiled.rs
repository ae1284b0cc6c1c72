//! One compiled selector, to be evaluated for many events.

use std::sync::Arc;

use crate::facts::{Fields, Scratch};
use crate::fence::Fences;
use crate::program::{Op, Program, is_true};
use crate::selector::Selector;
use crate::subject::Subject;

/// One compiled selector, to be evaluated for many events in turn. For many selectors there is
/// [`crate::MatchIndex`].
///
/// ```
/// use whimbrel_selector::{Compiled, Datum, Selector};
///
/// let selector = Selector::parse("line = 'N56' AND speed > 50")?;
/// let mut compiled = Compiled::new(&selector);
/// assert_eq!(compiled.value(&[("line", Datum::Text("N56")), ("speed", Datum::Integer(61))]), Some(true));
/// assert_eq!(compiled.value(&[("line", Datum::Text("N56"))]), None);
/// # Ok::<(), whimbrel_selector::SelectorError>(())
/// ```
#[derive(Debug)]
pub struct Compiled {
    fields: Fields,
    program: Program,
    fences: Arc<Fences>,
    scratch: Scratch,
}

impl Compiled {
    /// Compiles a selector. Until [`Compiled::with_fences`] there are no fences.
    pub fn new(selector: &Selector) -> Compiled {
        // The keys of this index are not chosen by clients, so that collisions cannot be forced.
        let mut fields = Fields::new(0);
        let program = Program::compile(selector.condition(), &mut fields);
        Compiled { fields, program, fences: Arc::default(), scratch: Scratch::default() }
    }

    /// Sets the fences that `within` refers to.
    pub fn with_fences(self, fences: Arc<Fences>) -> Compiled {
        Compiled { fences, ..self }
    }

    /// True, false, or `None` for unknown. An event matches if it is true.
    pub fn value<S: Subject>(&mut self, subject: S) -> Option<bool> {
        self.scratch.ask(&self.fields, &self.fences, &subject, |facts| self.program.value(facts))
    }
}

/// Many selectors evaluated one by one: the baseline for an index. The attributes of each event are
/// read once, and each selector is a compiled program that stops at the first condition that
/// decides.
#[derive(Debug)]
pub struct Scan<K> {
    fields: Fields,
    /// All programs, and likewise their texts, concatenated.
    ops: Vec<Op>,
    text: String,
    /// The end of each program and of its texts.
    ends: Vec<(usize, usize, K)>,
    fences: Arc<Fences>,
    scratch: Scratch,
}

impl<K: Copy> Scan<K> {
    /// A scan without selectors.
    pub fn new(fences: Arc<Fences>) -> Scan<K> {
        Scan {
            fields: Fields::new(0),
            ops: Vec::new(),
            text: String::new(),
            ends: Vec::new(),
            fences,
            scratch: Scratch::default(),
        }
    }

    /// Adds a selector.
    pub fn push(&mut self, selector: &Selector, key: K) {
        let program = Program::compile(selector.condition(), &mut self.fields);
        let (ops, text) = program.code();
        self.ops.extend_from_slice(ops);
        self.text.push_str(text);
        self.ends.push((self.ops.len(), self.text.len(), key));
    }

    /// Calls `found` with the key of each selector that is true, in the order in which they were
    /// added.
    pub fn for_each_true(&mut self, subject: &dyn Subject, mut found: impl FnMut(K)) {
        self.scratch.ask(&self.fields, &self.fences, subject, |facts| {
            let (mut ops, mut text) = (0, 0);
            for (ops_end, text_end, key) in &self.ends {
                if is_true(&self.ops[ops..*ops_end], &self.text[text..*text_end], facts).0 {
                    found(*key);
                }
                (ops, text) = (*ops_end, *text_end);
            }
        });
    }
}
