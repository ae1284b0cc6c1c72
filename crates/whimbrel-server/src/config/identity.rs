//! Identity of the broker and authentication of others: an authority, or `--dev` without any.

use std::net::SocketAddr;

use super::access;
use super::address::{self, Reach};
use super::fence::Watched;
use super::problem::Problem;
use super::settings::Settings;
use super::{Certificate, Listener};
use crate::identity::credentials::{self, Known};
use crate::tls;

/// The certificate, or `None` with a problem recorded. With an authority, the broker's name and
/// deployment are those of its certificate.
pub(super) fn load(settings: &mut Settings) -> Option<Certificate> {
    let paths = ["tls_cert", "tls_key", "tls_ca"].map(|setting| settings.path(setting));
    let (is_dev, has_source) = (settings.switch("dev"), access::has_source(settings));
    let revoked = settings.path("tls_crl");
    let (at, message, help) = match &paths {
        [.., None] if revoked.is_some() => (
            "tls_crl",
            "`tls_crl` is given without `tls_ca`".to_owned(),
            "give the authority whose certificates it lists (--tls-ca), or leave it out",
        ),
        [.., Some(_)] if is_dev => (
            "tls_ca",
            "`tls_ca` is given with `dev`".to_owned(),
            "leave out --dev: with an authority everyone is known; or leave out the authority",
        ),
        [Some(cert), Some(key), Some(authorities)] => {
            let revoked = revoked.as_deref();
            settings.watched.extend([cert, key, authorities].map(|path| Watched::look(path)));
            settings.watched.extend(revoked.map(Watched::look));
            // A client with a password or a token needs no certificate.
            match credentials::from_files((cert, key), authorities, revoked, !has_source) {
                Ok(known) => return take_names(settings, known),
                Err(tls::FileError { of, message, help }) => (setting_of(of), message, help),
            }
        }
        [.., Some(_)] => (
            "tls_ca",
            "`tls_ca` is given without `tls_cert` and `tls_key`".to_owned(),
            "give the broker's own certificate and key too; `whimbrel cert broker` makes them",
        ),
        _ if !is_dev && !has_source => {
            if settings.problems.is_empty() {
                settings.problems.push(refusal_of_strangers(settings));
            }
            return None;
        }
        [None, None, None] if !is_dev => return Some(Certificate::None),
        [None, None, None] => return Some(Certificate::Made),
        [Some(cert), Some(key), None] => {
            settings.watched.extend([cert, key].map(|path| Watched::look(path)));
            match tls::from_files(cert, key) {
                Ok(own) => return Some(Certificate::Files(own)),
                Err(tls::FileError { of, message, help }) => (setting_of(of), message, help),
            }
        }
        [Some(_), None, None] => ("tls_cert", "`tls_cert` is given without `tls_key`".to_owned(), "give both, or none"),
        [None, Some(_), None] => ("tls_key", "`tls_key` is given without `tls_cert`".to_owned(), "give both, or none"),
    };
    let problem = Problem::new(message).at(settings.place(at), "here").help(help);
    settings.problems.push(problem);
    None
}

fn setting_of(file: tls::File) -> &'static str {
    match file {
        tls::File::Certificate => "tls_cert",
        tls::File::Key => "tls_key",
        tls::File::Authorities => "tls_ca",
        tls::File::Revoked => "tls_crl",
    }
}

/// Takes the broker's name and deployment from its certificate; settings that differ are a mistake.
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
    Problem::new("the broker does not start without --dev or a source of identity: it could not tell who its clients are")
        .at(settings.place("dev"), "off")
        .help(
            "name a file of passwords ([identity] passwords = \"FILE\"; `whimbrel passwd` makes it) or keys of tokens \
             ([[identity.key]]), or give --tls-ca, --tls-cert and --tls-key (`whimbrel cert` makes them): then brokers and \
             clients show certificates. See docs/trust.md. Or give --dev: then everyone who can reach a listener may publish and subscribe to everything; \
             it listens on loopback only, or on private addresses that --listen-… names, and never on public ones",
        )
}

/// Whether the HTTP listener speaks no TLS: as set; by default if no certificate is loaded from
/// files, as browsers do not trust one that `--dev` makes.
pub(super) fn is_http_plain(settings: &Settings) -> bool {
    match settings.place("http_plain") {
        Some(_) => settings.switch("http_plain"),
        None => settings.path("tls_cert").is_none(),
    }
}

