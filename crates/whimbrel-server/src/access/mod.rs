//! Authentication and authorisation: passwords, tokens and certificates, rules and quotas, and
//! their audit.
//!
//! The rules themselves are in `whimbrel-access`, and the MQTT edge applies them. This module has
//! the parts that need files, clocks and threads.

pub mod audit;
mod http;
pub mod passwords;
mod provider;
mod remembered;
pub mod tokens;
mod workers;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use axum::http::StatusCode;
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use whimbrel_access::{Denied, Principal, Quota, Rule, RuleNo, Rules};
use whimbrel_mqtt::Unidentified;

use audit::{Audit, Record};
pub use http::{ByFile, ByRules, HttpRefusal};
use passwords::{PASSWORD_MAX, Passwords};
use remembered::Remembered;
use tokens::{TOKEN_MAX, Tokens};
use workers::Workers;

use crate::identity::Role;
use crate::identity::trust::{Refusal, Trust};

/// MQTT 5 reason code for failed authentication: bad user name or password.
const NOT_BELIEVED: u16 = 0x86;

/// Names of each kind that one log line shows, at most.
const NAMES_MAX: usize = 20;

/// Identity and access settings of the configuration.
#[derive(Debug, Default)]
pub struct Plan {
    /// Every client may do everything.
    pub dev: bool,
    /// The users with passwords, if there is a password file.
    pub passwords: Option<Passwords>,
    /// The keys of tokens, if any.
    pub tokens: Option<Tokens>,
    /// The rules as written in the configuration.
    pub written: Vec<Rule>,
    /// The rules.
    pub rules: Arc<Rules>,
    /// The quotas.
    pub quotas: Arc<[Quota]>,
    /// Origins of web pages that may open WebSockets, beside the broker's own host.
    pub origins: Vec<String>,
    /// Destination of the audit.
    pub audit: audit::Place,
    /// Clients that publish without permission are disconnected.
    pub disconnects_denied: bool,
}

impl Plan {
    /// The plan of `--dev`: every client may do everything.
    pub fn of_development() -> Plan {
        Plan { dev: true, rules: Arc::new(Rules::everything()), ..Plan::default() }
    }

    /// Whether passwords or tokens can be verified.
    pub fn judges(&self) -> bool {
        self.passwords.is_some() || self.tokens.is_some()
    }

    /// The part of the plan that the MQTT edge needs.
    pub fn of_edge(&self) -> whimbrel_mqtt::Access {
        let users = self.passwords.iter().flat_map(Passwords::users).cloned();
        whimbrel_mqtt::Access {
            rules: self.rules.clone(),
            quotas: self.quotas.clone(),
            judges: self.judges(),
            users: Arc::new(users.collect()),
            keys: self.tokens.iter().flat_map(Tokens::marks).collect(),
            disconnects_denied: self.disconnects_denied,
        }
    }

    /// Verifies credentials. The error is why not, for the audit. Takes tens of milliseconds.
    fn judge(&self, asked: &Asked) -> Result<Identified, String> {
        let token = self.tokens.as_ref().zip(std::str::from_utf8(&asked.password).ok());
        if let Some((tokens, token)) = token.filter(|(_, token)| asked.is_bearer || Tokens::is_token(token)) {
            let (principal, until, key) = tokens.verify(token)?;
            return Ok(Identified { principal, by_token: Some(key), until: Some(until) });
        }
        let passwords = self.passwords.as_ref().ok_or("it is no token, and there are no passwords")?;
        let user = asked.user.as_deref().ok_or("there is a password and no user name")?;
        let principal =
            passwords.verify(user, &asked.password).ok_or("the user is not known, or the password is wrong")?;
        Ok(Identified { principal, by_token: None, until: None })
    }
}

/// Credentials to be verified.
#[derive(Debug)]
pub struct Asked {
    /// The user name, if there is one.
    pub user: Option<String>,
    /// A password or a token.
    pub password: Vec<u8>,
    /// The password can only be a token.
    pub is_bearer: bool,
    /// Address of the client, as text; empty if it is not known.
    pub from: String,
    /// The client id, over MQTT.
    pub client_id: Option<String>,
}

/// Result of a successful verification.
#[derive(Clone, Debug)]
pub struct Identified {
    /// The principal.
    pub principal: Principal,
    /// The mark of the token's key; `None`: by password.
    pub by_token: Option<tokens::Mark>,
    /// When the identity ends.
    pub until: Option<SystemTime>,
}

/// Counters of verifications, by their results.
#[derive(Debug, Default)]
pub struct Counts {
    /// Credentials were remembered.
    pub remembered: AtomicU64,
    /// The password was right.
    pub by_password: AtomicU64,
    /// The token was valid.
    pub by_token: AtomicU64,
    /// Neither password nor token was right.
    pub refused: AtomicU64,
    /// Too many verifications were waiting.
    pub busy: AtomicU64,
}

