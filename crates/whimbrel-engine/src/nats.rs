//! A stream of NATS JetStream: `WJ-<broker>`, with the subjects `wj.<broker>.epoch` and
//! `wj.<broker>.s.<slot>`.
//!
//! Calls block: they are made by the journal's threads, never by a task. A runtime of its own, with
//! one thread, keeps the connection.

mod lease;
mod status;

use core::fmt;
use core::future::{Future, IntoFuture};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config, DirectGetErrorKind, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{ConnectOptions, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use whimbrel_journal::Slot;

pub use status::{Replica, StreamStatus, look};

use crate::engine::{CUT_RECORDS_MAX, Engine, EngineError, RecordNumber, StreamRecord, Subject};

/// How long one answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How often a server is asked whether it is there, and how long one may take to connect: one that
/// hangs is left for another one within three of these.
const PING_EVERY: Duration = Duration::from_secs(1);
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);

/// Most bytes of records that the servers send ahead: a client that has more to read than 64 MiB is
/// cut off by them.
const READ_AHEAD_BYTES: usize = 16 << 20;

/// How often reading goes on at the next record after it was interrupted, without a record between.
const READS_MAX: usize = 5;

/// Most bytes of a record, whatever the servers take: several fit into what is sent ahead.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// Pauses between requests that are not answered, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long the servers keep a reader that asks for nothing more.
const READER_KEPT_FOR: Duration = Duration::from_secs(60);

/// What the seed of a user's key begins with.
const SEED: &str = "SU";

/// How often a record is asked for at a replica that the servers choose, beside the leader.
const REPLICAS_ASKED: usize = 24;

/// Bytes of a message beside the record: what the servers count to it.
const MESSAGE_ROOM: usize = 1 << 10;

/// Which stream is opened, and where.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Addresses of the servers, such as `nats://10.0.0.1:4222`.
    pub servers: Vec<String>,
    /// The name of the broker: letters, digits, `-` and `_`.
    pub broker: String,
    /// Copies of the stream.
    pub replicas: usize,
    /// File with the broker's credentials (`.creds`), or with the seed of its key (NKey).
    pub credentials: Option<PathBuf>,
    /// File with certificates of authorities, in PEM: connections are encrypted, and servers known
    /// by a certificate of these.
    pub authorities: Option<PathBuf>,
}

/// A stream, and the connection to its servers.
pub struct Nats {
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
    context: Context,
    stream: Stream,
    prefix: String,
    /// The bucket of leases, and the subject of the broker's.
    leases: Stream,
    lease: String,
    ahead: Mutex<Option<ReadAhead>>,
    /// The pause after the next request to append that is not answered.
    pause: Mutex<Duration>,
}

/// Records that the servers send without being asked for each.
struct ReadAhead {
    /// The record from which the next one is.
    next: RecordNumber,
    /// The last record of the stream when the reading began.
    last: RecordNumber,
    /// Records that were delivered: another number than the servers count tells that one is lost.
    delivered: u64,
    messages: pull::Stream,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stream of {}", self.prefix)
    }
}

