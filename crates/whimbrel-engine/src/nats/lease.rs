//! Leases in the key-value bucket `hosts`: `nats kv get hosts <broker>` shows one.

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use bytes::Bytes;

use super::{Nats, is_absent, unanswered};
use crate::engine::{EngineError, RecordNumber};
use crate::lease::{LeaseEntry, Leases};

/// The stream of the bucket.
pub(super) const BUCKET: &str = "KV_hosts";

/// The subject of a broker's lease.
pub(super) fn subject(broker: &str) -> String {
    format!("$KV.hosts.{broker}")
}

/// The settings of the bucket, which the first broker makes.
pub(super) fn bucket(replicas: usize) -> Config {
    Config {
        name: BUCKET.to_owned(),
        subjects: vec!["$KV.hosts.>".to_owned()],
        num_replicas: replicas,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        allow_rollup: true,
        allow_direct: true,
        deny_delete: true,
        ..Config::default()
    }
}

impl Leases for Nats {
    fn lease(&self) -> Result<Option<LeaseEntry>, EngineError> {
        match self.block_on(self.leases.get_last_raw_message_by_subject(&self.lease)) {
            Ok(found) => Ok(Some(LeaseEntry { revision: found.sequence, bytes: found.payload.to_vec() })),
            Err(error) if is_absent(&error.kind()) => Ok(None),
            Err(error) => Err(unanswered(error)),
        }
    }

    fn put_lease(&self, after: RecordNumber, lease: &[u8]) -> Result<RecordNumber, EngineError> {
        let lease = Bytes::copy_from_slice(lease);
        let publish = PublishMessage::build().payload(lease).expected_last_subject_sequence(after);
        self.send(self.lease.clone(), publish, &mut || {})
    }
}
