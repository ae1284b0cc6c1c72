//! Looks at a broker's stream without becoming its owner.

use async_nats::jetstream;
use serde::Serialize;

use super::{ANSWER_WITHIN, NatsOptions, connect_options, failed, is_absent, runtime, stream_name, unanswered};
use crate::engine::{EngineError, RecordNumber};
use crate::lease::Lease;
use crate::record::EngineRecord;

/// A broker's stream, and who owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamStatus {
    /// Records that are kept.
    pub records: u64,
    /// Bytes of these, with what the servers add.
    pub bytes: u64,
    /// The oldest record that is kept.
    pub first: RecordNumber,
    /// The newest record.
    pub last: RecordNumber,
    /// The newest epoch; 0 if there is none.
    pub epoch: u64,
    /// The lease of the broker's name.
    #[serde(flatten)]
    pub lease: LeaseStatus,
    /// Servers with a copy.
    pub replicas: Vec<Replica>,
}

/// The lease of a broker's name. The stream that has it may have another leader than the broker's
/// own, so one can be known when the other is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaseStatus {
    /// The lease, if there is one that is understood.
    #[serde(rename = "lease")]
    pub held: Option<Lease>,
    /// Its revision, 0 if there is none: it grows while the owner lives.
    #[serde(rename = "lease_revision")]
    pub revision: RecordNumber,
    /// Why the lease is not known.
    #[serde(rename = "lease_unknown")]
    pub unknown: Option<String>,
}

/// A server with a copy of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// The server's name.
    pub server: String,
    /// It leads the stream: all others follow it.
    pub leads: bool,
    /// It has all that the leader has.
    pub is_current: bool,
    /// It cannot be reached by the leader.
    pub is_away: bool,
}

/// Looks at a broker's stream; `None`: it has none. To be called by a thread, not a task.
///
/// # Errors
/// When no server is reached, or the servers cannot tell.
pub fn look(options: &NatsOptions) -> Result<Option<StreamStatus>, EngineError> {
    let addresses = options.addresses()?;
    runtime()?.block_on(async {
        let client = connect_options(options)?.connect(addresses).await.map_err(unanswered)?;
        let mut context = jetstream::new(client);
        context.set_timeout(ANSWER_WITHIN);
        let stream = match context.get_stream(stream_name(&options.broker)).await {
            Ok(stream) => stream,
            Err(error) if is_no_stream(&error) => return Ok(None),
            Err(error) => return Err(unanswered(error)),
        };
        let found = stream.get_last_raw_message_by_subject(&format!("wj.{}.epoch", options.broker)).await;
        let epoch = match found {
            Ok(found) => match EngineRecord::decode(&found.payload) {
                Ok(EngineRecord::Epoch(epoch)) => epoch.epoch,
                _ => return Err(failed("the newest epoch cannot be read: it is damaged, or of a later version")),
            },
            Err(error) if is_absent(&error.kind()) => 0,
            Err(error) => return Err(unanswered(error)),
        };
        let lease = lease_status(&context, &options.broker).await;
        let info = stream.get_info().await.map_err(unanswered)?;
        let cluster = info.cluster.unwrap_or_default();
        let leader =
            cluster.leader.into_iter().map(|server| Replica { server, leads: true, is_current: true, is_away: false });
        let others = cluster.replicas.into_iter().map(|peer| Replica {
            server: peer.name,
            leads: false,
            is_current: peer.current,
            is_away: peer.offline,
        });
        let mut replicas: Vec<Replica> = leader.chain(others).collect();
        replicas.sort_by(|a, b| a.server.cmp(&b.server));
        let state = info.state;
        Ok(Some(StreamStatus {
            records: state.messages,
            bytes: state.bytes,
            first: state.first_sequence,
            last: state.last_sequence,
            epoch,
            lease,
            replicas,
        }))
    })
}

async fn lease_status(context: &jetstream::Context, broker: &str) -> LeaseStatus {
    let unknown = |why: String| LeaseStatus { unknown: Some(why), ..LeaseStatus::default() };
    let bucket = match context.get_stream(super::lease::BUCKET).await {
        Ok(bucket) => bucket,
        Err(error) if is_no_stream(&error) => return LeaseStatus::default(),
        Err(error) => return unknown(error.to_string()),
    };
    match bucket.get_last_raw_message_by_subject(&super::lease::subject(broker)).await {
        Ok(found) => match Lease::decode(&found.payload) {
            Some(lease) => LeaseStatus { held: Some(lease), revision: found.sequence, unknown: None },
            None => {
                let why = "the lease is damaged, or of a later version".to_owned();
                LeaseStatus { held: None, revision: found.sequence, unknown: Some(why) }
            }
        },
        Err(error) if is_absent(&error.kind()) => LeaseStatus::default(),
        Err(error) => unknown(error.to_string()),
    }
}

fn is_no_stream(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    use async_nats::jetstream::ErrorCode;
    use async_nats::jetstream::context::GetStreamErrorKind;
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
