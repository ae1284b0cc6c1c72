//! `whimbrel sub` with a position: over several connections and runs.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use tokio::time::{Instant, sleep_until};
use whimbrel_client::{
    CheckpointStore, Durability, Error, FileStore, Followed, Follower, Gap, Notice, Options, Position, ReasonCode,
    Start, Subscription, moment,
};

use crate::connection::Connection;
use crate::failure::tell;
use crate::output::{reader_gone, written};
use crate::print::{self, Printer};
use crate::subscribe::OUTPUT_BYTES;

/// Gaps that are gathered to be reported together, at most.
const UNTOLD_MAX: usize = 1_000;

const TOKEN_FILE_HELP: &str = "\
Keep the position in this file, and go on from there; without the file it begins now, or as --from says. The file is \
replaced as a whole after messages have been written to standard output. So nothing is missed and nothing is printed twice, \
however often the connection breaks or this command is interrupted. If it is killed between printing and saving, \
what was printed since is printed again: at least once then. Implies --durability semi-durable.";

/// Options about what happens to messages while nobody is here.
#[derive(Args)]
#[command(next_help_heading = "Coming back")]
pub struct Returning {
    /// What it gets of the time in which it is away: nondurable: nothing; semi-durable: what the
    /// broker's cache still has; durable: everything. A semi-durable one connects again whenever
    /// the connection breaks
    #[arg(long, value_name = "CLASS", value_parser = durability)]
    pub durability: Option<Durability>,
    /// Keep the position in this file, and go on from there
    #[arg(long, value_name = "FILE", long_help = TOKEN_FILE_HELP)]
    token_file: Option<PathBuf>,
    /// Where to begin if no file says so: a token, a time as 2026-11-21T20:00:00Z, or earliest;
    /// implies --durability semi-durable
    #[arg(long, value_name = "TOKEN|TIME|earliest", value_parser = start)]
    from: Option<Start>,
    /// Print gap and silence notices in their place among the messages; gaps are told on standard
    /// error, too
    #[arg(long)]
    pub notices: bool,
    /// Tell the broker by token what has been printed; implies --durability semi-durable
    #[arg(long)]
    ack_by_token: bool,
}

impl Returning {
    /// Whether any of these options was given.
    pub fn is_used(&self) -> bool {
        self.durability.is_some() || self.notices || self.keeps_position(false)
    }

    /// Whether the position is kept by this command; semi-durable subscriptions of a session leave
    /// it to the broker.
    pub fn keeps_position(&self, has_session: bool) -> bool {
        let semi_durable = self.durability == Some(Durability::SemiDurable) && !has_session;
        semi_durable || self.token_file.is_some() || self.from.is_some() || self.ack_by_token
    }
}

fn durability(text: &str) -> Result<Durability, &'static str> {
    let all = [Durability::Nondurable, Durability::SemiDurable, Durability::Durable];
    all.into_iter().find(|class| class.name() == text).ok_or("it is nondurable, semi-durable or durable")
}

/// A text with a colon is a time: tokens have none.
fn start(text: &str) -> Result<Start, String> {
    if text == "earliest" {
        return Ok(Start::Earliest);
    }
    if let Some(at) = moment::read(text) {
        let at = jiff::Timestamp::from_nanosecond(at.as_nanos().into()).map_err(|error| error.to_string())?;
        return Ok(Start::Since(at.to_string()));
    }
    match text.parse::<Position>() {
        Ok(position) => Ok(Start::After(position)),
        Err(error) => Err(moment::advice(text).unwrap_or_else(|| {
            if text.contains(':') && !text.contains(',') {
                format!("it is no time as {}, and as a token: {error}", moment::EXAMPLE)
            } else {
                error.to_string()
            }
        })),
    }
}

/// A subscription to follow.
pub struct Follow<'a> {
    pub connection: &'a Connection,
    pub options: Options,
    pub subscription: Subscription,
    pub returning: &'a Returning,
    pub printer: Printer,
    /// When to end.
    pub end: Option<Instant>,
}

/// Counts for the report at the end.
#[derive(Default)]
struct Account {
    messages: u64,
    gaps: u64,
    interruptions: u64,
    /// Gaps of this batch.
    untold: Vec<Gap>,
}

