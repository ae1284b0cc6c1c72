//! Ten network layers without a broker, in virtual time: they find each other, and carry events to
//! the nodes that want them, also around a link that fails.
//!
//! ```sh
//! cargo run -p whimbrel-net --example ten_nodes
//! ```

#[path = "../tests/it/fabric/mod.rs"]
mod fabric;

use core::time::Duration;

use whimbrel_event::{EventId, Time};
use whimbrel_net::Hop;

use fabric::Fabric;
use fabric::ledger::Published;
use fabric::node::{Setup, number_of};

/// The stations of whimbrels on their way from Iceland to West Africa.
const STATIONS: [&str; 10] =
    ["iceland", "faroe", "shetland", "wadden", "brittany", "galicia", "tagus", "morocco", "arguin", "bijagos"];

/// Links between stations, with their delays in milliseconds.
const LINKS: [(usize, usize, u32); 13] = [
    (0, 1, 8),
    (0, 4, 22),
    (1, 2, 4),
    (1, 4, 19),
    (2, 3, 24),
    (3, 4, 11),
    (3, 6, 25),
    (4, 5, 7),
    (5, 6, 6),
    (6, 7, 7),
    (7, 8, 25),
    (0, 8, 48),
    (8, 9, 10),
];

/// The link that fails: brittany – galicia.
const FAILS: usize = 7;

/// The columns of the counters.
const COLUMNS: [&str; 8] = ["links", "taken", "passed on", "repaired", "nacks", "again", "frames", "KiB"];

const INTERESTS: [(usize, &str); 7] = [
    (0, "weather/#"),
    (3, "count/whimbrel"),
    (5, "weather/#"),
    (6, "count/#"),
    (7, "weather/storm"),
    (8, "count/whimbrel"),
    (9, "count/+"),
];

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn main() {
    let mut fabric = Fabric::new(STATIONS.map(Setup::named));
    println!("Ten network layers without a broker. Time is virtual: nothing waits, and each");
    println!("run prints the same.");
    print_links();
    for (one, other, delay) in LINKS {
        fabric.link([one, other], MILLI * delay);
    }
    let took = fabric.run_until(SECOND, Fabric::is_complete).expect("they find each other");
    println!("\nEach node has a path to each other one after {} ms.", took.as_millis());
    print_interests();
    for (number, filter) in INTERESTS {
        fabric.subscribe(number, filter);
    }
    fabric.run(MILLI);
    let took = MILLI + fabric.run_until(SECOND * 2, Fabric::knows_interests).expect("they are told");
    println!("\nAll nodes know all interests {} ms later.", took.as_millis());
    fabric.run(SECOND * 3);

    let first = fabric.publish_topic(0, "count/whimbrel");
    fabric.run(SECOND);
    println!("\nAn event `count/whimbrel` of iceland goes once over each link of its tree.");
    println!("The arrow marks nodes that want it.");
    print_way(&fabric, first);

    let second = fabric.publish_topic(0, "count/whimbrel");
    fabric.run(MILLI * 25);
    fabric.close(FAILS);
    fabric.run(SECOND);
    println!("\nThe link brittany – galicia fails while the next event is on it. It is lost");
    println!("there, asked for, and sent again by a node that has passed it on.");
    print_way(&fabric, second);

    fabric.heal(FAILS);
    fabric.run(SECOND);
    let third = fabric.publish_topic(0, "count/whimbrel");
    fabric.run(MILLI * 15);
    fabric.close(FAILS);
    fabric.run(SECOND);
    println!("\nIt fails again 7 ms before an event gets to it: brittany finds another path.");
    print_way(&fabric, third);

    println!("\nFrom now on the tree goes around it.");
    let fourth = fabric.publish_topic(0, "count/whimbrel");
    fabric.run(SECOND);
    print_way(&fabric, fourth);
    print_counters(&fabric);
    fabric.check().expect("each event has arrived once, in order, where it is wanted");
    println!("\nEach event has arrived once, in order, at the four nodes that want it.");
}