/// The rules in force, verification of credentials, and the audit.
#[derive(Debug)]
pub struct Access {
    plan: RwLock<Arc<Plan>>,
    workers: Workers,
    remembered: Remembered,
    audit: Audit,
    counts: Counts,
}

impl Access {
    /// Starts with this plan.
    ///
    /// # Errors
    /// The audit cannot be written, or the system gives no threads or randomness.
    pub fn start(plan: Arc<Plan>) -> io::Result<Arc<Access>> {
        let remembered = Remembered::new().ok_or_else(|| io::Error::other("the system has no randomness to give"))?;
        let (workers, audit) = (Workers::start()?, Audit::start(plan.audit.clone())?);
        Ok(Arc::new(Access { plan: RwLock::new(plan), workers, remembered, audit, counts: Counts::default() }))
    }

    /// The plan in force.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.read().clone()
    }

    /// Counters of verifications.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The audit.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Identity for credentials that are remembered.
    pub fn recall(&self, asked: &Asked) -> Option<Identified> {
        let found = self.remembered.find(Instant::now(), asked.user.as_deref(), &asked.password);
        if found.is_some() {
            self.counts.remembered.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Verifies credentials, and calls `done` on a worker's thread; at once if they are not even
    /// tried.
    pub fn identify(
        self: &Arc<Access>,
        asked: Asked,
        done: impl FnOnce(Result<Identified, Unidentified>) + Send + 'static,
    ) {
        if asked.password.len() > PASSWORD_MAX.max(TOKEN_MAX) {
            self.note_unidentified(&asked, "the password or token is too long");
            return done(Err(Unidentified::Refused));
        }
        let access = self.clone();
        let (slot, plan) = (Arc::new(parking_lot::Mutex::new(Some(done))), self.plan());
        let done = slot.clone();
        let is_asked = self.workers.ask(Box::new(move || {
            let result = access.judge(&plan, &asked);
            if let Some(done) = done.lock().take() {
                done(result);
            }
        }));
        if !is_asked && let Some(done) = slot.lock().take() {
            self.counts.busy.fetch_add(1, Ordering::Relaxed);
            done(Err(Unidentified::Busy));
        }
    }

    fn judge(&self, plan: &Arc<Plan>, asked: &Asked) -> Result<Identified, Unidentified> {
        match plan.judge(asked) {
            Ok(who) => {
                let count = if who.by_token.is_some() { &self.counts.by_token } else { &self.counts.by_password };
                count.fetch_add(1, Ordering::Relaxed);
                let current = self.plan.read();
                // Credentials verified by a plan that is no longer in force are not remembered.
                if Arc::ptr_eq(&current, plan) {
                    self.remembered.keep(Instant::now(), asked.user.as_deref(), &asked.password, &who);
                }
                Ok(who)
            }
            Err(why) => {
                self.note_unidentified(asked, &why);
                Err(Unidentified::Refused)
            }
        }
    }

    /// Counts and records failed authentication. The given name is not proved, so it is what the
    /// record is about, not its principal.
    fn note_unidentified(&self, asked: &Asked, why: &str) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        let code = asked.client_id.as_ref().map_or(StatusCode::UNAUTHORIZED.as_u16(), |_| NOT_BELIEVED);
        self.audit.note(&Record {
            event: "refused",
            action: "identify",
            about: asked.user.as_deref().unwrap_or_default(),
            client_id: asked.client_id.as_deref().unwrap_or_default(),
            from: &asked.from,
            code: Some(code),
            why,
            ..Record::default()
        });
    }

    /// The rule that allows a link with the broker of that name, which came from, or is dialled at,
    /// that address.
    ///
    /// # Errors
    /// No rule allows it; it has been recorded in the audit.
    pub fn peer(&self, name: &str, from: &str) -> Result<RuleNo, Denied> {
        let judged = match Principal::new(name) {
            Ok(broker) => self.plan().rules.peer(&broker),
            Err(_) => Err(Denied::NoRule),
        };
        judged.inspect_err(|denied| self.note_refused_peer((name, from), denied.text()))
    }

    /// Why the broker of that name, which came from, or is dialled at, that address, may not be
    /// linked with, if so: the certificates that it has `shown` are not believed any more, or no
    /// rule allows it. Recorded in the audit.
    pub fn refuses_peer(
        &self,
        (name, from): (&str, &str),
        shown: Option<(&Trust, &[CertificateDer<'_>])>,
    ) -> Option<Refusal> {
        let dropped = shown.and_then(|(trust, chain)| trust.dropped(Role::Broker, chain, SystemTime::now()));
        if let Some(why) = dropped {
            self.note_refused_peer((name, from), why.text());
        }
        dropped.or_else(|| self.peer(name, from).is_err().then_some(Refusal::NotAllowed))
    }

    /// Records the refusal of a broker, or of a peer that wanted to be one: its name, if that is
    /// known, and its address.
    pub fn note_refused_peer(&self, (name, from): (&str, &str), why: &str) {
        self.audit.note(&Record { event: "refused", action: "peer", principal: name, from, why, ..Record::default() });
    }

    /// Records that a client is turned away for its certificate, or for having none.
    pub fn note_refused_certificate(&self, from: &str, why: &str) {
        self.audit.note(&Record { event: "refused", action: "connect", from, why, ..Record::default() });
    }

    /// Moves the audit to the destination of a new plan, although that plan is not in force yet.
    ///
    /// # Errors
    /// The new destination cannot be written; the old one stays.
    pub fn reopen_audit(&self, plan: &Plan) -> io::Result<()> {
        self.audit.reopen(plan.audit.clone())
    }

    /// Puts a plan in force. The log and the audit get the differences from the plan before, and
    /// those in `more`. Returns whether there are any.
    pub fn replace(&self, plan: Arc<Plan>, more: Vec<String>) -> bool {
        let before = std::mem::replace(&mut *self.plan.write(), plan.clone());
        self.remembered.forget();
        let parts = [differences(&before, &plan), more].concat();
        let why = if parts.is_empty() { "nothing of it has changed".to_owned() } else { parts.join("; ") };
        tracing::info!(
            rules = plan.rules.len(),
            quotas = plan.quotas.len(),
            "access and certificates read again: {why}"
        );
        self.audit.note(&Record { event: "reloaded", action: "reload", why: &why, ..Record::default() });
        !parts.is_empty()
    }

    /// Records that a configuration that was read again is not in force, and why.
    pub fn note_not_reloaded(&self, why: &str) {
        self.audit.note(&Record { event: "refused", action: "reload", why, ..Record::default() });
    }
}

fn of_rule(rule: &Rule) -> &[String] {
    &rule.principals
}

fn of_quota(quota: &Quota) -> &[String] {
    &quota.principals
}

/// Items that are not among others: their places in the list, from 1, and their principals.
fn not_in<T: PartialEq>(these: &[T], others: &[T], whom: impl Fn(&T) -> &[String]) -> Vec<String> {
    let these = these.iter().enumerate().filter(|(_, one)| !others.contains(one));
    these.map(|(at, one)| format!("{} ({})", at + 1, whom(one).join(", "))).collect()
}

/// Whether the items that are in both lists are in another order there.
fn is_reordered<T: PartialEq>(before: &[T], after: &[T]) -> bool {
    let kept = before.iter().filter(|one| after.contains(one));
    !kept.eq(after.iter().filter(|one| before.contains(one)))
}

/// Differences between two plans, as text.
fn differences(before: &Plan, after: &Plan) -> Vec<String> {
    let mut parts = Vec::new();
    let users =
        |plan: &Plan| -> BTreeSet<Principal> { plan.passwords.iter().flat_map(Passwords::users).cloned().collect() };
    let (old, new) = (users(before), users(after));
    let mut tell = |what: &str, names: Vec<String>| {
        if !names.is_empty() {
            let more = names.len().saturating_sub(NAMES_MAX);
            let shown = names.into_iter().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
            parts.push(if more > 0 { format!("{what} {shown} and {more} more") } else { format!("{what} {shown}") });
        }
    };
    tell("new users", new.difference(&old).map(|user| format!("{:?}", user.name())).collect());
    tell("users gone:", old.difference(&new).map(|user| format!("{:?}", user.name())).collect());
    let changed = before.passwords.as_ref().zip(after.passwords.as_ref()).map(|(old, new)| new.changed_from(old));
    tell("other passwords of", changed.unwrap_or_default());
    tell("new or changed rules", not_in(&after.written, &before.written, of_rule));
    tell("rules gone:", not_in(&before.written, &after.written, of_rule));
    tell("new or changed quotas", not_in(&after.quotas, &before.quotas, of_quota));
    tell("quotas gone:", not_in(&before.quotas, &after.quotas, of_quota));
    let keys = |plan: &Plan, other: &Plan| {
        plan.tokens.as_ref().map(|tokens| tokens.not_in(other.tokens.as_ref())).unwrap_or_default()
    };
    tell("new keys of tokens", keys(after, before));
    tell("keys of tokens gone:", keys(before, after));
    let claims = |plan: &Plan| plan.tokens.as_ref().map(Tokens::claims).cloned().unwrap_or_default();
    for ((what, old), new) in ["issuer", "audience"].into_iter().zip(claims(before)).zip(claims(after)) {
        if old != new {
            parts.push(format!("another {what} of tokens: {new:?} instead of {old:?}"));
        }
    }
    if is_reordered(&before.written, &after.written) {
        parts.push("rules in another order".into());
    }
    if is_reordered(&before.quotas, &after.quotas) {
        parts.push("quotas in another order".into());
    }
    if before.origins != after.origins {
        parts.push(format!("other origins: {}", after.origins.join(", ")));
    }
    if before.disconnects_denied != after.disconnects_denied {
        let does = if after.disconnects_denied { "disconnected" } else { "not disconnected any more" };
        parts.push(format!("clients that publish what they may not are {does}"));
    }
    if before.audit != after.audit {
        parts.push("the audit goes elsewhere".into());
    }
    parts
}
