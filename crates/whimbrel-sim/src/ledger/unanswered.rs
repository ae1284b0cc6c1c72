//! SUBSCRIBEs whose answer was not seen: they may have taken effect, also after their connection
//! has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Ledger;
use super::owed::Asked;
use super::places::{self, Place};

/// A `w-from` that is further ahead of the broker's clock is not taken.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// The number of a request, and the position that its `w-from` names.
type Request = (u64, Option<Place>);

/// Unanswered requests, by client id and subscription identifier.
#[derive(Default, Debug)]
pub(super) struct Unanswered(BTreeMap<(String, u32), Vec<Request>>);

impl Unanswered {
    /// Whether a subscription has any.
    pub(super) fn has(&self, who: &str, identifier: u32) -> bool {
        self.0.get(&(who.to_owned(), identifier)).is_some_and(|requests| !requests.is_empty())
    }

    /// A request is refused.
    pub(super) fn refuse(&mut self, who: &str, asked: &Asked) {
        if let Some(requests) = self.0.get_mut(&(who.to_owned(), asked.identifier)) {
            requests.retain(|(number, _)| *number != asked.number);
        }
    }

    /// A request is granted: removes and returns the positions of unanswered requests before it.
    pub(super) fn before(&mut self, who: &str, asked: &Asked) -> Vec<Option<Place>> {
        let Some(requests) = self.0.get_mut(&(who.to_owned(), asked.identifier)) else { return Vec::new() };
        let until = requests.extract_if(.., |(number, _)| *number <= asked.number);
        until.filter(|(number, _)| *number < asked.number).map(|(_, place)| place).collect()
    }
}

impl Ledger {
    /// A client asks for a subscription that has a position.
    pub(super) fn asks_to_follow(&mut self, who: &str, asked: &Asked) {
        let term = |name: &str| asked.terms.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        if term("w-durability").is_none() {
            return;
        }
        // As much as there is, if it names no position that is understood.
        let place = term("w-from").map(|from| places::named(from).unwrap_or_default());
        let latest = self.latest.after(AHEAD_MAX).as_nanos();
        if place.iter().flat_map(Place::iter).all(|(_, tick)| tick <= latest) {
            let key = (who.to_owned(), asked.identifier);
            self.unanswered.0.entry(key).or_default().push((asked.number, place));
        }
    }
}
