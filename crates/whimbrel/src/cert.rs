//! `whimbrel cert`: certificates of brokers and clients.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Made, Wanted};

use crate::failure::{self, Failure};

const EXAMPLES: &str = "\
An authority is made once for a deployment. Whoever has its key can make brokers and clients: keep ca.key off the brokers.
Nothing is overwritten. Keys are readable by their owner only. docs/operations.md tells how certificates are replaced.

Examples:
  whimbrel cert ca --out ca --deployment city
  whimbrel cert broker --ca ca --name depot-north --host depot-north.example.org --host 10.0.0.5 --out depot-north
  whimbrel cert client --ca ca --name bus-7 --valid 30days";

/// Arguments of `whimbrel cert`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Cert {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the authority of a deployment.
    Ca {
        /// Where to write ca.pem and ca.key
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The deployment's name, as in `whimbrel serve --deployment`
        #[arg(long, value_name = "NAME")]
        deployment: String,
        /// For how long it is valid
        #[arg(long, value_name = "DURATION", default_value = "10years", value_parser = humantime::parse_duration)]
        valid: Duration,
    },
    /// Make a broker's certificate.
    Broker {
        #[command(flatten)]
        common: Common,
        /// DNS name or IP address under which clients reach it; repeatable
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Make a client's certificate.
    Client {
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    /// The directory of the authority
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,
    /// The name that is certified
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Where to write the certificate and its key [default: the authority's directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// For how long it is valid
    #[arg(long, value_name = "DURATION", default_value = "365days", value_parser = humantime::parse_duration)]
    valid: Duration,
}

impl Cert {
    /// Makes the certificate, and prints where it is.
    pub fn run(self) -> Result<(), Failure> {
        let made = match self.command {
            Command::Ca { out, deployment, valid } => authority::make_authority(&out, &deployment, valid),
            Command::Broker { common, hosts } => common.make(Role::Broker, &hosts),
            Command::Client { common } => common.make(Role::Client, &[]),
        };
        let Made { certificate, key } = made.map_err(|error| Failure::Runtime(error.into()))?;
        failure::print(format!("{}\n{}\n", certificate.display(), key.display()).as_bytes())
    }
}

impl Common {
    fn make(self, role: Role, hosts: &[String]) -> Result<Made, authority::MakeError> {
        let wanted = Wanted { role, name: &self.name, hosts, valid: self.valid };
        authority::make(&self.ca, self.out.as_ref().unwrap_or(&self.ca), &wanted)
    }
}
