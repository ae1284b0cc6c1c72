//! Credentials verified lately, so that clients that reconnect cost no hashing.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::SystemRandom;

use super::Identified;

/// Time for which credentials are remembered.
const LIFE: Duration = Duration::from_secs(60);

/// Credentials that are remembered, at most.
const MOST: usize = 100_000;

#[derive(Debug)]
struct Entry {
    who: Identified,
    until: Instant,
}

/// Hashes of right credentials, under a random key.
#[derive(Debug)]
pub(super) struct Remembered {
    key: hmac::Key,
    entries: Mutex<HashMap<[u8; 32], Entry>>,
}

impl Remembered {
    /// Remembers nothing yet; `None`: the system has no randomness to give.
    pub(super) fn new() -> Option<Remembered> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).ok()?;
        Some(Remembered { key, entries: Mutex::default() })
    }

    fn name(&self, user: Option<&str>, password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        // The user with its length, so that no other division of the same bytes has the same name.
        context.update(&user.map_or(u64::MAX, |user| user.len() as u64).to_le_bytes());
        context.update(user.unwrap_or_default().as_bytes());
        context.update(password);
        let mut name = [0; 32];
        name.copy_from_slice(context.sign().as_ref());
        name
    }

    pub(super) fn find(&self, now: Instant, user: Option<&str>, password: &[u8]) -> Option<Identified> {
        let name = self.name(user, password);
        let entries = self.entries.lock();
        entries.get(&name).filter(|entry| now < entry.until).map(|entry| entry.who.clone())
    }

    pub(super) fn keep(&self, now: Instant, user: Option<&str>, password: &[u8], who: &Identified) {
        let left = who.until.map_or(LIFE, |until| until.duration_since(SystemTime::now()).unwrap_or_default());
        let entry = Entry { who: who.clone(), until: now + left.min(LIFE) };
        let name = self.name(user, password);
        let mut entries = self.entries.lock();
        if entries.len() >= MOST {
            entries.retain(|_, entry| now < entry.until);
        }
        if entries.len() < MOST {
            entries.insert(name, entry);
        }
    }

    /// Forgets all: other credentials may be right now.
    pub(super) fn forget(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_access::Principal;

    use super::*;

    #[test]
    fn what_was_right_is_remembered_for_a_minute() {
        let remembered = Remembered::new().expect("randomness");
        let who = Identified { principal: Principal::new("ann").expect("a name"), by_token: None, until: None };
        let now = Instant::now();
        remembered.keep(now, Some("ann"), b"one", &who);
        let find = |user, password: &[u8], after| remembered.find(now + Duration::from_secs(after), user, password);
        assert!(find(Some("ann"), b"one", 59).is_some_and(|found| found.principal == who.principal));
        assert!(find(Some("ann"), b"one", 60).is_none());
        assert!(find(Some("ann"), b"two", 0).is_none() && find(Some("an"), b"none", 0).is_none());
        assert!(find(None, b"annone", 0).is_none());
        remembered.forget();
        assert!(find(Some("ann"), b"one", 0).is_none());
    }

    #[test]
    fn a_token_is_remembered_no_longer_than_it_is_valid() {
        let remembered = Remembered::new().expect("randomness");
        let until = Some(SystemTime::now() + Duration::from_secs(10));
        let who = Identified { principal: Principal::new("ann").expect("a name"), by_token: Some(7), until };
        let now = Instant::now();
        remembered.keep(now, None, b"token", &who);
        assert!(remembered.find(now + Duration::from_secs(9), None, b"token").is_some());
        assert!(remembered.find(now + Duration::from_secs(11), None, b"token").is_none());
    }
}
