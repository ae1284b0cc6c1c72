//! SUBSCRIBE and UNSUBSCRIBE.

use whimbrel_core::{Filter, Input as CoreInput, Link, SubscriptionSpec};
use whimbrel_event::Time;
use whimbrel_selector::{Fences, Selector, SharedFilter, TopicError};

use super::following::{self, FollowOptions};
use super::inbound::violation;
use super::{Edge, MqttBroker, Output};
use crate::codec::{DecodeError, ReasonCode, RetainHandling, Subscribe, Unsubscribe, UserProperties, Version};

/// The user property that holds a selector.
const SELECTOR: &str = "w-selector";

/// The prefix of a shared subscription's filter.
const SHARE: &str = "$share/";

/// The text for filters that no rule allows, or that exceed the quota.
pub(super) const DENIED: &str = "no rule allows to subscribe to all of it, or the quota is used up";

/// Filters of one SUBSCRIBE or UNSUBSCRIBE at most, unless a session may have more subscriptions:
/// they are handled in one step.
const FILTERS_MAX: usize = 10_000;

/// The text for a client that names more.
const TOO_MANY: &str = "more filters in one packet than a session may have subscriptions: use several packets";

/// The longest reason string about a user property, bytes.
const CAUSE_MAX: usize = 200;

impl MqttBroker {
    pub(super) fn subscribe(
        &mut self,
        now: Time,
        id: u32,
        subscribe: &Subscribe<'_>,
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        check_filters(self.edge.conns[id as usize].version, subscribe.filters.iter().map(|asked| asked.filter))?;
        if subscribe.filters.iter().nth(self.edge.filters_max()).is_some() {
            self.refuse_subscribe(id, subscribe, ReasonCode::QUOTA_EXCEEDED, TOO_MANY, out);
        } else {
            self.subscribe_checked(now, id, subscribe, out);
        }
        Ok(())
    }

    fn subscribe_checked(&mut self, now: Time, id: u32, subscribe: &Subscribe<'_>, out: &mut impl Output) {
        let user = subscribe.properties.user;
        let unknown = |name: &str| name.starts_with("w-") && name != SELECTOR && !following::is_known(name);
        self.edge.stats.reserved_properties_unknown += user.iter().filter(|(name, _)| unknown(name)).count() as u64;
        let wish = match FollowOptions::read(user, self.core.has_log()) {
            Ok(wish) => wish,
            Err(cause) => {
                self.edge.stats.following_refused += 1;
                let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                return self.refuse_subscribe(id, subscribe, reason, shortened(&cause), out);
            }
        };
        let selector = match selector(user, self.core.fences()) {
            Ok(selector) => selector,
            Err(cause) => {
                self.edge.stats.selectors_refused += 1;
                return self.refuse_subscribe(id, subscribe, ReasonCode::UNSPECIFIED_ERROR, shortened(&cause), out);
            }
        };
        let denied = self.denied(id, subscribe, out);
        let is_denied = |place: usize| denied.as_ref().is_some_and(|codes| codes[place].is_some());
        let identifier = subscribe.properties.subscription_id.unwrap_or(0);
        let is_bridge = self.edge.conns[id as usize].rare.as_ref().is_some_and(|rare| rare.bridge);
        let wants_token = wish.wants_token(self.edge.wants_diagnostics(id));
        let filters: Vec<Filter<'_>> = subscribe
            .filters
            .iter()
            .enumerate()
            .filter(|(place, _)| !is_denied(*place))
            .map(|(_, asked)| Filter {
                filter: asked.filter,
                selector: selector.as_ref(),
                spec: SubscriptionSpec {
                    // A shared subscription cannot leave out its members' own publishes.
                    no_local: asked.no_local || is_bridge && !asked.filter.starts_with(SHARE),
                    retain_as_published: asked.retain_as_published || is_bridge,
                    identifier,
                    ..wish.spec(asked.qos)
                },
                start: wish.start(),
                retain_handling: handling(asked.retain_handling),
                wants_token,
            })
            .collect();
        let tag = subscribe.packet_id.get();
        if let Some(codes) = denied {
            if filters.is_empty() {
                let reasons: Vec<u8> = codes.iter().flatten().map(|code| code.0).collect();
                let cause = DENIED;
                return self.edge.send_suback(id, subscribe.packet_id, &reasons, cause, UserProperties::EMPTY, out);
            }
            // Refused filters have their places among the answers of the others.
            self.edge.conns[id as usize].rare().denied.push((tag, codes));
        }
        self.core_input(now, CoreInput::Subscribe { link: Link(id), tag, filters: &filters }, out);
    }

