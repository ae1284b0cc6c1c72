//! Conditions as the generator makes them, and how they are written.

use core::fmt::Write;

/// A condition on named fields. Bounds are inclusive.
#[derive(Clone, Debug)]
pub enum Part {
    Equal(&'static str, String),
    Unequal(&'static str, String),
    Between(&'static str, i64, i64),
    /// Below the first or above the second.
    Outside(&'static str, i64, i64),
    Prefix(&'static str, String),
    /// `(field - 7) * 2` within bounds, which are those of the field.
    Scaled(&'static str, i64, i64),
    /// The sum of two fields within bounds.
    Sum([&'static str; 2], i64, i64),
    Within(String),
    All(Vec<Part>),
    Any(Vec<Part>),
    Not(Box<Part>),
}

impl Part {
    /// The selector.
    pub fn selector(&self) -> String {
        let mut text = String::new();
        self.write_selector(&mut text).expect("memory suffices");
        text
    }

    fn write_selector(&self, out: &mut String) -> core::fmt::Result {
        match self {
            Part::Equal(field, text) => write!(out, "{field} = '{text}'"),
            Part::Unequal(field, text) => write!(out, "{field} <> '{text}'"),
            Part::Between(field, low, high) => write!(out, "{field} BETWEEN {low} AND {high}"),
            Part::Outside(field, low, high) => write!(out, "({field} < {low} OR {field} > {high})"),
            Part::Prefix(field, text) => write!(out, "{field} LIKE '{text}%'"),
            Part::Scaled(field, low, high) => {
                write!(out, "({field} - 7) * 2 BETWEEN {} AND {}", (low - 7) * 2, (high - 7) * 2)
            }
            Part::Sum([a, b], low, high) => write!(out, "{a} + {b} BETWEEN {low} AND {high}"),
            Part::Within(fence) => write!(out, "within('{fence}')"),
            Part::All(parts) => join(out, parts, " AND ", Part::write_selector),
            Part::Any(parts) => join(out, parts, " OR ", Part::write_selector),
            Part::Not(part) => {
                out.push_str("NOT ");
                bracket(out, part, Part::write_selector)
            }
        }
    }

    /// The same in the language of the a-tree crate; `None` if that has no such condition.
    pub fn a_tree(&self) -> Option<String> {
        let mut text = String::new();
        self.write_a_tree(&mut text).ok().map(|()| text)
    }

    fn write_a_tree(&self, out: &mut String) -> core::fmt::Result {
        match self {
            Part::Equal(..) | Part::Unequal(..) | Part::Outside(..) => {
                let mut same = String::new();
                self.write_selector(&mut same)?;
                out.push_str(&same.replace("OR", "or"));
                Ok(())
            }
            Part::Between(field, low, high) => write!(out, "{field} >= {low} and {field} <= {high}"),
            Part::Prefix(..) | Part::Scaled(..) | Part::Sum(..) | Part::Within(_) => Err(core::fmt::Error),
            Part::All(parts) => join(out, parts, " and ", Part::write_a_tree),
            Part::Any(parts) => join(out, parts, " or ", Part::write_a_tree),
            Part::Not(part) => {
                out.push_str("not ");
                bracket(out, part, Part::write_a_tree)
            }
        }
    }
}

type Writer = fn(&Part, &mut String) -> core::fmt::Result;

fn join(out: &mut String, parts: &[Part], between: &str, write: Writer) -> core::fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { between });
        if matches!(part, Part::All(_) | Part::Any(_)) {
            bracket(out, part, write)?;
        } else {
            write(part, out)?;
        }
    }
    Ok(())
}

fn bracket(out: &mut String, part: &Part, write: Writer) -> core::fmt::Result {
    out.push('(');
    write(part, out)?;
    out.push(')');
    Ok(())
}
