//! Compares the cache's own figure of its memory with the system's. Fills caches with events of
//! many sizes, each in a process of its own.

use std::process::Command;

use whimbrel_core::cache::{Cache, Capacity, DefaultPlan, Plan, Policy};
use whimbrel_event::{AcceptedEvent, Attributes, EventId, EventRef, Headers, PubendId, Qos, Reliability, Tick, Time};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BYTES: u64 = 128 * 1024 * 1024;

fn event(serial: u64, payload: &[u8]) -> AcceptedEvent<'_> {
    let id = EventId { pubend: PubendId(serial % 4), tick: Tick(serial) };
    let event = EventRef {
        topic: "fleet/7/position",
        attributes: Attributes::EMPTY,
        payload,
        headers: Headers::EMPTY,
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance: (1 + serial % 10) as u8,
        expires: None,
        deadline_ms: None,
        publisher: whimbrel_event::Publisher::UNKNOWN,
    };
    AcceptedEvent { id, accepted: Time::from_nanos(serial), clock_offset: 0, event }
}

/// Resident memory, bytes; 0 where the system does not tell.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages: Option<u64> = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse().ok()));
    pages.unwrap_or(0) * 4096
}

/// One line of the table.
fn measure(name: &str, payload: usize) {
    let policy = match name {
        "lrp" => Policy::Lrp,
        "random" => Policy::Random,
        "value" => Policy::Value,
        _ => Policy::PRIORITY,
    };
    let body = vec![b'x'; payload];
    let before = resident();
    let default = DefaultPlan { capacity: Capacity::Bytes(BYTES), policy };
    let mut cache = Cache::new(Plan { partitions: Vec::new(), default, ceiling: BYTES }, 1);
    let writes = 3 * BYTES / (payload as u64 + 200);
    for serial in 1..=writes {
        cache.write(serial, 0, &event(serial, &body), Time::from_nanos(serial * 1_000_000));
    }
    let (said, taken) = (cache.bytes(), resident().saturating_sub(before));
    let ratio = taken as f64 / said as f64;
    println!("{name:>10} {payload:>8} {:>10} {said:>10} {taken:>10} {ratio:>7.3}", cache.events());
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name, payload] = &arguments[..] {
        measure(name, payload.parse().expect("the size of a payload"));
        return Ok(());
    }
    println!("{:>10} {:>8} {:>10} {:>10} {:>10} {:>7}", "policy", "payload", "events", "said", "resident", "ratio");
    for name in ["lrp", "random", "priority", "value"] {
        for payload in [0, 50, 200, 1_000, 10_000] {
            let mut process = Command::new(std::env::current_exe()?);
            process.args([name, &payload.to_string()]).status()?;
        }
    }
    Ok(())
}
