//! The routes of topics: found in the cache, or made by a walk of the index.

use whimbrel_event::Domains;
use whimbrel_selector::{TopicError, TopicName};

use super::target::{Target, target};
use super::{Route, RouteAt, Router, TopicInterest};
use crate::topic::{Persistence, TopicSettings};

impl Router {
    /// The route of a topic: the targets of its events, as far as the topic tells. Costs one
    /// look-up if it is cached, else a walk of the index.
    ///
    /// # Errors
    /// When `topic` is no valid topic name.
    pub(crate) fn route(&mut self, topic: &str) -> Result<RouteAt, TopicError> {
        if let Some(route) = self.routes.table.get_bucket(self.last)
            && route.epoch == self.epoch
            && &*route.topic == topic
        {
            return Ok(RouteAt(self.last));
        }
        let hash = self.hasher.hash_one(topic);
        let known = self.routes.table.find_bucket_index(hash, |route| &*route.topic == topic);
        let fresh = |at: &usize| self.routes.table.get_bucket(*at).is_some_and(|route| route.epoch == self.epoch);
        match known.filter(fresh) {
            Some(at) => {
                self.last = at;
                Ok(RouteAt(at))
            }
            None => self.walk(topic, hash),
        }
    }

    /// What the profile of a topic says; of a topic that is not valid, nothing.
    pub(crate) fn settings_of(&mut self, topic: &str) -> TopicSettings {
        if self.profiles.is_empty() {
            return TopicSettings::default();
        }
        let at = self.route(topic).ok();
        at.and_then(|at| self.routes.table.get_bucket(at.0)).map_or(TopicSettings::default(), |route| route.settings)
    }

    /// The targets of a topic's events if all are sessions that get each of them, or each while
    /// they are attached. `None` if that is not so, the topic is not valid, or the event would be
    /// logged: `may_be_logged` tells that there is a log and that the event is reliable, the
    /// topic's profile tells the rest.
    #[inline]
    pub(crate) fn plain_targets(&mut self, topic: &str, may_be_logged: bool) -> Option<&[Target]> {
        let at = self.route(topic).ok()?;
        let route = self.routes.table.get_bucket(at.0)?;
        let is_logged = may_be_logged && route.settings.persistence == Persistence::Persistent;
        (route.is_plain && !is_logged).then_some(&*route.targets)
    }

    /// The targets that [`Router::route`] has found.
    pub(crate) fn wanted(&self, at: RouteAt) -> TopicInterest<'_> {
        self.routes.table.get_bucket(at.0).expect("a route that was just found").wanted()
    }

    /// The domains that may carry the events of a topic; `None`: any broker may.
    #[inline]
    pub(crate) fn domains(&self, at: RouteAt) -> Option<Domains> {
        self.wanted(at).settings.domains_of.map(|slot| self.profiles.domains_at(slot).clone())
    }

    #[cold]
    fn walk(&mut self, topic: &str, hash: u64) -> Result<RouteAt, TopicError> {
        let name = TopicName::new(topic)?;
        self.misses += 1;
        let (mut targets, mut groups) = (Vec::new(), Vec::new());
        let settings = self.profiles.of(name);
        let subscriptions = &self.subscriptions;
        let plain = |key| targets.push(target(subscriptions, key));
        self.index.for_each_candidate(name, plain, |group| groups.push(group));
        let route = Route {
            topic: topic.into(),
            epoch: self.epoch,
            is_durable: targets.iter().any(|target| target.is_durable),
            is_plain: groups.is_empty() && settings.changes_nothing() && targets.iter().all(Target::is_plain),
            targets: targets.into_boxed_slice(),
            groups: (!groups.is_empty()).then(|| groups.into()),
            settings,
        };
        let routes = &mut self.routes;
        if let Ok(entry) = routes.table.find_entry(hash, |route| &*route.topic == topic) {
            let (old, _) = entry.remove();
            routes.targets -= old.size();
        }
        routes.make_room(route.size());
        routes.targets += route.size();
        let hasher = &self.hasher;
        let entry = routes.table.insert_unique(hash, route, |route| hasher.hash_one(&*route.topic));
        self.last = entry.bucket_index();
        Ok(RouteAt(self.last))
    }
}
