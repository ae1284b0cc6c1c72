//! Fences, partitions, topic profiles, certificates and rights while the server runs: read again on
//! request, or when their files change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use whimbrel_core::Profile;
use whimbrel_selector::{FenceChanges, Fences};

use crate::access::{Access, Plan};
use crate::config::fence::{self, Again, Watched};
use crate::config::partition::Division;
use crate::config::{Certificate, Config, Fixed, Origin, Problem};
use crate::drive::Hub;
use crate::metrics::FenceMetrics;
pub use crate::metrics::Outcome;
use crate::service;

/// Names of each kind that one log line shows, at most.
const NAMES_MAX: usize = 20;

/// Problems of one attempt that are logged, at most.
const PROBLEMS_MAX: usize = 20;

/// Keeps the broker's fences, the division of its cache, its topic profiles, its certificates and
/// its access rules as the files have them.
#[derive(Debug)]
pub struct Keeper {
    hub: Arc<Hub>,
    metrics: FenceMetrics,
    access: Arc<Access>,
    /// The certificate that the broker shows, and those that it believes.
    certificate: Certificate,
    /// The configuration file, the settings given outside of it, and the settings in force that are
    /// not read again.
    origin: Origin,
    state: Mutex<State>,
}

/// Result of reading the configuration again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// The outcome.
    pub outcome: Outcome,
    /// Why it was refused: one line for each mistake.
    pub problems: Vec<String>,
}

#[derive(Debug)]
struct State {
    fences: Arc<Fences>,
    division: Division,
    topics: Vec<Profile>,
    /// The files as they were when they were read.
    read: Vec<Watched>,
    /// The files as they were at the last look.
    seen: Vec<Watched>,
}

impl Keeper {
    /// Puts the settings of the start in force.
    pub fn new(hub: Arc<Hub>, metrics: FenceMetrics, access: Arc<Access>, config: &Config) -> Keeper {
        let Config { fences: start, division, topics, .. } = config;
        hub.set_fences(&start.fences);
        hub.set_division(division);
        hub.set_profiles(topics);
        metrics.set(&start.fences);
        let (read, seen) = (start.watched.clone(), start.watched.clone());
        let (fences, division, topics) = (start.fences.clone(), division.clone(), topics.clone());
        let state = State { fences, division, topics, read, seen };
        let (certificate, origin) = (config.certificate.clone(), config.origin.clone());
        Keeper { hub, metrics, access, certificate, origin, state: Mutex::new(state) }
    }

    /// Reads the configuration file and all fence files again. Either all settings come into force,
    /// or none. `None`: there is no configuration file.
    pub async fn reload(&self) -> Option<Reload> {
        self.reload_with(&mut *self.state.lock().await).await
    }

    /// Reads everything again as [`Keeper::reload`] does, and tells the service manager when it
    /// begins and ends: even if there is nothing to read, as the manager may wait for that.
    async fn reload_with(&self, state: &mut State) -> Option<Reload> {
        service::reloading().await;
        let outcome = self.read_again(state).await;
        service::ready().await;
        outcome
    }

    async fn read_again(&self, state: &mut State) -> Option<Reload> {
        let (file, overrides) = (self.origin.file.clone(), self.origin.overrides.clone());
        if file.is_none() && !self.certificate.is_from_files() {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || fence::read_again(file.as_deref(), &overrides)).await;
        // Otherwise the runtime is ending.
        let Ok(Again { sources, division, topics, access, certificate, fixed, warnings, mut problems }) = read else {
            return Some(Reload { outcome: Outcome::Refused, problems: vec!["the broker is ending".into()] });
        };
        problems.extend(certificate.as_ref().and_then(|read| self.certificate.becomes(read).err()));
        (state.read, state.seen) = (sources.watched.clone(), sources.watched);
        let mut problems: Vec<String> = problems.iter().map(Problem::line).collect();
        let judged = match certificate {
            Some(certificate) if problems.is_empty() => {
                let adopted = self.adopt_access(access, &certificate, &fixed, &warnings);
                adopted.map_err(|problem| problems.push(problem)).ok()
            }
            _ => None,
        };
        let outcome = if let Some(access) = judged {
            let fences = self.adopt(state, sources.fences);
            let division = self.adopt_division(state, division);
            let topics = self.adopt_topics(state, topics);
            let is_changed = [division, topics, access].contains(&Outcome::Changed);
            if is_changed { Outcome::Changed } else { fences }
        } else {
            for problem in problems.iter().take(PROBLEMS_MAX) {
                tracing::error!("{problem}");
            }
            if let Some(first) = problems.first() {
                self.access.note_not_reloaded(first);
            }
            let problems = problems.len();
            let (fences, partitions) = (state.fences.len(), state.division.plan.partitions.len());
            let what = "fences, partitions, topics, certificates and rules not read again: those before stay in force";
            tracing::error!(problems, fences, partitions, "{what}");
            Outcome::Refused
        };
        self.metrics.reloaded(outcome);
        Some(Reload { outcome, problems })
    }

    fn adopt(&self, state: &mut State, fences: Arc<Fences>) -> Outcome {
        let changes = fences.changes_from(&state.fences);
        if changes == FenceChanges::default() {
            tracing::info!(fences = fences.len(), "fences read again: nothing has changed");
            return Outcome::Unchanged;
        }
        self.hub.set_fences(&fences);
        self.metrics.set(&fences);
        let (added, changed, removed) = (shown(&changes.added), shown(&changes.changed), shown(&changes.removed));
        tracing::info!(fences = fences.len(), added, changed, removed, "fences read again");
        // The old fences are freed here, not where events are handled.
        state.fences = fences;
        Outcome::Changed
    }

