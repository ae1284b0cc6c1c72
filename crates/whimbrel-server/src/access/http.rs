//! Principals over HTTP, and origins of web pages.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::oneshot;
use whimbrel_access::{Action, Principal};
use whimbrel_mqtt::Unidentified;

use super::audit::Record;
use super::{Access, Asked};
use crate::api::access::{Action as Asking, Authorized, Authorizer, Known, Remote};
use crate::identity::Role;
use crate::identity::trust::Trust;

/// The longest `Authorization` that is looked at, in bytes.
const AUTHORIZATION_MAX: usize = 24 << 10;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// It does not say who asks, or what it says is not believed: 401, with `WWW-Authenticate`.
    NotSignedIn,
    /// No rule allows it: 403.
    Forbidden,
    /// Too many others are signing in: 503.
    Busy,
    /// It comes from a web page of somebody else: 403.
    ForeignOrigin,
}

impl HttpRefusal {
    /// The status to answer with.
    pub fn status(self) -> StatusCode {
        match self {
            HttpRefusal::NotSignedIn => StatusCode::UNAUTHORIZED,
            HttpRefusal::Forbidden | HttpRefusal::ForeignOrigin => StatusCode::FORBIDDEN,
            HttpRefusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The value of `WWW-Authenticate`, where the answer must have one.
    pub fn challenge(self) -> Option<&'static str> {
        (self == HttpRefusal::NotSignedIn).then_some("Basic realm=\"whimbrel\", charset=\"UTF-8\"")
    }

    /// What to tell.
    pub fn text(self) -> &'static str {
        match self {
            HttpRefusal::NotSignedIn => {
                "not signed in: give user name and password, or a token (Authorization: Basic or Bearer)"
            }
            HttpRefusal::Forbidden => "not authorized: no rule allows it; see [[rule]] in the configuration",
            HttpRefusal::Busy => "too many are signing in: try again in a few seconds",
            HttpRefusal::ForeignOrigin => {
                "a web page of another origin may not connect; its operator can allow it in identity.origins"
            }
        }
    }
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for HttpRefusal {}

/// How a refusal is told.
fn told_as(refusal: HttpRefusal) -> (StatusCode, String) {
    (refusal.status(), refusal.text().to_owned())
}

/// What rules call an action of the API.
fn rule_of(action: Asking) -> Action {
    match action {
        Asking::Observe => Action::Observe,
        Asking::Administer => Action::Administer,
    }
}

/// The API, by the rules.
#[derive(Debug)]
pub struct ByRules {
    /// Knows the rules.
    pub access: Arc<Access>,
    /// Whose certificates are believed, if there is an authority.
    pub trust: Option<Arc<Trust>>,
}

impl ByRules {
    /// Who has shown a certificate that is still believed: an authority may be gone, or a
    /// certificate revoked, since the connection's handshake.
    fn certified(&self, remote: &Remote) -> Result<Option<Principal>, HttpRefusal> {
        let (Some(trust), Some(shown)) = (&self.trust, remote.certified()) else { return Ok(None) };
        match trust.dropped(Role::Client, &shown.chain, SystemTime::now()) {
            None => Ok(Some(shown.principal.clone())),
            Some(why) => {
                self.access.note_refused_certificate(remote.text(), why.text());
                Err(HttpRefusal::NotSignedIn)
            }
        }
    }
}

impl Authorizer for ByRules {
    fn who<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
    ) -> Pin<Box<dyn Future<Output = Known> + Send + 'a>> {
        Box::pin(async move {
            let certified = self.certified(remote).map_err(told_as)?;
            let told = self.access.who_asks(headers, (remote.text(), certified)).await;
            let (principal, may) = told.map_err(told_as)?;
            Ok((principal.name().to_owned(), may))
        })
    }

    fn authorize<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
        action: Asking,
    ) -> Pin<Box<dyn Future<Output = Authorized> + Send + 'a>> {
        Box::pin(async move {
            let certified = self.certified(remote).map_err(told_as)?;
            let authorized = self.access.authorize_http(headers, (remote.text(), certified), rule_of(action)).await;
            authorized.map(|principal| principal.name().to_owned()).map_err(told_as)
        })
    }

    fn changes(&self, principal: &str, remote: &Remote, what: &str) {
        self.access.changed(principal, remote, what);
    }

    fn comes_from_elsewhere(&self, remote: &Remote, (what, origin): (&str, &str)) {
        let why = format!("a web page of {origin:?} asked for it");
        self.access.note_foreign(Action::Administer.name(), (what, remote.text()), &why);
    }
}

