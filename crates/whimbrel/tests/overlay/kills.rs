//! Brokers that are killed and begin anew, and a ring that becomes a line.

use crate::judge::demand;
use crate::world::{LINK, World};

/// Events that everybody together sends in about a second.
const SECOND: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_of_which_a_link_and_two_brokers_end_loses_nothing_in_silence() {
    let mut world = World::start(4, &[(0, 1), (1, 2), (2, 3), (0, 3)], LINK, 23).await;
    world.load().await;
    world.desk.events(SECOND).await;
    // For good: traffic goes round.
    world.relay(0, 1).cut();
    world.converge("without a link").await;
    world.desk.events(SECOND).await;
    // It stands between all others now.
    world.kill(3);
    world.desk.events(SECOND).await;
    world.restart(3);
    world.converge("with a broker that is back").await;
    world.desk.events(SECOND).await;
    // No way between other brokers leads through it, but it has publishers.
    world.kill(1);
    world.desk.events(SECOND).await;
    world.restart(1);
    demand(&world.finish().await);
}
