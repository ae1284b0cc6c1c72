//! Who somebody is, and whether they may: passwords, tokens and certificates, rules and quotas, and the audit of it.
//!
//! The rules themselves are in `whimbrel-access`, and the MQTT edge asks them. Here is what needs files, clocks and threads.

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

use parking_lot::RwLock;
use whimbrel_access::{Denied, Principal, Quota, Rule, RuleNo, Rules};
use whimbrel_mqtt::Unidentified;

use audit::{Audit, Record};
pub use http::{ByFile, ByRules, HttpRefusal};
use passwords::{PASSWORD_MAX, Passwords};
use remembered::Remembered;
use tokens::{TOKEN_MAX, Tokens};
use workers::Workers;

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
        }
    }

    /// Who this is; otherwise why not, for the audit. Takes tens of milliseconds.
    fn judge(&self, asked: &Asked) -> Result<Identified, String> {
        let token = self.tokens.as_ref().zip(std::str::from_utf8(&asked.password).ok());
        if let Some((tokens, token)) = token.filter(|(_, token)| asked.is_bearer || Tokens::is_token(token)) {
            let (principal, until) = tokens.verify(token)?;
            return Ok(Identified { principal, by_token: true, until: Some(until) });
        }
        let passwords = self.passwords.as_ref().ok_or("it is no token, and there are no passwords")?;
        let user = asked.user.as_deref().ok_or("there is a password and no user name")?;
        let principal =
            passwords.verify(user, &asked.password).ok_or("the user is not known, or the password is wrong")?;
        Ok(Identified { principal, by_token: false, until: None })
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
}

/// Who somebody is.
#[derive(Clone, Debug)]
pub struct Identified {
    /// Who.
    pub principal: Principal,
    /// They have shown a token, not a password.
    pub by_token: bool,
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
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
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
                let count = if who.by_token { &self.counts.by_token } else { &self.counts.by_password };
                count.fetch_add(1, Ordering::Relaxed);
                let current = self.plan.read();
                // What was right by what is no longer in force is not remembered.
                if Arc::ptr_eq(&current, plan) {
                    self.remembered.keep(Instant::now(), asked.user.as_deref(), &asked.password, &who);
                }
                Ok(who)
            }
            Err(why) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                let principal = asked.user.as_deref().unwrap_or_default();
                self.audit.note(&Record {
                    event: "refused",
                    action: "identify",
                    about: principal,
                    why: &why,
                    ..Record::default()
                });
                Err(Unidentified::Refused)
            }
        }
    }

    /// Which rule allows the broker of that name to be linked with.
    ///
    /// # Errors
    /// None does; the audit has been told.
    pub fn peer(&self, name: &str) -> Result<RuleNo, Denied> {
        let judged = match Principal::new(name) {
            Ok(broker) => self.plan().rules.peer(&broker),
            Err(_) => Err(Denied::NoRule),
        };
        judged.inspect_err(|denied| {
            let why = denied.text();
            self.audit.note(&Record { event: "refused", action: "peer", principal: name, why, ..Record::default() });
        })
    }

    /// From now on this is in force. The log and the audit are told how it differs from what was; whether it does is returned.
    ///
    /// # Errors
    /// The audit cannot be written where it is to be; then what was stays.
    pub fn replace(&self, plan: Arc<Plan>) -> io::Result<bool> {
        self.audit.reopen(plan.audit.clone())?;
        let before = std::mem::replace(&mut *self.plan.write(), plan.clone());
        self.remembered.forget();
        let differences = differences(&before, &plan);
        let why = differences.as_deref().unwrap_or("rules, users and quotas are the same");
        tracing::info!(rules = plan.rules.len(), quotas = plan.quotas.len(), "access read again: {why}");
        self.audit.note(&Record { event: "reloaded", action: "reload", why, ..Record::default() });
        Ok(differences.is_some())
    }
}

/// How one differs from another, in words; `None`: it does not.
fn differences(before: &Plan, after: &Plan) -> Option<String> {
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
    let place = |at: usize, rule: &Rule| format!("{} ({})", at + 1, rule.principals.join(", "));
    let not_in = |these: &[Rule], others: &[Rule]| -> Vec<String> {
        let others: Vec<&Rule> = others.iter().collect();
        these.iter().enumerate().filter(|(_, rule)| !others.contains(rule)).map(|(at, rule)| place(at, rule)).collect()
    };
    tell("new or changed rules", not_in(&after.written, &before.written));
    tell("rules gone:", not_in(&before.written, &after.written));
    if before.quotas != after.quotas {
        parts.push("other quotas".into());
    }
    if before.origins != after.origins {
        parts.push("other origins".into());
    }
    if before.audit != after.audit {
        parts.push("the audit goes elsewhere".into());
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
