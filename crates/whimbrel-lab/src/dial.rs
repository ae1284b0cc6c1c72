//! How commands reach a broker as MQTT clients.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Error as AnyError, Result, anyhow};
use clap::Args;
use whimbrel_client::discovery::{self, FoundBroker};
use whimbrel_client::{Client, Error, Events, Options, ReasonCode, Tls, Version};

/// Beginning of a URL that stands for a broker in the local network; a deployment may follow.
const DISCOVER: &str = "mqtt+discover://";

/// Time for which a broker is looked for: a broker repeats its records only a second after it has
/// sent them last, and the question is repeated after a second, too.
const LOOK: Duration = Duration::from_secs(2);

/// Options of all commands that connect as a client.
#[derive(Args, Clone)]
pub struct Dial {
    /// The broker: mqtt://HOST or mqtt://HOST:PORT; mqtts:// for TLS, ws:// and wss:// for
    /// WebSocket (path /mqtt unless one is given); mqtt+discover:// or mqtt+discover://DEPLOYMENT
    /// for one that is found in the local network (`whimbrel discover`)
    #[arg(long, short, env = "WHIMBREL_URL", default_value = "mqtt://127.0.0.1:1883", value_name = "URL")]
    pub url: String,
    /// Version of MQTT: 5 or 3.1.1
    #[arg(long, short = 'V', default_value = "5", value_name = "VERSION", value_parser = version)]
    pub mqtt: Version,
    /// User name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Password or token; better given in the variable, where other users of this machine do not
    /// see it
    #[arg(long, env = "WHIMBREL_PASSWORD", hide_env_values = true, requires = "user", value_name = "PASSWORD")]
    password: Option<String>,
    /// Trust certificates signed by an authority in this PEM file
    /// [default: the system's authorities]
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Show this certificate (PEM, with those between it and its authority)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<String>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// Trust any certificate; for development only
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Keep-alive, seconds; 0: none
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    keep_alive: u16,
    /// How long the broker may take to answer, seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    patience: u16,
}

impl fmt::Debug for Dial {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("url", &self.url).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Dial {
    /// The options for the client library. Warns of options without effect.
    pub fn options(&self) -> Options {
        if !self.is_secure() && (self.insecure || self.ca.is_some() || self.cert.is_some()) {
            eprintln!(
                "warning: {} is asked without TLS, so that --ca, --cert, --key and --insecure mean nothing; with TLS it is mqtts:// or wss://",
                self.url
            );
        }
        let mut options = Options::new(&self.url)
            .version(self.mqtt)
            .keep_alive(Duration::from_secs(self.keep_alive.into()))
            .timeout(Duration::from_secs(self.patience.into()));
        if let Some(user) = &self.user {
            options = options.user(user, self.password.as_deref().unwrap_or_default());
        }
        if let Some((certificate, key)) = self.cert.as_ref().zip(self.key.as_ref()) {
            options = options.certificate(certificate, key);
        }
        options.tls(self.trust())
    }

    /// Finds the broker if the URL says so, before options are made.
    ///
    /// # Errors
    /// When none is found, or none can be looked for.
    pub async fn find(&mut self) -> Result<()> {
        let Some(rest) = self.url.strip_prefix(DISCOVER) else { return Ok(()) };
        let wanted = Some(rest.trim_end_matches('/')).filter(|wanted| !wanted.is_empty());
        let found = discovery::search(LOOK).await;
        let found = found.context("cannot look for a broker; name it: --url mqtt://HOST:PORT")?;
        let (url, note) = taken(wanted, &found)?;
        if let Some(note) = note {
            eprintln!("{note}");
        }
        self.url = url;
        Ok(())
    }

    fn is_secure(&self) -> bool {
        ["mqtts", "ssl", "tls", "wss"].iter().any(|scheme| self.url.starts_with(&format!("{scheme}:")))
    }

    /// The trusted certificates.
    fn trust(&self) -> Tls {
        match &self.ca {
            _ if self.insecure => Tls::Insecure,
            Some(file) => Tls::Authority(file.clone()),
            None => Tls::System,
        }
    }

    /// As [`Self::options`], with the certificate files read once for many connections.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn options_for_many(&self) -> Result<Options> {
        if !self.is_secure() {
            return Ok(self.options());
        }
        let identity = self.cert.clone().zip(self.key.clone());
        let identity = identity.map(|(certificate, key)| whimbrel_client::Identity { certificate, key });
        let read =
            whimbrel_client::tls_config(&self.trust(), identity.as_ref()).map_err(|error| self.explained(error))?;
        Ok(self.options().tls(Tls::Prepared(read)))
    }

    /// Connects.
    ///
    /// # Errors
    /// When there is no connection: why, and what may help.
    pub async fn connect(&self, options: Options) -> Result<(Client, Events)> {
        Client::connect(options).await.map_err(|error| self.explained(error))
    }

