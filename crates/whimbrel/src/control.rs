//! Requests to a running broker: over its control socket, or over HTTP.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde::de::DeserializeOwned;
use whimbrel_client::{Error, Identity, Tls};
use whimbrel_lab::dial::UNTRUSTED;
use whimbrel_server::api::answers::Refused;
use whimbrel_server::config::schema::{self, Key};
use whimbrel_server::config::{Given, Override, control_place};
use whimbrel_server::control::socket;

use crate::failure::Failure;

/// Time for the broker to begin an answer, and for each next part of a long one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an answer's first line and headers, at most.
const HEAD_MAX: u64 = 16 << 10;

/// Bytes of an answer that is read as a whole, at most.
const ANSWER_MAX: u64 = 64 << 20;

/// Bytes of a file with a password or a token, at most.
const SECRET_MAX: u64 = 16 << 10;

/// Bytes of an answer's first line that are shown where it is not JSON.
const LINE_MAX: usize = 300;

/// Default port of brokers' HTTP listeners.
const PORT: &str = "8080";

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
    /// Ask over HTTP instead: https://HOST or https://HOST:PORT (8080 if none is named); http://
    /// without TLS
    #[arg(long, env = "WHIMBREL_API", hide_env_values = true, value_name = "URL")]
    api: Option<String>,
    /// The user name to sign in with over HTTP
    #[arg(long, value_name = "NAME", requires = "api", requires = "password_file")]
    user: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// The file with a token to sign in with over HTTP
    #[arg(long, value_name = "FILE", requires = "api", conflicts_with = "user")]
    token_file: Option<PathBuf>,
    /// Over HTTPS, trust certificates signed by an authority in this PEM file
    /// [default: the system's authorities]
    #[arg(long, value_name = "FILE", requires = "api")]
    ca: Option<String>,
    /// Over HTTPS, show this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "api", requires = "key")]
    cert: Option<String>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// Over HTTPS, trust any certificate; for development only
    #[arg(long, requires = "api", conflicts_with = "ca")]
    insecure: bool,
}

/// A running broker, and how it is reached.
pub enum Control {
    /// At its control socket.
    Socket(PathBuf),
    /// At its HTTP listener.
    Http {
        /// `HOST:PORT`.
        host: String,
        /// The TLS configuration; `None`: without TLS.
        tls: Option<Arc<ClientConfig>>,
        /// The header with credentials, if any.
        signed: Option<String>,
    },
}

/// An answer whose body is still to be read.
pub struct Answer {
    /// The body.
    pub body: BufReader<Stream>,
}

/// A connection to a broker.
pub enum Stream {
    /// To its socket.
    Unix(UnixStream),
    /// To its HTTP listener.
    Tcp(TcpStream),
    /// To its HTTP listener, over TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => match stream.read(buffer) {
                // Each answer is the last of its connection, and has a length or is JSON, so a cut
                // one is noticed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }
}

impl Stream {
    /// Sends a request, and sets the time limits of the stream.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(request)
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(request)
            }
            Stream::Tls(stream) => {
                stream.sock.set_read_timeout(Some(PATIENCE))?;
                stream.sock.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(request)?;
                stream.flush()
            }
        }
    }
}

impl Reach {
    /// Finds the broker from the options.
    pub fn find(&self) -> Result<Control, Failure> {
        if let Some(url) = &self.api {
            return Ok(self.http(url)?);
        }
        let given = |key: &'static Key, path: &Option<PathBuf>| {
            let text = path.as_ref()?.to_str()?.to_owned();
            Some(Override { key, given: Given::Flag, text })
        };
        let key = |name| schema::find("", name).expect("it is in the table of settings");
        let overrides: Vec<_> =
            [given(key("data"), &self.data), given(key("control"), &self.control)].into_iter().flatten().collect();
        match control_place(self.config.as_deref(), &overrides).map_err(Failure::Configuration)? {
            Some(path) => Ok(Control::Socket(path)),
            None => Err(anyhow!(
                "which broker? Name its data directory (--data DIR), its control socket (--control PATH) or its HTTP address (--api URL)"
            )
            .into()),
        }
    }

    fn http(&self, url: &str) -> anyhow::Result<Control> {
        let (host, is_secure) = host_of(url)?;
        let trust = match &self.ca {
            _ if self.insecure => Tls::Insecure,
            Some(file) => Tls::Authority(file.clone()),
            None => Tls::System,
        };
        let identity = self.cert.clone().zip(self.key.clone());
        let identity = identity.map(|(certificate, key)| Identity { certificate, key });
        let tls = if is_secure { Some(whimbrel_client::tls_config(&trust, identity.as_ref())?) } else { None };
        let signed = match (&self.user, &self.password_file, &self.token_file) {
            (Some(user), Some(file), _) => {
                let password = secret(file)?;
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            (_, _, Some(file)) => Some(format!("Bearer {}", secret(file)?)),
            _ => None,
        };
        Ok(Control::Http { host, tls, signed })
    }
}

