//! Who wants a topic: all subscriptions, the index over their filters, and a cache of answers.

use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use whimbrel_selector::{FilterIndex, TopicError, TopicFilter, TopicName};

use whimbrel_event::Qos;

/// No shared subscription.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// Marks index keys that are shared subscriptions.
const GROUP_BIT: u32 = 1 << 31;

/// Topics whose answer is remembered; reaching it forgets all, which costs one walk of the index per topic in use.
const ROUTES_MAX: usize = 65_536;

/// Targets that are remembered in all answers together.
const ROUTE_TARGETS_MAX: usize = 1 << 20;

/// One subscription of one session.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) session: u32,
    /// As it was asked for, `$share/…` included.
    pub(crate) text: Box<str>,
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) identifier: u32,
    pub(crate) group: u32,
}

/// What a route says of one subscription: everything that a delivery needs to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The session, or the shared subscription if `shared`.
    pub(crate) to: u32,
    pub(crate) identifier: u32,
    pub(crate) qos: Qos,
    pub(crate) shared: bool,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
}

#[derive(Debug)]
struct Route {
    topic: Box<str>,
    epoch: u64,
    targets: Box<[Target]>,
}

/// All subscriptions, and who wants which topic.
#[derive(Debug)]
pub(crate) struct Router {
    subscriptions: Vec<Option<Subscription>>,
    free: Vec<u32>,
    /// (session, text) to subscription.
    by_text: HashTable<u32>,
    index: FilterIndex<u32>,
    routes: HashTable<Route>,
    route_targets: usize,
    /// Grows when a wildcard filter comes or goes: every remembered answer may be wrong then.
    epoch: u64,
    hasher: FixedState,
    count: usize,
    pub(crate) misses: u64,
}

impl Router {
    pub(crate) fn new(seed: u64) -> Self {
        Router {
            subscriptions: Vec::new(),
            free: Vec::new(),
            by_text: HashTable::new(),
            index: FilterIndex::new(seed),
            routes: HashTable::new(),
            route_targets: 0,
            epoch: 0,
            hasher: FixedState::with_seed(seed),
            count: 0,
            misses: 0,
        }
    }