    fn adopt_division(&self, state: &mut State, division: Division) -> Outcome {
        if division == state.division {
            return Outcome::Unchanged;
        }
        self.hub.set_division(&division);
        let (partitions, buffered) = (division.plan.partitions.len(), division.buffer.len());
        tracing::info!(partitions, buffered, "partitions read again");
        state.division = division;
        Outcome::Changed
    }

    /// Puts access rules and certificates in force.
    ///
    /// # Errors
    /// Why they cannot be; those before stay.
    fn adopt_access(
        &self,
        plan: Arc<Plan>,
        certificate: &Certificate,
        fixed: &Fixed,
        warnings: &[String],
    ) -> Result<Outcome, String> {
        let waiting = waiting(&self.origin.fixed, fixed);
        if !waiting.is_empty() {
            tracing::warn!(
                settings = shown(&waiting),
                "settings have changed that count once the broker is started again"
            );
        }
        if plan.dev {
            return Ok(Outcome::Unchanged);
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        if let Err(error) = self.access.reopen_audit(&plan) {
            return Err(format!("the audit cannot be written where identity.audit says: {error}"));
        }
        let mut more = self.certificate.become_as(certificate);
        let is_certified_only = |plan: &Plan| !plan.judges();
        if matches!(self.certificate, Certificate::Known(_))
            && is_certified_only(&self.access.plan()) != is_certified_only(&plan)
        {
            more.push("whether clients must show certificates counts once the broker is started again".into());
        }
        if !waiting.is_empty() {
            more.push(format!("counts once the broker is started again: {}", shown(&waiting)));
        }
        let is_changed = self.access.replace(plan.clone(), more);
        self.hub.renew_access(&plan.of_edge());
        if let Certificate::Known(known) = &self.certificate {
            self.hub.renew_trust(&known.trust, &self.access);
        }
        Ok(if is_changed { Outcome::Changed } else { Outcome::Unchanged })
    }

    fn adopt_topics(&self, state: &mut State, topics: Vec<Profile>) -> Outcome {
        if topics == state.topics {
            return Outcome::Unchanged;
        }
        self.hub.set_profiles(&topics);
        let Changes { added, changed, removed, is_reordered } = changes(&state.topics, &topics);
        let (added, changed, removed) = (shown(&added), shown(&changed), shown(&removed));
        tracing::info!(topics = topics.len(), added, changed, removed, is_reordered, "topic profiles read again");
        state.topics = topics;
        Outcome::Changed
    }

    /// Looks at the files once per `interval`, and reads all again once a change has lasted from
    /// one look to the next: a file that is still being written is not half read.
    pub async fn watch(self: Arc<Keeper>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let mut state = self.state.lock().await;
            let read = state.read.clone();
            let look = move || read.iter().map(Watched::look_again).collect::<Vec<_>>();
            let Ok(now) = tokio::task::spawn_blocking(look).await else { return };
            let lasts = now == std::mem::replace(&mut state.seen, now.clone());
            if lasts && now != state.read {
                self.reload_with(&mut state).await;
            }
        }
    }
}

/// Paths of the settings that differ, among those that count only after a restart.
fn waiting<'a>(before: &'a Fixed, after: &'a Fixed) -> Vec<&'a str> {
    let changed = before.iter().filter(|(path, value)| after.get(*path) != Some(value));
    let new = after.iter().filter(|(path, _)| !before.contains_key(*path));
    changed.chain(new).map(|(path, _)| path.as_str()).collect()
}

/// Differences between lists of topic profiles, by their filters.
#[derive(Debug, PartialEq, Eq)]
struct Changes<'a> {
    added: Vec<&'a str>,
    changed: Vec<&'a str>,
    removed: Vec<&'a str>,
    /// Profiles that are in both lists are in another order; the first that matches a topic counts.
    is_reordered: bool,
}

fn changes<'a>(before: &'a [Profile], after: &'a [Profile]) -> Changes<'a> {
    // Only the first of the profiles with the same filter counts.
    let find = |all: &'a [Profile], filter: &str| all.iter().find(|profile| *profile.filter == *filter);
    let not_in = |these: &'a [Profile], others: &'a [Profile]| -> Vec<&'a str> {
        these.iter().map(|profile| &*profile.filter).filter(|filter| find(others, filter).is_none()).collect()
    };
    let (added, removed) = (not_in(after, before), not_in(before, after));
    let differs = |profile: &&Profile| find(before, &profile.filter).is_some_and(|known| known != *profile);
    let changed = after.iter().filter(differs).map(|profile| &*profile.filter).collect();
    let order = |these: &'a [Profile], others: &'a [Profile]| -> Vec<&'a str> {
        these.iter().map(|profile| &*profile.filter).filter(|filter| find(others, filter).is_some()).collect()
    };
    let is_reordered = order(before, after) != order(after, before);
    Changes { added, changed, removed, is_reordered }
}

/// A list of names, cut at [`NAMES_MAX`].
fn shown(names: &[&str]) -> String {
    let mut text = names.iter().take(NAMES_MAX).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        text += &format!(" and {} more", names.len() - NAMES_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use whimbrel_core::Persistence;

    use super::*;

    #[test]
    fn profiles_that_differ_are_named_by_their_filters() {
        let profile = |filter: &str, persistence| Profile { filter: filter.into(), persistence, ..Profile::default() };
        let before =
            [profile("a", Persistence::Auto), profile("b", Persistence::Auto), profile("c", Persistence::Auto)];
        let after =
            [profile("c", Persistence::Volatile), profile("b", Persistence::Auto), profile("d", Persistence::Auto)];
        let expected = Changes { added: vec!["d"], changed: vec!["c"], removed: vec!["a"], is_reordered: true };
        assert_eq!(changes(&before, &after), expected);
        assert!(!changes(&before, &before[..2]).is_reordered, "who goes leaves the others in their order");
    }
}
