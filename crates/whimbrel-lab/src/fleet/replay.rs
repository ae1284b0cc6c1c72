//! The run itself: connect, replay, wait for the last deliveries.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Args;
use super::alarms::AlarmService;
use super::board::{Board, Phase, Role};
use super::checker::Interest;
use super::freight;
use super::link::{Asked, CONFIRM_LIMIT, Network, Order};
use super::outages::Outages;
use super::own_brokers::{Ends, OwnBrokers};
use super::regions::Atlas;
use super::roamer::Roamers;
use super::schedule::Schedule;
use super::summary::Summary;
use super::view::Titles;

/// Messages in flight at the end are given up after this long without a delivery.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// How long messages in flight may take to arrive, at most.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Messages to best-effort subscribers are given up after this long without a delivery.
const BEST_EFFORT_GRACE: Duration = Duration::from_secs(1);
/// How long after the last delivery a repeated one would still be noticed.
const SETTLE: Duration = Duration::from_millis(300);
/// The time between two checks of what is in flight.
const LOOK: Duration = Duration::from_millis(10);
/// How long closing the connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// The number of positions that are handed out before other tasks get a turn.
const BATCH: usize = 256;

/// Connects everything, publishes until the end is wanted, and returns the final state.
pub async fn run(
    args: &Args,
    board: Arc<Board>,
    titles: &Titles,
    (atlas, mut own): (Arc<Atlas>, Option<&mut OwnBrokers>),
    mut quit: watch::Receiver<bool>,
) -> Result<Summary> {
    let (stop_publishing, publishing_stops) = watch::channel(false);
    let (stop_receiving, receiving_stops) = watch::channel(false);
    let (calm, calms) = watch::channel(false);
    let (mut subscribers, mut vehicles) = (JoinSet::new(), JoinSet::new());
    let connecting = async {
        let receiving = Network::new(board.clone(), atlas.clone(), receiving_stops, calms.clone());
        let publishing = Network::new(board.clone(), atlas.clone(), publishing_stops, calms.clone());
        let wanted = subscriptions(args, &board);
        board.want(Role::Vehicle, board.trace.vehicles.len() as u32);
        receiving.open_subscribers(wanted, &mut subscribers).await?;
        let wanted = roamers(args, &board);
        receiving.open_roamers(Roamers { wanted }, &mut subscribers).await?;
        let freight = match args.freight() {
            Some(habits) => Some(freight::Open::new(board.clone(), &atlas, habits).await?),
            None => None,
        };
        let alarms = match board.alarms.is_open() {
            true => Some(AlarmService::open(board.clone(), &atlas).await?),
            false => None,
        };
        anyhow::Ok((publishing.open_vehicles(&mut vehicles).await?, freight, alarms))
    };
    let (ways, mut freight, mut alarms) = tokio::select! {
        opened = connecting => opened?,
        error = ends_by_itself(&mut own) => return Err(error),
        _ = quit.wait_for(|quit| *quit) => anyhow::bail!("ended before everything was connected"),
    };
    board.enter(Phase::Running);
    {
        let mut life = pin!(live(&mut own, &board, args, calms));
        tokio::select! {
            () = publish(&board, args, &ways, quit) => {}
            ended = &mut life => return Err(ended.err().unwrap_or_else(|| anyhow::anyhow!("the broker was left alone"))),
        }
        // If the broker was just killed, it is started again first.
        calm.send_replace(true);
        life.await?;
    }
    let connections = board.snapshot().seats;
    board.enter(Phase::Draining);
    drop(ways);
    if let Some(freight) = &mut freight {
        freight.finish(STALL_LIMIT, LOOK).await;
    }
    if let Some(alarms) = &mut alarms {
        alarms.finish(STALL_LIMIT, LOOK).await;
    }
    drain(&board, &mut vehicles, &stop_publishing).await;
    board.close();
    let summary = Summary::new(&board.trace, titles, board.snapshot(), connections);
    stop_receiving.send_replace(true);
    if let Some(freight) = freight {
        freight.close().await;
    }
    if let Some(alarms) = alarms {
        alarms.close().await;
    }
    // Connections that still hang are closed by dropping them.
    let _closed = timeout(CLOSE_LIMIT, async { while subscribers.join_next().await.is_some() {} }).await;
    Ok(summary)
}

/// The subscribers, with their interests and client identifiers.
fn subscriptions(args: &Args, board: &Board) -> Vec<Asked> {
    // An own broker is killed, and must then tell what is missing.
    let named = args.broker.is_none();
    let asked = |(role, interest, client_id)| Asked { role, interest, client_id, named: named && role != Role::Viewer };
    let mut wanted = vec![(Role::Viewer, Interest::All, "map-viewer".to_owned())];
    wanted.extend((1..=args.consoles).map(|n| (Role::Console, Interest::All, format!("console-{n}"))));
    let lines = board.watched_lines();
    let watcher = |&line: &u32| {
        let name = &board.trace.lines[line as usize];
        (Role::Watcher, Interest::Line(line), format!("watcher-{name}"))
    };
    wanted.extend(lines.iter().map(watcher));
    let selected = 0..board.selection.conditions.len();
    wanted.extend(selected.map(|n| (Role::Watcher, Interest::Selected(n), format!("selector-{}", n + 1))));
    let mut wanted: Vec<Asked> = wanted.into_iter().map(asked).collect();
    if args.roaming().0 > 0 {
        // One subscriber must know the names of all messages, so that it is known which lie in
        // gaps.
        let (role, interest, client_id) = (Role::Console, Interest::All, "console-witness".to_owned());
        wanted.push(Asked { role, interest, client_id, named: true });
    }
    for role in [Role::Console, Role::Watcher, Role::Viewer] {
        board.want(role, wanted.iter().filter(|asked| asked.role == role).count() as u32);
    }
    wanted
}

