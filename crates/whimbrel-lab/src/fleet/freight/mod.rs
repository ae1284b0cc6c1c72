//! The freight desk: orders that may not be lost, whatever happens to the broker.
//!
//! Clerks publish orders: half of them with QoS 1 and sequence numbers of their own (`w-seq`), half
//! with QoS 2. Dispatchers have durable subscriptions, disconnect and return, and brokers are
//! killed in between. The [`ledger`] judges the fate of each order.

mod clerk;
mod dispatcher;
pub mod ledger;
mod order;
mod snapshot;

pub use snapshot::{DispatcherRow, Presence, Snapshot};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::board::Board;
use super::regions::{Atlas, Class, Disturbances, Travel};
use ledger::{Arrival, Keeper, Ledger};

/// The number of clerks: the first half publishes standard orders, the others express ones.
pub const CLERKS: usize = 4;
/// The dispatchers: name, keeper of the position, and filter.
pub const DISPATCHERS: [(&str, Keeper, &str); 3] = [
    ("dispatch-qos1", Keeper::AtLeastOnce, order::ALL),
    ("dispatch-qos2", Keeper::ExactlyOnce, order::EXPRESS),
    ("dispatch-token", Keeper::Client, order::ALL),
];
/// How long the broker keeps their sessions, s.
const SESSION_EXPIRY: u32 = 3_600;
/// How long closing the connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The parameters of the desk.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Orders per second, over all clerks.
    pub rate: u32,
    /// The seed of the orders, and of the times when dispatchers disconnect and return.
    pub seed: u64,
}

/// The run's view of the desk.
pub struct Desk {
    state: Mutex<Option<State>>,
    disturbances: Arc<Disturbances>,
}

struct State {
    ledger: Ledger,
    presence: [Presence; DISPATCHERS.len()],
    departures: [u32; DISPATCHERS.len()],
    /// Clerks with a connection.
    clerks: usize,
}

impl Desk {
    /// A desk that is not open yet.
    pub fn new(disturbances: Arc<Disturbances>) -> Desk {
        Desk { state: Mutex::default(), disturbances }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(self.state().as_mut().expect("the desk was opened"))
    }

    fn open(&self) {
        let ledger = Ledger::new(CLERKS, &DISPATCHERS.map(|(_, keeper, filter)| (keeper, order::clerks(filter))));
        *self.state() = Some(State {
            ledger: ledger.during(self.disturbances.clone()),
            presence: [Presence::Away; DISPATCHERS.len()],
            departures: [0; DISPATCHERS.len()],
            clerks: 0,
        });
    }

    /// Whether all clients of the desk are connected that should be, and each has every order sent
    /// before a moment.
    pub fn is_served(&self, before: Duration) -> bool {
        let state = self.state();
        let Some(state) = &*state else { return true };
        let has_all = |(index, presence): (usize, &Presence)| match presence {
            Presence::Away => true,
            Presence::Lost => false,
            Presence::There => !state.ledger.owes(index, before),
        };
        state.clerks == CLERKS && state.presence.iter().enumerate().all(has_all)
    }

    /// Orders in flight, over all dispatchers.
    pub fn waiting(&self) -> u64 {
        self.state().as_ref().map_or(0, |state| state.ledger.waiting())
    }

    /// The run is over: orders that have not arrived are lost.
    pub fn close(&self) {
        if let Some(state) = &mut *self.state() {
            state.ledger.close();
        }
    }

    /// The present state for the view; `None` without a desk.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.state().as_ref().map(|state| Snapshot::new(&state.ledger, &state.presence, &state.departures))
    }

    fn is_there(&self, dispatcher: usize, presence: Presence) {
        self.with(|state| {
            let before = std::mem::replace(&mut state.presence[dispatcher], presence);
            state.departures[dispatcher] += u32::from(before == Presence::There && presence == Presence::Away);
        });
    }

    /// The fault of an arriving order, with the orders before it, if there is one.
    fn arrived(&self, dispatcher: usize, arrival: Arrival, now: Duration) -> Option<String> {
        self.with(|state| {
            let fault = state.ledger.arrived(dispatcher, arrival, now).fault()?;
            Some(format!("{fault}; {}", state.ledger.history(dispatcher, arrival.clerk, arrival.number)))
        })
    }
}

/// The desk at work.
pub struct Open {
    board: Arc<Board>,
    clerks: JoinSet<()>,
    dispatchers: JoinSet<()>,
    /// Set: no more orders are taken.
    stop: watch::Sender<bool>,
    /// Set: dispatchers stay connected.
    calm: watch::Sender<bool>,
    /// Set: dispatchers end.
    home: watch::Sender<bool>,
}

