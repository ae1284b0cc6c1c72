//! The state of the freight desk for the view.

use serde::Serialize;

use super::DISPATCHERS;
use super::ledger::{Clerk, Counts, Ledger};
use crate::fleet::view::grouped;

/// The state of a dispatcher's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The dispatcher disconnected, and will return.
    Away,
    /// Its connection was lost, and it tries to connect again.
    Lost,
    /// The dispatcher is connected.
    There,
}

/// A dispatcher.
#[derive(Clone, Debug, Serialize)]
pub struct DispatcherRow {
    /// Its name.
    pub name: String,
    /// The orders that it asks for, as a topic filter.
    pub filter: String,
    /// The state of its connection.
    #[serde(skip)]
    pub presence: Presence,
    /// The number of times that it disconnected.
    pub departures: u32,
    /// Accepted orders that wait for it.
    #[serde(skip)]
    pub waiting: u64,
    /// Orders among these that a later one has overtaken.
    #[serde(skip)]
    pub overtaken: u64,
    /// The counts of its arrivals.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The desk at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Orders that clerks have sent.
    pub sent: u64,
    /// Orders among these that the broker has accepted.
    pub accepted: u64,
    /// Orders among these that it has refused.
    pub refused: u64,
    /// All dispatchers together.
    #[serde(flatten)]
    pub total: Counts,
    /// Each dispatcher.
    pub dispatchers: Vec<DispatcherRow>,
}

impl Snapshot {
    pub(super) fn new(
        ledger: &Ledger,
        presence: &[Presence; DISPATCHERS.len()],
        departures: &[u32; DISPATCHERS.len()],
    ) -> Snapshot {
        let row = |(index, (name, _, filter)): (usize, &(&str, _, &str))| {
            let (waiting, overtaken) = ledger.owed_to(index);
            DispatcherRow {
                name: (*name).to_owned(),
                filter: (*filter).to_owned(),
                presence: presence[index],
                departures: departures[index],
                waiting,
                overtaken,
                counts: ledger.counts(index),
            }
        };
        let dispatchers: Vec<DispatcherRow> = DISPATCHERS.iter().enumerate().map(row).collect();
        let mut total = Counts::default();
        dispatchers.iter().for_each(|dispatcher| total.add(&dispatcher.counts));
        let sum = |of: fn(&Clerk) -> u64| ledger.clerks().iter().map(of).sum();
        Snapshot {
            sent: sum(|clerk| clerk.sent),
            accepted: sum(|clerk| clerk.accepted),
            refused: sum(|clerk| clerk.refused),
            total,
            dispatchers,
        }
    }

    /// Orders that are lost, or seem to be so far.
    pub fn lost(&self) -> u64 {
        self.total.lost + self.dispatchers.iter().map(|dispatcher| dispatcher.overtaken).sum::<u64>()
    }

    /// Broken promises, and orders that seem lost so far.
    pub fn seeming_faults(&self) -> u64 {
        self.total.faults() + self.lost() - self.total.lost
    }

    /// The rows of the summary.
    pub(in crate::fleet) fn rows(&self) -> Vec<String> {
        let Counts { lost, twice, reordered, overtaken, altered, foreign, gaps, unsure, .. } = self.total;
        let (sent, accepted) = (grouped(self.sent), grouped(self.accepted));
        let mut verdict = format!("{:>14}{lost} lost, {twice} twice, {reordered} out of order", "");
        for (count, what) in [
            (altered, "altered"),
            (foreign, "not asked for"),
            (gaps, "gaps told"),
            (overtaken, "overtaken while their broker was out of reach"),
            (unsure, "without an answer and not delivered"),
            (self.refused, "refused"),
        ] {
            if count > 0 {
                verdict += &format!(", {count} {what}");
            }
        }
        let mut rows = vec![format!("orders      {sent:>12}  sent, {accepted} acknowledged"), verdict];
        rows.extend(self.dispatchers.iter().map(|dispatcher| {
            let DispatcherRow { name, filter, departures, counts, .. } = dispatcher;
            let received = grouped(counts.received);
            let mut row = format!("{received:>24}  to {name}, which asks for {filter} and left {departures} times");
            if counts.repeated > 0 {
                row += &format!("; {} sent again under the same id", grouped(counts.repeated));
            }
            row
        }));
        rows
    }
}
