//! Reads tables of the configuration file that are not tables of settings.

use std::ops::Range;
use std::sync::Arc;

use miette::NamedSource;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_selector::TopicFilter;

use super::problem::{Place, Problem};
use super::value::{Kind, Refusal, Value};

/// All mistakes in one table, so that they can be corrected at once.
#[derive(Default)]
pub(super) struct Faults {
    problems: Vec<Problem>,
}

impl Faults {
    /// The value, if it could be read; otherwise records why not.
    pub(super) fn take<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Records a mistake.
    pub(super) fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// `whole`, which is `Some` unless there is a mistake, or all mistakes.
    pub(super) fn or<T>(self, whole: Option<T>) -> Result<T, Vec<Problem>> {
        match whole {
            Some(whole) if self.problems.is_empty() => Ok(whole),
            _ => Err(self.problems),
        }
    }
}

/// Location of one table's values.
pub(super) struct Source<'a> {
    pub(super) file: &'a Arc<NamedSource<String>>,
    /// The table as it is written, for messages.
    pub(super) table: &'static str,
    /// The table's allowed contents, for messages.
    pub(super) help: &'static str,
}

impl Source<'_> {
    pub(super) fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.file, span)
    }

    pub(super) fn wrong(&self, message: impl Into<String>, span: Range<usize>) -> Problem {
        Problem::new(message).at(Some(&self.place(span)), "here").help(self.help)
    }

    pub(super) fn unknown(&self, key: &Spanned<impl AsRef<str>>) -> Problem {
        let message = format!("there is no setting `{}` in {}", key.get_ref().as_ref(), self.table);
        Problem::new(message).at(Some(&self.place(key.span())), "unknown").help(self.help)
    }

    /// Reads a value as settings are read.
    pub(super) fn read(&self, name: &str, kind: Kind, value: &Spanned<DeValue<'_>>) -> Result<Value, Problem> {
        let refused = |Refusal { what, help }| {
            Problem::new(format!("`{name}` {what}")).at(Some(&self.place(value.span())), "here").help(help)
        };
        kind.read_toml(value.get_ref()).map_err(refused)
    }

    pub(super) fn text<'a>(&self, name: &str, value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, Problem> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            other => Err(self.wrong(format!("`{name}` has the wrong type: {}", other.type_str()), value.span())),
        }
    }

    pub(super) fn filter(&self, value: &Spanned<DeValue<'_>>) -> Result<Box<str>, Problem> {
        let text = self.text("filter", value)?;
        match TopicFilter::new(text) {
            Ok(_) => Ok(text.into()),
            Err(error) => Err(self.wrong(format!("{text:?} is no topic filter: {}", error.why()), value.span())),
        }
    }

    pub(super) fn selector(&self, value: &Spanned<DeValue<'_>>) -> Result<(String, Place), Problem> {
        Ok((self.text("selector", value)?.to_owned(), self.place(value.span())))
    }
}