/// A runtime must not be dropped by a task in the usual way, and a journal may be.
impl Drop for Nats {
    fn drop(&mut self) {
        *self.ahead.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn unanswered(error: impl fmt::Display) -> EngineError {
    EngineError::Unanswered(error.to_string())
}

fn failed(error: impl fmt::Display) -> EngineError {
    EngineError::Failed(error.to_string())
}

impl Nats {
    /// Connects, and opens the broker's stream, or makes it. To be called by a thread, not a task.
    ///
    /// # Errors
    /// When no server is reached, the stream can neither be found nor made, or has other settings.
    pub fn connect(options: &NatsOptions) -> Result<Nats, EngineError> {
        let NatsOptions { broker, replicas, .. } = options;
        let (addresses, runtime) = (options.addresses()?, runtime()?);
        let prefix = format!("wj.{broker}");
        let config = config_of(broker, &prefix, *replicas);
        let open = async {
            let client = connect_options(options)?.connect(addresses).await.map_err(unanswered)?;
            let mut context = async_nats::jetstream::new(client);
            context.set_timeout(ANSWER_WITHIN);
            let stream = context.get_or_create_stream(config.clone()).await.map_err(unanswered)?;
            check_settings(&stream.cached_info().config, &config)?;
            let leases = context.get_or_create_stream(lease::bucket(*replicas)).await.map_err(unanswered)?;
            Ok((context, stream, leases))
        };
        let (context, stream, leases) = runtime.block_on(open)?;
        let lease = lease::subject(broker);
        let (ahead, pause) = (Mutex::new(None), Mutex::new(PAUSE_MIN));
        Ok(Nats { runtime: Some(runtime), context, stream, prefix, leases, lease, ahead, pause })
    }

    /// How often a connection to a server has been made; another one may be to another server.
    pub fn connections(&self) -> u64 {
        self.context.client().statistics().connects.load(Ordering::Relaxed)
    }

    /// The names of the servers that have copies of the stream.
    ///
    /// # Errors
    /// When the servers cannot tell.
    pub fn copies(&self) -> Result<Vec<String>, EngineError> {
        let cluster = self.block_on(self.stream.get_info()).map_err(unanswered)?.cluster.unwrap_or_default();
        Ok(cluster.leader.into_iter().chain(cluster.replicas.into_iter().map(|replica| replica.name)).collect())
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until this is dropped").block_on(work)
    }

    /// Pauses after a request that was not answered, longer each time until one is.
    fn pause_after<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(outcome, Err(EngineError::Unanswered(_))) {
            self.block_on(async { tokio::time::sleep(*pause).await });
            *pause = PAUSE_MAX.min(*pause * 2);
        } else {
            *pause = PAUSE_MIN;
        }
        outcome
    }

    fn subject(&self, subject: Subject) -> String {
        match subject {
            Subject::Epoch => format!("{}.epoch", self.prefix),
            Subject::Slot(slot) => format!("{}.s.{slot}", self.prefix),
        }
    }

    fn publish(
        &self,
        subject: Subject,
        publish: PublishMessage,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        let outcome = self.send(self.subject(subject), publish, meanwhile);
        self.pause_after(outcome)
    }

    /// Sends a message to a stream, and waits for the answer.
    fn send(
        &self,
        subject: String,
        publish: PublishMessage,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        // Without a connection messages would be kept, and all repeats sent when there is one.
        let is_connected = self.context.client().connection_state() == State::Connected;
        let sent = is_connected.then(|| self.block_on(self.context.send_publish(subject, publish)));
        meanwhile();
        let Some(sent) = sent else { return Err(unanswered("there is no connection to any of its servers")) };
        let outcome = sent.map_err(|error| append_error(&error)).and_then(|answer| {
            let answer = self.block_on(async { timeout(ANSWER_WITHIN, answer.into_future()).await });
            answer.map_err(unanswered)?.map_err(|error| append_error(&error))
        });
        outcome.map(|answer| answer.sequence)
    }

    /// Begins to read from a record on; `None`: the stream ends before it.
    async fn read_ahead(&self, from: RecordNumber) -> Result<Option<ReadAhead>, EngineError> {
        let last = self.stream.get_info().await.map_err(unanswered)?.state.last_sequence;
        if from > last {
            return Ok(None);
        }
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: READER_KEPT_FOR,
            ..pull::Config::default()
        };
        let consumer = self.stream.create_consumer(config).await.map_err(unanswered)?;
        let messages = consumer.stream().max_bytes_per_batch(READ_AHEAD_BYTES).messages().await.map_err(unanswered)?;
        Ok(Some(ReadAhead { next: from, last, delivered: 0, messages }))
    }

    /// Reads the next record from `from` on; what was sent ahead is kept for the next call.
    async fn read_once(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        let kept = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut ahead = match kept.filter(|ahead| ahead.next == from && from <= ahead.last) {
            Some(ahead) => ahead,
            None => match self.read_ahead(from).await? {
                Some(ahead) => ahead,
                None => return Ok(None),
            },
        };
        let found = self.next_record(&mut ahead).await?;
        ahead.next = found.number + 1;
        if ahead.next <= ahead.last {
            *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
        }
        Ok(Some(found))
    }

