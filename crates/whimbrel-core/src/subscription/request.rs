//! A requested subscription, kept while the request waits.

use whimbrel_event::{CheckpointToken, EventId, Time};
use whimbrel_selector::Selector;

use super::SubscriptionSpec;
use crate::api::{Filter, RetainHandling, Start};

/// A [`Filter`] with owned data.
#[derive(Debug)]
pub(crate) struct Request {
    filter: Box<str>,
    selector: Option<Selector>,
    spec: SubscriptionSpec,
    start: OwnedStart,
    retain_handling: RetainHandling,
    wants_token: bool,
}

/// [`Start`], with owned data.
#[derive(Debug)]
enum OwnedStart {
    Own,
    Token(Box<CheckpointToken>, Box<[EventId]>),
    After(Box<[EventId]>),
    Since(Time),
    Earliest,
}

impl Request {
    pub(crate) fn keep(asked: &Filter<'_>) -> Request {
        let Filter { spec, retain_handling, wants_token, .. } = *asked;
        let start = match asked.start {
            Start::Own => OwnedStart::Own,
            Start::Token(token, later) => OwnedStart::Token(Box::new(token.clone()), later.into()),
            Start::After(ids) => OwnedStart::After(ids.into()),
            Start::Since(at) => OwnedStart::Since(at),
            Start::Earliest => OwnedStart::Earliest,
        };
        let (filter, selector) = (asked.filter.into(), asked.selector.cloned());
        Request { filter, selector, spec, start, retain_handling, wants_token }
    }

    /// The subscription's text.
    pub(crate) fn text(&self) -> &str {
        &self.filter
    }

    /// Whether the answer is to name its start position.
    pub(super) fn wants_token(&self) -> bool {
        self.wants_token
    }

    /// Whether it has no start position but its own.
    pub(super) fn starts_at_own(&self) -> bool {
        matches!(self.start, OwnedStart::Own)
    }

    /// Whether it is to read retained messages; `is_new`: there was no such subscription before.
    pub(super) fn reads_retained(&self, is_new: bool) -> bool {
        match self.retain_handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        }
    }

    pub(crate) fn view(&self) -> Filter<'_> {
        let start = match &self.start {
            OwnedStart::Own => Start::Own,
            OwnedStart::Token(token, later) => Start::Token(token, later),
            OwnedStart::After(ids) => Start::After(ids),
            OwnedStart::Since(at) => Start::Since(*at),
            OwnedStart::Earliest => Start::Earliest,
        };
        let Request { spec, retain_handling, wants_token, .. } = *self;
        let (filter, selector) = (&*self.filter, self.selector.as_ref());
        Filter { filter, selector, spec, start, retain_handling, wants_token }
    }
}
