//! The brokers that the run starts itself, one for each region, and the links between them. Now and
//! then the run kills one of them, as a power cut would, and starts it again; or a link is cut,
//! slow or lossy for some seconds.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::{NamedTempFile, TempDir};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use whimbrel_sim::wan::{Loss, WanProfile};

use super::alarms;
use super::board::Board;
use super::crashes::End;
use super::own_broker::{OwnBroker, Start};
use super::record::Recorder;
use super::regions::{Layout, LinkTrouble, Sites};
use crate::engine_servers::{self, EngineServers, EngineServersOptions};
use crate::relay::Relay;

/// How long a broker stays down after it was killed.
const DOWN: Duration = Duration::from_millis(500);
/// How long a link is cut, ms: some cuts end before brokers notice them (2 s), some do not.
const CUT: std::ops::Range<u64> = 1_000..6_000;
/// How long a link is slow or lossy, ms: long enough to see more than the change.
const BAD: std::ops::Range<u64> = 3_000..8_000;
/// What a lossy link loses in each direction, parts per million.
const LOSSY: u64 = 300_000;
/// The last of this many disturbances is a link's, where there are links; the others are kills.
const OF_LINKS: usize = 2;
/// Events that were sent this long after a link has gone bad have met it.
const MEETS: Duration = Duration::from_millis(500);
/// The time between two checks whether all clients are served again.
const LOOK: Duration = Duration::from_millis(10);
/// The time between two checks whether all links are up: each asks a broker for all its metrics.
const LOOK_AT_LINKS: Duration = Duration::from_millis(50);
/// The time between two checks whether a broker has ended by itself.
const LOOK_AT_BROKERS: Duration = Duration::from_millis(100);
/// After this time the next disturbance follows although not all clients were served.
const SERVED_LIMIT: Duration = Duration::from_secs(60);
/// How long links may take to come up.
const LINKED_LIMIT: Duration = Duration::from_secs(30);

/// A link between two regions; the first one dials.
struct Link {
    ends: (usize, usize),
    relay: Relay,
    usual: WanProfile,
    /// The delay while it is slow: nothing that takes it arrives within the deadline of alarms.
    slow: Duration,
}

impl Link {
    /// The link goes bad.
    fn spoil(&self, trouble: LinkTrouble) {
        let profile = match trouble {
            LinkTrouble::Cut => return self.relay.cut(),
            LinkTrouble::Slow => self.usual.with_delay(self.slow),
            LinkTrouble::Lossy => WanProfile { loss: Loss::independent(LOSSY), ..self.usual },
        };
        self.relay.set_profile(profile, profile);
    }

    /// The link is as it was.
    fn mend(&self, trouble: LinkTrouble) {
        match trouble {
            LinkTrouble::Cut => self.relay.heal(),
            LinkTrouble::Slow | LinkTrouble::Lossy => self.relay.set_profile(self.usual, self.usual),
        }
    }
}

/// The thread of the relays: apart, so that a datagram takes its delay however busy the fleet is.
struct Roads(Option<Runtime>);

impl Roads {
    fn open() -> Result<Roads> {
        let roads = Builder::new_multi_thread().worker_threads(1).thread_name("roads").enable_all().build();
        Ok(Roads(Some(roads.context("cannot start a thread for the links between regions")?)))
    }

    /// A path to a broker with this profile in both directions.
    async fn lead(&self, broker: &OwnBroker, profile: WanProfile, seed: u64) -> Result<Relay> {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let roads = self.0.as_ref().context("the links between regions have ended")?;
        let relay = roads.spawn(Relay::start(any, broker.overlay()?, profile, profile, seed)).await;
        relay
            .context("a link between two regions has ended")?
            .context("cannot open a UDP port of this machine for a link")
    }
}

impl Drop for Roads {
    fn drop(&mut self) {
        // Datagrams in flight are dropped.
        if let Some(roads) = self.0.take() {
            roads.shutdown_background();
        }
    }
}

/// The disturbances of brokers.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The mean time from when all clients are served again to the next disturbance; `None`: none.
    pub every: Option<Duration>,
    /// Whether brokers end in good order one after the other, instead of being killed.
    pub rolls: bool,
    /// Whether the first of several is not killed: a user looks at its console.
    pub spares_first: bool,
}

