//! Paths into JSON payloads: the singular queries of RFC 9535.

use core::fmt;

/// A singular query of RFC 9535: names at most one value. `$` itself has no steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonPath(pub Box<[Step]>);

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The member of an object.
    Member(Box<str>),
    /// The element of an array; negative counts from its end, -1 is the last.
    Index(i64),
}

impl fmt::Display for JsonPath {
    /// The normalized form of RFC 9535, section 2.7, but `.name` where the name allows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.0 {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Member(name) if is_shorthand(name) => write!(f, ".{name}")?,
                Step::Member(name) => write!(f, "[\"{}\"]", escape(name))?,
            }
        }
        Ok(())
    }
}

fn is_shorthand(_name: &str) -> bool {
    todo!()
}

fn escape(_name: &str) -> String {
    todo!()
}
