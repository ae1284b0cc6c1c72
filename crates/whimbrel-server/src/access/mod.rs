//! Who somebody is, and whether they may: passwords, tokens and certificates, rules and quotas, and
//! the audit of it.
//!
//! The rules themselves are in `whimbrel-access`, and the MQTT edge asks them. Here is what needs
//! files, clocks and threads.

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

/// The reason code of MQTT 5 for who is not believed: bad user name or password.
const NOT_BELIEVED: u16 = 0x86;

/// Names that one line of the log shows of each kind.
const NAMES_MAX: usize = 20;

/// What the configuration says of identity and rights.
#[derive(Debug, Default)]
pub struct Plan {
    /// Everybody may do everything.
    pub dev: bool,
    /// The users with passwords, if there is a file of them.
    pub passwords: Option<Passwords>,
    /// The keys of tokens, if there are any.
    pub tokens: Option<Tokens>,
    /// The rules as they were written.
    pub written: Vec<Rule>,
    /// The rules.
    pub rules: Arc<Rules>,
    /// The quotas.
    pub quotas: Arc<[Quota]>,
    /// Origins of web pages that may open WebSockets, beside the broker's own host.
    pub origins: Vec<String>,
    /// Where the audit goes.
    pub audit: audit::Place,
    /// Clients that publish what they may not are disconnected.
    pub disconnects_denied: bool,
}

impl Plan {
    /// Everything is allowed to everybody.
    pub fn of_development() -> Plan {
        Plan { dev: true, rules: Arc::new(Rules::everything()), ..Plan::default() }
    }

    /// Whether somebody can be known by what they say.
    pub fn judges(&self) -> bool {
        self.passwords.is_some() || self.tokens.is_some()
    }

    /// The part of it that the MQTT edge needs.
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

    /// Who this is; otherwise why not, for the audit. Takes tens of milliseconds.
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

/// What somebody says of who they are.
#[derive(Debug)]
pub struct Asked {
    /// The user name, if there is one.
    pub user: Option<String>,
    /// A password or a token.
    pub password: Vec<u8>,
    /// It can only be a token.
    pub is_bearer: bool,
    /// Where it comes from, in words; empty if that is not known.
    pub from: String,
    /// With which client id, over MQTT.
    pub client_id: Option<String>,
}

/// Who somebody is.
#[derive(Clone, Debug)]
pub struct Identified {
    /// Who.
    pub principal: Principal,
    /// They have shown a token, not a password: the mark of its key.
    pub by_token: Option<tokens::Mark>,
    /// Until when that is so.
    pub until: Option<SystemTime>,
}

/// How often what came of asking who somebody is.
#[derive(Debug, Default)]
pub struct Counts {
    /// They were remembered.
    pub remembered: AtomicU64,
    /// Their password was right.
    pub by_password: AtomicU64,
    /// Their token was believed.
    pub by_token: AtomicU64,
    /// Neither.
    pub refused: AtomicU64,
    /// Too many others were waiting.
    pub busy: AtomicU64,
}

/// Knows who may do what.
#[derive(Debug)]
pub struct Access {
    plan: RwLock<Arc<Plan>>,
    workers: Workers,
    remembered: Remembered,
    audit: Audit,
    counts: Counts,
}

impl Access {
    /// Begins with this.
    ///
    /// # Errors
    /// The audit cannot be written, or the system gives no threads or randomness.
    pub fn start(plan: Arc<Plan>) -> io::Result<Arc<Access>> {
        let remembered = Remembered::new().ok_or_else(|| io::Error::other("the system has no randomness to give"))?;
        let (workers, audit) = (Workers::start()?, Audit::start(plan.audit.clone())?);
        Ok(Arc::new(Access { plan: RwLock::new(plan), workers, remembered, audit, counts: Counts::default() }))
    }

    /// What is in force.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.read().clone()
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The audit.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Who this is, if that is remembered.
    pub fn recall(&self, asked: &Asked) -> Option<Identified> {
        let found = self.remembered.find(Instant::now(), asked.user.as_deref(), &asked.password);
        if found.is_some() {
            self.counts.remembered.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Finds out who this is, and says so on a thread of its own; at once if it is not even tried.
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
                // What was right by what is no longer in force is not remembered.
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

    /// Counts and notes somebody who is not believed. The name that they give is nobody's yet: it
    /// is what the record is about.
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

    /// Which rule allows the broker of that name to be linked with, which came from, or is dialled
    /// at, that address.
    ///
    /// # Errors
    /// None does; the audit has been told.
    pub fn peer(&self, name: &str, from: &str) -> Result<RuleNo, Denied> {
        let judged = match Principal::new(name) {
            Ok(broker) => self.plan().rules.peer(&broker),
            Err(_) => Err(Denied::NoRule),
        };
        judged.inspect_err(|denied| self.note_refused_peer((name, from), denied.text()))
    }

    /// Why the broker of that name, which came from, or is dialled at, that address, may not be
    /// linked with, if so: the certificates that it has `shown` are not believed any more, or no
    /// rule allows it. The audit has been told.
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

    /// Takes note of a broker, or of somebody who wanted to be one, that is refused: its name, if
    /// that is known, and its address.
    pub fn note_refused_peer(&self, (name, from): (&str, &str), why: &str) {
        self.audit.note(&Record { event: "refused", action: "peer", principal: name, from, why, ..Record::default() });
    }

    /// Takes note of a client that is turned away for the certificate that it has shown, or for
    /// showing none.
    pub fn note_refused_certificate(&self, from: &str, why: &str) {
        self.audit.note(&Record { event: "refused", action: "connect", from, why, ..Record::default() });
    }

    /// The audit goes on where a new plan says, although that is not in force yet.
    ///
    /// # Errors
    /// It cannot be written there; then it goes where it went.
    pub fn reopen_audit(&self, plan: &Plan) -> io::Result<()> {
        self.audit.reopen(plan.audit.clone())
    }

    /// From now on this is in force. The log and the audit are told how it differs from what was,
    /// and what `more` has changed; whether anything has is returned.
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

    /// Takes note that what was read again is not in force, and why.
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

/// Those that are not among others: their places in the list, from 1, and whom they are about.
fn not_in<T: PartialEq>(these: &[T], others: &[T], whom: impl Fn(&T) -> &[String]) -> Vec<String> {
    let these = these.iter().enumerate().filter(|(_, one)| !others.contains(one));
    these.map(|(at, one)| format!("{} ({})", at + 1, whom(one).join(", "))).collect()
}

/// Whether those that are in both lists stand in another order there.
fn is_reordered<T: PartialEq>(before: &[T], after: &[T]) -> bool {
    let kept = before.iter().filter(|one| after.contains(one));
    !kept.eq(after.iter().filter(|one| before.contains(one)))
}

/// How one differs from another, in words.
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