    async fn next_record(&self, ahead: &mut ReadAhead) -> Result<StreamRecord, EngineError> {
        let message = timeout(ANSWER_WITHIN, ahead.messages.next()).await.map_err(unanswered)?;
        let message = message.ok_or_else(|| unanswered("the reading has ended"))?.map_err(unanswered)?;
        let info = message.info().map_err(failed)?;
        ahead.delivered += 1;
        if info.consumer_sequence != ahead.delivered || info.stream_sequence < ahead.next {
            return Err(unanswered("a record that was sent ahead is lost"));
        }
        Ok(StreamRecord { number: info.stream_sequence, bytes: message.payload.to_vec() })
    }
}

impl NatsOptions {
    /// The addresses of the servers.
    ///
    /// # Errors
    /// One is no address, or the broker's name does not fit into a subject.
    fn addresses(&self) -> Result<Vec<ServerAddr>, EngineError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if self.broker.is_empty() || !self.broker.bytes().all(is_name) {
            return Err(failed(format!("{:?} is no name: letters, digits, `-` and `_`", self.broker)));
        }
        let addresses: Result<Vec<ServerAddr>, _> = self.servers.iter().map(|server| server.parse()).collect();
        addresses.map_err(failed)
    }
}

fn runtime() -> Result<Runtime, EngineError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)
}

/// The name of a broker's stream.
fn stream_name(broker: &str) -> String {
    format!("WJ-{broker}")
}

/// How a connection is made.
///
/// # Errors
/// A file cannot be read.
fn connect_options(options: &NatsOptions) -> Result<ConnectOptions, EngineError> {
    let mut connect = ConnectOptions::new().name(format!("whimbrel {}", options.broker));
    connect = connect.ping_interval(PING_EVERY).connection_timeout(CONNECTED_WITHIN);
    // Answers to a broker's requests must not reach another one's credentials.
    connect = connect.custom_inbox_prefix(format!("_INBOX_{}", options.broker));
    if let Some(credentials) = &options.credentials {
        let told = |error: &dyn fmt::Display| failed(format!("cannot use {}: {error}", credentials.display()));
        let text = std::fs::read_to_string(credentials).map_err(|error| told(&error))?;
        connect = match text.trim() {
            seed if seed.starts_with(SEED) => connect.nkey(seed.to_owned()),
            _ => connect.credentials(&text).map_err(|error| told(&error))?,
        };
    }
    if let Some(authorities) = &options.authorities {
        connect = connect.add_root_certificates(authorities.clone()).require_tls(true);
    }
    Ok(connect)
}

/// The settings of a broker's stream.
fn config_of(broker: &str, prefix: &str, replicas: usize) -> Config {
    Config {
        name: stream_name(broker),
        subjects: vec![format!("{prefix}.epoch"), format!("{prefix}.s.*")],
        num_replicas: replicas,
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        allow_direct: true,
        ..Config::default()
    }
}

/// Checks that a stream which was there has settings under which it keeps what it acknowledges.
///
/// # Errors
/// One that names the setting.
fn check_settings(found: &Config, wanted: &Config) -> Result<(), EngineError> {
    // No bound is told as -1, or as 0.
    let is_bounded = |bound: i64| bound > 0;
    let wrong = [
        ("subjects", found.subjects != wanted.subjects),
        ("num_replicas", found.num_replicas < wanted.num_replicas),
        ("storage", found.storage != wanted.storage),
        ("retention", found.retention != wanted.retention),
        ("max_msgs", is_bounded(found.max_messages)),
        ("max_msgs_per_subject", is_bounded(found.max_messages_per_subject)),
        ("max_msg_size", is_bounded(found.max_message_size.into())),
        ("no_ack", found.no_ack),
        ("mirror", found.mirror.is_some()),
        ("sources", found.sources.as_ref().is_some_and(|sources| !sources.is_empty())),
        ("subject_transform", found.subject_transform.is_some()),
        ("max_age", !found.max_age.is_zero()),
        ("max_bytes", is_bounded(found.max_bytes) && found.discard != DiscardPolicy::New),
        ("allow_direct", !found.allow_direct),
        ("deny_purge", found.deny_purge),
        ("sealed", found.sealed),
    ];
    match wrong.iter().find(|(_, is_wrong)| *is_wrong) {
        Some((name, _)) => Err(failed(format!(
            "the stream {0} has another `{name}` than a journal needs, by which it may lose records: `nats stream edit {0}` \
             changes it",
            found.name
        ))),
        None => Ok(()),
    }
}