impl Open {
    /// Connects all clients, dispatchers first, so that every order is due to each that wants it.
    pub async fn new(board: Arc<Board>, atlas: &Arc<Atlas>, habits: Habits) -> Result<Open> {
        board.freight.open();
        let ((stop, stops), (calm, calms), (home, homes)) =
            (watch::channel(false), watch::channel(false), watch::channel(false));
        let (mut clerks, mut dispatchers) = (JoinSet::new(), JoinSet::new());
        let travel = |class, index| Travel::new(board.clone(), atlas.clone(), (class, index), calms.clone());
        for index in 0..DISPATCHERS.len() {
            let (travel, signals) = (travel(Class::Dispatcher, index), (calms.clone(), homes.clone()));
            let mut dispatcher = dispatcher::Dispatcher::new(index, board.clone(), travel, habits.seed, signals);
            let connection = dispatcher.begin().await?;
            dispatchers.spawn(dispatcher.run(connection));
        }
        for index in 0..CLERKS {
            let mut clerk = clerk::Clerk::new(index, board.clone(), travel(Class::Clerk, index), habits);
            let client = clerk.begin().await?;
            clerks.spawn(clerk.run(client, stops.clone()));
        }
        Ok(Open { board, clerks, dispatchers, stop, calm, home })
    }

    /// Stops new orders; waits until clerks know the fate of theirs and dispatchers have what they
    /// are owed, as long as there is progress.
    pub async fn finish(&mut self, stall: Duration, look: Duration) {
        self.stop.send_replace(true);
        self.calm.send_replace(true);
        let answered = async { while self.clerks.join_next().await.is_some() {} };
        // Whether an order that is unanswered by then was accepted is unknown.
        let _answered = timeout(stall, answered).await;
        let (mut left, mut since) = (self.board.freight.waiting(), Instant::now());
        while left > 0 && since.elapsed() < stall {
            tokio::time::sleep(look).await;
            let now = self.board.freight.waiting();
            if now < left {
                (left, since) = (now, Instant::now());
            }
        }
    }

    /// Ends all clients of the desk.
    pub async fn close(mut self) {
        self.home.send_replace(true);
        let gone = async { while self.dispatchers.join_next().await.is_some() {} };
        let _gone = timeout(CLOSE_LIMIT, gone).await;
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::fleet::city;
    use crate::fleet::crashes::End;
    use crate::fleet::selection::Selection;
    use crate::fleet::view::Titles;
    use crate::fleet::view::screen::{Extent, Screen};

    fn drawn(board: &Board, width: u16, height: u16) -> String {
        let titles = Titles {
            trace: "a city".to_owned(),
            lines: 1,
            vehicles: 2,
            speed_up: 1.0,
            broker: "own broker".to_owned(),
            address: "127.0.0.1:1883".to_owned(),
            console: None,
            notice: None,
        };
        let extent = Extent::of(board.trace.positions.iter().map(|position| position.fix.place));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        let mut screen = Screen::new(titles, extent, &[]);
        terminal.draw(|frame| screen.draw(frame, &board.snapshot())).expect("drawing in memory");
        terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn the_board_shows_what_the_ledger_finds() {
        let trace = Arc::new(city::synthesize(1, 2, city::ATLANTIC).expect("a city"));
        let board = Board::new(trace, &[], Selection::default());
        assert!(!drawn(&board, 140, 45).contains("Freight"), "there is no desk yet");
        board.freight.open();
        let arrival = |number| {
            let (id, connection, region, is_doubtful) = (None, 1, 0, false);
            Arrival { clerk: 0, number, digest: number, id, connection, region, is_doubtful }
        };
        for number in 1..=3 {
            board.freight.with(|state| {
                state.ledger.sent(0, number, number, Duration::ZERO);
                state.ledger.accepted(0, number);
            });
        }
        board.freight.arrived(0, arrival(1), Duration::ZERO);
        board.freight.is_there(0, Presence::There);
        for (width, height) in [(140, 45), (80, 24)] {
            let text = drawn(&board, width, height);
            assert!(text.contains(" 0 lost, 0 twice ") && text.contains("3 acknowledged"), "{text}");
        }
        assert_eq!(board.freight.waiting(), 5, "two at the first dispatcher, three at the last");
        board.freight.arrived(0, arrival(3), Duration::ZERO);
        board.freight.arrived(0, arrival(3), Duration::ZERO);
        board.crashes.ends(End::Killed, board.now());
        for (width, height) in [(140, 45), (80, 24)] {
            let text = drawn(&board, width, height);
            assert!(text.contains(" 1 lost, 1 twice ") && text.contains("the broker is down"), "{text}");
        }
    }
}
