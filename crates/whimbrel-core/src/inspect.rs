//! The operator's view of sessions, streams and the cache's division. Nothing here changes
//! anything. Every call looks at a bounded part, so that callers that share the core can have their
//! turn between two calls.

use core::time::Duration;

use whimbrel_event::{HostId, PubendId, Tick, Time};

use crate::api::{Durability, Link};
use crate::broker::Broker;
use crate::cache::{PartitionGauges, Plan};
use crate::caching::CacheInterest;
use crate::cursor::{Cursor, NOTHING};
use crate::overlay::{Overlay, ProfileMap};
use crate::route::{NO_CURSOR, NO_GROUP, Router, Subscription};
use crate::session::{Session, own_client_id, shown};
use crate::stats::GapClass;
use crate::store::{HoldGiven, OWN, OwnTicks};
use crate::subscription::SubscriptionSpec;
use crate::topic::{ListedProfile, Profile, Punctuality, RankedProfile, TopicDeliveries};

/// Subscriptions that one call of [`Broker::sessions`] looks at, unless a single session has more.
const SUBSCRIPTIONS_MAX: usize = 4096;

/// Where the client of a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Connected.
    Here,
    /// The client has disconnected.
    Away {
        /// When.
        since: Time,
        /// When the session ends if it does not come back.
        until: Time,
    },
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    /// Client id. That of a durable shared subscription is shown as `$share/…`, as it was asked
    /// for.
    pub client_id: Box<str>,
    /// The name that the client has proved to have, if it is known.
    pub principal: Option<Box<str>>,
    /// Where the client is.
    pub presence: Presence,
    /// The connection of the client, if it is connected by one.
    pub link: Option<Link>,
    /// How long the session outlives its connection.
    pub expiry: Duration,
    /// The session is remembered by the log, and so outlives the process.
    pub is_kept: bool,
    /// Subscriptions, the durable ones included.
    pub subscriptions: usize,
    /// Durable subscriptions.
    pub durable: usize,
    /// The position of the durable subscription that is furthest behind its events: it has
    /// acknowledged everything up to there. `None`: none is behind. At most 10 ms old.
    pub behind: Option<Tick>,
    /// Deliveries that the client has not acknowledged.
    pub in_flight: usize,
    /// Messages that wait in memory to be sent.
    pub waiting: usize,
    /// Its owner and replica, if there are other brokers.
    pub place: Option<PlaceInfo>,
}

/// The owner and replica of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceInfo {
    /// The number of the current connection, greater than those of all earlier connections of the
    /// client, at any broker.
    pub epoch: u64,
    /// The name of the broker that has confirmed a copy of the whole session.
    pub replica: Option<Box<str>>,
    /// The name of the broker that owns the session by now. This broker has its former state, until
    /// the session is safe there.
    pub given_to: Option<Box<str>>,
}

/// A subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionInfo {
    /// Topic filter, as it was asked for.
    pub filter: Box<str>,
    /// Its selector, if the session is remembered.
    pub selector: Option<Box<str>>,
    /// It has a selector.
    pub is_selective: bool,
    /// Its options.
    pub spec: SubscriptionSpec,
    /// Its acknowledged position in each of the broker's reliable streams, if it is durable.
    pub positions: Vec<(PubendId, Tick)>,
    /// The least of these positions that has wanted events after it; of a semi-durable subscription
    /// in catch-up, its least position.
    pub behind: Option<Tick>,
}

/// One of the broker's reliable streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamInfo {
    /// The stream.
    pub pubend: PubendId,
    /// The tick up to which it has been passed on.
    pub passed: Tick,
    /// The last event that was logged.
    pub logged: Tick,
    /// The tick up to which its log was released.
    pub chopped: Tick,
}

/// A subscription that holds a stream's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The stream's place among the broker's reliable ones.
    pub own: usize,
    /// The tick up to which it has acknowledged.
    pub upto: Tick,
    /// The client id of its session.
    pub client_id: Box<str>,
    /// Its filter.
    pub filter: Box<str>,
    /// Whether the client is connected.
    pub is_here: bool,
}