/// Why an append was not done. Without a leader, servers answer as if there were no stream.
fn append_error(error: &PublishError) -> EngineError {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => EngineError::Refused,
        PublishErrorKind::MaxPayloadExceeded => failed(error),
        _ => unanswered(error),
    }
}

impl Engine for Nats {
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        let publish = PublishMessage::build().payload(Bytes::copy_from_slice(record)).expected_last_sequence(last);
        self.publish(subject, publish, meanwhile)
    }

    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
        let record = Bytes::copy_from_slice(record);
        let publish = PublishMessage::build().payload(record).expected_last_subject_sequence(newest);
        self.publish(Subject::Epoch, publish, &mut || {})
    }

    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
        let subject = self.subject(Subject::Epoch);
        match self.block_on(self.stream.get_last_raw_message_by_subject(&subject)) {
            Ok(found) => Ok(Some(StreamRecord { number: found.sequence, bytes: found.payload.to_vec() })),
            Err(error) if is_absent(&error.kind()) => Ok(None),
            Err(error) if is_without_stream(&error.kind()) => Err(EngineError::Failed(error.to_string())),
            Err(error) => Err(unanswered(error)),
        }
    }

    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.block_on(async {
            let mut tries = 1;
            loop {
                match self.read_once(from).await {
                    Err(EngineError::Unanswered(_)) if tries < READS_MAX => tries += 1,
                    outcome => return outcome,
                }
            }
        })
    }

    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.block_on(async {
            match self.stream.get_raw_message(number).await {
                Ok(found) => {
                    return Ok(Some(StreamRecord { number, bytes: found.payload.to_vec() }));
                }
                Err(error) if is_absent(&error.kind()) => {}
                Err(error) => return Err(unanswered(error)),
            }
            // Any replica may answer these.
            for _ in 0..REPLICAS_ASKED {
                match self.stream.direct_get(number).await {
                    Ok(found) => return Ok(Some(StreamRecord { number, bytes: found.payload.to_vec() })),
                    Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
                    Err(error) => return Err(unanswered(error)),
                }
            }
            Ok(None)
        })
    }

    fn record_bytes_max(&self) -> usize {
        let taken = self.context.client().server_info().max_payload.saturating_sub(MESSAGE_ROOM);
        taken.min(RECORD_BYTES_MAX)
    }

    fn last(&self) -> Result<RecordNumber, EngineError> {
        let info = self.block_on(self.stream.get_info()).map_err(unanswered)?;
        Ok(info.state.last_sequence)
    }

    fn cut(&self, slot: Slot, below: RecordNumber) -> Result<bool, EngineError> {
        let subject = self.subject(Subject::Slot(slot));
        self.block_on(async {
            let oldest = match self.stream.get_first_raw_message_by_subject(&subject, 1).await {
                Ok(oldest) => oldest.sequence,
                Err(error) if is_absent(&error.kind()) => return Ok(false),
                Err(error) => return Err(unanswered(error)),
            };
            if oldest >= below {
                return Ok(false);
            }
            let upto = below.min(oldest + CUT_RECORDS_MAX as u64);
            let purged = self.stream.purge().sequence(upto).filter(&subject).await;
            purged.map_err(unanswered)?;
            Ok(upto < below)
        })
    }
}

/// Whether an error says that there is no stream.
fn is_without_stream(kind: &RawMessageErrorKind) -> bool {
    matches!(kind, RawMessageErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether an error says that there is no such message.
fn is_absent(kind: &RawMessageErrorKind) -> bool {
    match kind {
        RawMessageErrorKind::NoMessageFound => true,
        RawMessageErrorKind::JetStream(error) => error.error_code() == ErrorCode::NO_MESSAGE_FOUND,
        _ => false,
    }
}
