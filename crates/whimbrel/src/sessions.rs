//! `whimbrel sessions`: who is, or was, at a running broker.

use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use whimbrel_server::control::answers::{Dropped, Session, Sessions as Page, Shown, Subscription};
use whimbrel_server::control::percent;

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::table::{Cell, Table, Tone, count, is_coloured, moment, name, span};

/// A position that is older than this is shown as something to look at.
const LONG_LAG: u64 = 60_000;

const EXAMPLES: &str = "\
Examples:
  whimbrel sessions list --data /var/lib/whimbrel              all of them, by client id
  whimbrel sessions list --lagging --sort lag                  who is furthest behind
  whimbrel sessions show dispatch --json | jq .subscriptions   positions, for a script
  whimbrel sessions drop old-scanner                           end it, and give up what is kept for it

LAG is how old the position of the session's slowest durable subscription is: it has everything up to then.
A session ends by itself when its client has been away for as long as it asked for, and at the latest after
`max_session` in [limits] (7 days unless configured otherwise). The broker answers on a Unix socket that only
its own user can open.";

/// Arguments of `whimbrel sessions`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sessions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List sessions: who is there, who is away and for how long, and how far each is behind.
    List {
        #[command(flatten)]
        reach: Reach,
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
    /// End a session as its expiry would: its client is disconnected, its will published, and what was kept for it alone is given up.
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
    /// Does what was asked.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List { reach, away, lagging, sort, json } => {
                let (mut sessions, now) = all(&reach.find()?)?;
                sessions.retain(|session| !(away && session.connected || lagging && session.lag_ms.is_none()));
                match sort {
                    Sort::Client => {}
                    Sort::Lag => sessions.sort_by_key(|session| std::cmp::Reverse(session.lag_ms)),
                    Sort::Expires => sessions.sort_by_key(|session| session.expires_ms.unwrap_or(u64::MAX)),
                }
                print_all(&sessions, now, json)
            }
            Command::Show { client, .. } | Command::Drop { client, .. } if client.is_empty() => Err(anyhow!(
                "the client id is empty: no session has such a one; `whimbrel sessions list` shows those that there are"
            )
            .into()),
            Command::Show { reach, client, json } => show(&reach.find()?, &client, json),
            Command::Drop { reach, client, json } => end(&reach.find()?, &client, json),
        }
    }
}

/// All sessions by client id, and the broker's time.
fn all(control: &Control) -> Result<(Vec<Session>, u64), Failure> {
    let (mut sessions, mut next) = (Vec::new(), Some(0));
    let mut now = 0;
    while let Some(from) = next {
        let page: Page = control.ask("GET", &format!("/api/v1/sessions?from={from}"))?;
        sessions.extend(page.sessions);
        (next, now) = (page.next, page.now_ms);
    }
    sessions.sort_by(|a, b| a.client_id.cmp(&b.client_id));
    Ok((sessions, now))
}

fn print_all(sessions: &[Session], now: u64, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(&serde_json::json!({ "now_ms": now, "sessions": sessions }));
    }
    let mut table =
        Table::new(&["CLIENT", "STATE", "EXPIRES", "SUBSCRIPTIONS>", "DURABLE>", "LAG>", "IN FLIGHT>", "WAITING>"]);
    for session in sessions {
        table.row(vec![
            name(&session.client_id).into(),
            state(session, now),
            expires(session, now).into(),
            session.subscriptions.to_string().into(),
            session.durable.to_string().into(),
            lag(session.lag_ms),
            number(session.in_flight),
            number(session.waiting),
        ]);
    }
    let here = sessions.iter().filter(|session| session.connected).count();
    let foot = format!(
        "{}, {here} connected, {} behind\n",
        count(sessions.len() as u64, "session", "sessions"),
        sessions.iter().filter(|session| session.lag_ms.is_some()).count(),
    );
    failure::print((table.text(is_coloured()) + &foot).as_bytes())
}

fn show(control: &Control, client: &str, json: bool) -> Result<(), Failure> {
    let at = format!("/api/v1/sessions/{}", percent::encode(client));
    let mut shown: Shown = control.ask("GET", &at)?;
    while let Some(after) = shown.next.take() {
        let more: Shown = control.ask("GET", &format!("{at}?after={}", percent::encode(&after)))?;
        shown.subscriptions.extend(more.subscriptions);
        shown.next = more.next;
    }
    if json {
        return print_json(&shown);
    }
    let session = &shown.session;
    let coloured = is_coloured();
    let mut out = format!("{}\n", name(&session.client_id));
    let mut facts = Table::new(&["", ""]);
    facts.row(vec!["  state".into(), state(session, shown.now_ms)]);
    facts.row(vec!["  expires".into(), expires_in_words(session, shown.now_ms).into()]);
    let kept = if session.kept { "in the journal" } else { "in memory only: it ends with the broker" };
    facts.row(vec!["  kept".into(), kept.into()]);
    if let Some(epoch) = session.epoch {
        let keeper = session.given_to.as_deref().map_or("this broker".to_owned(), |to| format!("{to}, by now"));
        facts.row(vec!["  keeper".into(), keeper.into()]);
        let deputy = session.deputy.as_deref().unwrap_or("none has a copy yet").to_owned();
        facts.row(vec!["  deputy".into(), deputy.into()]);
        facts.row(vec!["  epoch".into(), epoch.to_string().into()]);
    }
    let in_flight = format!("{} in flight, {} waiting in memory", session.in_flight, session.waiting);
    facts.row(vec!["  deliveries".into(), in_flight.into()]);
    // Without a head.
    out += facts.text(coloured).split_once('\n').map_or("", |(_, rows)| rows);
    out.push('\n');
    let mut table = Table::new(&["FILTER", "QOS>", "DURABILITY", "POSITION", "LAG>", "SELECTOR"]);
    for subscription in &shown.subscriptions {
        table.row(row(subscription));
    }
    if shown.subscriptions.is_empty() {
        out += "no subscriptions\n";
    } else {
        out += &table.text(coloured);
    }
    failure::print(out.as_bytes())
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

fn end(control: &Control, client: &str, json: bool) -> Result<(), Failure> {
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

/// Prints what machines read.
pub fn print_json(what: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(what).context("it cannot be written as JSON")?;
    failure::print((text + "\n").as_bytes())
}