/// Consoles that lose their signal. Of each five, one subscribes to the busiest line, two to a part
/// of the city if there are fences, and the others to other lines.
fn roamers(args: &Args, board: &Board) -> Vec<(Role, Interest, String, Outages)> {
    let (semi_durable, nondurable) = args.roaming();
    let lines = board.watched_lines();
    let lines = if lines.is_empty() { (0..board.trace.lines.len() as u32).collect() } else { lines };
    let conditions = &board.selection.conditions;
    let parts: Vec<usize> = (0..conditions.len()).filter(|&index| conditions[index].fence.is_some()).collect();
    let interest = |n: usize| match n % 5 {
        0 => Interest::Line(lines[0]),
        2 | 4 if !parts.is_empty() => Interest::Selected(parts[n / 2 % parts.len()]),
        _ => Interest::Line(lines[n % lines.len()]),
    };
    let mut wanted = Vec::new();
    for (role, count, name, odd) in
        [(Role::SemiDurable, semi_durable, "semi-durable", 0), (Role::Nondurable, nondurable, "nondurable", 1)]
    {
        board.want(role, count);
        wanted.extend((0..count).map(|n| {
            let outages = Outages::new(args.seed, 2 * u64::from(n) + odd, args.speed_up);
            (role, interest(n as usize), format!("{name}-{}", n + 1), outages)
        }));
    }
    wanted
}

/// Kills and restarts the broker, if it is the run's own, until all is calm.
async fn live(
    own: &mut Option<&mut OwnBrokers>,
    board: &Board,
    args: &Args,
    mut calm: watch::Receiver<bool>,
) -> Result<()> {
    match own {
        Some(own) => {
            // With --json a program reads the output, and no user looks at a console.
            let ends = Ends { every: args.ends.kill_every.0, rolls: args.ends.roll, spares_first: !args.json };
            own.live(board, ends, args.seed, calm).await
        }
        None => {
            let _calm = calm.wait_for(|calm| *calm).await;
            Ok(())
        }
    }
}

/// Waits for ever if the broker is not the run's own.
async fn ends_by_itself(own: &mut Option<&mut OwnBrokers>) -> anyhow::Error {
    match own {
        Some(own) => own.ended().await,
        None => std::future::pending().await,
    }
}

/// Hands each position to its vehicle when it is due, until the end is wanted.
async fn publish(board: &Board, args: &Args, ways: &[mpsc::Sender<Order>], mut quit: watch::Receiver<bool>) {
    let mut schedule = Schedule::new(board.trace.clone(), args.speed_up);
    let start = Instant::now();
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    loop {
        let due = start + schedule.next_due();
        let over = end.is_some_and(|end| due.max(Instant::now()) >= end);
        tokio::select! {
            _ = quit.wait_for(|quit| *quit) => return,
            () = sleep_until(if over { end.unwrap_or(due) } else { due }) => {}
        }
        if over {
            return;
        }
        for _ in 0..BATCH {
            let due = schedule.next_due();
            let Some(position) = schedule.pop(start.elapsed()) else { break };
            board.note_lag(start.elapsed().saturating_sub(due));
            let order = Order { position, at: board.now() };
            if ways[position.fix.vehicle as usize].try_send(order).is_err() {
                board.held_back();
            }
        }
        board.set_laps(schedule.laps());
        yield_now().await;
    }
}

/// Waits until everything published has arrived, or is unlikely to arrive any more.
async fn drain(board: &Board, vehicles: &mut JoinSet<()>, stop_publishing: &watch::Sender<bool>) {
    let finish = async |vehicles: &mut JoinSet<()>| while vehicles.join_next().await.is_some() {};
    if timeout(STALL_LIMIT, finish(vehicles)).await.is_err() {
        stop_publishing.send_replace(true);
        // Each vehicle awaits at most one confirmation now.
        let _finished = timeout(CONFIRM_LIMIT + LOOK, finish(vehicles)).await;
    }
    // Messages that do not arrive in time count as lost when the board is closed.
    arrive(|| board.in_flight().0, STALL_LIMIT).await;
    arrive(|| board.in_flight().1, BEST_EFFORT_GRACE).await;
    sleep(SETTLE).await;
}

/// Waits until nothing is in flight, or nothing has arrived for `stall`.
async fn arrive(in_flight: impl Fn() -> u64, stall: Duration) {
    let end = Instant::now() + DRAIN_LIMIT;
    let (mut left, mut since) = (in_flight(), Instant::now());
    while left > 0 && since.elapsed() < stall && Instant::now() < end {
        sleep(LOOK).await;
        let now = in_flight();
        if now < left {
            (left, since) = (now, Instant::now());
        }
    }
}