/// The API for whoever could open the control socket: everything is allowed, under this name, and
/// noted.
#[derive(Debug)]
pub struct ByFile {
    /// Keeps the audit.
    pub access: Arc<Access>,
    /// The name.
    pub name: &'static str,
}

impl Authorizer for ByFile {
    fn who<'a>(
        &'a self,
        _headers: &'a HeaderMap,
        _remote: &'a Remote,
    ) -> Pin<Box<dyn Future<Output = Known> + Send + 'a>> {
        Box::pin(async { Ok((self.name.to_owned(), Asking::ALL.to_vec())) })
    }

    fn authorize<'a>(
        &'a self,
        _headers: &'a HeaderMap,
        _remote: &'a Remote,
        _action: Asking,
    ) -> Pin<Box<dyn Future<Output = Authorized> + Send + 'a>> {
        Box::pin(async { Ok(self.name.to_owned()) })
    }

    fn changes(&self, principal: &str, remote: &Remote, what: &str) {
        self.access.changed(principal, remote, what);
    }
}

impl Access {
    /// Somebody changes something over the API.
    fn changed(&self, principal: &str, remote: &Remote, about: &str) {
        let (action, from) = (Action::Administer.name(), remote.text());
        self.audit.note(&Record { event: "changed", action, principal, about, from, ..Record::default() });
    }

    /// Who asks, `from` where and having shown which certificate, if some rule allows them the
    /// action.
    ///
    /// # Errors
    /// What to answer otherwise; the audit has been told.
    pub async fn authorize_http(
        self: &Arc<Access>,
        headers: &HeaderMap,
        (from, certified): (&str, Option<Principal>),
        action: Action,
    ) -> Result<Principal, HttpRefusal> {
        let principal = self.identify_http(headers, (from, certified), action).await?;
        if self.plan().rules.may(&principal, action).is_ok() {
            return Ok(principal);
        }
        let refusal = if principal.is_anonymous() { HttpRefusal::NotSignedIn } else { HttpRefusal::Forbidden };
        self.refused_http((principal.name(), from), action.name(), refusal);
        Err(refusal)
    }

    /// Who asks, `from` where, and what the rules allow that one. Whoever is signed in may ask
    /// that, also where nothing is allowed.
    ///
    /// # Errors
    /// They are not signed in, and nothing is allowed to everybody; the audit has been told.
    pub async fn who_asks(
        self: &Arc<Access>,
        headers: &HeaderMap,
        (from, certified): (&str, Option<Principal>),
    ) -> Result<(Principal, Vec<Asking>), HttpRefusal> {
        let principal = self.identify_http(headers, (from, certified), Action::Observe).await?;
        let plan = self.plan();
        let may = |action: &Asking| plan.rules.may(&principal, rule_of(*action)).is_ok();
        let may: Vec<Asking> = Asking::ALL.into_iter().filter(may).collect();
        if may.is_empty() && principal.is_anonymous() {
            let refusal = HttpRefusal::NotSignedIn;
            self.refused_http((principal.name(), from), Action::Observe.name(), refusal);
            return Err(refusal);
        }
        Ok((principal, may))
    }