/// What own brokers are started with.
#[derive(Clone, Copy, Debug)]
pub struct Equipment<'a> {
    /// The directory of their data; `None`: a fresh one that is removed at the end.
    pub data: Option<&'a Path>,
    /// The older program that they are started as; `None`: this one.
    pub older: Option<&'a Path>,
    /// Whether they keep their logs on an engine, and lose their data when they are killed.
    pub has_engine: bool,
}

/// All brokers of a run.
pub struct OwnBrokers {
    brokers: Vec<OwnBroker>,
    links: Vec<Link>,
    _roads: Roads,
    _configuration: NamedTempFile,
    /// Removed at the end: the brokers' data, unless a directory was given.
    _fresh: Option<TempDir>,
    /// Ends after the brokers.
    _engine: Option<EngineServers>,
}

impl OwnBrokers {
    /// Starts a broker with this configuration in each region, on free ports, and waits until all
    /// are linked.
    ///
    /// # Errors
    /// When one does not start, or they are not linked in time; or there is to be an engine and it
    /// does not start.
    pub async fn start(
        text: &str,
        Equipment { data, older, has_engine }: Equipment<'_>,
        layout: &Layout,
        seed: u64,
        recorder: &Option<Arc<Recorder>>,
    ) -> Result<OwnBrokers> {
        let mut configuration =
            NamedTempFile::with_suffix(".toml").context("cannot make the broker's configuration")?;
        configuration.write_all(text.as_bytes()).context("cannot write the broker's configuration")?;
        let fresh = match data {
            Some(_) => None,
            None => Some(TempDir::with_prefix("whimbrel-demo-").context("cannot make the broker's data directory")?),
        };
        let of_fresh = || fresh.as_ref().map(|fresh| fresh.path().to_owned()).unwrap_or_default();
        let data: PathBuf = data.map_or_else(of_fresh, Path::to_owned);
        let roads = Roads::open()?;
        let engine = has_engine.then(start_engine).transpose()?;
        let (mut brokers, mut links): (Vec<OwnBroker>, Vec<Link>) = (Vec::new(), Vec::new());
        for region in 0..layout.count() {
            // Each dials those that run already, over the relay that stands for the path.
            let mut peers = Vec::new();
            for (to, broker) in brokers.iter().enumerate() {
                let one_way = layout.one_way(region, to);
                // With some jitter and a little loss.
                let usual = WanProfile::SITES.with_delay(one_way);
                let relay = roads.lead(broker, usual, seed.wrapping_add(links.len() as u64)).await?;
                peers.push(relay.addr());
                let slow = one_way + alarms::deadline(layout).unwrap_or_default();
                links.push(Link { ends: (to, region), relay, usual, slow });
            }
            let is_alone = layout.count() == 1;
            let name = &layout.names[region];
            let start = Start {
                name: (!is_alone || has_engine).then(|| name.clone()),
                configuration: configuration.path().to_owned(),
                place: layout.place(region),
                data: if is_alone { data.clone() } else { data.join(name) },
                peers,
                is_first: region == 0,
                older: older.map(Path::to_owned),
                engine: engine.as_ref().map(EngineServers::arguments),
                recorder: recorder.clone(),
            };
            brokers.push(OwnBroker::start(start).await.with_context(|| format!("the broker of {name}"))?);
        }
        let mut started =
            OwnBrokers { brokers, links, _roads: roads, _configuration: configuration, _fresh: fresh, _engine: engine };
        if !started.await_links().await? {
            bail!("the brokers were not linked within {LINKED_LIMIT:?}; is another program using their UDP ports?");
        }
        Ok(started)
    }

    /// The addresses for MQTT clients, by region.
    pub fn addresses(&self) -> Vec<String> {
        self.brokers.iter().map(|broker| broker.address().to_owned()).collect()
    }

    /// The URL of the first broker's console.
    pub fn console(&self) -> String {
        self.brokers[0].console()
    }

    /// Gaps of durable subscriptions that the brokers have counted since their last start; `None`
    /// if no broker answers.
    pub async fn durable_gaps(&self) -> Option<u64> {
        let mut sum = None;
        for broker in &self.brokers {
            if let Some(gaps) = broker.durable_gaps().await {
                *sum.get_or_insert(0) += gaps;
            }
        }
        sum
    }

