//! Alarms: small events with a deadline, from each region to all regions, while links go bad.
//!
//! Each region has a publisher and a desk; both stay at their region's broker. All clients of a run
//! are in one process and on one clock, so latencies are true. The [`judge`] counts what was in
//! time, and beside it what of the ordinary positions would have been under the same deadline.

mod account;
mod desk;
pub mod judge;
mod publisher;
mod report;
mod snapshot;

pub use account::AlarmBoard;
pub use snapshot::AlarmSnapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::board::Board;
use super::regions::{Atlas, Layout};

/// The filter of all alarms, and of their topic profile.
pub const ALL: &str = "alarm/#";
/// The deadline has room for this many halves of the longest delay between two regions: four for
/// the way over a third region, and one for a datagram that was lost and is sent again.
const HALVES: u32 = 5;
/// And room for brokers to notice that a link is bad and to take another way, and for a busy
/// machine.
const REACTION: Duration = Duration::from_millis(40);
/// Deadlines are multiples of this.
const STEP: Duration = Duration::from_millis(10);
/// How long closing the connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The deadline of alarms in these regions; `None` with a single one, which has no links.
pub fn deadline(layout: &Layout) -> Option<Duration> {
    let all = 0..layout.count();
    let longest = all.clone().flat_map(|from| all.clone().map(move |to| layout.one_way(from, to))).max()?;
    let whole = longest * HALVES / 2 + REACTION;
    let steps = whole.as_micros().div_ceil(STEP.as_micros());
    (layout.count() > 1).then(|| STEP * u32::try_from(steps).unwrap_or(u32::MAX))
}

/// The topic profile of alarms, as the configuration of a broker: an alarm that is late is worth
/// little, and so none is logged.
pub fn configuration(deadline: Duration) -> String {
    let millis = deadline.as_millis();
    format!(
        "[[topic]]\nfilter = \"{ALL}\"\nreliability = \"reliable\"\npersistence = \"volatile\"\ndeadline = \"{millis} ms\"\n\
         paths = 2\n"
    )
}

/// The publishers and desks at work.
pub struct AlarmService {
    board: Arc<Board>,
    publishers: JoinSet<()>,
    desks: JoinSet<()>,
    /// Set: no more alarms are published.
    stop: watch::Sender<bool>,
    /// Set: desks end.
    home: watch::Sender<bool>,
}

impl AlarmService {
    /// Connects a desk and a publisher in each region, desks first, so that every alarm is due to
    /// each.
    ///
    /// # Errors
    /// When one cannot connect, or a desk cannot subscribe.
    pub async fn open(board: Arc<Board>, atlas: &Atlas) -> Result<AlarmService> {
        let ((stop, stops), (home, homes)) = (watch::channel(false), watch::channel(false));
        let (mut publishers, mut desks) = (JoinSet::new(), JoinSet::new());
        let names: Vec<String> = atlas.brokers().map(|(name, _)| name.to_owned()).collect();
        for (region, (_, address)) in atlas.brokers().enumerate() {
            let mut desk = desk::AlarmDesk::new(region, address, &names, board.clone(), homes.clone());
            let (client, events) = desk.open().await?;
            desks.spawn(desk.run(client, events));
        }
        for (region, (name, address)) in atlas.brokers().enumerate() {
            let mut publisher = publisher::AlarmPublisher::new(region, name, address, board.clone());
            let client = publisher.begin().await?;
            publishers.spawn(publisher.run(client, stops.clone()));
        }
        Ok(AlarmService { board, publishers, desks, stop, home })
    }

    /// Stops new alarms; waits until publishers have their answers and desks what is on its way, as
    /// long as there is progress.
    pub async fn finish(&mut self, stall: Duration, look: Duration) {
        self.stop.send_replace(true);
        let answered = async { while self.publishers.join_next().await.is_some() {} };
        // An alarm that is unanswered by then is not due.
        let _answered = timeout(stall, answered).await;
        let (mut left, mut since) = (self.board.alarms.waiting(), Instant::now());
        while left > 0 && since.elapsed() < stall {
            tokio::time::sleep(look).await;
            let now = self.board.alarms.waiting();
            if now < left {
                (left, since) = (now, Instant::now());
            }
        }
    }

    /// Ends all desks.
    pub async fn close(mut self) {
        self.home.send_replace(true);
        let gone = async { while self.desks.join_next().await.is_some() {} };
        let _gone = timeout(CLOSE_LIMIT, gone).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_deadline_follows_from_the_longest_delay() {
        let layout =
            |choice: &str| Layout::load(&choice.parse().expect("a choice"), Path::new("nowhere")).expect("known");
        assert_eq!(deadline(&layout("1")), None, "there is no link");
        let three = layout("3");
        let longest = three.one_way(0, 1).max(three.one_way(0, 2)).max(three.one_way(1, 2));
        let of_three = deadline(&three).expect("there are links");
        let room = of_three - REACTION - longest * 5 / 2;
        assert!(room < STEP && of_three.as_millis().is_multiple_of(10), "{of_three:?} for {longest:?}");
        let text = configuration(Duration::from_millis(90));
        assert!(text.contains("filter = \"alarm/#\"") && text.ends_with("deadline = \"90 ms\"\npaths = 2\n"), "{text}");
    }
}
