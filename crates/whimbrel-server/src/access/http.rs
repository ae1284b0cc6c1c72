//! Principals of HTTP requests, and origins of web pages.

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

/// The longest `Authorization` that is read, in bytes.
const AUTHORIZATION_MAX: usize = 24 << 10;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// The request has no credentials, or wrong ones: 401, with `WWW-Authenticate`.
    NotSignedIn,
    /// No rule allows the request: 403.
    Forbidden,
    /// Too many verifications are waiting: 503.
    Busy,
    /// The request comes from a web page of another origin: 403.
    ForeignOrigin,
}

impl HttpRefusal {
    /// The status of the answer.
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

    /// The text of the answer.
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

/// Status and text of the answer to a refused request.
fn told_as(refusal: HttpRefusal) -> (StatusCode, String) {
    (refusal.status(), refusal.text().to_owned())
}

/// The action of the rules for an action of the API.
fn rule_of(action: Asking) -> Action {
    match action {
        Asking::Observe => Action::Observe,
        Asking::Administer => Action::Administer,
    }
}

/// Authorises API requests by the rules.
#[derive(Debug)]
pub struct ByRules {
    /// The rules in force.
    pub access: Arc<Access>,
    /// The believed certificates, if there is an authority.
    pub trust: Option<Arc<Trust>>,
}

impl ByRules {
    /// The principal of the client's certificate, if that is still believed: since the connection's
    /// handshake an authority may have gone, or a certificate may have been revoked.
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

/// Authorises API requests over the control socket: a process that could open it may do everything.
/// Requests are recorded under this name.
#[derive(Debug)]
pub struct ByFile {
    /// Has the audit.
    pub access: Arc<Access>,
    /// The name in the audit.
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
    /// Records a change made over the API.
    fn changed(&self, principal: &str, remote: &Remote, about: &str) {
        let (action, from) = (Action::Administer.name(), remote.text());
        self.audit.note(&Record { event: "changed", action, principal, about, from, ..Record::default() });
    }

    /// The principal of a request from the address `from` with that certificate, if a rule allows
    /// it the action.
    ///
    /// # Errors
    /// The refusal to answer with; it has been recorded in the audit.
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

    /// The principal of a request from the address `from`, and the API actions that the rules allow
    /// it. A principal that is signed in gets an answer even if no action is allowed.
    ///
    /// # Errors
    /// The request is not signed in, and anonymous requests may do nothing; recorded in the audit.
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

    /// The principal of a request from the address `from`. A password or token counts before a
    /// certificate; without any it is [`Principal::anonymous`].
    ///
    /// # Errors
    /// The credentials are wrong, or cannot be verified now; recorded in the audit.
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
            // The request may have been dropped.
            let _ = tell.send(result);
        });
        let refusal = match told.await {
            Ok(Ok(who)) => {
                let (action, principal) = (action.name(), who.principal.name());
                self.audit.note(&Record { event: "signed_in", action, principal, from, ..Record::default() });
                return Ok(who.principal);
            }
            Ok(Err(Unidentified::Refused)) => HttpRefusal::NotSignedIn,
            // The threads end only with the server.
            Ok(Err(Unidentified::Busy)) | Err(_) => HttpRefusal::Busy,
        };
        self.refused_http(("", from), action.name(), refusal);
        Err(refusal)
    }

    /// Whether a request from the address `from` may open a WebSocket: one that comes from no web
    /// page, from a page of the same host, from one of the configured origins, or with `--dev` from
    /// a page of this machine.
    ///
    /// # Errors
    /// It comes from another origin; recorded in the audit.
    pub fn check_origin(&self, headers: &HeaderMap, from: &dyn fmt::Display) -> Result<(), HttpRefusal> {
        let plan = self.plan();
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = headers.get(HOST).and_then(|host| host.to_str().ok()).map(host_of);
        let page = origin.split_once("://").map(|(_, authority)| authority);
        // With `--dev` there is no sign-in, so a page whose name resolves to this host would count
        // as its own.
        let may_be_own = |host: &str| !host.is_empty() && (!plan.dev || is_loopback(host) || is_address(host));
        let is_own = page
            .map(host_of)
            .is_some_and(|host| may_be_own(host) && own.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(host)));
        let is_named = |named: &String| {
            named.eq_ignore_ascii_case(origin) || page.is_some_and(|authority| named.eq_ignore_ascii_case(authority))
        };
        // A developer's pages may come from any port of the machine.
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

    /// Records a refused request of a web page of another origin: action, origin and address.
    fn note_foreign(&self, action: &str, (about, from): (&str, &str), why: &str) {
        let code = Some(HttpRefusal::ForeignOrigin.status().as_u16());
        self.audit.note(&Record { event: "refused", action, about, from, code, why, ..Record::default() });
    }

    /// Records a client whose certificate signs it in over HTTP.
    pub(crate) fn note_certified(&self, principal: &str, from: &str) {
        self.audit.note(&Record { event: "signed_in", action: "connect", principal, from, ..Record::default() });
    }

    fn refused_http(&self, (principal, from): (&str, &str), action: &str, refusal: HttpRefusal) {
        let (code, why) = (Some(refusal.status().as_u16()), refusal.text());
        self.audit.note(&Record { event: "refused", action, principal, from, code, why, ..Record::default() });
    }
}

/// The credentials in an `Authorization` header.
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

/// Whether a host is this machine, by a name or address that no other machine can have.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// Whether a host is given as an address: a name can be made to resolve to this host.
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