    /// An error of connecting, with a remedy.
    pub fn explained(&self, error: Error) -> AnyError {
        let told = format!("cannot connect to {}: {error}", self.url);
        match self.hint(&error) {
            Some(hint) => anyhow!("{told}\n{hint}"),
            None => anyhow!(told),
        }
    }

    fn hint(&self, error: &Error) -> Option<&'static str> {
        Some(match error {
            Error::Connection(cause) if cause.kind() == ErrorKind::ConnectionRefused => {
                "Is a broker running there? `whimbrel serve --dev` starts one on this machine"
            }
            Error::Connection(cause) if cause.kind() == ErrorKind::ConnectionReset => HANGS_UP,
            Error::Closed => HANGS_UP,
            Error::Timeout => {
                "Is a broker running there? Something may answer that is none, or a firewall lets nothing through"
            }
            Error::Untrusted(_) => UNTRUSTED,
            Error::NotBelieved(_) => "Show one that the broker's authority has signed (--cert FILE --key FILE)",
            Error::Refused { reason, .. } if SIGN_IN.contains(reason) && self.user.is_none() => {
                "Sign in: --user NAME, with the password in WHIMBREL_PASSWORD, or --cert FILE --key FILE over TLS"
            }
            _ => return None,
        })
    }
}

/// The URL of the broker that is taken of those that were found, and a note if there is a choice.
fn taken(wanted: Option<&str>, found: &[FoundBroker]) -> Result<(String, Option<String>)> {
    let fit: Vec<&FoundBroker> =
        found.iter().filter(|broker| wanted.is_none_or(|wanted| broker.deployment == wanted)).collect();
    let Some(first) = fit.first() else {
        let of = wanted.map(|wanted| format!(" of the deployment {wanted:?}")).unwrap_or_default();
        let others = if found.is_empty() { "" } else { "; there are brokers of other deployments" };
        return Err(anyhow!(
            "no broker{of} was found in the local network{others}\nStart one there (`whimbrel serve --dev --discover`), see what \
             `whimbrel discover --for 10s` finds, or name the broker: --url mqtt://HOST:PORT"
        ));
    };
    let note = (fit.len() > 1).then(|| {
        format!(
            "{} brokers were found; {} of the deployment {} at {} is taken (`whimbrel discover` shows all)",
            fit.len(),
            first.name,
            first.deployment,
            first.url()
        )
    });
    Ok((first.url(), note))
}

/// The remedy for an untrusted certificate of a broker.
pub const UNTRUSTED: &str = "Name the authority that has signed it (--ca FILE), and the host as its certificate does; \
    --insecure trusts anybody, for development only";

/// Explanations of a connection that ends before it has begun.
const HANGS_UP: &str =
    "It has hung up: is MQTT spoken at this port as --url says (mqtts:// for TLS, ws:// for WebSocket)?";

/// The reasons with which a client without a user name is refused.
const SIGN_IN: [ReasonCode; 2] = [ReasonCode::BAD_USER_NAME_OR_PASSWORD, ReasonCode::NOT_AUTHORIZED];

fn version(text: &str) -> Result<Version, &'static str> {
    match text {
        "5" | "5.0" => Ok(Version::V5),
        "3.1.1" | "4" => Ok(Version::V4),
        _ => Err("it is 5 or 3.1.1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(name: &str, deployment: &str, address: &str) -> FoundBroker {
        FoundBroker {
            deployment: deployment.into(),
            name: name.into(),
            address: address.parse().expect("an address"),
            version: "0.2.0".into(),
        }
    }

    #[test]
    fn the_first_broker_of_the_deployment_is_taken_and_a_choice_is_told() {
        let found = [broker("a", "city", "127.0.0.1:1883"), broker("b", "village", "127.0.0.1:1884")];
        let (url, note) = taken(None, &found).expect("there is one");
        assert_eq!(url, "mqtt://127.0.0.1:1883");
        assert!(note.is_some_and(|note| note.starts_with("2 brokers were found; a of the deployment city")));
        let (url, note) = taken(Some("village"), &found).expect("there is one");
        assert_eq!((&*url, note), ("mqtt://127.0.0.1:1884", None));
    }

    #[test]
    fn an_error_tells_what_to_do_where_none_is_found() {
        let none = taken(None, &[]).expect_err("there is none").to_string();
        assert!(
            none.contains("no broker was found") && none.contains("--discover") && none.contains("--url"),
            "{none}"
        );
        let other = taken(Some("city"), &[broker("b", "village", "127.0.0.1:1884")]).expect_err("there is none");
        let other = other.to_string();
        assert!(other.contains("\"city\"") && other.contains("other deployments"), "{other}");
    }
}
