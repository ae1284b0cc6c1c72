//! `whimbrel sessions`: sessions and clients of running brokers.

use std::cmp::Ordering;

use anyhow::{Context, anyhow, bail};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use whimbrel_server::api::answers::{
    Connection, Dropped, Kicked, RefusedPublishes, Said, Session, Sessions as Page, Shown, Subscription, System, Told,
};
use whimbrel_server::api::percent;

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::system::{self, All};
use crate::table::{Cell, Table, Tone, count, is_coloured, moment, name, span};

/// A position that is older than this, in milliseconds, is highlighted.
const LONG_LAG: u64 = 60_000;

const EXAMPLES: &str = "\
Examples:
  whimbrel sessions list --data /var/lib/whimbrel              all of them at all brokers, by client id
  whimbrel sessions list --own                                 those at the broker that is asked
  whimbrel sessions list --prefix scanner-                     those whose client ids begin so, found by the brokers
  whimbrel sessions list --clients                             who is connected: from where, as whom, since when
  whimbrel sessions list --lagging --sort lag                  who is furthest behind
  whimbrel sessions show dispatch --json | jq .subscriptions   positions, for a script
  whimbrel sessions kick scanner-7                             disconnect its client; the session stays
  whimbrel sessions drop old-scanner                           end it, and give up what is kept for it

LAG is how old the position of the session's slowest durable subscription is: it has everything up to then.
A session ends by itself when its client has been away for as long as it asked for, and at the latest after
`max_session` in [limits] (7 days unless configured otherwise). List and show ask all brokers; a session is dropped, and
its client kicked, at the broker that has it, which show names. A client that is kicked may come back at once: a rule
that does not allow it any more keeps it out.";

/// Arguments of `whimbrel sessions`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sessions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List sessions at all brokers: who is there, who is away and for how long, and how far each
    /// is behind.
    List {
        #[command(flatten)]
        reach: Reach,
        /// Only those at the broker that is asked, not at all
        #[arg(long)]
        own: bool,
        /// Only those whose client ids begin so; the brokers search, and that of exactly this id is
        /// found at once
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// Only those whose client is connected, with address, protocol, user, and messages so far
        #[arg(long, conflicts_with = "away")]
        clients: bool,
        /// Only those whose client is away
        #[arg(long)]
        away: bool,
        /// Only those with a durable subscription that is behind
        #[arg(long)]
        lagging: bool,
        /// What comes first
        #[arg(long, value_enum, default_value_t = Sort::Client)]
        sort: Sort,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a session with each of its subscriptions.
    Show {
        #[command(flatten)]
        reach: Reach,
        /// The client id
        client: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Disconnect a client (0x98, Administrative action): its will is published, and its session
    /// stays as if the connection had been lost.
    Kick {
        #[command(flatten)]
        reach: Reach,
        /// The client id
        client: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session as its expiry would: its client is disconnected, its will published, and what
    /// was kept for it alone is given up.
    Drop {
        #[command(flatten)]
        reach: Reach,
        /// The client id
        client: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// An order of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By client id.
    Client,
    /// Those first that are furthest behind.
    Lag,
    /// Those first that end soonest.
    Expires,
}

impl Sessions {
    /// Runs the subcommand.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List { reach, own, prefix, clients, away, lagging, sort, json } => {
                let control = reach.find()?;
                let prefix = prefix.map_or(String::new(), |prefix| format!("prefix={}", percent::encode(&prefix)));
                let mut all = if own { own_pages(&control, &prefix)? } else { all_pages(&control, &prefix)? };
                for page in all.brokers.iter_mut().filter_map(|said| said.answer.so_mut()) {
                    let is_left_out = |session: &Session| {
                        away && session.connected
                            || clients && session.connection.is_none()
                            || lagging && session.lag_ms.is_none()
                    };
                    page.sessions.retain(|session| !is_left_out(session));
                    page.sessions.sort_by(|a, b| sort.compare(a, b));
                }
                match (json, own) {
                    (true, true) => print_json(&all.brokers.first().map(|said| &said.answer)),
                    (true, false) => print_json(&all),
                    (false, _) if clients => print_clients(&all, sort, own),
                    (false, _) => print_all(&all, sort, own),
                }
            }
            Command::Show { client, .. } | Command::Kick { client, .. } | Command::Drop { client, .. }
                if client.is_empty() =>
            {
                Err(anyhow!(
                    "the client id is empty: no session has such a one; `whimbrel sessions list` shows those that there are"
                )
                .into())
            }
            Command::Show { reach, client, json } => show(&reach.find()?, &client, json),
            Command::Kick { reach, client, json } => kick(&reach.find()?, &client, json),
            Command::Drop { reach, client, json } => end(&reach.find()?, &client, json),
        }
    }
}