impl Follow<'_> {
    /// Prints up to `count` messages, or until the time is over or the user interrupts. Returns the
    /// number of messages missing when the time was over.
    pub async fn run(self, count: u64) -> Result<u64> {
        let mut store = self.returning.token_file.as_ref().map(FileStore::new);
        let saved = match &mut store {
            Some(store) => store.load()?,
            None => None,
        };
        let goes_on = saved.is_some();
        let start = saved.map(Start::After).or_else(|| self.returning.from.clone());
        let mut subscription = self.subscription.clone();
        if let Some(start) = start {
            subscription = subscription.from(start);
        }
        if self.returning.ack_by_token {
            subscription = subscription.acknowledged_by_token();
        }
        let started = Follower::start(self.options.clone(), subscription).await;
        let mut follower = started.map_err(|error| self.explained(error, goes_on))?;
        if let Some(store) = &mut store {
            store.save(follower.position())?;
            let how = if goes_on { "goes on from" } else { "is kept in" };
            tell(format_args!("the position {how} {}", store.path().display()));
        }
        let mut account = Account::default();
        let ended = self.print_all(&mut follower, &mut store, &mut account, count).await;
        follower.close().await;
        account.tell(store.as_ref());
        let in_time = ended.map_err(|error| match error.downcast::<Error>() {
            Ok(error) => self.explained(error, true),
            Err(error) => error,
        })?;
        Ok(if in_time { 0 } else { count - account.messages })
    }

    /// Prints messages. Returns whether it ended before the time was over.
    async fn print_all(
        &self,
        follower: &mut Follower,
        store: &mut Option<FileStore>,
        account: &mut Account,
        count: u64,
    ) -> Result<bool> {
        let over = async {
            match self.end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let interrupt = tokio::signal::ctrl_c();
        let unread = reader_gone();
        tokio::pin!(interrupt, unread);
        let mut output = Vec::new();
        let mut saved = follower.position().clone();
        while account.messages < count {
            let mut next = tokio::select! {
                followed = follower.next() => Some(followed?),
                () = &mut over => return Ok(false),
                () = &mut unread => return Ok(true),
                result = &mut interrupt => {
                    result.context("cannot wait for an interrupt")?;
                    return Ok(true);
                }
            };
            while let Some(followed) = next {
                self.take(followed, account, &mut output);
                let has_room = output.len() < OUTPUT_BYTES && account.untold.len() < UNTOLD_MAX;
                let has_room = has_room && account.messages < count;
                next = if has_room { follower.try_next() } else { None };
            }
            print::words(&account.untold).iter().for_each(tell);
            account.untold.clear();
            if !written(&output)? {
                // The reader has gone: messages that it has not read are sent again in the next
                // run.
                return Ok(true);
            }
            output.clear();
            if saved != *follower.position() {
                saved.clone_from(follower.position());
                self.keep(follower, store).await?;
            }
        }
        Ok(true)
    }

    /// Counts an item and appends it to the output; reports everything but messages on standard
    /// error.
    fn take(&self, followed: Followed, account: &mut Account, output: &mut Vec<u8>) {
        match followed {
            Followed::Message(message) => account.messages += u64::from(self.printer.put(&message, output)),
            Followed::Notice(notice) => {
                if let Notice::Gap(gap) = &notice {
                    account.gaps += 1;
                    account.untold.push(gap.clone());
                }
                if self.returning.notices {
                    self.printer.put_notice(&notice, output);
                }
            }
            Followed::Lost { reason, pause } => {
                account.interruptions += 1;
                tell(format_args!("no connection: {reason}; the next attempt is in {pause:?}"));
            }
            Followed::Resumed => tell("connected again, and going on where it was"),
        }
    }

    /// Saves the position, so that messages that were printed are not sent again.
    async fn keep(&self, follower: &mut Follower, store: &mut Option<FileStore>) -> Result<()> {
        if let Some(store) = store {
            store.save(follower.position())?;
        }
        if self.returning.ack_by_token {
            match follower.acknowledge().await {
                // The next acknowledgement includes this one; the position is kept here all the
                // same.
                Err(error) if error.is_temporary() => {}
                result => _ = result.context("the broker does not take the acknowledgement")?,
            }
        }
        Ok(())
    }

    /// Why the broker refused the subscription, and what helps.
    fn explained(&self, error: Error, goes_on: bool) -> anyhow::Error {
        let Error::NotSubscribed { reason, text } = error else {
            return self.connection.explained(error).context("cannot follow the subscription");
        };
        let cause = text.map_or_else(|| reason.to_string(), |text| format!("{text} ({reason})"));
        if reason != ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR {
            return anyhow!("refused by the broker: {cause}");
        }
        let helps = "to begin elsewhere give --from earliest, or a time";
        match (&self.returning.token_file, &self.returning.from) {
            (Some(file), _) if goes_on => {
                let file = file.display();
                anyhow!(
                    "the broker does not go on from the position in {file}: {cause}\nIf it is not needed any more, delete {file} to begin now; {helps} as well"
                )
            }
            (_, Some(start)) => {
                anyhow!("the broker does not begin at --from {start}: {cause}\nLeave it out to begin now; {helps}")
            }
            _ => anyhow!("refused by the broker: {cause}"),
        }
    }
}

impl Account {
    fn tell(&self, store: Option<&FileStore>) {
        let Account { messages, gaps, interruptions, .. } = self;
        let kept = store.map_or_else(String::new, |store| format!("; the position is in {}", store.path().display()));
        let many = |count: &u64, what: &str| format!("{count} {what}{}", if *count == 1 { "" } else { "s" });
        tell(format_args!(
            "{}, {}, {}{kept}",
            many(messages, "message"),
            many(gaps, "gap"),
            many(interruptions, "interruption")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_begin_are_told_apart_before_anything_is_connected() {
        assert_eq!(start("earliest"), Ok(Start::Earliest));
        assert_eq!(start("2026-01-01T01:00:00+01:00"), Ok(Start::Since("2026-01-01T00:00:00Z".to_owned())));
        assert_eq!(start("2026-01-01T00:00:00.5000000000000Z"), Ok(Start::Since("2026-01-01T00:00:00.5Z".to_owned())));
        assert!(start("1767225600").expect_err("seconds").ends_with("as 2026-01-01T00:00:00Z"));
        assert!(start("2026-03-01").expect_err("a date").ends_with("as 2026-03-01T00:00:00Z"));
        assert!(start("12:00").expect_err("no date").contains("no time as 2026-03-01T12:00:00Z"));
        assert!(start("nonsense!").expect_err("no token").contains("checkpoint token"));
    }
}
