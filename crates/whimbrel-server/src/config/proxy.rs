//! Listeners behind proxies, and the networks of the proxies.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::Listener;
use super::problem::Problem;
use super::settings::Settings;

/// Settings of proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Their connections must begin with a header of the PROXY protocol.
    pub listeners: Vec<Listener>,
    /// Networks of the proxies; not empty if there are such listeners.
    pub from: Vec<IpNet>,
}

/// Checks the settings of proxies. A peer that may send a header can pretend any address, so the
/// networks of the proxies must be given.
pub(super) fn load(listen: &[(Listener, SocketAddr)], settings: &mut Settings, warnings: &mut Vec<String>) -> Asked {
    let (names, from) = (settings.texts("proxy_listeners"), settings.networks("proxy_from"));
    let named = |listener: &Listener| names.iter().any(|name| name == listener.name());
    let listeners: Vec<Listener> = Listener::ALL.into_iter().filter(named).collect();
    if !listeners.is_empty() && from.is_empty() {
        let problem =
            Problem::new("`proxy_listeners` are given without `proxy_from`: nobody may send the PROXY header")
                .at(settings.place("proxy_listeners"), "here")
                .help("name the addresses of the proxies, such as proxy_from = [\"10.0.0.5\", \"10.1.0.0/16\"]");
        settings.problems.push(problem);
    }
    if listeners.is_empty() && !from.is_empty() {
        warnings
            .push("`proxy_from` means nothing without `proxy_listeners`: no listener takes the PROXY header".into());
    }
    for listener in &listeners {
        if !listen.iter().any(|(open, _)| open == listener) {
            warnings.push(format!("`proxy_listeners` names {}, and `{}` is off", listener.name(), listener.key()));
        }
    }
    Asked { listeners, from }
}
