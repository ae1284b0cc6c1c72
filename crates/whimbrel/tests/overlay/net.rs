//! Brokers in network namespaces of Linux, joined by virtual Ethernet: the kernel's own sockets,
//! queues and rates instead of the relay. It makes namespaces, so it runs only when asked for
//! (`make test-net`), and only as root.
//!
//! A token bucket gives a link its rate. It is cut, both ways or one way, by a rule of nftables
//! that drops what has come in: the sender is told nothing. Without nftables it is cut by a bucket
//! into which no packet fits.
//!
//! With `--dev` a broker listens on one address, which it keeps. Where addresses change it is
//! therefore known by those of its links, translated by nftables, and dialled by its name, which
//! leads to the new ones.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use tokio::sync::{Mutex, MutexGuard};

use crate::broker::{Broker, until};
use crate::judge::demand;
use crate::world::World;

/// The variable that asks for it.
const ASKED: &str = "WHIMBREL_TEST_NET";

/// Events that everybody together sends in about a second.
const SECOND: u64 = 370;

/// And in about three: longer than a link may be silent.
const THREE_SECONDS: u64 = 3 * SECOND;

/// How many brokers there are; each is joined to each other one.
const BROKERS: usize = 3;

/// Token buckets of a link that works, and of one that is cut without nftables.
const WORKS: [&str; 6] = ["rate", "20mbit", "burst", "64kb", "latency", "50ms"];
const CUT: [&str; 6] = ["rate", "8bit", "burst", "1b", "limit", "1b"];

/// Where `ip netns exec` finds the files that a namespace has in place of those of `/etc`.
const FILES: &str = "/etc/netns";

/// The devices at this end have fixed names, so there are namespaces for one test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// The device at this end by which clients reach a broker. Other runs may have theirs.
fn device_here(number: usize) -> String {
    format!("whim{}-{number}", std::process::id())
}

/// The addresses of both ends of that, 1 and 2.
fn for_clients(number: usize, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 211, (std::process::id() % 256) as u8, 4 * number as u8 + end)
}

/// The address that a broker has on no link, and keeps.
fn lasting(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 213, number as u8, 1)
}

/// Whether tests that make namespaces are asked for; if not, it says so.
pub fn is_asked_for() -> bool {
    let is_asked_for = std::env::var_os(ASKED).is_some();
    if !is_asked_for {
        println!("skipped: `make test-net` asks for it");
    }
    is_asked_for
}

/// Runs a command; what it prints, or what it says if it fails.
pub fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    let said = || format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(String::from_utf8_lossy(&output.stdout).into_owned()) } else { Err(said()) }
}

/// Runs commands until one fails.
pub fn run_all(commands: &[&[&str]]) -> Result<(), String> {
    commands.iter().try_for_each(|words| run(words).map(drop))
}

/// Namespaces, each joined to this one by which clients reach it, and to each of the others. They
/// end with this value.
struct Namespaces {
    names: Vec<String>,
    /// The last part of the address that the first has on its link to the second.
    ends: BTreeMap<(usize, usize), u8>,
    /// Whether links are cut by nftables.
    has_nft: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // What of them was never made is no matter. The system ends their devices some time later,
        // but those at this end have to make room at once.
        for (number, name) in self.names.iter().enumerate() {
            let _ = run(&["ip", "link", "del", &device_here(number)]);
            let _ = run(&["ip", "netns", "del", name]);
            let _ = std::fs::remove_dir_all(PathBuf::from(FILES).join(name));
        }
    }
}