    /// The number of subscriptions.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, id: u32) -> &Subscription {
        self.subscriptions[id as usize].as_ref().expect("a subscription id in use")
    }

    pub(crate) fn find(&self, session: u32, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one((session, text));
        self.by_text
            .find(hash, |&id| {
                let known = self.get(id);
                known.session == session && &*known.text == text
            })
            .copied()
    }

    /// Adds a subscription that [`Router::find`] does not know. One of a group is not in the index by itself.
    pub(crate) fn insert(&mut self, subscription: Subscription, filter: TopicFilter<'_>) -> u32 {
        let hash = self.hasher.hash_one((subscription.session, &*subscription.text));
        let shared = subscription.group != NO_GROUP;
        let id = match self.free.pop() {
            Some(id) => {
                self.subscriptions[id as usize] = Some(subscription);
                id
            }
            None => {
                self.subscriptions.push(Some(subscription));
                self.subscriptions.len() as u32 - 1
            }
        };
        assert!(id < GROUP_BIT, "2^31 subscriptions do not fit any memory");
        let (subscriptions, hasher) = (&self.subscriptions, &self.hasher);
        self.by_text.insert_unique(hash, id, |&id| {
            let known = subscriptions[id as usize].as_ref().expect("a subscription id in use");
            hasher.hash_one((known.session, &*known.text))
        });
        self.count += 1;
        if !shared {
            self.index.insert(filter, id);
            self.forget_routes(filter);
        }
        id
    }

    /// Replaces the options of a subscription.
    pub(crate) fn update(&mut self, id: u32, change: impl FnOnce(&mut Subscription), filter: TopicFilter<'_>) {
        change(self.subscriptions[id as usize].as_mut().expect("a subscription id in use"));
        self.forget_routes(filter);
    }

    pub(crate) fn remove(&mut self, id: u32, filter: TopicFilter<'_>) -> Subscription {
        let gone = self.subscriptions[id as usize].take().expect("a subscription id in use");
        let hash = self.hasher.hash_one((gone.session, &*gone.text));
        self.by_text.find_entry(hash, |&other| other == id).expect("every subscription is found by text").remove();
        self.free.push(id);
        self.count -= 1;
        if gone.group == NO_GROUP {
            let known = self.index.remove(filter, id);
            assert!(known, "every subscription is in the index");
            self.forget_routes(filter);
        }
        gone
    }

    pub(crate) fn insert_group(&mut self, group: u32, filter: TopicFilter<'_>) {
        assert!(group < GROUP_BIT, "2^31 shared subscriptions do not fit any memory");
        self.index.insert(filter, group | GROUP_BIT);
        self.forget_routes(filter);
    }

    pub(crate) fn remove_group(&mut self, group: u32, filter: TopicFilter<'_>) {
        let known = self.index.remove(filter, group | GROUP_BIT);
        assert!(known, "every shared subscription is in the index");
        self.forget_routes(filter);
    }

    fn forget_routes(&mut self, filter: TopicFilter<'_>) {
        if filter.has_wildcard() {
            self.epoch += 1;
            return;
        }
        let hash = self.hasher.hash_one(filter.as_str());
        if let Ok(entry) = self.routes.find_entry(hash, |route| &*route.topic == filter.as_str()) {
            let (route, _) = entry.remove();
            self.route_targets -= route.targets.len();
        }
    }

    /// The subscriptions that want `topic`. Costs one look-up if the answer is remembered, else a walk of the index.
    ///
    /// # Errors
    /// When `topic` is no topic name.
    pub(crate) fn route(&mut self, topic: &str) -> Result<&[Target], TopicError> {
        let hash = self.hasher.hash_one(topic);
        let epoch = self.epoch;
        // Looked up by bucket because a borrow that is returned on one path only would last for all of them.
        let known = self.routes.find_bucket_index(hash, |route| &*route.topic == topic);
        if let Some(bucket) = known
            && self.routes.get_bucket(bucket).is_some_and(|route| route.epoch == epoch)
        {
            let route = self.routes.get_bucket(bucket).expect("just seen");
            return Ok(&route.targets);
        }
        self.walk(topic, hash)
    }

    #[cold]
    fn walk(&mut self, topic: &str, hash: u64) -> Result<&[Target], TopicError> {
        let name = TopicName::new(topic)?;
        self.misses += 1;
        let mut targets = Vec::new();
        let subscriptions = &self.subscriptions;
        self.index.for_each_match(name, |key| {
            targets.push(if key & GROUP_BIT != 0 {
                let to = key & !GROUP_BIT;
                let qos = Qos::ExactlyOnce;
                Target { to, identifier: 0, qos, shared: true, no_local: false, retain_as_published: false }
            } else {
                let known = subscriptions[key as usize].as_ref().expect("indexed subscriptions exist");
                Target {
                    to: known.session,
                    identifier: known.identifier,
                    qos: known.qos,
                    shared: false,
                    no_local: known.no_local,
                    retain_as_published: known.retain_as_published,
                }
            });
        });
        if let Ok(entry) = self.routes.find_entry(hash, |route| &*route.topic == topic) {
            let (old, _) = entry.remove();
            self.route_targets -= old.targets.len();
        }
        if self.routes.len() >= ROUTES_MAX || self.route_targets + targets.len() > ROUTE_TARGETS_MAX {
            self.routes.clear();
            self.route_targets = 0;
        }
        self.route_targets += targets.len();
        let route = Route { topic: topic.into(), epoch: self.epoch, targets: targets.into_boxed_slice() };
        let hasher = &self.hasher;
        let entry = self.routes.insert_unique(hash, route, |route| hasher.hash_one(&*route.topic));
        Ok(&entry.into_mut().targets)
    }
}