/// Host and port of an address, and whether it is reached over TLS.
fn host_of(url: &str) -> anyhow::Result<(String, bool)> {
    if let Some((_, host)) = url.rsplit_once('@') {
        bail!(
            "--api has a name or a password before @{host}: it is https://HOST:PORT or http://HOST:PORT; --user and --password-file give these"
        );
    }
    let (rest, is_secure) = match url.split_once("://") {
        Some(("http", rest)) => (rest, false),
        Some(("https", rest)) => (rest, true),
        _ => bail!("--api {url:?} is no address: it is https://HOST:PORT or http://HOST:PORT"),
    };
    let host = rest.strip_suffix('/').unwrap_or(rest);
    if host.is_empty() || host.contains(['/', '?', '#', ' ']) || host.contains(char::is_control) {
        bail!("--api {url:?} is no address of a broker: it is https://HOST:PORT or http://HOST:PORT and nothing more");
    }
    // The colons of an IPv6 address are in brackets.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    Ok((if has_port { host.to_owned() } else { format!("{host}:{PORT}") }, is_secure))
}

/// The first line of a file.
fn secret(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let opened = std::fs::File::open(file).with_context(|| format!("cannot read {shown}"))?;
    opened.take(SECRET_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    if line.is_empty() || line.contains(char::is_control) {
        bail!("{shown} has no password or token in its first line");
    }
    Ok(line)
}

impl Control {
    /// Sends a request, and reads and parses the answer.
    pub fn ask<T: DeserializeOwned>(&self, method: &str, target: &str) -> anyhow::Result<T> {
        let mut text = String::new();
        self.begin(method, target)?
            .body
            .take(ANSWER_MAX)
            .read_to_string(&mut text)
            .context("the broker's answer broke off")?;
        serde_json::from_str(&text).context("the broker's answer is not understood: is it of another version?")
    }

    /// Sends a request, and returns the answer as soon as its body begins.
    pub fn begin(&self, method: &str, target: &str) -> anyhow::Result<Answer> {
        let mut stream = self.connect()?;
        let (host, signed) = match self {
            Control::Socket(_) => ("whimbrel", None),
            Control::Http { host, signed, .. } => (&**host, signed.as_ref()),
        };
        let signed = signed.map_or(String::new(), |signed| format!("authorization: {signed}\r\n"));
        // In HTTP/1.0 an answer ends with its connection.
        let request = format!("{method} {target} HTTP/1.0\r\nhost: {host}\r\n{signed}\r\n");
        stream.send(request.as_bytes()).map_err(|error| self.not_asked(error))?;
        let mut body = BufReader::with_capacity(1 << 20, stream);
        let status = head(&mut body).map_err(|error| self.not_answered(error))?;
        if status == 200 {
            return Ok(Answer { body });
        }
        let mut text = String::new();
        body.take(ANSWER_MAX).read_to_string(&mut text).context("the broker's answer broke off")?;
        match serde_json::from_str::<Refused>(&text) {
            Ok(refused) => bail!("{}", refused.error),
            Err(_) => match text.lines().next().filter(|line| !line.is_empty() && line.len() <= LINE_MAX) {
                Some(line) => bail!("refused with status {status}: {line}"),
                None => bail!("the broker refuses it with {status}: is it of another version?"),
            },
        }
    }

    /// Why a request could not be sent: with TLS, the handshake is before it.
    fn not_asked(&self, error: io::Error) -> anyhow::Error {
        let Control::Http { host, tls: Some(_), .. } = self else {
            return anyhow::Error::new(error).context("the broker does not listen");
        };
        if let Some(rustls::Error::InvalidMessage(_)) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return anyhow!("no TLS is spoken at {host}: write http:// if that is the broker's HTTP listener");
        }
        let hint = match Error::from(error) {
            error @ Error::Untrusted(_) => (error, UNTRUSTED),
            error @ Error::NotBelieved(_) => {
                (error, "Show one that the broker's authority has signed (--cert FILE --key FILE)")
            }
            error => (error, "Is that the broker's HTTP address (--listen-http)?"),
        };
        anyhow!("cannot ask {host}: {}\n{}", hint.0, hint.1)
    }

    /// Why there is no answer: a broker may refuse this side's certificate when the handshake is
    /// complete at this end.
    fn not_answered(&self, error: anyhow::Error) -> anyhow::Error {
        if !matches!(self, Control::Http { tls: Some(_), .. }) {
            return error;
        }
        match error.downcast::<io::Error>() {
            Ok(error) => self.not_asked(error),
            Err(error) => error,
        }
    }

    /// The broker's process, to wait for its end: if it is reached at its socket, and the system
    /// tells the process.
    pub fn process(&self) -> Option<OwnedFd> {
        let Control::Socket(path) = self else { return None };
        let who = socket_peercred(socket::connect(path).ok()?).ok()?;
        pidfd_open(who.pid, PidfdFlags::empty()).ok()
    }

    /// Whether the broker listens.
    pub fn listens(&self) -> bool {
        self.connect().is_ok()
    }

    fn connect(&self) -> anyhow::Result<Stream> {
        match self {
            Control::Socket(path) => {
                let shown = path.display();
                let stream = socket::connect(path).map_err(|error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                        anyhow!("no broker listens on {shown}. Is it running, and is that its data directory (--data) or control socket (--control)?")
                    }
                    ErrorKind::PermissionDenied => {
                        anyhow!("{shown} may only be used by the user that the broker runs as: try sudo -u")
                    }
                    _ => anyhow::Error::new(error).context(format!("cannot connect to {shown}")),
                })?;
                Ok(Stream::Unix(stream))
            }
            Control::Http { host, tls, .. } => {
                let stream = TcpStream::connect(host).with_context(|| {
                    format!("cannot connect to {host}: is a broker running there, and is that its HTTP address (--listen-http)?")
                })?;
                let Some(tls) = tls else { return Ok(Stream::Tcp(stream)) };
                let name = host.rsplit_once(':').map_or(&**host, |(name, _)| name).trim_matches(['[', ']']).to_owned();
                let name = ServerName::try_from(name)
                    .with_context(|| format!("{host} is no host that a certificate can name"))?;
                let connection = ClientConnection::new(tls.clone(), name).context("TLS cannot begin")?;
                Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
            }
        }
    }
}

