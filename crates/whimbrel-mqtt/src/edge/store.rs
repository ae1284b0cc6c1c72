//! The broker's interface for the driver of the log.

use whimbrel_core::Profile;
use whimbrel_core::store::{Batch, BatchNo, Fetch};
use whimbrel_event::{Domains, Time};

use super::MqttBroker;

impl MqttBroker {
    /// The oldest batch that the driver has not taken, to be called between two inputs; see
    /// [`whimbrel_core::store`].
    pub fn batch(&self) -> Option<Batch<'_>> {
        self.core.batch()
    }

    /// The driver has taken the batch of [`MqttBroker::batch`], and writes it before any later one.
    pub fn submitted(&mut self) -> BatchNo {
        self.core.submitted()
    }

    /// Makes lazily written records into batches; the driver calls it before it takes them.
    pub fn flush(&mut self, now: Time) {
        self.core.flush(now);
    }

    /// The next part of the log to read; each is returned once, and answered by
    /// [`super::Input::Fetched`].
    pub fn fetch(&mut self) -> Option<Fetch> {
        self.core.fetch()
    }

    /// Whether too much waits to be durable: the driver gives no more bytes of clients until that
    /// has changed.
    pub fn is_congested(&self) -> bool {
        self.core.is_congested()
    }

    /// Sets the domains of a broker that is in no overlay.
    pub fn set_domains(&mut self, domains: Domains) {
        self.core.set_domains(domains);
    }

    /// Sets the profiles of topics that the configuration has.
    ///
    /// # Panics
    /// When a profile has no topic filter.
    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.core.set_profiles(profiles);
    }
}