/// Another broker for whose durable subscriptions the log is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldGivenInfo {
    /// The other broker's host.
    pub host: HostId,
    /// Its name.
    pub name: Box<str>,
    /// For each of the reliable streams, the tick up to which all of its subscriptions have
    /// acknowledged, by its last report; `None`: it needs nothing of that stream.
    pub upto: [Option<Tick>; OWN],
    /// When its last report was received.
    pub heard: Time,
    /// It will not come back: the hold remains for the broker that resumes its sessions.
    pub is_gone: bool,
}

/// The result of [`Broker::holders`] so far: for each stream the subscription that holds it
/// longest, and the number of those that hold it.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    /// The subscription that holds it longest; of equals, the first that was found.
    pub longest: [Option<Holder>; OWN],
    /// The number of subscriptions that hold it.
    pub count: [usize; OWN],
}

/// A page of the profiles of topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilesPage {
    /// The profiles in the order in which they count.
    pub profiles: Vec<ListedProfile>,
    /// The number of all profiles.
    pub count: usize,
    /// The names of brokers whose configurations have other profiles.
    pub differing: Vec<Box<str>>,
}

/// The profiles of topics, of the configuration and made at running brokers.
#[derive(Debug)]
pub struct ProfilesInfo<'a> {
    router: &'a Router,
    profiles: &'a ProfileMap,
    overlay: &'a Overlay,
}

impl ProfilesInfo<'_> {
    /// The profile with this filter that was made at a running broker.
    pub fn made(&self, filter: &str) -> Option<RankedProfile> {
        self.router.profiles().made(filter)
    }

    /// The profiles with a deadline of whose topics something was delivered, in the order in which
    /// they count: their filters, and whether it was in time.
    pub fn punctualities(&self) -> impl Iterator<Item = (&str, &Punctuality)> {
        let profiles = self.router.profiles().in_order();
        let timed = profiles.filter(|(_, _, punctuality)| **punctuality != Punctuality::default());
        timed.map(|(_, profile, punctuality)| (&*profile.filter, punctuality))
    }

    /// The number of profiles that were made at running brokers.
    pub fn made_len(&self) -> usize {
        self.router.profiles().made_len()
    }

    /// The profiles from that place on, at most `most`.
    pub fn page(&self, from: usize, most: usize) -> ProfilesPage {
        let profiles = self.router.profiles();
        let page = profiles.in_order().skip(from).take(most);
        let listed = |(rank, profile, punctuality): (Option<u32>, &Profile, &Punctuality)| ListedProfile {
            rank,
            profile: profile.clone(),
            punctuality: *punctuality,
        };
        ProfilesPage { profiles: page.map(listed).collect(), count: profiles.len(), differing: self.differing() }
    }

    /// The names of brokers whose configurations have other profiles.
    pub fn differing(&self) -> Vec<Box<str>> {
        self.profiles.differing(self.overlay)
    }
}

impl Broker {
    /// The buffer subscription policy.
    pub fn buffer(&self) -> &[CacheInterest] {
        &self.buffer
    }

    /// The current division of the cache.
    pub fn cache_plan(&self) -> &Plan {
        self.cache.plan()
    }

    /// Contents and counters of each partition of the cache, in the order of its plan, the default
    /// one last.
    pub fn cache_gauges(&self) -> Vec<PartitionGauges> {
        self.cache.gauges().collect()
    }

    /// Whether this broker is the home of a shared subscription, `$share/group/filter`: it alone
    /// has interest and position.
    pub fn shared_home(&self, text: &str) -> bool {
        self.groups.find(text).is_some_and(|id| self.groups.is_home(id))
    }

    /// Events of a shared subscription that other brokers have for their members and that are not
    /// settled yet.
    pub fn shared_given(&self, text: &str) -> usize {
        self.groups.find(text).map_or(0, |id| self.groups.given(id))
    }

    /// Sessions, in an order that does not change while they live. Looks at the next `places`
    /// places from `from` on. Begins with 0; returns the place to continue from, `None` at the end.
    /// A session that exists all the time is given once.
    pub fn sessions(&self, from: u32, places: usize) -> (Vec<SessionInfo>, Option<u32>) {
        self.sessions_named("", from, places, places)
    }

