//! The log of a world's broker: its driver, its crashes, and the ledger of its promises.

use std::time::Duration;

use whimbrel_core::Profile;
use whimbrel_core::cache::Plan;
use whimbrel_core::store::{Disk, Fetched, Restoring};
use whimbrel_event::Time;
use whimbrel_journal::twin::Twin;
use whimbrel_mqtt::{Config, Input, MqttBroker};

use super::{Event, World};
use crate::check::Seen;
use crate::disk::{Driver, Found, News, Pace};
use crate::engine::LogDisk;
use crate::ledger::Ledger;
use crate::plain_ways;
use crate::random::Random;

/// How long after the end of the last session its events are given up.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// The log of a broker, and what a restart needs.
pub(super) struct Store {
    driver: Driver,
    pub(super) ledger: Ledger,
    config: Config,
    profiles: Vec<Profile>,
    pace: Pace,
    /// How the cache is divided.
    plan: Plan,
    random: Random,
    scheduled: Option<Time>,
}

impl World<'_> {
    /// Gives a log to the broker, which has not been called yet.
    pub fn keep_log(&mut self, config: Config, profiles: Vec<Profile>, plan: Plan, pace: Pace) {
        let mut random = self.random.fork();
        let (driver, found) = Driver::open(LogDisk::plain(Twin::new()), pace, random.fork());
        self.restore(&config, random.next(), (&found, &profiles));
        let ledger = Ledger::new(profiles.clone(), config.core.max_retain, self.now);
        self.store = Some(Box::new(Store { driver, ledger, config, profiles, pace, plan, random, scheduled: None }));
        self.begin_log();
    }

    /// Restores the broker from what was written.
    fn restore(&mut self, config: &Config, seed: u64, (found, profiles): (&Found, &[Profile])) {
        let mut restoring = Restoring::default();
        restoring.set_profiles(profiles.to_vec());
        #[cfg(feature = "mutants")]
        if let Some(mutant) = self.mutant {
            restoring.build_in(mutant);
        }
        for (key, value) in &found.entries {
            restoring.entry(key, value).expect("what a broker writes, another reads");
        }
        let broker = MqttBroker::restored(config.clone(), seed, self.broker_now(), restoring, &found.state);
        self.broker = plain_ways::set_up(broker.expect("what was written makes sense"));
    }

    /// Builds a fault into this broker and its successors.
    #[cfg(feature = "mutants")]
    pub fn build_in(&mut self, mutant: whimbrel_core::Mutant) {
        self.broker.build_in(mutant);
        self.mutant = Some(mutant);
    }

    /// The ledger of a world with a log.
    ///
    /// # Panics
    /// When there is no log.
    pub fn ledger(&self) -> &Ledger {
        &self.store.as_ref().expect("a world with a log").ledger
    }

    /// The ledger checks the order of deliveries from now on, too.
    pub fn look_at_order(&mut self) {
        self.store.as_mut().expect("a world with a log").ledger.look_at_order();
    }

    /// Tells a new broker which topics are logged and how its cache is divided, and starts it.
    fn begin_log(&mut self) {
        let store = self.store.as_ref().expect("a world with a log");
        self.broker.set_profiles(store.profiles.clone());
        let plan = store.plan.clone();
        self.call(Input::Cache(&plan), Seen::Nothing);
    }

    /// The broker's machine stops and starts again: every connection breaks, and data that was not
    /// synced may be lost.
    pub fn crash(&mut self) {
        for (conn, line) in std::mem::take(&mut self.names) {
            self.lines[line].conn = None;
            self.lines[line].notify = false;
            self.lines[line].up.die();
            self.lines[line].down.reset(self.now);
            self.free.insert(conn.0);
            self.schedule_line(line);
        }
        let Store { driver, mut ledger, config, profiles, pace, plan, mut random, .. } =
            *self.store.take().expect("a world with a log");
        let twin = driver.crash();
        let (mut driver, found) = Driver::open(LogDisk::plain(twin), pace, random.fork());
        ledger.crashed(self.now, driver.logged(), &found.state);
        if self.is_deserted {
            ledger.ended(&found.entries, &found.state);
        }
        self.trace.note_crash(self.broker_now());
        self.clock.restart(self.now);
        self.restore(&config, random.next(), (&found, &profiles));
        self.store = Some(Box::new(Store { driver, ledger, config, profiles, pace, plan, random, scheduled: None }));
        self.begin_log();
    }

    /// Everything owed must have been delivered by now. Then all clients go, all sessions end, and
    /// the log must hold nothing of them.
    pub(super) fn finish_log(&mut self) {
        let now = self.now;
        self.store.as_mut().expect("a world with a log").ledger.finish(now);
        if !self.goes_on() {
            return;
        }
        self.is_deserted = true;
        for (conn, line) in self.names.clone() {
            self.lines[line].client = None;
            self.let_go(conn);
            self.call(Input::Closed { conn }, Seen::Gone(conn));
        }
        let longest = self.store.as_ref().expect("a world with a log").config.core.session_expiry_max;
        self.run_until(self.now + longest + AFTERWARDS);
        if self.goes_on() {
            self.crash();
        }
    }

    /// Sets whether the next sync of the broker's log fails.
    pub fn fail_sync(&mut self, fails: bool) {
        self.store.as_mut().expect("a world with a log").driver.fail(fails);
    }

    /// Sets whether the disk of the broker's log is full.
    pub fn fill_disk(&mut self, full: bool) {
        self.store.as_mut().expect("a world with a log").driver.fill(full);
    }

    /// The state of the disk: which writes the broker's log takes.
    pub fn disk(&self) -> Disk {
        self.store.as_ref().map_or(Disk::None, |store| store.driver.disk())
    }

    /// Whether the broker is given no bytes of clients at present.
    pub(super) fn holds_back(&self) -> bool {
        self.store.is_some() && self.broker.is_congested()
    }

    /// The end of a turn: the driver takes what the broker wants written.
    pub(super) fn submit(&mut self) {
        if self.store.is_some() {
            self.broker.flush(self.broker_now());
        }
        while let Some(store) = &mut self.store {
            let Some(news) = store.driver.submit(self.now, &mut self.broker) else { break };
            self.tell(news);
        }
        let Some(store) = &mut self.store else { return };
        let next = store.driver.next_change();
        if let Some(at) = next.filter(|at| store.scheduled.is_none_or(|known| *at < known)) {
            store.scheduled = Some(at);
            self.schedule(at, Event::Disk);
        }
    }

    /// The disk has made progress.
    pub(super) fn disk_changed(&mut self) {
        let Some(store) = &mut self.store else { return };
        store.scheduled = None;
        let held = self.broker.is_congested();
        let news = store.driver.change(self.now);
        let logged = store.driver.logged();
        store.ledger.logged(self.now, logged);
        for news in news {
            self.tell(news);
        }
        self.submit();
        if held && !self.holds_back() {
            let lines: Vec<usize> = self.names.values().copied().collect();
            lines.into_iter().for_each(|line| self.schedule_line(line));
        }
    }

    fn tell(&mut self, news: News) {
        match news {
            News::Committed(upto) => self.call_once(Input::Committed { upto }, Seen::Nothing),
            News::Disk(disk) => {
                let store = self.store.as_mut().expect("it has news");
                store.ledger.told(self.now, disk);
                self.call_once(Input::Disk(disk), Seen::Nothing);
            }
            News::Fetched(slice) => {
                let records: Vec<_> = slice.records.iter().map(|(tick, body)| (*tick, body.as_slice())).collect();
                let fetched = Fetched { number: slice.number, records: &records, upto: slice.upto, lost: None };
                self.call_once(Input::Fetched(fetched), Seen::Nothing);
            }
        }
    }
}