impl Namespaces {
    fn make(turn: MutexGuard<'static, ()>) -> Result<Namespaces, String> {
        let mut made = Namespaces { names: Vec::new(), ends: BTreeMap::new(), has_nft: false, _turn: turn };
        for number in 0..BROKERS {
            let (name, here) = (format!("whimbrel-{}-{number}", std::process::id()), device_here(number));
            run(&["ip", "netns", "add", &name])?;
            made.names.push(name.clone());
            let (name, own) = (name.as_str(), format!("{}/32", lasting(number)));
            let [here_ip, there_ip] = [1, 2].map(|end| format!("{}/30", for_clients(number, end)));
            run_all(&[
                &["ip", "link", "add", &here, "type", "veth", "peer", "name", "clients", "netns", name],
                &["ip", "addr", "add", &here_ip, "dev", &here],
                &["ip", "link", "set", &here, "up"],
                &["ip", "-n", name, "addr", "add", &there_ip, "dev", "clients"],
                &["ip", "-n", name, "link", "set", "clients", "up"],
                &["ip", "-n", name, "addr", "add", &own, "dev", "lo"],
                &["ip", "-n", name, "link", "set", "lo", "up"],
            ])?;
        }
        for to in 0..BROKERS {
            (0..to).try_for_each(|from| made.join(from, to))?;
        }
        let probe = made.nft(0, "add table inet probe");
        made.has_nft = probe.is_ok();
        println!("links are cut by {}", probe.map_or_else(|why| format!("tc ({why})"), |_| "nft".into()));
        Ok(made)
    }

    /// Joins two of them, and leads each to the other's lasting address this way.
    fn join(&mut self, from: usize, to: usize) -> Result<(), String> {
        let (device, other) = (format!("to{to}"), format!("to{from}"));
        let (a, b) = (self.names[from].as_str(), self.names[to].as_str());
        run(&["ip", "link", "add", &device, "netns", a, "type", "veth", "peer", "name", &other, "netns", b])?;
        for (whose, there, end) in [(from, to, 1), (to, from, 2)] {
            self.ends.insert((whose, there), end);
            let (name, device) = (self.names[whose].as_str(), format!("to{there}"));
            let address = format!("{}/24", self.address(whose, there));
            run_all(&[
                &["ip", "-n", name, "addr", "add", &address, "dev", &device],
                &["ip", "-n", name, "link", "set", &device, "up"],
            ])?;
            self.shape(whose, there, &WORKS)?;
        }
        for (whose, there) in [(from, to), (to, from)] {
            let (own, via) = (format!("{}/32", lasting(there)), self.address(there, whose).to_string());
            run(&["ip", "-n", &self.names[whose], "route", "add", &own, "via", &via])?;
        }
        Ok(())
    }

    /// Lets each be known to the others by its addresses on their links instead of its lasting one.
    fn translate(&self) -> Result<(), String> {
        for number in 0..BROKERS {
            // Only what is sent to an address that it has now: a late packet to the old one would
            // bring that back for the answers.
            let (own, at) = (lasting(number), "type nat hook prerouting priority -100");
            let come = format!("{at}; iifname \"to*\" fib daddr type local dnat to {own};");
            let go = "type nat hook postrouting priority 100; oifname \"to*\" masquerade;";
            self.nft(number, &format!("table ip translate {{ chain come {{ {come} }}; chain go {{ {go} }}; }}"))?;
            self.name_others(number)?;
        }
        Ok(())
    }

    /// The address that one has on its link to another.
    fn address(&self, whose: usize, there: usize) -> Ipv4Addr {
        let net = 8 * whose.min(there) + whose.max(there);
        Ipv4Addr::new(10, 212, net as u8, self.ends[&(whose, there)])
    }

    /// Tells one which addresses the names of the others lead to.
    fn name_others(&self, number: usize) -> Result<(), String> {
        let others = (0..BROKERS).filter(|other| *other != number);
        let lines: String = others.map(|other| format!("{} b{other}\n", self.address(other, number))).collect();
        let files = PathBuf::from(FILES).join(&self.names[number]);
        // Written in its place: a broker that runs has this very file.
        let written = std::fs::create_dir_all(&files).and_then(|()| std::fs::write(files.join("hosts"), lines));
        written.map_err(|error| format!("{}: {error}", files.display()))
    }

