//! The region where a client connects, and its moves between regions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Class, Sites};
use crate::fleet::board::Board;

/// The divisor of the time at home that gives the time abroad.
const ABROAD: u32 = 3;
/// One journey of this many from abroad leads to a third region; the others lead home.
const ONWARD: usize = 4;

/// The brokers of all regions, and the parameters of moves between them.
#[derive(Clone, Debug)]
pub struct Atlas {
    /// Names of the regions, and of their brokers.
    names: Vec<String>,
    /// The addresses by region, `HOST:PORT`.
    addresses: Vec<String>,
    /// The mean time that a client stays at home; `None`: for ever.
    stays: Option<Duration>,
    seed: u64,
}

impl Atlas {
    /// Brokers of these names at these addresses, one for each region. With several, clients leave
    /// home after `stays` on average.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(names: Vec<String>, addresses: Vec<String>, stays: Option<Duration>, seed: u64) -> Atlas {
        assert!(!addresses.is_empty(), "clients need a broker");
        let stays = stays.filter(|_| addresses.len() > 1);
        Atlas { names, addresses, stays, seed }
    }

    /// The regions' names, and the addresses of their brokers.
    pub fn brokers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names.iter().map(String::as_str).zip(self.addresses.iter().map(String::as_str))
    }

    /// The regions that these properties of a broker's answer name; `*` stands for all.
    pub fn named<'a>(&self, properties: impl Iterator<Item = &'a (String, String)>) -> Sites {
        let site = |name: &str| match self.names.iter().position(|known| known == name) {
            Some(region) => Sites::one(region),
            None => Sites::ALL,
        };
        properties.map(|(_, name)| site(name)).fold(Sites::NONE, Sites::and)
    }
}

/// A client that moves between regions. It starts at home.
pub struct Travel {
    board: Arc<Board>,
    atlas: Arc<Atlas>,
    class: Class,
    home: usize,
    at: usize,
    random: fastrand::Rng,
    /// Once it is set, clients stay.
    calm: watch::Receiver<bool>,
    /// When it next leaves.
    leaves: Option<Instant>,
    /// Since when it wants a connection and has none.
    waits: Option<Instant>,
    /// The region of its last connection.
    last: Option<usize>,
    /// Whether it has a connection.
    is_there: bool,
}

impl Travel {
    /// A client by its number in its class; homes are assigned in turn.
    pub fn new(
        board: Arc<Board>,
        atlas: Arc<Atlas>,
        (class, number): (Class, usize),
        calm: watch::Receiver<bool>,
    ) -> Travel {
        let home = number % atlas.addresses.len();
        let seed = atlas.seed.wrapping_mul(1_000_003).wrapping_add((class.index() as u64) << 32 | number as u64);
        Travel {
            board,
            atlas,
            class,
            home,
            at: home,
            random: fastrand::Rng::with_seed(seed),
            calm,
            leaves: None,
            waits: None,
            last: None,
            is_there: false,
        }
    }

    /// The region where it is, or tries to connect.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The address of that region's broker.
    pub fn address(&self) -> &str {
        &self.atlas.addresses[self.at]
    }

    /// The number of regions.
    pub fn regions(&self) -> usize {
        self.atlas.addresses.len()
    }

    /// Whether there are several regions, so that publishers must number their events.
    pub fn has_several(&self) -> bool {
        self.regions() > 1
    }

    /// Whether it wants a connection and has none.
    pub fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// The client has a connection, and its subscription is in force.
    pub fn settles(&mut self) {
        let now = Instant::now();
        let part = if self.at == self.home { 1 } else { ABROAD };
        let stay = self.atlas.stays.map(|mean| mean.mul_f64(0.5 + self.random.f64()) / part);
        self.leaves = stay.and_then(|stay| now.checked_add(stay));
        let paused = self.waits.take().map(|since| now - since);
        let moved = self.last.replace(self.at).is_some_and(|last| last != self.at);
        self.is_there = true;
        self.board.regions.arrives((self.class, self.at), moved, paused);
    }

    /// The client has lost its connection, and wants another.
    pub fn is_lost(&mut self) {
        self.is_away();
        self.returns();
        self.fails();
    }

    /// The client has no connection any more, and wants none.
    pub fn is_away(&mut self) {
        if std::mem::take(&mut self.is_there) {
            self.board.regions.leaves(self.class, self.at);
        }
        self.leaves = None;
    }

    /// The client wants a connection from now on.
    pub fn returns(&mut self) {
        self.waits.get_or_insert_with(Instant::now);
    }

    /// The broker cannot be reached: it tries the next region.
    pub fn fails(&mut self) {
        self.at = (self.at + 1) % self.atlas.addresses.len();
    }

    /// The client leaves for another region.
    pub fn goes(&mut self) {
        self.is_away();
        self.returns();
        let others = self.atlas.addresses.len() - 1;
        if others == 0 {
            return;
        }
        self.at = match self.at == self.home || self.random.usize(..ONWARD) == 0 {
            true => (self.at + self.random.usize(1..=others)) % self.atlas.addresses.len(),
            false => self.home,
        };
    }

    /// The client returns, in one of `one_of` cases to another region.
    pub fn may_go(&mut self, one_of: usize) {
        match self.atlas.stays.is_some() && !*self.calm.borrow() && self.random.usize(..one_of) == 0 {
            true => self.goes(),
            false => self.returns(),
        }
    }

    /// A random choice, such as whether it disconnects or aborts the connection.
    pub fn tosses(&mut self) -> bool {
        self.random.bool()
    }

    /// Whether it should have left by now.
    pub fn is_due(&self) -> bool {
        !*self.calm.borrow() && self.leaves.is_some_and(|leaves| leaves <= Instant::now())
    }

    /// Returns when it is time to leave for another region, if ever.
    pub async fn leaves(&self) {
        if let Some(leaves) = self.leaves {
            sleep_until(leaves).await;
            if !*self.calm.borrow() {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Travel {
    fn drop(&mut self) {
        self.is_away();
    }
}
