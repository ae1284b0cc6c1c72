//! Links are cut and healed; no broker is killed, so nothing may be missing at all.

use crate::book::Book;
use crate::judge::demand;
use crate::world::{LINK, World};

/// Events that everybody together sends in about three seconds: longer than a link may be silent.
const THREE_SECONDS: u64 = 1_100;

/// No broker was killed and caches are large: no gap is an excuse.
fn demand_all(book: &Book) {
    let verdicts = demand(book);
    let told: usize = verdicts.iter().map(|verdict| verdict.told).sum();
    assert_eq!(told, 0, "gaps were told of what the brokers had");
    assert!(verdicts.iter().all(|verdict| verdict.due > 100), "there was no load");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_whose_links_are_cut_and_healed_loses_nothing() {
    let mut world = World::start(3, &[(0, 1), (1, 2)], LINK, 11).await;
    world.load().await;
    for (from, to) in [(0, 1), (1, 2)] {
        world.desk.events(THREE_SECONDS / 2).await;
        world.relay(from, to).cut();
        world.desk.events(THREE_SECONDS).await;
        world.relay(from, to).heal();
        world.converge("after the cut").await;
    }
    demand_all(&world.finish().await);
}