    /// As [`Broker::sessions`], only with client ids that begin with `prefix`, and at most `most`
    /// sessions. A place whose session has another client id costs a comparison.
    pub fn sessions_named(
        &self,
        prefix: &str,
        from: u32,
        places: usize,
        most: usize,
    ) -> (Vec<SessionInfo>, Option<u32>) {
        let (mut infos, mut looked_at, mut next) = (Vec::new(), 0, from);
        for (index, session) in self.sessions.from(from).take(places) {
            if looked_at > SUBSCRIPTIONS_MAX || infos.len() == most {
                break;
            }
            next = index + 1;
            looked_at += 1;
            let session = session.filter(|session| shown(&session.client_id).starts_with(prefix));
            if let Some(session) = session.filter(|session| self.sessions.find(&session.client_id) == Some(index)) {
                looked_at += session.subscriptions.len();
                infos.push(self.session_info(session));
            }
        }
        (infos, (next < self.sessions.places()).then_some(next))
    }

    /// The session of a client.
    pub fn session(&self, client_id: &str) -> Option<SessionInfo> {
        self.find_shown(client_id).map(|index| self.session_info(self.sessions.get(index)))
    }

    /// The class of the subscription that a delivery belongs to, by [`crate::Delivery::cursor`].
    pub fn class_of(&self, cursor: u32) -> GapClass {
        self.cursors.find(cursor).map_or(GapClass::Nondurable, Cursor::gap_class)
    }

    /// Counts deliveries of topics with a deadline, which the edge has handed out.
    pub fn record_deliveries(&mut self, deliveries: &TopicDeliveries) {
        self.router.record_deliveries(deliveries);
    }