    /// Who asks, `from` where: a password or token counts before a certificate;
    /// [`Principal::anonymous`] without any.
    ///
    /// # Errors
    /// What they say is not believed, or cannot be judged now; the audit has been told.
    pub async fn identify_http(
        self: &Arc<Access>,
        headers: &HeaderMap,
        (from, certified): (&str, Option<Principal>),
        action: Action,
    ) -> Result<Principal, HttpRefusal> {
        if self.plan().dev {
            return Ok(Principal::anonymous());
        }
        let Some(value) = headers.get(AUTHORIZATION) else {
            return Ok(certified.unwrap_or_else(Principal::anonymous));
        };
        let said = value.to_str().ok().filter(|text| text.len() <= AUTHORIZATION_MAX);
        let asked = said.and_then(|said| read(said, from));
        let Some(asked) = asked else {
            self.refused_http(("", from), action.name(), HttpRefusal::NotSignedIn);
            return Err(HttpRefusal::NotSignedIn);
        };
        if let Some(who) = self.recall(&asked) {
            return Ok(who.principal);
        }
        let (tell, told) = oneshot::channel();
        self.identify(asked, move |result| {
            // Whoever asked may be gone.
            let _ = tell.send(result);
        });
        let refusal = match told.await {
            Ok(Ok(who)) => {
                let (action, principal) = (action.name(), who.principal.name());
                self.audit.note(&Record { event: "signed_in", action, principal, from, ..Record::default() });
                return Ok(who.principal);
            }
            Ok(Err(Unidentified::Refused)) => HttpRefusal::NotSignedIn,
            // The end of the threads is the end of the server.
            Ok(Err(Unidentified::Busy)) | Err(_) => HttpRefusal::Busy,
        };
        self.refused_http(("", from), action.name(), refusal);
        Err(refusal)
    }

    /// Whether a request to open a WebSocket, `from` that address, may come from where it does:
    /// from no web page, from one of the same host, from one of those that the configuration names,
    /// or with `--dev` from one of this machine.
    ///
    /// # Errors
    /// It comes from elsewhere; the audit has been told.
    pub fn check_origin(&self, headers: &HeaderMap, from: &dyn fmt::Display) -> Result<(), HttpRefusal> {
        let plan = self.plan();
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = headers.get(HOST).and_then(|host| host.to_str().ok()).map(host_of);
        let page = origin.split_once("://").map(|(_, authority)| authority);
        // With `--dev` there is no sign-in, so a page whose name leads here would count as its own.
        let may_be_own = |host: &str| !host.is_empty() && (!plan.dev || is_loopback(host) || is_address(host));
        let is_own = page
            .map(host_of)
            .is_some_and(|host| may_be_own(host) && own.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(host)));
        let is_named = |named: &String| {
            named.eq_ignore_ascii_case(origin) || page.is_some_and(|authority| named.eq_ignore_ascii_case(authority))
        };
        // Pages of a developer come from any port of the machine.
        let is_of_machine = plan.dev && page.map(host_of).is_some_and(is_loopback);
        if is_own || is_of_machine || plan.origins.iter().any(is_named) {
            return Ok(());
        }
        self.note_foreign(
            "upgrade",
            (origin, &from.to_string()),
            "the origin is neither the host that was asked for nor in identity.origins",
        );
        Err(HttpRefusal::ForeignOrigin)
    }

    /// Takes note that something was asked by a web page of somebody else: what, of which origin,
    /// and from which address.
    fn note_foreign(&self, action: &str, (about, from): (&str, &str), why: &str) {
        let code = Some(HttpRefusal::ForeignOrigin.status().as_u16());
        self.audit.note(&Record { event: "refused", action, about, from, code, why, ..Record::default() });
    }

    /// Takes note of a client whose certificate signs it in over HTTP.
    pub(crate) fn note_certified(&self, principal: &str, from: &str) {
        self.audit.note(&Record { event: "signed_in", action: "connect", principal, from, ..Record::default() });
    }

    fn refused_http(&self, (principal, from): (&str, &str), action: &str, refusal: HttpRefusal) {
        let (code, why) = (Some(refusal.status().as_u16()), refusal.text());
        self.audit.note(&Record { event: "refused", action, principal, from, code, why, ..Record::default() });
    }
}

/// What `Authorization` says.
fn read(value: &str, from: &str) -> Option<Asked> {
    let (scheme, rest) = value.split_once(' ')?;
    let asked = |user, password: &[u8], is_bearer| Asked {
        user,
        password: password.to_vec(),
        is_bearer,
        from: from.to_owned(),
        client_id: None,
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(asked(None, rest.trim().as_bytes(), true));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(asked(Some(user.to_owned()), password.as_bytes(), false))
}

/// Whether a host is this machine by any name or address that no other one can have.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// Whether a host is given by its address: a name may be made to lead here by anybody.
fn is_address(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

/// The host of an authority, without its port.
fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.split_inclusive(']').next().unwrap_or(authority);
    }
    authority.split(':').next().unwrap_or(authority)
}
