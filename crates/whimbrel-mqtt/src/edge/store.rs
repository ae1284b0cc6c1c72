//! What the driver of the log asks of the broker.

use whimbrel_core::store::{Batch, BatchNo, Fetch, Profile};
use whimbrel_event::Time;

use super::MqttBroker;

impl MqttBroker {
    /// The oldest batch that the driver has not taken, between two inputs; see
    /// [`whimbrel_core::store`].
    pub fn batch(&self) -> Option<Batch<'_>> {
        self.core.batch()
    }

    /// The driver has taken the batch that [`MqttBroker::batch`] shows, and writes it before any
    /// later one.
    pub fn submitted(&mut self) -> BatchNo {
        self.core.submitted()
    }

    /// Has what is written lazily made into batches; the driver calls it before it takes them.
    pub fn flush(&mut self, now: Time) {
        self.core.flush(now);
    }

    /// A part of the log that is to be read, once; answered by [`super::Input::Fetched`].
    pub fn fetch(&mut self) -> Option<Fetch> {
        self.core.fetch()
    }

    /// More waits to be durable than should: no more bytes of clients are to be given until that
    /// has changed.
    pub fn is_congested(&self) -> bool {
        self.core.is_congested()
    }

    /// Sets which topics are logged.
    ///
    /// # Panics
    /// When a profile has no topic filter.
    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.core.set_profiles(profiles);
    }
}
