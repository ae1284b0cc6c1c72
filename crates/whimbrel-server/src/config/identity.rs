//! Who the broker is and how it knows others: an authority, or `--dev` and nobody.

use std::net::SocketAddr;
use std::path::Path;

use super::address::{self, Reach};
use super::problem::Problem;
use super::settings::Settings;
use super::{Certificate, Listener};
use crate::identity::credentials::{self, Known};
use crate::tls;

/// The certificate, or `None` with a problem noted. Where there is an authority, the broker's name and deployment are those of its certificate.
pub(super) fn load(settings: &mut Settings) -> Option<Certificate> {
    let paths = ["tls_cert", "tls_key", "tls_ca"].map(|setting| settings.path(setting));
    let is_dev = settings.switch("dev");
    let (at, message, help) = match &paths {
        [.., Some(_)] if is_dev => (
            "tls_ca",
            "`tls_ca` is given with `dev`".to_owned(),
            "leave out --dev: with an authority everyone is known; or leave out the authority",
        ),
        [Some(cert), Some(key), Some(authorities)] => match credentials::from_files(cert, key, authorities) {
            Ok(known) => return take_names(settings, known),
            Err(tls::FileError { of, message, help }) => (setting_of(of), message, help),
        },
        [.., Some(_)] => (
            "tls_ca",
            "`tls_ca` is given without `tls_cert` and `tls_key`".to_owned(),
            "give the broker's own certificate and key too; `whimbrel cert broker` makes them",
        ),
        _ if !is_dev => {
            if settings.problems.is_empty() {
                settings.problems.push(refusal_of_strangers(settings));
            }
            return None;
        }
        [None, None, None] => return Some(Certificate::Made),
        [Some(cert), Some(key), None] => match of_server(cert, key) {
            Ok(certificate) => return Some(certificate),
            Err(tls::FileError { of, message, help }) => (setting_of(of), message, help),
        },
        [Some(_), None, None] => ("tls_cert", "`tls_cert` is given without `tls_key`".to_owned(), "give both, or none"),
        [None, Some(_), None] => ("tls_key", "`tls_key` is given without `tls_cert`".to_owned(), "give both, or none"),
    };
    let problem = Problem::new(message).at(settings.place(at), "here").help(help);
    settings.problems.push(problem);
    None
}

fn of_server(cert: &Path, key: &Path) -> Result<Certificate, tls::FileError> {
    tls::from_files(cert, key).map(Certificate::Files)
}

fn setting_of(file: tls::File) -> &'static str {
    match file {
        tls::File::Certificate => "tls_cert",
        tls::File::Key => "tls_key",
        tls::File::Authorities => "tls_ca",
    }
}

/// The broker's name and deployment are what its certificate says; whoever gives others is mistaken about one of them.
fn take_names(settings: &mut Settings, known: Known) -> Option<Certificate> {
    let place = settings.place("tls_cert").cloned().expect("the certificate was given");
    let mut is_sound = true;
    for (setting, certified) in [("name", &known.identity.name), ("deployment", &known.identity.deployment)] {
        settings.adopt(setting, certified, place.clone());
        let given = settings.text(setting);
        if given != *certified {
            let problem = Problem::new(format!("`{setting}` is {given:?}, but the certificate says {certified:?}"));
            let problem = problem.at(settings.place(setting), "here");
            settings.problems.push(problem.help("leave it out, or name the certificate of that broker (tls_cert)"));
            is_sound = false;
        }
    }
    is_sound.then(|| Certificate::Known(Box::new(known)))
}

fn refusal_of_strangers(settings: &Settings) -> Problem {
    Problem::new("the broker does not start without --dev or an authority: it could not tell who its clients are")
        .at(settings.place("dev"), "off")
        .help(
            "give --tls-ca, --tls-cert and --tls-key (`whimbrel cert` makes them): then brokers and clients show \
             certificates. Or give --dev: then everyone who can reach a listener may publish and subscribe to everything; \
             it listens on loopback only, or on private addresses that --listen-… names, and never on public ones",
        )
}

/// What to listen on. Without `--dev` there are no listeners at which clients cannot be known; asking for one is a problem.
pub(super) fn listeners(settings: &mut Settings) -> Vec<(Listener, SocketAddr)> {
    let is_dev = settings.switch("dev");
    let mut listen = Vec::new();
    for listener in Listener::ALL {
        let key = listener.key();
        let Some(address) = settings.listen(&key) else { continue };
        if is_dev || !matches!(listener, Listener::Mqtt | Listener::Ws) {
            listen.push((listener, address));
        } else if settings.place(&key).is_some() && settings.problems.is_empty() {
            let problem =
                Problem::new(format!("`{key}` must be \"off\" without --dev: nothing tells who its clients are"))
                    .at(settings.place(&key), "no certificates there")
                    .help("leave it out, and use --listen-tls or --listen-wss, where clients show certificates");
            settings.problems.push(problem);
        }
    }
    listen
}

/// Without authentication, only loopback is safe, and a private network is the operator's explicit choice.
pub(super) fn check_reach(listen: &[(Listener, SocketAddr)], settings: &mut Settings, warnings: &mut Vec<String>) {
    for (listener, address) in listen {
        let key = listener.key();
        let refused = match address::reach(address.ip()) {
            Reach::Loopback => continue,
            Reach::Private => {
                warnings.push(format!(
                    "`{key}` is {address}, a private address: everyone in that network can publish and subscribe"
                ));
                continue;
            }
            Reach::Every => "every address of this machine, public ones too",
            Reach::Public => "a public address",
        };
        let problem = Problem::new(format!("`{key}` must not be {address} with --dev: it is {refused}"))
            .at(settings.place(&key), "no authentication protects it")
            .help("use a loopback address, or a private one such as 10.0.0.5 or 192.168.1.5 that this machine has");
        settings.problems.push(problem);
    }
}