/// The addresses to listen on. Without `--dev`, a listener that cannot authenticate its clients is
/// off by default, and a problem if it is set.
pub(super) fn listeners(settings: &mut Settings, warnings: &mut Vec<String>) -> Vec<(Listener, SocketAddr)> {
    let (is_dev, has_source) = (settings.switch("dev"), access::has_source(settings));
    let (has_certificate, has_authority) = (settings.path("tls_cert").is_some(), settings.path("tls_ca").is_some());
    let mut listen = Vec::new();
    for listener in Listener::ALL {
        let key = listener.key();
        let Some(address) = settings.listen(&key) else { continue };
        let lacks = match listener {
            _ if is_dev => None,
            Listener::Mqtt | Listener::Ws => (!has_source).then_some((
                "nothing tells who its clients are",
                "no certificates there",
                "leave it out, and use --listen-tls or --listen-wss, where clients show certificates; or give passwords or \
                 keys of tokens ([identity])",
            )),
            Listener::Tls | Listener::Wss => (!has_certificate).then_some((
                "there is no certificate to show",
                "needs one",
                "give --tls-cert and --tls-key, or leave it out",
            )),
            Listener::Overlay => (!has_authority).then_some((
                "nothing tells who the other brokers are",
                "needs an authority",
                "give --tls-ca, --tls-cert and --tls-key (`whimbrel cert` makes them), or leave it out",
            )),
            Listener::Http => (!has_certificate && !is_http_plain(settings)).then_some((
                "there is no certificate to show",
                "`http_plain` is false",
                "give --tls-cert and --tls-key, or leave out --http-plain=false",
            )),
        };
        let is_asked = settings.place(&key).is_some();
        match lacks {
            None => listen.push((listener, address)),
            Some((why, label, help)) if is_asked && settings.problems.is_empty() => {
                let problem = Problem::new(format!("`{key}` must be \"off\" without --dev: {why}"));
                settings.problems.push(problem.at(settings.place(&key), label).help(help));
            }
            Some(_) => continue,
        }
        let is_plain = match listener {
            Listener::Mqtt | Listener::Ws => true,
            Listener::Http => is_http_plain(settings),
            Listener::Tls | Listener::Wss | Listener::Overlay => false,
        };
        if !is_dev && is_plain && has_source && !address.ip().is_loopback() {
            warnings.push(format!("`{key}` is {address} and has no TLS: passwords can be read on their way to it"));
        }
    }
    if !is_dev && !has_authority && !settings.peers("overlay.peers").is_empty() && settings.problems.is_empty() {
        let problem =
            Problem::new("`overlay.peers` are given without `tls_ca`: nothing tells who the other brokers are");
        let help = "give --tls-ca, --tls-cert and --tls-key (`whimbrel cert` makes them), or leave the peers out";
        settings.problems.push(problem.at(settings.place("overlay.peers"), "here").help(help));
    }
    listen
}

/// Checks the reach of listeners without authentication: only loopback is safe, and a private
/// network is the operator's explicit choice.
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

/// Whether the broker is announced in the local network and looks for others there. By default it
/// is if it runs with `--dev` and takes clients or brokers at a private address: brokers on
/// loopback, several on one machine, must not find each other unasked.
pub(super) fn discovers(listen: &[(Listener, SocketAddr)], settings: &mut Settings) -> bool {
    let is_dev = settings.switch("dev");
    let is_asked = settings.place("discover").is_some();
    let announced = listen.iter().filter(|(listener, _)| matches!(listener, Listener::Mqtt | Listener::Overlay));
    match (is_asked, settings.switch("discover")) {
        (true, true) if !is_dev => {
            let problem =
                Problem::new("`discover` is only for --dev: multicast DNS does not authenticate other brokers");
            settings.problems.push(problem.at(settings.place("discover"), "here").help(
                "leave it out, and name the other brokers with --peer HOST:PORT, where they show certificates; or give --dev, without passwords \
                 and certificates",
            ));
            false
        }
        (true, true) if announced.clone().next().is_none() => {
            let problem = Problem::new("`discover` is on, and there is nothing to announce");
            let help = "open --listen-mqtt or --listen-overlay, or leave out --discover";
            settings.problems.push(problem.at(settings.place("discover"), "here").help(help));
            false
        }
        (true, is_on) => is_on,
        (false, _) => is_dev && announced.into_iter().any(|(_, at)| address::reach(at.ip()) == Reach::Private),
    }
}