fn print_links() {
    println!("\nLinks, and their delays in ms");
    for (number, station) in STATIONS.iter().enumerate() {
        let ends = LINKS.iter().filter_map(|(one, other, delay)| {
            let end = if *one == number { *other } else { *one };
            (*one == number || *other == number).then(|| format!("{} {delay}", STATIONS[end]))
        });
        println!("  {station:<9} – {}", ends.collect::<Vec<_>>().join(", "));
    }
}

fn print_interests() {
    println!("\nInterests");
    for (number, filter) in INTERESTS {
        println!("  {:<9} {filter}", STATIONS[number]);
    }
}

/// The arrival of an event at a node.
#[derive(Clone, Copy)]
struct Arrival {
    at: Time,
    from: usize,
    node: usize,
    is_answer: bool,
}

/// Prints the tree of an event, with the time at each node; and then the trees of answers to nacks.
fn print_way(fabric: &Fabric, id: EventId) {
    let mut arrivals: Vec<Arrival> = Vec::new();
    for note in fabric.ledger.hops.iter().filter(|note| note.id == id) {
        let Hop::Came { from, is_answer } = note.hop else { continue };
        let is_known = |known: &Arrival| known.node == note.node && known.is_answer == is_answer;
        if !arrivals.iter().any(is_known) {
            arrivals.push(Arrival { at: note.at, from: number_of(from), node: note.node, is_answer });
        }
    }
    let (answers, sent): (Vec<Arrival>, Vec<Arrival>) = arrivals.iter().partition(|arrival| arrival.is_answer);
    let published = &fabric.ledger.published[&id];
    println!("       0 ms  {}", STATIONS[published.by]);
    print_below(published, &sent, published.by, "");
    for answer in &answers {
        let is_first = !answers.iter().any(|before| before.node == answer.from);
        if is_first {
            println!("             {}, which has kept it, sends it again", STATIONS[answer.from]);
            print_below(published, &answers, answer.from, "");
        }
    }
}

/// Prints the part of an event's tree below a node.
fn print_below(published: &Published, arrivals: &[Arrival], node: usize, indent: &str) {
    let below: Vec<&Arrival> = arrivals.iter().filter(|arrival| arrival.from == node).collect();
    for (number, arrival) in below.iter().enumerate() {
        let is_last = number + 1 == below.len();
        let (branch, trunk) = if is_last { ("└─", "   ") } else { ("├─", "│  ") };
        let wants = if published.wanted_by.contains(&arrival.node) { " ←" } else { "" };
        let after = arrival.at.since(published.at).as_millis();
        println!("  {after:>6} ms  {indent}{branch} {}{wants}", STATIONS[arrival.node]);
        print_below(published, arrivals, arrival.node, &format!("{indent}{trunk}"));
    }
}

fn print_counters(fabric: &Fabric) {
    println!("\nCounters: links that are up; events taken, passed on, on a repaired path; nacks");
    println!("received; events sent again; frames and KiB sent over the present links");
    println!("  {:<9}{}", "", COLUMNS.map(|column| format!("  {column}")).concat());
    for (number, station) in STATIONS.iter().enumerate() {
        let net = &fabric.node(number).net;
        let stats = net.stats();
        let values = [
            net.neighbours().count() as u64,
            fabric.node(number).told.delivered.len() as u64,
            stats.events_relayed,
            stats.repairs,
            stats.nacks_in,
            stats.events_answered,
            net.neighbours().map(|peer| peer.counters.frames_out).sum(),
            net.neighbours().map(|peer| peer.counters.bytes_out).sum::<u64>() >> 10,
        ];
        let cells = values.iter().zip(COLUMNS).map(|(value, column)| format!("  {value:>0$}", column.len()));
        println!("  {station:<9}{}", cells.collect::<String>());
    }
}