    /// Disturbs the brokers, `every` after all were served again on average: kills one and starts
    /// it again, or lets a link go bad for some seconds; or, if `rolls`, ends one after the other
    /// and starts it again. Returns once the run is `calm` and all brokers and links are up.
    ///
    /// # Errors
    /// When a broker ended by itself, or did not start again.
    pub async fn live(
        &mut self,
        board: &Board,
        Ends { every, rolls, spares_first }: Ends,
        seed: u64,
        mut calm: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disturbances = 0usize;
        loop {
            let pause = every.map(|every| every.mul_f64(0.5 + random.f64()));
            let next = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                error = self.ended() => return Err(error),
                () = next => {}
                _ = calm.wait_for(|calm| *calm) => return Ok(()),
            }
            disturbances += 1;
            if rolls {
                self.end_and_start(board, (disturbances - 1) % self.brokers.len(), End::Asked).await?;
                self.await_served(board, board.now(), &mut calm).await?;
            } else if !self.links.is_empty() && disturbances.is_multiple_of(OF_LINKS) {
                let link = random.usize(..self.links.len());
                let trouble = LinkTrouble::ALL[random.usize(..LinkTrouble::ALL.len())];
                let span = random.u64(if trouble == LinkTrouble::Cut { CUT } else { BAD });
                self.spoil_and_mend(board, (link, trouble), Duration::from_millis(span)).await?;
            } else {
                let first = usize::from(spares_first && self.brokers.len() > 1);
                self.end_and_start(board, random.usize(first..self.brokers.len()), End::Killed).await?;
                self.await_served(board, board.now(), &mut calm).await?;
            }
            if !self.links.is_empty() && !self.await_links().await? {
                board.trouble(format!("not all links were up again within {LINKED_LIMIT:?}"));
            }
            board.disturbances.end(board.now());
        }
    }

    async fn end_and_start(&mut self, board: &Board, region: usize, how: End) -> Result<()> {
        let now = board.now();
        board.crashes.ends(how, now);
        board.regions.ends(region, how, now);
        // For a single broker no other can continue its sessions, or overtake it.
        board.disturbances.begin(now, if self.links.is_empty() { Sites::NONE } else { Sites::one(region) });
        let broker = &mut self.brokers[region];
        let name = broker.name().to_owned();
        match how {
            End::Asked => {
                board.note(&format!("{name} is asked to end, and started again"));
                broker.restart().await?;
            }
            End::Killed => {
                let with_its_disk = if broker.has_engine() { ", its data removed" } else { "" };
                board.note(&format!("{name} is killed{with_its_disk}"));
                broker.kill().await?;
                sleep(DOWN).await;
                broker.start_again().await?;
            }
        }
        board.note(&format!("{name} is up again"));
        board.crashes.is_up(board.now());
        board.regions.is_up(region);
        Ok(())
    }

    /// Lets a link go bad; waits until events that have met that have arrived, perhaps by another
    /// way, and until the link is whole again.
    async fn spoil_and_mend(
        &mut self,
        board: &Board,
        (link, trouble): (usize, LinkTrouble),
        span: Duration,
    ) -> Result<()> {
        let (now, whole) = (board.now(), Instant::now() + span);
        let (one, other) = self.links[link].ends;
        board.regions.goes_bad(link, trouble, now);
        excuse(board, trouble, (now, Sites::one(one).and(Sites::one(other))), self.brokers.len());
        let names = format!("{} and {}", self.brokers[one].name(), self.brokers[other].name());
        board.note(&format!("the link between {names} is {}", trouble.name()));
        self.links[link].spoil(trouble);
        let (mut is_served, mut is_whole) = (false, false);
        let limit = whole + SERVED_LIMIT;
        while !(is_served && is_whole) && Instant::now() < limit {
            if !is_served && board.now() > now + MEETS && board.is_served(now + MEETS) {
                is_served = true;
                board.regions.all_served(board.now());
            }
            if !is_whole && Instant::now() >= whole {
                is_whole = true;
                board.note(&format!("the link between {names} is whole again"));
                self.links[link].mend(trouble);
                board.regions.is_mended(link);
            }
            self.look_for_one_that_ended(LOOK).await?;
        }
        Ok(())
    }

    /// Waits until all clients are back and have the events sent before the broker was up again.
    async fn await_served(&mut self, board: &Board, up: Duration, calm: &mut watch::Receiver<bool>) -> Result<()> {
        let limit = Instant::now() + SERVED_LIMIT;
        while Instant::now() < limit && !*calm.borrow() {
            if board.is_served(up) {
                let now = board.now();
                board.crashes.all_served(now);
                board.regions.all_served(now);
                return Ok(());
            }
            self.look_for_one_that_ended(LOOK).await?;
        }
        board.regions.given_up();
        Ok(())
    }

    /// Waits until each broker is linked with each other one; false if that takes too long.
    async fn await_links(&mut self) -> Result<bool> {
        let limit = Instant::now() + LINKED_LIMIT;
        let (mut at, others) = (0, self.brokers.len() - 1);
        while at < self.brokers.len() && others > 0 {
            if self.brokers[at].links().await == Some(others) {
                at += 1;
                continue;
            }
            if Instant::now() >= limit {
                return Ok(false);
            }
            self.look_for_one_that_ended(LOOK_AT_LINKS).await?;
        }
        Ok(true)
    }

    /// Waits for a time; an error if a broker has ended by itself.
    async fn look_for_one_that_ended(&mut self, pause: Duration) -> Result<()> {
        sleep(pause).await;
        match self.brokers.iter_mut().find_map(OwnBroker::has_ended) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits until a broker ends, which none should; returns the reason.
    pub async fn ended(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.look_for_one_that_ended(LOOK_AT_BROKERS).await {
                return error;
            }
        }
    }

    /// Asks all brokers to end, and waits until they have.
    ///
    /// # Errors
    /// When one does not end in time, or not in good order.
    pub async fn stop(self) -> Result<()> {
        for broker in &self.brokers {
            broker.ask_to_stop()?;
        }
        for broker in self.brokers {
            broker.stopped().await?;
        }
        Ok(())
    }
}

