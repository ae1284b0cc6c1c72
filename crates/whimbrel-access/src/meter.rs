//! Usage of quotas by principals.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_event::Time;

use crate::pattern::Pattern;
use crate::quota::{Exceeded, Quota, QuotaError};
use crate::{Bucket, FILTERS_MAX, Principal, RULES_MAX};

/// Principals that are examined for removal whenever a new one is added: more than one, so that
/// principals whose rates have recovered become fewer.
const SWEEP: usize = 4;

/// The place of the usage of a connection's principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u32);

impl Slot {
    /// No place: nothing is counted.
    pub const NONE: Slot = Slot(u32::MAX);
}

#[derive(Debug)]
struct Usage {
    principal: Principal,
    /// The quota of the principal, by its place.
    quota: Option<usize>,
    connections: u32,
    subscriptions: u32,
    publishes: Bucket,
    bytes: Bucket,
}

#[derive(Debug)]
struct Compiled {
    quota: Quota,
    principals: Vec<Pattern>,
}

/// Counts the usage of each principal, and tells when it has reached its quota.
#[derive(Debug, Default)]
pub struct Meter {
    quotas: Arc<[Compiled]>,
    places: BTreeMap<Principal, u32>,
    /// Usages by their places; free ones have no connection and are not in `places`.
    usages: Vec<Option<Usage>>,
    free: Vec<u32>,
    /// Where the next sweep begins.
    sweep: usize,
}

impl Meter {
    /// A meter without quotas, which counts nothing until one is set.
    pub fn new() -> Meter {
        Meter::default()
    }

    /// Checks whether these quotas can be set.
    ///
    /// # Errors
    /// The first quota that is wrong, and how.
    pub fn check(quotas: &[Quota]) -> Result<(), QuotaError> {
        compile(quotas).map(drop)
    }

    /// Sets the quotas, also for present connections. Usage is kept; no connection is ended because
    /// its principal has too much.
    ///
    /// # Errors
    /// As [`Meter::check`]; the earlier quotas stay then.
    pub fn set(&mut self, quotas: &[Quota]) -> Result<(), QuotaError> {
        self.quotas = compile(quotas)?;
        for usage in self.usages.iter_mut().flatten() {
            usage.quota = quota_of(&self.quotas, &usage.principal);
        }
        Ok(())
    }

    /// Begins a connection of a principal.
    ///
    /// # Errors
    /// When the principal has as many connections as it may.
    pub fn enter(&mut self, now: Time, principal: &Principal) -> Result<Slot, Exceeded> {
        let place = match self.places.get(principal) {
            Some(place) => *place,
            None if self.quotas.is_empty() && self.places.is_empty() => return Ok(Slot::NONE),
            None => self.add(now, principal),
        };
        let quotas = self.quotas.clone();
        let Some(usage) = self.usages[place as usize].as_mut() else { return Ok(Slot::NONE) };
        let most = usage.quota.and_then(|quota| quotas[quota].quota.connections);
        match most {
            Some(most) if usage.connections >= most.get() => Err(Exceeded::Connections(most)),
            _ => {
                usage.connections += 1;
                Ok(Slot(place))
            }
        }
    }

    /// Ends a connection, whose session has this number of subscriptions.
    pub fn leave(&mut self, slot: Slot, subscriptions: u32) {
        if let Some(usage) = self.usage(slot) {
            usage.connections = usage.connections.saturating_sub(1);
            usage.subscriptions = usage.subscriptions.saturating_sub(subscriptions);
        }
    }

    /// Counts received publishes and bytes. Returns how long to wait before more is read; zero: not
    /// at all.
    #[inline]
    pub fn spend(&mut self, now: Time, slot: Slot, publishes: u64, bytes: u64) -> Duration {
        if slot == Slot::NONE {
            return Duration::ZERO;
        }
        let Meter { quotas, usages, .. } = self;
        let Some(usage) = usages.get_mut(slot.0 as usize).and_then(Option::as_mut) else { return Duration::ZERO };
        let Some(quota) = usage.quota.map(|quota| &quotas[quota].quota) else { return Duration::ZERO };
        let publishes = quota.publishes_per_second.map(|rate| usage.publishes.take(now, publishes, rate));
        let bytes = quota.bytes_per_second.map(|rate| usage.bytes.take(now, bytes, rate));
        publishes.max(bytes).unwrap_or_default()
    }

    /// Checks whether a principal may have `more` subscriptions than it has.
    ///
    /// # Errors
    /// When it may not.
    pub fn has_room(&self, slot: Slot, more: u32) -> Result<(), Exceeded> {
        let Some(usage) = self.usages.get(slot.0 as usize).and_then(Option::as_ref) else { return Ok(()) };
        match usage.quota.and_then(|quota| self.quotas[quota].quota.subscriptions) {
            Some(most) if usage.subscriptions.saturating_add(more) > most.get() => Err(Exceeded::Subscriptions(most)),
            _ => Ok(()),
        }
    }

    /// Records that a session of the principal had `before` subscriptions, and has `now`.
    pub fn count_subscriptions(&mut self, slot: Slot, before: u32, now: u32) {
        if let Some(usage) = self.usage(slot) {
            usage.subscriptions = usage.subscriptions.saturating_sub(before).saturating_add(now);
        }
    }

