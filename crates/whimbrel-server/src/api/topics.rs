//! Profiles of topics: listing them, and making and removing them at all brokers.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::{
    Availability, LateCause, ListedProfile, PROFILES_MAX, Profile, ProfilesPage, RankedProfile, SLACK_BOUNDS_PERCENT,
    TopicRate,
};
use whimbrel_selector::TopicFilter;

use super::answers::{DeadlineDeliveries, LateCount, SlackCount, TopicChanged, TopicProfile, TopicProfiles};
use super::{Shared, json, percent, refuse};
use crate::config::topic::{KEYS, PATHS, PERSISTENCES, RELIABILITIES, TRANSPORTS, contradiction, set, word_of};
use crate::config::value::{Kind, Refusal, Value};

/// Profiles in one answer, unless fewer are asked for.
const PAGE: usize = 1000;

/// Bytes of a filter in a request's path, at most.
const FILTER_BYTES_MAX: usize = 4 << 10;

/// The profiles of topics in the order in which they count.
pub(super) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Ok([after, limit]) = percent::numbers::<usize, 2>(query.as_deref(), ["after", "limit"]) else {
        return refuse(StatusCode::BAD_REQUEST, "`after` and `limit` are numbers");
    };
    let (from, most) = (after.unwrap_or(0), limit.map_or(PAGE, |limit| limit.clamp(1, PAGE)));
    let ProfilesPage { profiles, count, differing } =
        shared.hub.look(|broker, _, _| broker.core().topic_profiles().page(from, most));
    let next = (from + profiles.len() < count).then_some((from + profiles.len()) as u64);
    let profiles = profiles.iter().map(listed).collect();
    let differing = differing.iter().map(ToString::to_string).collect();
    json(StatusCode::OK, &TopicProfiles { profiles, differing, next })
}

/// Makes a profile, in place of one with the same filter.
pub(super) async fn make(
    State(shared): State<Arc<Shared>>,
    Path(filter): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let made = match read(&filter, query.as_deref()) {
        Ok(made) => made,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, error),
    };
    let Some(batch) = shared.hub.make_profile(&made) else {
        let error = format!("there are {PROFILES_MAX} profiles already: remove one, or use wildcards");
        return refuse(StatusCode::CONFLICT, error);
    };
    tracing::info!(filter, rank = made.rank, "an operator has made a topic profile");
    let durable = super::is_durable_soon(&shared.hub, batch).await;
    json(StatusCode::OK, &TopicChanged { profile: answer(Some(made.rank), &made.profile), durable })
}

/// Removes a profile that was made.
pub(super) async fn remove(State(shared): State<Arc<Shared>>, Path(filter): Path<String>) -> Response {
    let Some((made, batch)) = shared.hub.unmake_profile(&filter) else {
        let error = format!("no profile was made for {filter:?}; those of whimbrel.toml are changed there");
        return refuse(StatusCode::NOT_FOUND, error);
    };
    tracing::info!(filter, "an operator has removed a topic profile");
    let durable = super::is_durable_soon(&shared.hub, batch).await;
    json(StatusCode::OK, &TopicChanged { profile: answer(Some(made.rank), &made.profile), durable })
}

/// The profile that a request describes.
fn read(filter: &str, query: Option<&str>) -> Result<RankedProfile, String> {
    if filter.len() > FILTER_BYTES_MAX {
        return Err(format!("a filter of a profile has at most {FILTER_BYTES_MAX} bytes"));
    }
    if let Err(error) = TopicFilter::new(filter) {
        return Err(format!("{filter:?} is no topic filter: {}", error.why()));
    }
    let mut profile = Profile { filter: filter.into(), ..Profile::default() };
    let mut rank = 0;
    for field in query.unwrap_or_default().split('&').filter(|field| !field.is_empty()) {
        let (name, text) = field.split_once('=').unwrap_or((field, ""));
        let text = percent::decode(text).ok_or_else(|| format!("`{name}` is no percent-encoded UTF-8"))?;
        let kind = match name {
            "rank" => Kind::Count(0, u64::from(u32::MAX)),
            _ => KEYS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind).ok_or_else(|| unknown(name))?,
        };
        let value = kind.read_text(&text).map_err(|Refusal { what, help }| format!("`{name}` {what}; {help}"))?;
        match (name, &value) {
            ("rank", Value::Number(number)) => rank = *number as u32,
            _ => set(&mut profile, name, &value),
        }
    }
    contradiction(&profile).map_or(Ok(()), |why| Err(why.to_owned()))?;
    Ok(RankedProfile { rank, profile })
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
    format!("a topic profile has no `{name}`; it has rank, {}", known.join(", "))
}

