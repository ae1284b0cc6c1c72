//! The memory of a full cache: the growth of a broker's resident memory, compared with the ceiling,
//! after filling it with twice the ceiling.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::link::{Endpoint, Link, SCRATCH_BYTES};
use super::super::process;
use super::super::target::Target;
use super::super::wire::{Frame, mqtt};
use super::{Row, SemiArgs};
use crate::goal::{Goal, Op};

/// Ceilings, MiB.
const CEILINGS: [u64; 2] = [64, 256];

/// The range of the size of bodies, bytes, uniform.
const BODIES: (usize, usize) = (50, 500);

/// The bytes of bodies that are published, as a multiple of the ceiling.
const FILL: u64 = 2;

/// The relative difference between memory and ceiling that is allowed.
const TOLERANCE: f64 = 0.1;

/// Unacknowledged publishes, at most.
const UNACKNOWLEDGED: u16 = 1_000;

/// After this long without an acknowledgement the broker counts as stuck.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Fills a cache of each size.
pub(super) fn rows(args: &SemiArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mib in CEILINGS {
        let partition = format!("[[partition]]\nfilter = \"#\"\ncapacity = \"{mib} MiB\"\n");
        let broker = args.start(&args.start.program(), &partition)?;
        let before = process::resident_bytes(broker.pid())?;
        let mut filling = Filling::connect(broker.target, args.start.seed)?;
        filling.send(FILL * (mib << 20)).with_context(|| format!("filling a cache of {mib} MiB"))?;
        let grown = process::resident_bytes(broker.pid())?.saturating_sub(before);
        let ratio = grown as f64 / (mib << 20) as f64;
        let row = Row::plain("memory", format!("{mib} MiB of cache: resident memory / ceiling"), "", ratio);
        let goal = Some(Goal { op: Op::AtMost, value: 1.0 + TOLERANCE });
        rows.push(Row { goal, met: Some((1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio)), ..row });
    }
    Ok(rows)
}

/// A publisher that waits for acknowledgements, so that everything it has sent is in the cache.
struct Filling {
    publisher: Endpoint,
    random: fastrand::Rng,
    packet_id: u16,
    waiting: u16,
    scratch: Vec<u8>,
}

impl Filling {
    fn connect(target: Target, seed: u64) -> Result<Filling> {
        let publisher = Link::open(target, "filler")?.into_endpoint()?;
        let random = fastrand::Rng::with_seed(seed);
        Ok(Filling { publisher, random, packet_id: 0, waiting: 0, scratch: vec![0; SCRATCH_BYTES] })
    }

    /// Publishes bodies of at least `bytes` bytes in all.
    fn send(&mut self, mut bytes: u64) -> Result<()> {
        let body = [b'x'; BODIES.1];
        let mut last_progress = Instant::now();
        while bytes > 0 || self.waiting > 0 {
            while bytes > 0 && self.waiting < UNACKNOWLEDGED {
                let body = &body[..self.random.usize(BODIES.0..=BODIES.1)];
                let topic = format!("filling/{}", self.random.u8(..100));
                self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
                mqtt::publish_with(&mut self.publisher.out, &topic, Some(self.packet_id), &[], body);
                self.waiting += 1;
                bytes = bytes.saturating_sub(body.len() as u64);
            }
            self.publisher.flush()?;
            let waiting = &mut self.waiting;
            let reads = self.publisher.receive(&mut self.scratch, |frame, _| {
                ensure!(matches!(frame, Frame::Accepted(_)), "{frame:?} was not expected");
                *waiting -= 1;
                Ok(())
            })?;
            if reads > 0 {
                last_progress = Instant::now();
            }
            ensure!(last_progress.elapsed() < STALLED_AFTER, "nothing was acknowledged for {STALLED_AFTER:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_broker::{Fault, TestBroker};
    use super::*;

    #[test]
    fn a_filling_ends_when_all_is_acknowledged() {
        let broker = TestBroker::start(Fault::None);
        let mut filling = Filling::connect(broker.target(), 1).expect("a broker");
        filling.send(100_000).expect("acknowledged");
        assert_eq!((filling.waiting, filling.publisher.unsent()), (0, 0));
        drop(filling);
        let published = broker.stop().published;
        assert!((200..2_000).contains(&published), "{published} bodies of 50 to 500 bytes");
    }
}