    /// Number of remembered principals: those with connections, and those whose rates have not
    /// recovered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no principal is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn usage(&mut self, slot: Slot) -> Option<&mut Usage> {
        self.usages.get_mut(slot.0 as usize).and_then(Option::as_mut)
    }

    fn add(&mut self, now: Time, principal: &Principal) -> u32 {
        self.forget_some(now);
        let usage = Usage {
            principal: principal.clone(),
            quota: quota_of(&self.quotas, principal),
            connections: 0,
            subscriptions: 0,
            publishes: Bucket::new(),
            bytes: Bucket::new(),
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.usages.push(None);
            u32::try_from(self.usages.len() - 1).expect("there are fewer principals than connections can be numbered")
        });
        self.usages[place as usize] = Some(usage);
        self.places.insert(principal.clone(), place);
        place
    }

    /// Forgets a few principals that have no connections and whose rates have recovered.
    fn forget_some(&mut self, now: Time) {
        for _ in 0..SWEEP.min(self.usages.len()) {
            self.sweep = (self.sweep + 1) % self.usages.len();
            let is_over =
                |usage: &Usage| usage.connections == 0 && usage.publishes.is_full(now) && usage.bytes.is_full(now);
            if let Some(usage) = self.usages[self.sweep].take_if(|usage| is_over(usage)) {
                self.places.remove(&usage.principal);
                self.free.push(self.sweep as u32);
            }
        }
    }
}

fn compile(quotas: &[Quota]) -> Result<Arc<[Compiled]>, QuotaError> {
    if quotas.len() > RULES_MAX {
        return Err(QuotaError::TooMany);
    }
    let compiled = quotas.iter().enumerate().map(|(at, quota)| {
        if quota.principals.is_empty() || quota.principals.len() > FILTERS_MAX {
            return Err(QuotaError::Nobody(at));
        }
        let Quota { connections, publishes_per_second, bytes_per_second, subscriptions, .. } = quota;
        if connections.or(*subscriptions).is_none() && publishes_per_second.or(*bytes_per_second).is_none() {
            return Err(QuotaError::Nothing(at));
        }
        let pattern = |text: &String| {
            Pattern::of_principals(text).map_err(|error| QuotaError::Principal(at, text.clone(), error))
        };
        let principals = quota.principals.iter().map(pattern).collect::<Result<_, _>>()?;
        Ok(Compiled { quota: quota.clone(), principals })
    });
    compiled.collect()
}

fn quota_of(quotas: &[Compiled], principal: &Principal) -> Option<usize> {
    quotas.iter().position(|quota| quota.principals.iter().any(|pattern| pattern.matches(principal.name())))
}

#[cfg(test)]
mod tests {
    use core::num::{NonZeroU32, NonZeroU64};

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn meter(quota: Quota) -> Meter {
        let mut meter = Meter::new();
        meter.set(&[Quota { principals: vec!["bus-*".into()], ..quota }]).expect("a sound quota");
        meter
    }

    fn named(name: &str) -> Principal {
        Principal::new(name).expect("a name")
    }

    #[test]
    fn connections_and_subscriptions_have_an_end() {
        let mut meter =
            meter(Quota { connections: NonZeroU32::new(2), subscriptions: NonZeroU32::new(3), ..Quota::default() });
        let bus = named("bus-7");
        let a = meter.enter(at(1), &bus).expect("the first");
        meter.enter(at(1), &bus).expect("the second");
        assert!(matches!(meter.enter(at(1), &bus), Err(Exceeded::Connections(_))));
        assert!(meter.enter(at(1), &named("bus-8")).is_ok(), "each has its own");
        assert!(meter.enter(at(1), &named("tram")).is_ok(), "no quota");
        meter.count_subscriptions(a, 0, 2);
        assert!(meter.has_room(a, 1).is_ok() && meter.has_room(a, 2).is_err());
        meter.leave(a, 2);
        let a = meter.enter(at(1), &bus).expect("one has left");
        assert!(meter.has_room(a, 3).is_ok());
    }

    #[test]
    fn a_rate_is_kept_over_connections_and_reconnections() {
        let rate = NonZeroU64::new(10);
        let mut meter = meter(Quota { publishes_per_second: rate, bytes_per_second: rate, ..Quota::default() });
        let bus = named("bus-7");
        let (a, b) = (meter.enter(at(1), &bus).expect("any"), meter.enter(at(1), &bus).expect("any"));
        assert_eq!(meter.spend(at(1), a, 10, 0), Duration::ZERO);
        assert_eq!(meter.spend(at(1), b, 1, 0), Duration::from_millis(100));
        assert_eq!(meter.spend(at(1), b, 0, 40), Duration::from_secs(3));
        meter.leave(a, 0);
        meter.leave(b, 0);
        let others: Vec<Slot> =
            (0..20).map(|number| meter.enter(at(1), &named(&format!("bus-x{number}"))).expect("any")).collect();
        let a = meter.enter(at(1), &bus).expect("any");
        assert_eq!(meter.spend(at(1), a, 1, 0), Duration::from_secs(3), "leaving does not help");
        meter.leave(a, 0);
        others.into_iter().for_each(|slot| meter.leave(slot, 0));
        for number in 0..20 {
            meter.enter(at(100), &named(&format!("bus-y{number}"))).expect("any");
        }
        assert!(meter.len() <= 21, "{} remembered", meter.len());
    }

    #[test]
    fn without_quotas_nothing_is_counted() {
        let mut meter = Meter::new();
        assert_eq!(meter.enter(at(1), &named("bus-7")), Ok(Slot::NONE));
        assert_eq!(meter.spend(at(1), Slot::NONE, 1_000_000, 1_000_000), Duration::ZERO);
        assert!(meter.is_empty());
    }
}
