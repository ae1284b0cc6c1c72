//! Speaking to a running broker over its control socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::de::DeserializeOwned;
use whimbrel_server::config::schema::{self, Key};
use whimbrel_server::config::{Given, Override, control_place};
use whimbrel_server::control::answers::Refused;
use whimbrel_server::control::socket;

use crate::failure::Failure;

/// How long the broker may take for one answer, or for the next part of a long one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an answer's first line and headers.
const HEAD_MAX: u64 = 16 << 10;

/// Bytes of an answer that is read as a whole.
const ANSWER_MAX: u64 = 64 << 20;

/// Which broker.
#[derive(clap::Args)]
pub struct Reach {
    /// The broker's data directory [default: as whimbrel.toml says]
    #[arg(long, env = "WHIMBREL_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The broker's control socket [default: control.sock in its data directory]
    #[arg(long, env = "WHIMBREL_CONTROL", hide_env_values = true, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The broker's configuration file [default: whimbrel.toml, if there is one here]
    #[arg(long, env = "WHIMBREL_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A running broker.
pub struct Control {
    path: PathBuf,
}

/// An answer that has begun.
pub struct Answer {
    /// What follows.
    pub body: BufReader<UnixStream>,
}

impl Reach {
    /// Where the broker is to be found.
    pub fn find(&self) -> Result<Control, Failure> {
        let given = |key: &'static Key, path: &Option<PathBuf>| {
            let text = path.as_ref()?.to_str()?.to_owned();
            Some(Override { key, given: Given::Flag, text })
        };
        let key = |name| schema::find("", name).expect("it is in the table of settings");
        let overrides: Vec<_> =
            [given(key("data"), &self.data), given(key("control"), &self.control)].into_iter().flatten().collect();
        match control_place(self.config.as_deref(), &overrides).map_err(Failure::Configuration)? {
            Some(path) => Ok(Control { path }),
            None => Err(anyhow!(
                "which broker? Name its data directory (--data DIR) or its control socket (--control PATH)"
            )
            .into()),
        }
    }
}

impl Control {
    /// Asks, and reads the answer.
    pub fn ask<T: DeserializeOwned>(&self, method: &str, target: &str) -> anyhow::Result<T> {
        let mut text = String::new();
        self.begin(method, target)?
            .body
            .take(ANSWER_MAX)
            .read_to_string(&mut text)
            .context("the broker's answer broke off")?;
        serde_json::from_str(&text).context("the broker's answer is not understood: is it of another version?")
    }

    /// Asks; the answer is there as soon as it begins.
    pub fn begin(&self, method: &str, target: &str) -> anyhow::Result<Answer> {
        let shown = self.path.display();
        let stream = socket::connect(&self.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                anyhow!("no broker listens on {shown}. Is it running, and is that its data directory (--data) or control socket (--control)?")
            }
            ErrorKind::PermissionDenied => {
                anyhow!("{shown} may only be used by the user that the broker runs as: try sudo -u")
            }
            _ => anyhow::Error::new(error).context(format!("cannot connect to {shown}")),
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Of this version an answer ends with its connection.
        let request = format!("{method} {target} HTTP/1.0\r\nhost: whimbrel\r\n\r\n");
        (&stream).write_all(request.as_bytes()).context("the broker does not listen")?;
        let mut body = BufReader::with_capacity(1 << 20, stream);
        let status = head(&mut body)?;
        if status == 200 {
            return Ok(Answer { body });
        }
        let mut text = String::new();
        body.take(ANSWER_MAX).read_to_string(&mut text).context("the broker's answer broke off")?;
        match serde_json::from_str::<Refused>(&text) {
            Ok(refused) => bail!("{}", refused.error),
            Err(_) => bail!("the broker refuses it with {status}: is it of another version?"),
        }
    }
}

/// Reads the first line and the headers; the status.
fn head(body: &mut BufReader<UnixStream>) -> anyhow::Result<u16> {
    let mut head = body.take(HEAD_MAX);
    let mut line = String::new();
    head.read_line(&mut line).context("the broker does not answer")?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("what answers is no broker")?;
    loop {
        line.clear();
        if head.read_line(&mut line).context("the broker's answer broke off")? == 0 {
            bail!("the broker's answer broke off");
        }
        if line.trim_end().is_empty() {
            return Ok(status);
        }
    }
}
