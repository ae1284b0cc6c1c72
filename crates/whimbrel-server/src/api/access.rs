//! Who may ask what of the API.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use rustls::pki_types::CertificateDer;
use whimbrel_access::Principal;

use super::{REQUEST_TIMEOUT, refuse};
use crate::drive::Caller;

/// In which a browser says for what it asks; `empty`: for a script.
const FETCH_DEST: &str = "sec-fetch-dest";

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It reads.
    Observe,
    /// It changes something, or takes everything away.
    Administer,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 2] = [Action::Observe, Action::Administer];

    /// As rules and `/whoami` name it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Observe => "observe",
            Action::Administer => "administer",
        }
    }
}

/// The other end of the connection over which is asked: its address, or the user of the process at
/// the other end of the control socket.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    words: Arc<str>,
    /// Where it is; `None` at the control socket.
    address: Option<SocketAddr>,
    certified: Option<Arc<Certified>>,
}

/// Who has shown a certificate, which the handshake has judged.
#[derive(Clone, Debug)]
pub struct Certified {
    /// Who.
    pub principal: Principal,
    /// The certificate and those between it and its authority.
    pub chain: Box<[CertificateDer<'static>]>,
    /// As of [`crate::drive::Hub::trust_round`], when the handshake began.
    pub round: u64,
}

impl Remote {
    /// One at an address.
    pub fn at(address: SocketAddr) -> Remote {
        Remote { words: address.to_string().into(), address: Some(address), certified: None }
    }

    /// The same, having shown a certificate, if it has.
    pub fn showing(self, certified: Option<Certified>) -> Remote {
        Remote { certified: certified.map(Arc::new), ..self }
    }

    /// A process of the user with this number.
    pub fn of_user(uid: u32) -> Remote {
        Remote { words: format!("uid {uid}").into(), ..Remote::default() }
    }

    /// It in words; empty if it is not known.
    pub fn text(&self) -> &str {
        &self.words
    }

    /// Its address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// It as a client for MQTT over WebSocket.
    pub(crate) fn as_client(&self) -> Caller {
        let known = self.certified().map(|shown| (shown.principal.clone(), shown.chain.clone()));
        let round = self.certified().map_or(0, |shown| shown.round);
        Caller { address: self.address, known, round }
    }

    /// The certificate that it has shown.
    pub fn certified(&self) -> Option<&Certified> {
        self.certified.as_deref()
    }
}

/// Who asks, or the status and the words with which it is refused. With 401 the asker is told how
/// to sign in.
pub type Authorized = Result<String, (StatusCode, String)>;

/// Who asks, and what that one may do; or the status and the words with which it is refused, as not
/// signed in.
pub type Known = Result<(String, Vec<Action>), (StatusCode, String)>;

/// What decides whether a request is answered.
pub trait Authorizer: Debug + Send + Sync {
    /// Finds out who asks, by the headers of the request, and which actions are allowed to that
    /// one: none of them to somebody who is signed in is no refusal.
    fn who<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
    ) -> Pin<Box<dyn Future<Output = Known> + Send + 'a>>;

    /// Finds out who asks, by the headers of the request, and whether that one may do it.
    fn authorize<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
        action: Action,
    ) -> Pin<Box<dyn Future<Output = Authorized> + Send + 'a>>;

    /// Somebody who may is about to change something.
    fn changes(&self, _principal: &str, _remote: &Remote, _what: &str) {}

    /// A web page of that other origin has asked to change something, and is refused.
    fn comes_from_elsewhere(&self, _remote: &Remote, (_what, _origin): (&str, &str)) {}
}

/// Everybody may do everything, under this name: everyone with `--dev`.
#[derive(Debug)]
pub struct Everyone(pub &'static str);

impl Authorizer for Everyone {
    fn who<'a>(
        &'a self,
        _headers: &'a HeaderMap,
        _remote: &'a Remote,
    ) -> Pin<Box<dyn Future<Output = Known> + Send + 'a>> {
        Box::pin(async { Ok((self.0.to_owned(), Action::ALL.to_vec())) })
    }

    fn authorize<'a>(
        &'a self,
        _headers: &'a HeaderMap,
        _remote: &'a Remote,
        _action: Action,
    ) -> Pin<Box<dyn Future<Output = Authorized> + Send + 'a>> {
        Box::pin(async { Ok(self.0.to_owned()) })
    }
}

/// What stands before a route.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// `None`: the route asks for itself.
    pub(crate) action: Option<Action>,
}

/// Lets a request through if it is allowed, and ends it when it takes too long.
pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, async {
        let remote = request.extensions().get::<Remote>().cloned().unwrap_or_default();
        if gate.action != Some(Action::Observe) && is_foreign(request.headers()) {
            let what = format!("{} {}", request.method(), request.uri().path());
            let origin = request.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
            gate.authorizer.comes_from_elsewhere(&remote, (&what, origin));
            let error = "this request comes from a page of another site (its Origin is not the Host): only pages of this broker may change something";
            return refuse(StatusCode::FORBIDDEN, error);
        }
        if let Some(action) = gate.action {
            match gate.authorizer.authorize(request.headers(), &remote, action).await {
                Ok(principal) if action == Action::Administer => {
                    let (method, path) = (request.method(), request.uri().path());
                    tracing::info!(principal, from = remote.text(), %method, path, "asked over the API");
                    gate.authorizer.changes(&principal, &remote, &format!("{method} {path}"));
                }
                Ok(_) => {}
                Err(refusal) => return refused(request.headers(), refusal),
            }
        }
        next.run(request).await
    });
    let late =
        || refuse(StatusCode::GATEWAY_TIMEOUT, "the answer has taken too long; the broker is busy: ask again later");
    answered.await.unwrap_or_else(|_| late())
}

/// The answer to somebody who may not do it. Browsers open a window of their own at a challenge to
/// send a name and a password, also over a page that signs in by itself: scripts of pages are told
/// only of tokens.
pub(super) fn refused(headers: &HeaderMap, (status, error): (StatusCode, String)) -> Response {
    let mut response = refuse(status, error);
    if status == StatusCode::UNAUTHORIZED {
        let is_script = headers.get(FETCH_DEST).is_some_and(|dest| dest == "empty");
        let how = if is_script { "Bearer realm=\"whimbrel\"" } else { "Basic realm=\"whimbrel\", charset=\"UTF-8\"" };
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(how));
    }
    response
}

/// Whether a browser says that a page of another site asks. Browsers add names and passwords that
/// they remember, whoever's page it is.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    from.is_none() || from != host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_is_told_from_ones_own() {
        let headers = |host: &'static str, origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            origin.map(|origin| headers.insert(ORIGIN, HeaderValue::from_static(origin)));
            headers
        };
        assert!(!is_foreign(&headers("a:8080", None)), "no browser");
        assert!(!is_foreign(&headers("a:8080", Some("http://a:8080"))));
        assert!(!is_foreign(&headers("a", Some("https://a"))));
        for origin in ["http://a", "http://b:8080", "null", "http://a:8080.evil", ""] {
            assert!(is_foreign(&headers("a:8080", Some(origin))), "{origin:?}");
        }
    }
}