impl Sort {
    fn compare(self, a: &Session, b: &Session) -> Ordering {
        let first = match self {
            Sort::Client => Ordering::Equal,
            Sort::Lag => b.lag_ms.cmp(&a.lag_ms),
            Sort::Expires => a.expires_ms.unwrap_or(u64::MAX).cmp(&b.expires_ms.unwrap_or(u64::MAX)),
        };
        first.then_with(|| a.client_id.cmp(&b.client_id))
    }
}

/// The sessions of the broker that is asked; its name does not matter.
fn own_pages(control: &Control, prefix: &str) -> anyhow::Result<All<Page>> {
    let mut all: Page = control.ask("GET", &format!("/api/v1/sessions?{prefix}"))?;
    while let Some(after) = all.next {
        all.append(control.ask("GET", &format!("/api/v1/sessions?after={after}&{prefix}"))?);
    }
    let brokers = vec![Said { name: String::new(), answer: Told::So(all) }];
    Ok(System { brokers, silent: Vec::new(), missed: Vec::new() })
}

/// The sessions of all brokers. A broker that stops answering in between keeps the sessions that it
/// has told.
fn all_pages(control: &Control, prefix: &str) -> anyhow::Result<All<Page>> {
    let mut all: All<Page> = system::ask(control, &format!("sessions?{prefix}"))?;
    for said in &mut all.brokers {
        let Told::So(pages) = &mut said.answer else { continue };
        while let Some(after) = pages.next {
            let question = format!("sessions?broker={}&after={after}&{prefix}", percent::encode(&said.name));
            let more: All<Page> = system::ask(control, &question)?;
            match more.brokers.into_iter().next().map(|said| said.answer) {
                Some(Told::So(page)) => pages.append(page),
                _ => {
                    all.silent.push(said.name.clone());
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// The sessions of all brokers that have answered, each with its broker and that broker's time.
fn sorted(all: &All<Page>, sort: Sort) -> Vec<(&str, &Session, u64)> {
    let pages = system::answers(all);
    let mut sessions: Vec<_> = pages
        .flat_map(|(broker, page)| page.sessions.iter().map(move |session| (broker, session, page.now_ms)))
        .collect();
    sessions.sort_by(|(_, a, _), (_, b, _)| sort.compare(a, b));
    sessions
}

fn print_all(all: &All<Page>, sort: Sort, own: bool) -> Result<(), Failure> {
    let mut columns =
        vec!["CLIENT", "STATE", "EXPIRES", "SUBSCRIPTIONS>", "DURABLE>", "LAG>", "IN FLIGHT>", "WAITING>"];
    if !own {
        columns.insert(1, "BROKER");
    }
    let mut table = Table::new(&columns);
    let sessions = sorted(all, sort);
    for &(broker, session, now) in &sessions {
        let mut cells = vec![
            name(&session.client_id).into(),
            state(session, now),
            expires(session, now).into(),
            session.subscriptions.to_string().into(),
            session.durable.to_string().into(),
            lag(session.lag_ms),
            number(session.in_flight),
            number(session.waiting),
        ];
        if !own {
            cells.insert(1, name(broker).into());
        }
        table.row(cells);
    }
    let here = sessions.iter().filter(|(_, session, _)| session.connected).count();
    let foot = format!(
        "{}, {here} connected, {} behind\n",
        count(sessions.len() as u64, "session", "sessions"),
        sessions.iter().filter(|(_, session, _)| session.lag_ms.is_some()).count(),
    );
    failure::print((table.text(is_coloured()) + &foot + &system::absent(all)).as_bytes())
}

/// Prints the connected clients and their connections.
fn print_clients(all: &All<Page>, sort: Sort, own: bool) -> Result<(), Failure> {
    let mut columns = vec!["CLIENT", "ADDRESS", "OVER", "MQTT", "USER", "SINCE>", "MESSAGES IN>", "OUT>"];
    if !own {
        columns.insert(1, "BROKER");
    }
    let mut table = Table::new(&columns);
    let mut connected = 0;
    for (broker, session, now) in sorted(all, sort) {
        let Some(connection) = &session.connection else { continue };
        connected += 1;
        let Connection { address, listener, since_ms, publishes_in, publishes_out, .. } = connection;
        let mut cells = vec![
            name(&session.client_id).into(),
            address.as_deref().map_or_else(Cell::none, |address| name(address).into()),
            name(listener).into(),
            protocol(connection).into(),
            connection.user.as_deref().map_or_else(Cell::none, |user| name(user).into()),
            span(now.saturating_sub(*since_ms)).into(),
            number(*publishes_in),
            number(*publishes_out),
        ];
        if !own {
            cells.insert(1, name(broker).into());
        }
        table.row(cells);
    }
    let foot = format!("{} connected\n", count(connected, "client", "clients"));
    failure::print((table.text(is_coloured()) + &foot + &system::absent(all)).as_bytes())
}

/// The protocol of a client's connection.
fn protocol(connection: &Connection) -> String {
    if connection.bridge { format!("{} bridge", connection.protocol) } else { connection.protocol.clone() }
}

/// A session, and its broker.
#[derive(Serialize)]
struct Found {
    broker: String,
    /// It is the broker that was asked.
    #[serde(skip)]
    is_asked: bool,
    #[serde(flatten)]
    shown: Shown,
}

/// Asks all brokers for a session. Shortly after a session has moved, its previous owner may still
/// have it too.
fn find(control: &Control, client: &str) -> anyhow::Result<Found> {
    let at = format!("sessions/{}", percent::encode(client));
    let all: All<Shown> = system::ask(control, &at)?;
    let unheard = system::unheard(&all.silent, &all.missed);
    let shown = all.brokers.into_iter().enumerate().filter_map(|(place, said)| match said.answer {
        Told::So(shown) => Some(Found { broker: said.name, is_asked: place == 0, shown }),
        Told::Not(_) => None,
    });
    let newest = |found: &Found| (found.shown.session.given_to.is_none(), found.shown.session.epoch);
    let Some(mut found) = shown.max_by_key(newest) else {
        bail!("there is no session with the client id {client:?} at any broker that has answered\n{unheard}");
    };
    while let Some(after) = found.shown.next.take() {
        let (broker, after) = (percent::encode(&found.broker), percent::encode(&after));
        let more: All<Shown> = system::ask(control, &format!("{at}?broker={broker}&after={after}"))?;
        match more.brokers.into_iter().next().map(|said| said.answer) {
            Some(Told::So(more)) => {
                found.shown.subscriptions.extend(more.subscriptions);
                found.shown.next = more.next;
            }
            Some(Told::Not(refused)) => bail!("{}: {}", found.broker, refused.error),
            None => bail!("{} has fallen silent: ask again", found.broker),
        }
    }
    Ok(found)
}

fn show(control: &Control, client: &str, json: bool) -> Result<(), Failure> {
    let found = find(control, client)?;
    if json {
        return print_json(&found);
    }
    let shown = &found.shown;
    let session = &shown.session;
    let coloured = is_coloured();
    let mut out = format!("{}\n", name(&session.client_id));
    let mut facts = Table::new(&["", ""]);
    facts.row(vec!["  broker".into(), name(&found.broker).into()]);
    if let Some(owner) = &session.owner {
        facts.row(vec!["  owner".into(), name(owner).into()]);
    }
    facts.row(vec!["  state".into(), state(session, shown.now_ms)]);
    if let Some(connection) = &session.connection {
        connection_facts(&mut facts, connection, shown.now_ms);
    }
    facts.row(vec!["  expires".into(), expires_in_words(session, shown.now_ms).into()]);
    let kept = if session.kept { "in the journal" } else { "in memory only: it ends with the broker" };
    facts.row(vec!["  kept".into(), kept.into()]);
    if let Some(epoch) = session.epoch {
        if let Some(to) = session.given_to.as_deref() {
            facts.row(vec!["  moves to".into(), name(to).into()]);
        }
        let deputy = session.deputy.as_deref().unwrap_or("none has a copy yet").to_owned();
        facts.row(vec!["  deputy".into(), deputy.into()]);
        facts.row(vec!["  epoch".into(), epoch.to_string().into()]);
    }
    let in_flight = format!("{} in flight, {} waiting in memory", session.in_flight, session.waiting);
    facts.row(vec!["  deliveries".into(), in_flight.into()]);
    if let Some(refused) = &shown.refused_publishes {
        facts.row(vec!["  refused".into(), Cell::new(refused_in_words(refused), Tone::Warn)]);
    }
    // Without the head.
    out += facts.text(coloured).split_once('\n').map_or("", |(_, rows)| rows);
    out.push('\n');
    let tells_repliers = shown.subscriptions.iter().any(|subscription| subscription.replier);
    let mut heads = vec!["FILTER", "QOS>", "DURABILITY", "POSITION", "LAG>", "SELECTOR"];
    heads.extend(tells_repliers.then_some("REPLIER"));
    let mut table = Table::new(&heads);
    for subscription in &shown.subscriptions {
        let mut cells = row(subscription);
        let replier = || if subscription.replier { "yes".into() } else { Cell::none() };
        cells.extend(tells_repliers.then(replier));
        table.row(cells);
    }
    if shown.subscriptions.is_empty() {
        out += "no subscriptions\n";
    } else {
        out += &table.text(coloured);
    }
    failure::print(out.as_bytes())
}

fn refused_in_words(refused: &RefusedPublishes) -> String {
    let to = refused.topic.as_ref().map(|topic| format!(" to {}", name(topic))).unwrap_or_default();
    let messages = count(refused.count, "message", "messages");
    format!("{messages} since it connected, the last{to}: {} ({:#04x})", name(&refused.why), refused.code)
}

fn connection_facts(facts: &mut Table, connection: &Connection, now: u64) {
    let Connection { address, listener, user, since_ms, publishes_in, publishes_out, .. } = connection;
    let from = address.as_deref().unwrap_or("an unknown address");
    facts.row(vec!["  from".into(), format!("{from} over {listener}, MQTT {}", protocol(connection)).into()]);
    if let Some(user) = user {
        facts.row(vec!["  user".into(), name(user).into()]);
    }
    let since = format!("{} ago, at {}", span(now.saturating_sub(*since_ms)), moment(*since_ms));
    facts.row(vec!["  connected".into(), since.into()]);
    facts.row(vec!["  messages".into(), format!("{publishes_in} in, {publishes_out} out since then").into()]);
}

fn row(subscription: &Subscription) -> Vec<Cell> {
    let selector = match (&subscription.selector, subscription.selective) {
        (Some(selector), _) => name(selector).into(),
        (None, true) => Cell::new("(in memory only)", Tone::Dim),
        (None, false) => Cell::none(),
    };
    let kept_by = match &subscription.durability[..] {
        "durable" | "semi-durable" => format!("by {}", subscription.position_kept_by).into(),
        _ => Cell::none(),
    };
    vec![
        name(&subscription.filter).into(),
        subscription.qos.to_string().into(),
        subscription.durability.clone().into(),
        kept_by,
        lag(subscription.lag_ms),
        selector,
    ]
}

/// Refuses to change a session at another broker than the one asked.
fn expect_asked(found: &Found, client: &str, what: &str) -> Result<(), Failure> {
    if found.is_asked {
        return Ok(());
    }
    let (broker, client) = (name(&found.broker), name(client));
    Err(anyhow!(
        "the session of {client} is at {broker}, and no broker changes anything at another: ask {broker} itself to {what} it, with its \
         --data, --control or --api"
    )
    .into())
}

fn kick(control: &Control, client: &str, json: bool) -> Result<(), Failure> {
    expect_asked(&find(control, client)?, client, "kick")?;
    let kicked: Kicked = control.ask("POST", &format!("/api/v1/sessions/{}/kick", percent::encode(client)))?;
    if json {
        return print_json(&kicked);
    }
    let session = &kicked.session;
    let stays = match session.expiry_ms {
        0 => "its session ended with the connection".to_owned(),
        millis => format!("its session stays for {}", span(millis)),
    };
    failure::print(format!("{}: disconnected; {stays}\n", name(&session.client_id)).as_bytes())
}

fn end(control: &Control, client: &str, json: bool) -> Result<(), Failure> {
    expect_asked(&find(control, client)?, client, "drop")?;
    let dropped: Dropped = control.ask("DELETE", &format!("/api/v1/sessions/{}", percent::encode(client)))?;
    if json {
        return print_json(&dropped);
    }
    let session = &dropped.session;
    let was = if session.connected { "disconnected and ended" } else { "ended" };
    let subscriptions = count(session.subscriptions, "subscription", "subscriptions");
    let mut out = format!("{}: {was}, with {subscriptions} ({} durable)\n", name(&session.client_id), session.durable);
    if !dropped.durable {
        out += "the disk has not taken it yet: after a crash now the session would be there again\n";
    }
    failure::print(out.as_bytes())
}

fn state(session: &Session, now: u64) -> Cell {
    match session.away_since_ms {
        None => Cell::new("connected", Tone::Good),
        Some(since) => format!("away {}", span(now.saturating_sub(since))).into(),
    }
}

fn expires(session: &Session, now: u64) -> String {
    match session.expires_ms {
        Some(at) => format!("in {}", span(at.saturating_sub(now))),
        None if session.expiry_ms == 0 => "when it leaves".into(),
        None => format!("{} after", span(session.expiry_ms)),
    }
}

fn expires_in_words(session: &Session, now: u64) -> String {
    match session.expires_ms {
        Some(at) => format!("in {}, at {}", span(at.saturating_sub(now)), moment(at)),
        None if session.expiry_ms == 0 => "when its client leaves".into(),
        None => format!("{} after its client leaves", span(session.expiry_ms)),
    }
}

fn lag(millis: Option<u64>) -> Cell {
    match millis {
        None => Cell::none(),
        Some(millis) => Cell::new(span(millis), if millis >= LONG_LAG { Tone::Warn } else { Tone::Plain }),
    }
}

fn number(number: u64) -> Cell {
    if number == 0 { Cell::none() } else { number.to_string().into() }
}

/// Prints JSON.
pub fn print_json(what: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(what).context("it cannot be written as JSON")?;
    failure::print((text + "\n").as_bytes())
}