    /// Refuses all filters of a SUBSCRIBE; existing subscriptions stay unchanged.
    fn refuse_subscribe(
        &mut self,
        id: u32,
        subscribe: &Subscribe<'_>,
        reason: ReasonCode,
        cause: &str,
        out: &impl Output,
    ) {
        let reasons = vec![reason.0; subscribe.filters.iter().count()];
        self.edge.send_suback(id, subscribe.packet_id, &reasons, cause, UserProperties::EMPTY, out);
    }

    pub(super) fn unsubscribe(
        &mut self,
        now: Time,
        id: u32,
        unsubscribe: &Unsubscribe<'_>,
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        check_filters(self.edge.conns[id as usize].version, unsubscribe.filters.iter())?;
        if unsubscribe.filters.iter().nth(self.edge.filters_max()).is_some() {
            // MQTT 3.1.1 has no answer that refuses.
            self.end(now, id, ReasonCode::QUOTA_EXCEEDED, TOO_MANY, out);
            return Ok(());
        }
        let filters: Vec<&str> = unsubscribe.filters.iter().collect();
        let tag = unsubscribe.packet_id.get();
        self.core_input(now, CoreInput::Unsubscribe { link: Link(id), tag, filters: &filters }, out);
        Ok(())
    }
}

/// Checks the filters of a SUBSCRIBE or UNSUBSCRIBE before any of them has an effect.
///
/// # Errors
/// When the protocol does not allow one of them (MQTT 5, 4.7.1, 4.7.3 and 4.8.2). That is a
/// protocol error; a filter that is well-formed and not accepted has a reason code instead. MQTT
/// 3.1.1 does not know shared subscriptions; an invalid one is refused there.
fn check_filters<'a>(version: Version, mut filters: impl Iterator<Item = &'a str>) -> Result<(), DecodeError> {
    let is_none = |filter: &str| match SharedFilter::parse(filter) {
        Err(TopicError::TooDeep | TopicError::TooLong) | Ok(_) => None,
        Err(TopicError::BadShare) if version == Version::V4 => None,
        Err(error) => Some(violation(error.why())),
    };
    filters.find_map(is_none).map_or(Ok(()), Err)
}

impl Edge {
    /// The number of filters that one packet may name.
    fn filters_max(&self) -> usize {
        self.config.core.subscriptions_per_session.max(FILTERS_MAX)
    }
}

/// The selector among the user properties of a SUBSCRIBE; `None` for one that is true for every
/// event, such as a blank one.
///
/// # Errors
/// The text says what is wrong with the selector, and where.
fn selector(user: UserProperties<'_>, fences: &Fences) -> Result<Option<Selector>, String> {
    let mut texts = user.iter().filter(|(name, _)| *name == SELECTOR).map(|(_, text)| text);
    let Some(text) = texts.next() else { return Ok(None) };
    if texts.next().is_some() {
        return Err(format!("{SELECTOR} is given more than once: a SUBSCRIBE has one selector for all its filters"));
    }
    let selector = Selector::parse_with(text, fences).map_err(|error| error.to_string())?;
    Ok((!selector.is_everything()).then_some(selector))
}

/// The beginning of `text` that fits in [`CAUSE_MAX`].
pub(super) fn shortened(text: &str) -> &str {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    &text[..ends.take_while(|end| *end <= CAUSE_MAX).last().unwrap_or(0)]
}

/// Converts the codec's retain handling to the core's.
fn handling(asked: RetainHandling) -> whimbrel_core::RetainHandling {
    match asked {
        RetainHandling::Send => whimbrel_core::RetainHandling::Send,
        RetainHandling::SendIfNew => whimbrel_core::RetainHandling::SendIfNew,
        RetainHandling::DoNotSend => whimbrel_core::RetainHandling::DoNotSend,
    }
}