fn start_engine() -> Result<EngineServers> {
    EngineServers::start(&engine_servers::program()?, &EngineServersOptions::default())
}

/// Tells the judges what a link's trouble excuses from now on; `ends`: its brokers.
///
/// A slow link excuses nothing: its delay is some tenths of a second, far below the seconds for
/// which a broker waits for a predecessor and after which it takes a link for dead. A lossy link
/// breaks no promise either, but in the worst case nothing passes until the brokers take it for
/// dead. Then, as after a cut, a publisher's predecessor at one end could not be asked for at the
/// other.
fn excuse(board: &Board, trouble: LinkTrouble, (now, ends): (Duration, Sites), brokers: usize) {
    match (trouble, brokers) {
        (LinkTrouble::Slow, _) => {}
        (LinkTrouble::Cut, 2) => board.disturbances.begin_apart(now, ends),
        // With a third broker there is another way; a part of what is lost is sent again in time.
        (LinkTrouble::Cut | LinkTrouble::Lossy, _) => board.disturbances.begin_cut(now, ends),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::city;
    use crate::fleet::selection::Selection;

    #[test]
    fn a_bad_link_excuses_no_more_than_what_it_may_do() {
        let trace = Arc::new(city::synthesize(1, 2, city::ATLANTIC).expect("a city"));
        let (start, end) = (Duration::ZERO, Duration::from_secs(1));
        let ends = Sites::one(0).and(Sites::one(1));
        for (trouble, brokers, [is_going_on, is_hard_to_ask, is_out_of_reach]) in [
            (LinkTrouble::Slow, 2, [false, false, false]),
            (LinkTrouble::Slow, 3, [false, false, false]),
            (LinkTrouble::Lossy, 2, [true, true, false]),
            (LinkTrouble::Lossy, 3, [true, true, false]),
            (LinkTrouble::Cut, 3, [true, true, false]),
            (LinkTrouble::Cut, 2, [true, true, true]),
        ] {
            let board = Board::new(trace.clone(), &[], Selection::default());
            excuse(&board, trouble, (start, ends), brokers);
            let known = &board.disturbances;
            assert_eq!(known.is_going_on(), is_going_on, "{trouble:?} of {brokers}");
            assert_eq!(known.is_hard_to_ask(ends, start, end), is_hard_to_ask, "{trouble:?} of {brokers}");
            assert_eq!(known.touch(ends, start, end), is_out_of_reach, "{trouble:?} of {brokers}");
            assert!(!known.was_down(Sites::ALL, start, end), "{trouble:?} of {brokers}: all brokers run");
        }
    }
}