/// Reads the first line and the headers. Returns the status.
fn head(body: &mut BufReader<Stream>) -> anyhow::Result<u16> {
    let mut head = body.take(HEAD_MAX);
    let mut first = Vec::new();
    head.read_until(b'\n', &mut first).context("the broker does not answer")?;
    if let [0x15 | 0x16, 0x03, ..] = first[..] {
        bail!("TLS is spoken there: write https://");
    }
    let mut line = String::from_utf8(first).unwrap_or_default();
    let status = line.split(' ').nth(1).filter(|_| line.starts_with("HTTP/")).and_then(|status| status.parse().ok());
    let status =
        status.context("what answers is no broker's HTTP listener (--listen-http, port 8080 unless told otherwise)")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_nothing_else() {
        let hosts = [
            ("http://a:80", "a:80"),
            ("http://a/", "a:8080"),
            ("http://[::1]", "[::1]:8080"),
            ("http://[::1]:9", "[::1]:9"),
        ];
        for (url, host) in hosts {
            assert_eq!(host_of(url).expect(url), (host.to_owned(), false));
        }
        assert_eq!(host_of("https://a").expect("an address"), ("a:8080".to_owned(), true));
        for url in ["a:80", "mqtt://a", "http://", "http://a/api", "http://u:p@a", "http://a\r\nx: y", "ftp://a"] {
            let error = host_of(url).expect_err(url).to_string();
            assert!(error.contains("--api") && error.contains("http://") && !error.contains("u:p"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_a_files_first_line() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let file = place.path().join("password");
        std::fs::write(&file, "open sesame\nmore\n").expect("written");
        assert_eq!(secret(&file).expect("a password"), "open sesame");
        for wrong in ["", "\n", "a\tb\n"] {
            std::fs::write(&file, wrong).expect("written");
            assert!(secret(&file).expect_err(wrong).to_string().contains("first line"));
        }
        assert!(secret(&place.path().join("none")).is_err());
    }
}