    /// Gives one another address on each of its links, in place of the old one, and tells the
    /// others.
    fn readdress(&mut self, whose: usize) -> Result<(), String> {
        for there in (0..BROKERS).filter(|other| *other != whose) {
            let (name, device) = (self.names[whose].clone(), format!("to{there}"));
            let old = format!("{}/24", self.address(whose, there));
            *self.ends.get_mut(&(whose, there)).expect("they are joined") += 10;
            let new = format!("{}/24", self.address(whose, there));
            run_all(&[
                &["ip", "-n", &name, "addr", "del", &old, "dev", &device],
                &["ip", "-n", &name, "addr", "add", &new, "dev", &device],
            ])?;
            // What the other one had learnt of the old address does not help it on.
            run(&["ip", "-n", &self.names[there], "neigh", "flush", "dev", &format!("to{whose}")])?;
            self.name_others(there)?;
            let from = format!("ip saddr {} counter;", self.address(whose, there));
            let rule = format!("type filter hook input priority 0; {from}");
            self.nft(there, &format!("table inet moved{whose} {{ chain input {{ {rule} }}; }}"))?;
        }
        Ok(())
    }

    /// Whether all others have heard it from its new addresses.
    fn is_heard(&self, whose: usize) -> bool {
        let mut others = (0..BROKERS).filter(|other| *other != whose);
        others.all(|there| self.counted(there, &format!("moved{whose}")) > 0)
    }

    /// Puts a token bucket before the end of a link that one sends from.
    fn shape(&self, from: usize, to: usize, bucket: &[&str]) -> Result<(), String> {
        let (name, device) = (self.names[from].as_str(), format!("to{to}"));
        let before = ["tc", "-n", name, "qdisc", "replace", "dev", &device, "root", "tbf"];
        run(&[&before, bucket].concat()).map(drop)
    }

    fn nft(&self, whose: usize, words: &str) -> Result<String, String> {
        run(&["ip", "netns", "exec", &self.names[whose], "nft", words])
    }

    /// Packets that the one rule of a table has seen.
    fn counted(&self, whose: usize, table: &str) -> u64 {
        let listed = self.nft(whose, &format!("list table inet {table}")).expect("the table is there");
        let count = listed.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        count.expect("its rule counts")
    }

    /// Nothing that `from` sends reaches `to` on their link from now on.
    fn cut_one_way(&self, from: usize, to: usize) {
        let rule = format!("type filter hook input priority 0; iifname \"to{from}\" counter drop;");
        let cut = if self.has_nft {
            self.nft(to, &format!("table inet cut{from} {{ chain input {{ {rule} }}; }}")).map(drop)
        } else {
            self.shape(from, to, &CUT)
        };
        cut.expect("they are joined");
    }

    /// It does again.
    fn heal_one_way(&self, from: usize, to: usize) {
        if !self.has_nft {
            return self.shape(from, to, &WORKS).expect("they are joined");
        }
        let dropped = self.counted(to, &format!("cut{from}"));
        assert!(dropped > 0, "the cut from b{from} to b{to} has dropped nothing");
        self.nft(to, &format!("delete table inet cut{from}")).expect("it was cut");
    }

    fn cut(&self, from: usize, to: usize) {
        self.cut_one_way(from, to);
        self.cut_one_way(to, from);
    }

    fn heal(&self, from: usize, to: usize) {
        self.heal_one_way(from, to);
        self.heal_one_way(to, from);
    }

    fn broker(&self, number: usize) -> Broker {
        let mut broker = Broker::new(number).at(for_clients(number, 2).into(), lasting(number).into());
        broker.before = ["ip", "netns", "exec", &self.names[number]].map(str::to_owned).to_vec();
        broker
    }
}

/// Namespaces, where there can be any; else it says why not.
async fn namespaces() -> Option<Namespaces> {
    if !is_asked_for() {
        return None;
    }
    let turn = TURN.lock().await;
    let probe = format!("whimbrel-{}", std::process::id());
    if let Err(error) = run_all(&[&["ip", "netns", "add", &probe], &["ip", "netns", "del", &probe]]) {
        println!("skipped: no network namespaces can be made here (it takes root and ip): {error}");
        return None;
    }
    Some(Namespaces::make(turn).unwrap_or_else(|error| panic!("{error}")))
}

