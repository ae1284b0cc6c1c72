//! Authorisation of API requests.

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

/// Header in which a browser tells the use of a response; `empty`: for a script.
const FETCH_DEST: &str = "sec-fetch-dest";

/// Right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request reads.
    Observe,
    /// The request changes something, or takes a backup.
    Administer,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 2] = [Action::Observe, Action::Administer];

    /// The action's name in rules and `/whoami`.
    pub fn name(self) -> &'static str {
        match self {
            Action::Observe => "observe",
            Action::Administer => "administer",
        }
    }
}

/// The other end of a request's connection: its address, or the user of the process at the other
/// end of the control socket.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    words: Arc<str>,
    /// The peer's address; `None` at the control socket.
    address: Option<SocketAddr>,
    certified: Option<Arc<Certified>>,
}

/// The identity of a client's certificate, which the handshake has judged.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate's principal.
    pub principal: Principal,
    /// The certificate and those between it and its authority.
    pub chain: Box<[CertificateDer<'static>]>,
    /// [`crate::drive::Hub::trust_round`] when the handshake began.
    pub round: u64,
}

impl Remote {
    /// A peer at an address.
    pub fn at(address: SocketAddr) -> Remote {
        Remote { words: address.to_string().into(), address: Some(address), certified: None }
    }

    /// This peer, with its certificate, if it has shown one.
    pub fn showing(self, certified: Option<Certified>) -> Remote {
        Remote { certified: certified.map(Arc::new), ..self }
    }

    /// A process of the user with this number.
    pub fn of_user(uid: u32) -> Remote {
        Remote { words: format!("uid {uid}").into(), ..Remote::default() }
    }

    /// The peer as text; empty if it is not known.
    pub fn text(&self) -> &str {
        &self.words
    }

    /// The peer's address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The peer as a client for MQTT over WebSocket.
    pub(crate) fn as_client(&self) -> Caller {
        let known = self.certified().map(|shown| (shown.principal.clone(), shown.chain.clone()));
        let round = self.certified().map_or(0, |shown| shown.round);
        Caller { address: self.address, known, round }
    }

    /// The certificate that the peer has shown.
    pub fn certified(&self) -> Option<&Certified> {
        self.certified.as_deref()
    }
}

/// The principal of a request, or status and text of its refusal. With 401 the response has a
/// challenge.
pub type Authorized = Result<String, (StatusCode, String)>;

/// The principal of a request and its rights, or status and text of the refusal of one that is not
/// signed in.
pub type Known = Result<(String, Vec<Action>), (StatusCode, String)>;

/// Decides whether a request is answered.
pub trait Authorizer: Debug + Send + Sync {
    /// Identifies a request by its headers, and returns its principal and rights. A principal that
    /// is signed in without any right is not refused.
    fn who<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
    ) -> Pin<Box<dyn Future<Output = Known> + Send + 'a>>;

    /// Identifies a request by its headers, and checks whether its principal has the right.
    fn authorize<'a>(
        &'a self,
        headers: &'a HeaderMap,
        remote: &'a Remote,
        action: Action,
    ) -> Pin<Box<dyn Future<Output = Authorized> + Send + 'a>>;

    /// Records that an allowed request is about to change something.
    fn changes(&self, _principal: &str, _remote: &Remote, _what: &str) {}

    /// Records that a request to change something was refused as it comes from a web page of
    /// another origin.
    fn comes_from_elsewhere(&self, _remote: &Remote, (_what, _origin): (&str, &str)) {}
}

/// Every request may do everything, under this name: with `--dev`.
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

/// The authorisation of a route.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// `None`: the handler calls the authorizer.
    pub(crate) action: Option<Action>,
}

/// Lets an allowed request through, and ends it at [`REQUEST_TIMEOUT`].
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

/// The response to a refused request. Browsers open their own window at a challenge to send a name
/// and a password, even over a page that has its own sign-in: scripts of pages get only the
/// challenge for tokens.
pub(super) fn refused(headers: &HeaderMap, (status, error): (StatusCode, String)) -> Response {
    let mut response = refuse(status, error);
    if status == StatusCode::UNAUTHORIZED {
        let is_script = headers.get(FETCH_DEST).is_some_and(|dest| dest == "empty");
        let how = if is_script { "Bearer realm=\"whimbrel\"" } else { "Basic realm=\"whimbrel\", charset=\"UTF-8\"" };
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(how));
    }
    response
}

/// Whether a request comes from a web page of another origin. Browsers add names and passwords that
/// they remember to requests of any page.
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