    /// At most `most` subscriptions of a client's session, in the order of their filters, from the
    /// first filter after `after` on. Costs a look at each subscription of the session.
    pub fn subscriptions(&self, client_id: &str, after: Option<&str>, most: usize) -> Vec<SubscriptionInfo> {
        let Some(index) = self.find_shown(client_id) else { return Vec::new() };
        let all = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id));
        let mut rest: Vec<_> = all.filter(|known| after.is_none_or(|after| *known.text > *after)).collect();
        if rest.len() > most {
            rest.select_nth_unstable_by(most, |a, b| a.text.cmp(&b.text));
            rest.truncate(most);
        }
        rest.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        rest.into_iter().map(|known| self.subscription_info(known)).collect()
    }

    /// The profiles of topics.
    pub fn topic_profiles(&self) -> ProfilesInfo<'_> {
        ProfilesInfo { router: &self.router, profiles: &self.profiles, overlay: &self.overlay }
    }

    /// The broker's reliable streams.
    pub fn streams(&self) -> [StreamInfo; OWN] {
        let streams = self.streams.logged();
        let (passed, release) = (streams.positions(), &self.store.release);
        core::array::from_fn(|own| StreamInfo {
            pubend: streams.host().reliable(own as u8),
            passed: passed[own],
            logged: release.logged[own],
            chopped: release.chopped[own],
        })
    }

    /// The other brokers for which the log is kept, in the order of their hosts: all with a given
    /// hold, some thousands at most.
    pub fn holds_given(&self) -> Vec<HoldGivenInfo> {
        let holds_given = self.store.holds_given.of.iter().filter(|(_, hold_given)| !hold_given.is_forfeited());
        let info = |(host, hold_given): (&HostId, &HoldGiven)| HoldGivenInfo {
            host: *host,
            name: hold_given.record.name.clone(),
            upto: hold_given.holds().map(|upto| Some(upto).filter(|upto| *upto != NOTHING)),
            heard: hold_given.record.at,
            is_gone: hold_given.record.has_ended,
        };
        holds_given.map(info).collect()
    }

    /// Finds the holders of the streams among at most `most` subscriptions from `from` on. Begins
    /// with 0; returns the place to continue from, `None` at the end.
    pub fn holders(&self, from: u32, most: usize, found: &mut Holders) -> Option<u32> {
        let mut next = from;
        for (id, cursor) in self.cursors.from(from).take(most) {
            next = id + 1;
            let Some((cursor, durable)) = cursor.and_then(|cursor| Some((cursor, cursor.durable.as_ref()?))) else {
                continue;
            };
            for (own, upto) in durable.held.all().iter().enumerate().filter(|(_, upto)| **upto != NOTHING) {
                found.count[own] += 1;
                if found.longest[own].as_ref().is_none_or(|holder| *upto < holder.upto) {
                    let session = self.sessions.get(cursor.session);
                    found.longest[own] = Some(Holder {
                        own,
                        upto: *upto,
                        client_id: shown(&session.client_id).into(),
                        filter: self.router.get(cursor.subscription).text.clone(),
                        is_here: session.is_attached(),
                    });
                }
            }
        }
        (next < self.cursors.places()).then_some(next)
    }

    /// The link to which a client is attached.
    pub fn link_of(&self, client_id: &str) -> Option<Link> {
        self.sessions.get(self.sessions.find(client_id)?).link()
    }

    /// The session of a client, or the own session of a shared subscription of that text.
    fn find_shown(&self, client_id: &str) -> Option<u32> {
        self.sessions.find(client_id).or_else(|| self.sessions.find(&own_client_id(client_id)))
    }

    fn session_info(&self, session: &Session) -> SessionInfo {
        let durable = session.subscriptions.iter().filter_map(|id| self.cursors.durable(self.router.get(*id).cursor));
        let behind = durable.clone().flat_map(|durable| durable.held.all()).filter(|upto| *upto != NOTHING).min();
        let presence = if session.is_attached() {
            Presence::Here
        } else {
            // An overdue session stays only while it cannot be forgotten.
            let until = session.expires_at.unwrap_or(self.now);
            let since = until.as_nanos().saturating_sub(session.expiry.as_nanos() as u64);
            Presence::Away { since: Time::from_nanos(since), until }
        };
        SessionInfo {
            client_id: shown(&session.client_id).into(),
            principal: session.memory.principal.as_deref().map(Box::from),
            presence,
            link: session.link(),
            expiry: session.expiry,
            is_kept: session.memory.is_kept,
            subscriptions: session.subscriptions.len(),
            durable: session.subscriptions.iter().filter(|id| self.router.get(**id).spec.is_durable()).count(),
            behind,
            in_flight: session.inflight.len(),
            waiting: session.load() - session.inflight.len(),
            place: self.overlay.place_info(session),
        }
    }

    fn subscription_info(&self, known: &Subscription) -> SubscriptionInfo {
        let cursor = (known.cursor != NO_CURSOR).then(|| self.cursors.get(known.cursor));
        let durable = cursor.and_then(|cursor| cursor.durable.as_deref());
        // A shared subscription that is not logged has the same queue for all of its members.
        let is_queued = known.group != NO_GROUP && !known.spec.is_durable();
        let durability = if is_queued { Durability::Queued } else { known.spec.durability };
        let catch_up = cursor.filter(|cursor| cursor.keeps).and_then(|cursor| cursor.catch_up.as_ref());
        let (mut positions, mut behind) = (Vec::new(), None);
        if let Some(durable) = durable {
            let acked: OwnTicks = durable.hold(&self.durable_position(known.cursor).acked);
            let host = self.streams.logged().host();
            positions = (0..).zip(acked).map(|(own, tick)| (host.reliable(own), tick)).collect();
            let is_behind = acked.into_iter().zip(durable.newest.all()).filter(|(acked, newest)| acked < newest);
            behind = is_behind.map(|(acked, _)| acked).min();
        } else if let Some(catch_up) = catch_up {
            behind = catch_up.positions.iter().map(|(_, tick)| tick).min();
        }
        SubscriptionInfo {
            filter: known.text.clone(),
            selector: known.selector.clone(),
            is_selective: known.selector_bytes > 0,
            spec: SubscriptionSpec { durability, ..known.spec },
            positions,
            behind,
        }
    }
}