/// Brokers, each of which dials those of a greater number at the addresses that `dialled` gives,
/// and clients at all of them.
async fn start(namespaces: &Namespaces, dialled: impl Fn(&Broker) -> String) -> World {
    let mut brokers: Vec<Broker> = (0..BROKERS).map(|number| namespaces.broker(number)).collect();
    for from in (0..BROKERS).rev() {
        brokers[from].peers = brokers[from + 1..].iter().map(&dialled).collect();
        tokio::task::block_in_place(|| brokers[from].start());
    }
    let mut world = World::of(brokers, Vec::new()).await;
    world.load().await;
    world.desk.events(SECOND).await;
    world
}

/// Nothing is missing and nothing came twice, for each subscriber, and no gap is an excuse.
async fn demand_all(world: &mut World) {
    let verdicts = demand(&world.finish().await);
    let told: usize = verdicts.iter().map(|verdict| verdict.told).sum();
    assert_eq!(told, 0, "gaps were told of what the brokers had");
    assert!(verdicts.iter().all(|verdict| verdict.due > 100), "there was no load");
}

/// How often a broker has dialled another one anew.
fn dials(broker: &Broker) -> f64 {
    broker.metric("whimbrel_link_reconnects_total", "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_in_namespaces_of_their_own_lose_nothing_when_links_are_cut() {
    let Some(namespaces) = namespaces().await else { return };
    let mut world = start(&namespaces, |broker| broker.overlay.to_string()).await;
    // Traffic goes round.
    namespaces.cut(0, 2);
    world.converge("without one link").await;
    // And now nowhere.
    namespaces.cut(0, 1);
    world.desk.events(THREE_SECONDS).await;
    namespaces.heal(0, 1);
    world.converge("with one link again").await;
    namespaces.heal(0, 2);
    world.desk.events(SECOND).await;
    demand_all(&mut world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_lose_nothing_when_links_are_cut_one_way() {
    let Some(namespaces) = namespaces().await else { return };
    let mut world = start(&namespaces, |broker| broker.overlay.to_string()).await;
    // A link that leads one way only is none: traffic goes round.
    namespaces.cut_one_way(0, 2);
    world.desk.events(THREE_SECONDS).await;
    world.converge("with a link that is cut from b0 to b2").await;
    // All brokers hear b0, and it hears none of them.
    namespaces.cut_one_way(2, 0);
    namespaces.heal_one_way(0, 2);
    namespaces.cut_one_way(1, 0);
    world.desk.events(THREE_SECONDS).await;
    namespaces.heal_one_way(1, 0);
    namespaces.heal_one_way(2, 0);
    world.converge("with all links again").await;
    demand_all(&mut world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_get_other_addresses_lose_nothing() {
    let Some(mut namespaces) = namespaces().await else { return };
    if !namespaces.has_nft {
        return println!("skipped: nft (nftables) is needed to translate addresses");
    }
    namespaces.translate().expect("nft works");
    let by_name = |broker: &Broker| format!("{}:{}", broker.name, broker.overlay.port());
    let mut world = start(&namespaces, by_name).await;
    // A broker that has dialled sends from another address: QUIC takes the links along, and none
    // is made anew.
    namespaces.readdress(0).expect("it has links");
    world.desk.events(THREE_SECONDS).await;
    world.converge("with b0 at other addresses").await;
    assert!(namespaces.is_heard(0), "nothing came from the new addresses of b0");
    assert_eq!(dials(&world.brokers[0]), 0.0, "links were made anew");
    assert_eq!(world.brokers[0].metric("whimbrel_links", ""), 2.0, "links were lost");
    // Who was dialled is gone from where the others know it: they look its name up and dial it
    // anew.
    namespaces.readdress(2).expect("it has links");
    for broker in &world.brokers[..2] {
        until("the new link to b2", broker, |broker| dials(broker) > 0.0).await;
    }
    world.converge("with b2 at other addresses").await;
    assert!(namespaces.is_heard(2), "nothing came from the new addresses of b2");
    world.desk.events(SECOND).await;
    demand_all(&mut world).await;
}