fn listed(listed: &ListedProfile) -> TopicProfile {
    let ListedProfile { rank, profile, punctuality } = listed;
    let deliveries = profile.deadline.is_some().then(|| DeadlineDeliveries {
        in_time_permille: punctuality.in_time_permille(),
        slack: SLACK_BOUNDS_PERCENT
            .iter()
            .zip(punctuality.in_time)
            .map(|(percent, deliveries)| SlackCount { up_to_percent: *percent, deliveries })
            .collect(),
        late: LateCause::ALL
            .iter()
            .zip(punctuality.late)
            .map(|(cause, deliveries)| LateCount { cause: cause.name().to_owned(), deliveries })
            .collect(),
        late_after_absence: punctuality.after_absence,
    });
    TopicProfile { deliveries, ..answer(*rank, profile) }
}

fn answer(rank: Option<u32>, profile: &Profile) -> TopicProfile {
    let Profile {
        filter,
        persistence,
        reliability,
        deadline,
        period,
        rate,
        importance,
        expiry,
        transport,
        paths,
        availability,
    } = profile;
    let millis = |duration: &std::time::Duration| duration.as_millis() as u64;
    TopicProfile {
        filter: filter.to_string(),
        rank,
        persistence: word_of(&PERSISTENCES, *persistence).to_owned(),
        reliability: reliability.map(|known| word_of(&RELIABILITIES, known).to_owned()),
        deadline_ms: deadline.as_ref().map(millis),
        rate: rate.map(|rate| match rate {
            TopicRate::Events(events) => format!("{events}/s"),
            TopicRate::Bytes(bytes) => format!("{bytes} B/s"),
        }),
        importance: *importance,
        period_ms: period.as_ref().map(millis),
        expiry_ms: expiry.as_ref().map(millis),
        transport: word_of(&TRANSPORTS, *transport).to_owned(),
        paths: word_of(&PATHS, *paths).to_owned(),
        availability_ppm: availability.map(Availability::ppm),
        deliveries: None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use whimbrel_core::{Persistence, TopicPaths, TopicTransport};
    use whimbrel_event::Reliability;

    use super::*;

    #[test]
    fn a_profile_is_read_from_a_request_as_from_the_configuration() {
        let query = "rank=3&deadline=50%20ms&persistence=volatile&rate=100%2Fs&importance=9&reliability=reliable&expiry=10s&period=5s\
             &transport=datagram&paths=targeted";
        let made = read("alarm/#", Some(query)).expect("it is valid");
        let rate = NonZeroU32::new(100).map(TopicRate::Events);
        let profile = Profile {
            filter: "alarm/#".into(),
            persistence: Persistence::Volatile,
            reliability: Some(Reliability::Reliable),
            deadline: Some(Duration::from_millis(50)),
            rate,
            importance: Some(9),
            expiry: Some(Duration::from_secs(10)),
            period: Some(Duration::from_secs(5)),
            transport: TopicTransport::Datagram,
            paths: TopicPaths::Targeted,
            availability: None,
        };
        assert_eq!(made, RankedProfile { rank: 3, profile });
        let shown = answer(Some(3), &made.profile);
        assert_eq!((shown.rate.as_deref(), shown.deadline_ms), (Some("100/s"), Some(50)));
        assert_eq!((shown.period_ms, &*shown.transport, &*shown.paths), (Some(5_000), "datagram", "targeted"));
        let made = read("a", Some("deadline=50ms&availability=0.9999")).expect("it is valid");
        assert_eq!(made.profile.availability.map(Availability::ppm), Some(999_900));
        assert_eq!(answer(None, &made.profile).availability_ppm, Some(999_900));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        let refused = |filter, query| read(filter, Some(query)).expect_err(query);
        assert!(refused("a/#/b", "").contains("is no topic filter"));
        assert!(refused("a", "deadline=0ms").contains("`deadline` is out of range; write"));
        assert!(refused("a", "deadline=2h").contains("to 1h"));
        assert!(refused("a", "period=25h").contains("`period` is out of range"));
        assert!(refused("a", "transport=pigeon").contains("datagram"));
        assert!(refused("a", "deadline=1s&paths=3").contains("1, 2, targeted"));
        assert!(refused("a", "deadline=1s&availability=1").contains("0.5 to 0.999999"));
        assert!(refused("a", "deadline=1s&paths=2&availability=0.9").contains("`paths` and `availability`"));
        assert!(refused("a", "availability=0.9").contains("no `deadline`"));
        assert!(refused("a", "paths=2").contains("no `deadline`"));
        assert!(refused("a", "rate=fast").contains("\"100/s\""));
        assert!(refused("a", "rate=0/s").contains("is no rate"));
        assert!(refused("a", "urgency=9").contains("it has rank, persistence"));
        assert!(refused("a", "importance=11").contains("1 to 10"));
        assert!(refused("a", "rank=%ff").contains("UTF-8"));
    }
}
