//! Mistakes in a configuration, and their places.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// A range of bytes in a configuration file, on the command line or in the environment.
#[derive(Clone, Debug)]
pub struct Place {
    source: Arc<NamedSource<String>>,
    span: Range<usize>,
}

impl Place {
    /// `span` within the text of `source`.
    pub fn new(source: &Arc<NamedSource<String>>, span: Range<usize>) -> Place {
        Place { source: source.clone(), span }
    }

    /// The directory of the place's file, relative to the working directory.
    pub(super) fn directory(&self) -> &Path {
        Path::new(self.source.name()).parent().unwrap_or(Path::new(""))
    }

    /// A short text as a whole, such as one flag; `value` is the part to point at, which may be
    /// empty at the end.
    pub fn in_line(name: &str, mut line: String, mut value: Range<usize>) -> Place {
        if value.is_empty() && value.start == line.len() {
            // Reporters show no mark, and so no label, where there is no character.
            line.push(' ');
            value.end += 1;
        }
        Place { source: Arc::new(NamedSource::new(name, line)), span: value }
    }
}

/// One mistake in the configuration. Implements [`Diagnostic`], so that a reporter can show its
/// line.
#[derive(Debug)]
pub struct Problem {
    message: String,
    at: Option<(Place, String)>,
    help: Option<String>,
}

impl Problem {
    /// A problem without a single place.
    pub fn new(message: impl Into<String>) -> Problem {
        Problem { message: message.into(), at: None, help: None }
    }

    /// Adds the place, with a few words for the caret.
    pub fn at(mut self, place: Option<&Place>, label: impl Into<String>) -> Problem {
        self.at = place.map(|place| (place.clone(), label.into()));
        self
    }

    /// Sort key in reading order: by source and place, problems without a place last.
    pub(super) fn order(&self) -> (bool, &str, usize) {
        match &self.at {
            Some((place, _)) => (false, place.source.name(), place.span.start),
            None => (true, "", 0),
        }
    }

    /// The problem in one line, for a log: place, message, help.
    pub fn line(&self) -> String {
        let mut line = String::new();
        if let Some((place, _)) = &self.at {
            let before = place.source.inner().get(..place.span.start).unwrap_or_default();
            line += &format!("{}:{}: ", place.source.name(), before.matches('\n').count() + 1);
        }
        line += &self.message;
        if let Some(help) = &self.help {
            line += &format!("; {help}");
        }
        line
    }

    /// Adds the help: what to do about it.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.at.as_ref().map(|(place, _)| &*place.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (place, label) = self.at.as_ref()?;
        let span = LabeledSpan::new(Some(label.clone()), place.span.start, place.span.len());
        Some(Box::new(std::iter::once(span)))
    }
}
