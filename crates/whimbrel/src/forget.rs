//! `whimbrel forget`: a broker that will never come back.

use anyhow::anyhow;
use whimbrel_server::api::answers::Forgotten;
use whimbrel_server::api::percent;

use crate::control::Reach;
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::table::{count, name};

const DETAILS: &str = "\
What a broker has not told the others is lost with it, and they say so to whoever may have wanted it. What they keep
in their logs for its durable subscriptions is given up. Without this command they keep that until `max_session` in
[limits] has passed (7 days unless configured otherwise), as it may come back.

If it comes back after all, with its data directory, its durable subscriptions are told what was given up (a gap
`released`). Ask any broker that can reach the others; it tells them, and remembers it.

Examples:
  whimbrel forget depot-3 --data /var/lib/whimbrel
  whimbrel forget depot-3 --force                       also while it can still be reached: as soon as it cannot";

/// Arguments of `whimbrel forget`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Forget {
    #[command(flatten)]
    reach: Reach,
    /// The broker's name, as `whimbrel topology` shows it
    broker: String,
    /// Also if it can be reached: it is forgotten once it cannot be reached any more
    #[arg(long)]
    force: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Forget {
    /// Asks the broker, and prints the result.
    pub fn run(&self) -> Result<(), Failure> {
        if self.broker.is_empty() {
            return Err(anyhow!("the broker's name is empty; `whimbrel topology` shows the names").into());
        }
        let force = if self.force { "?force=1" } else { "" };
        let target = format!("/api/v1/brokers/{}{force}", percent::encode(&self.broker));
        let answer: Forgotten = self.reach.find()?.ask("DELETE", &target)?;
        if self.json {
            return print_json(&answer);
        }
        let hosts = count(answer.hosts, "host", "hosts");
        let durable = if answer.durable { "" } else { "; that is not on the disk yet" };
        failure::print(format!("{} is forgotten ({hosts} of that name){durable}\n", name(&answer.name)).as_bytes())
    }
}
