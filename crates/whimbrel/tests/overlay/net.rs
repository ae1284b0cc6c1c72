//! Brokers in network namespaces of Linux, joined by virtual Ethernet: the kernel's own sockets, queues and rates instead of the relay. It makes namespaces, so it
//! runs only when asked for (`make test-net`), and only as root.
//!
//! A link is cut by a token bucket into which no packet fits, which drops all of them without an error, and its rate is that of another one.

#![cfg(target_os = "linux")]

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use crate::broker::Broker;
use crate::judge::demand;
use crate::world::World;

/// The variable that asks for it.
const ASKED: &str = "WHIMBREL_TEST_NET";

/// Events that everybody together sends in about three seconds: longer than a link may be silent.
const THREE_SECONDS: u64 = 1_100;

/// Token buckets of a link that works, and of one that is cut.
const WORKS: [&str; 6] = ["rate", "20mbit", "burst", "64kb", "latency", "50ms"];
const CUT: [&str; 6] = ["rate", "8bit", "burst", "1b", "limit", "1b"];

/// Runs a command; what it says if it fails.
fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    let said = || format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(said()) }
}

/// Namespaces, each joined to this one by which clients reach it, and to each of the others. They end with this value.
struct Namespaces(Vec<String>);

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Their devices, and the other ends of these, end with them.
        self.0.iter().for_each(|name| _ = run(&["ip", "netns", "del", name]));
    }
}

impl Namespaces {
    fn make(count: usize) -> Result<Namespaces, String> {
        let mut made = Namespaces(Vec::new());
        for number in 0..count {
            let (name, here) = (format!("whimbrel-{}-{number}", std::process::id()), format!("whim{number}"));
            run(&["ip", "netns", "add", &name])?;
            made.0.push(name.clone());
            let name = name.as_str();
            run(&["ip", "link", "add", &here, "type", "veth", "peer", "name", "clients", "netns", name])?;
            run(&["ip", "addr", "add", &format!("10.211.{number}.1/30"), "dev", &here])?;
            run(&["ip", "link", "set", &here, "up"])?;
            run(&["ip", "-n", name, "addr", "add", &format!("10.211.{number}.2/30"), "dev", "clients"])?;
            run(&["ip", "-n", name, "addr", "add", &format!("10.213.{number}.1/32"), "dev", "lo"])?;
            ["clients", "lo"].iter().try_for_each(|device| run(&["ip", "-n", name, "link", "set", device, "up"]))?;
        }
        for to in 0..count {
            (0..to).try_for_each(|from| made.join(from, to))?;
        }
        Ok(made)
    }

    /// Joins two of them, and leads each to the other's address this way.
    fn join(&self, from: usize, to: usize) -> Result<(), String> {
        let (device, other) = (format!("to{to}"), format!("to{from}"));
        let (a, b) = (self.0[from].as_str(), self.0[to].as_str());
        run(&["ip", "link", "add", &device, "netns", a, "type", "veth", "peer", "name", &other, "netns", b])?;
        for (name, device, end, there, whose) in [(a, &device, 1, 2, to), (b, &other, 2, 1, from)] {
            let net = format!("10.212.{}", 8 * from + to);
            run(&["ip", "-n", name, "addr", "add", &format!("{net}.{end}/30"), "dev", device])?;
            run(&["ip", "-n", name, "link", "set", device, "up"])?;
            let (address, via) = (format!("10.213.{whose}.1/32"), format!("{net}.{there}"));
            run(&["ip", "-n", name, "route", "add", &address, "via", &via])?;
        }
        self.shape(from, to, &WORKS)
    }

    /// Puts a token bucket before both ends of a link.
    fn shape(&self, from: usize, to: usize, bucket: &[&str]) -> Result<(), String> {
        for (name, device) in [(&self.0[from], format!("to{to}")), (&self.0[to], format!("to{from}"))] {
            let before = ["tc", "-n", name, "qdisc", "replace", "dev", &device, "root", "tbf"];
            run(&[&before, bucket].concat())?;
        }
        Ok(())
    }

    fn brokers(&self) -> Vec<Broker> {
        let broker = |number: usize| {
            let address = |net: u8, end: u8| IpAddr::V4(Ipv4Addr::new(10, net, number as u8, end));
            let mut broker = Broker::new(number).at(address(211, 2), address(213, 1));
            broker.before = ["ip", "netns", "exec", &self.0[number]].map(str::to_owned).to_vec();
            broker
        };
        (0..self.0.len()).map(broker).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_in_namespaces_of_their_own_lose_nothing_when_links_are_cut() {
    if std::env::var_os(ASKED).is_none() {
        return println!("skipped: `make test-net` asks for it");
    }
    let namespaces = match Namespaces::make(3) {
        Ok(namespaces) => namespaces,
        Err(error) => {
            return println!("skipped: no network namespaces can be made here (it takes root, ip and tc): {error}");
        }
    };
    let mut brokers = namespaces.brokers();
    for from in (0..3).rev() {
        let peers = brokers[from + 1..].iter().map(|broker| broker.overlay.to_string()).collect();
        brokers[from].peers = peers;
        tokio::task::block_in_place(|| brokers[from].start());
    }
    let mut world = World::of(brokers, Vec::new()).await;
    world.load().await;
    world.desk.events(THREE_SECONDS / 3).await;
    // Traffic goes round.
    namespaces.shape(0, 2, &CUT).expect("it was shaped before");
    world.converge("without one link").await;
    // And now nowhere.
    namespaces.shape(0, 1, &CUT).expect("it was shaped before");
    world.desk.events(THREE_SECONDS).await;
    namespaces.shape(0, 1, &WORKS).expect("it was shaped before");
    world.converge("with one link again").await;
    namespaces.shape(0, 2, &WORKS).expect("it was shaped before");
    world.desk.events(THREE_SECONDS / 3).await;
    let verdicts = demand(&world.finish().await);
    let told: usize = verdicts.iter().map(|verdict| verdict.told).sum();
    assert_eq!(told, 0, "gaps were told of what the brokers had");
    assert!(verdicts.iter().all(|verdict| verdict.due > 100), "there was no load");
}
