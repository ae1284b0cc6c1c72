//! Profiles of topics, as operators make and remove them.

use whimbrel_core::{PROFILES_MAX, RankedProfile};

use super::*;

impl Hub {
    /// Makes a profile of topics at all brokers. Returns the batch that makes it durable here;
    /// `None` if there are too many profiles already.
    pub(crate) fn make_profile(&self, made: &RankedProfile) -> Option<BatchNo> {
        let mut batch = None;
        self.run(|machine, now| {
            let core = machine.broker.core();
            let is_new = core.topic_profiles().made(&made.profile.filter).is_none();
            if is_new && core.topic_profiles().made_len() >= PROFILES_MAX {
                return;
            }
            let change = Input::ChangeProfile { filter: &made.profile.filter, made: Some(made) };
            machine.broker.handle(now, change, &mut machine.ports);
            batch = Some(machine.broker.core().newest_batch());
        });
        batch
    }

    /// Removes a profile of topics that was made, at all brokers. Returns the profile, and the
    /// batch that makes its end durable here; `None` if there is none with that filter.
    pub(crate) fn unmake_profile(&self, filter: &str) -> Option<(RankedProfile, BatchNo)> {
        let mut removed = None;
        self.run(|machine, now| {
            let Some(made) = machine.broker.core().topic_profiles().made(filter) else { return };
            machine.broker.handle(now, Input::ChangeProfile { filter, made: None }, &mut machine.ports);
            removed = Some((made, machine.broker.core().newest_batch()));
        });
        removed
    }
}
