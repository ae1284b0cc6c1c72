//! Answers of the API, as JSON. Times are milliseconds since the Unix epoch, spans are
//! milliseconds, or microseconds if their name ends with `_us`.

mod paths;
mod status;
mod subscription;
mod system;
mod topics;
mod trace;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use paths::{BrokerPath, PlannedDestination, PlannedTopic};
pub use status::{Counters, Draining, History, Listeners, Lost, Peer, Reloaded, Sample, Status, WhoAmI};
pub use subscription::{Position, Subscription};
pub use system::{Said, System, Told};
pub use topics::{DeadlineDeliveries, LateCount, SlackCount, TopicChanged, TopicProfile, TopicProfiles};
pub use trace::{Noted, Trace, Traced, TracedDestination, TracedPath};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// In words, with what to do about it.
    pub error: String,
}

/// The connection of a client. Its counts begin with it, so that rates can be had from two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Where it comes from, as `ADDRESS:PORT`; behind a proxy that tells it, the client's own
    /// address.
    pub address: Option<String>,
    /// The listener it came over: `mqtt`, `tls`, `ws` or `wss`.
    pub listener: String,
    /// The version of MQTT: `3.1.1` or `5.0`.
    pub protocol: String,
    /// It is a bridge of another broker, by its protocol level.
    pub bridge: bool,
    /// Who the client has proved to be; missing where everybody may do everything (`--dev`).
    pub user: Option<String>,
    /// Since when there is this connection.
    pub since_ms: u64,
    /// PUBLISH packets that came over it.
    pub publishes_in: u64,
    /// PUBLISH packets that were sent over it.
    pub publishes_out: u64,
    /// Bytes that came over it.
    pub bytes_in: u64,
    /// Bytes that were sent over it.
    pub bytes_out: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Whose.
    pub client_id: String,
    /// To which principal it belongs, where principals are told apart.
    pub owner: Option<String>,
    /// The client is there.
    pub connected: bool,
    /// Its connection, while it is there.
    #[serde(default)]
    pub connection: Option<Connection>,
    /// Since when it is away.
    pub away_since_ms: Option<u64>,
    /// When the session ends if it stays away.
    pub expires_ms: Option<u64>,
    /// How long the session outlives its connection.
    pub expiry_ms: u64,
    /// It is in the journal, and so outlives the broker's process.
    pub kept: bool,
    /// Subscriptions, the durable ones included.
    pub subscriptions: u64,
    /// Those that are durable.
    pub durable: u64,
    /// How old the position of the durable subscription is that is furthest behind what it wants;
    /// none is behind if missing.
    pub lag_ms: Option<u64>,
    /// Deliveries that the client has not acknowledged.
    pub in_flight: u64,
    /// Messages that wait in memory.
    pub waiting: u64,
    /// The number of its attachment among all that its client had at any broker; missing if the
    /// broker is alone.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// The broker that has the whole of it in memory, if this one should die.
    #[serde(default)]
    pub deputy: Option<String>,
    /// The broker that keeps it by now: what is here is what it was then, until it is safe there.
    #[serde(default)]
    pub given_to: Option<String>,
}

/// Some of the sessions, in no particular order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    /// The broker's clock.
    pub now_ms: u64,
    /// Those.
    pub sessions: Vec<Session>,
    /// Where the others follow.
    pub next: Option<u32>,
}

impl Sessions {
    /// Adds the next page.
    pub fn append(&mut self, page: Sessions) {
        self.sessions.extend(page.sessions);
        (self.now_ms, self.next) = (page.now_ms, page.next);
    }
}

/// A session with some of its subscriptions, in the order of their filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// The broker's clock.
    pub now_ms: u64,
    /// The session.
    pub session: Session,
    /// Those.
    pub subscriptions: Vec<Subscription>,
    /// The others come after this filter.
    pub next: Option<String>,
    /// What was refused of what its client has published since it connected, if something was.
    #[serde(default)]
    pub refused_publishes: Option<RefusedPublishes>,
}

/// Messages that a client has published, and that were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedPublishes {
    /// How many.
    pub count: u64,
    /// The reason code of the last one, as in MQTT 5.
    pub code: u8,
    /// Why the last one was refused.
    pub why: String,
    /// The topic of the last one, at most 200 bytes of it; missing if a bound has refused it.
    pub topic: Option<String>,
}

/// A session that was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// As it was.
    pub session: Session,
    /// That it has ended is on the disk. If not, the disk is slow, and the broker still waits for
    /// it.
    pub durable: bool,
}

/// A client that was disconnected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kicked {
    /// Its session, as it was while it was connected. It goes on, unless it ends with its
    /// connection (`expiry_ms` is 0).
    pub session: Session,
}

/// Who holds a stream longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The client.
    pub client_id: String,
    /// The filter of its subscription.
    pub filter: String,
    /// The client is there.
    pub connected: bool,
    /// How old its position is.
    pub lag_ms: u64,
    /// Subscriptions that hold the stream, this one included.
    pub holders: u64,
}

/// How far another broker is with a stream, for its durable subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owed {
    /// The broker's name.
    pub broker: String,
    /// Its host.
    pub host: String,
    /// It has acknowledged everything that came up to this moment.
    pub acknowledged_ms: u64,
    /// How old that position is, if there are logged events behind it: it may want some of them.
    /// Missing if there are none.
    pub behind_ms: Option<u64>,
    /// When it reported last.
    pub heard_ms: u64,
    /// It will not come back: what it is owed waits for whoever goes on with its sessions.
    pub gone: bool,
}

/// A stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// The pubend.
    pub stream: String,
    /// Its last event or silence.
    pub last_ms: u64,
    /// Its last event that is in the journal.
    pub logged_ms: Option<u64>,
    /// Bytes of its records in the journal.
    pub bytes: u64,
    /// What is kept came after this moment.
    pub oldest_ms: Option<u64>,
    /// Who holds it back.
    pub holder: Option<Holder>,
    /// Other brokers for whose durable subscriptions it is kept, in the order of their hosts.
    #[serde(default)]
    pub owed: Vec<Owed>,
}

/// The journal as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalUse {
    /// Bytes of records that are kept.
    pub kept_bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Bytes that its files may take.
    pub max_bytes: u64,
    /// Files.
    pub segments: u64,
    /// Bytes of each.
    pub segment_bytes: u64,
    /// `open`, `full` or `failed`.
    pub state: String,
    /// Sessions, subscriptions, positions, retained messages and so on that are remembered.
    pub entries: u64,
    /// Bytes of these.
    pub entry_bytes: u64,
    /// A backup is being made: nothing is given back until it is done.
    pub backup: bool,
}

/// All streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Streams {
    /// The broker's clock.
    pub now_ms: u64,
    /// The reliable ones.
    pub streams: Vec<Stream>,
    /// Missing without a data directory.
    pub journal: Option<JournalUse>,
}

/// A link of a broker, as it tells everyone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// The neighbour's name.
    pub name: String,
    /// The link's delay in one direction, microseconds.
    pub delay_us: u64,
    /// Its loss, in thousandths.
    pub loss_permille: u64,
}

/// A broker, as the one that answers sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Broker {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its life: greater after each start.
    pub incarnation: u64,
    /// Where it says that other brokers reach it, best first.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The domains that it is in.
    #[serde(default)]
    pub domains: Vec<String>,
    /// It is the one that answers.
    pub own: bool,
    /// There is a way to it.
    pub reachable: bool,
    /// The brokers on the best way, both ends included.
    pub path: Vec<String>,
    /// What that costs, microseconds: delays, hops and losses.
    pub cost_us: Option<u64>,
    /// How old is what is known of its links.
    pub age_ms: u64,
    /// Its links.
    pub links: Vec<Neighbour>,
}

/// A link of the broker that answers, since it is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The neighbour's name.
    pub peer: String,
    /// The neighbour's host.
    pub host: String,
    /// The version of the neighbour's program; `0.1` if it has told none. Empty if the broker that
    /// answers does not tell, as 0.1 does not.
    #[serde(default)]
    pub version: String,
    /// This broker has asked for it.
    pub dialed: bool,
    /// Its delay in one direction, microseconds, once it is known.
    pub delay_us: Option<u64>,
    /// Its loss, in thousandths.
    pub loss_permille: u64,
    /// The condition of the direction to the neighbour, as events with a deadline show it: `good`,
    /// `slow`, `lossy` or `dark`. Empty if the broker that answers does not tell, as 0.1 does not.
    #[serde(default)]
    pub condition: String,
    /// How that was found, in a few words; empty if it is good.
    #[serde(default)]
    pub condition_cause: String,
    /// When the condition changed last, Unix time in milliseconds; 0 if it never has.
    #[serde(default)]
    pub condition_since_ms: u64,
    /// How far the neighbour's clock is ahead, milliseconds; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Bytes that wait to be sent, where they are more than 64 KiB.
    pub unsent_bytes: u64,
    /// Frames that were sent.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that came.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames with an event that were sent.
    pub events_out: u64,
    /// Frames with an event that came.
    pub events_in: u64,
    /// Events that were not sent, as too much was unsent.
    pub events_held_back: u64,
}

/// The brokers of the overlay, and the links of the one that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// The broker's clock.
    pub now_ms: u64,
    /// All brokers, in the order of their hosts.
    pub brokers: Vec<Broker>,
    /// The own links.
    pub links: Vec<Link>,
}

/// A part of what a broker wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wanted {
    /// Topics.
    pub filter: String,
    /// Which of their events; all if missing.
    pub selector: Option<String>,
}

/// What a broker wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokerInterest {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// It is the one that answers.
    pub own: bool,
    /// Of another one: the version by which the own events are sent to it. Of the own: the one that
    /// others were told.
    pub version: u64,
    /// There is a way to it.
    pub reachable: bool,
    /// Of the own: brokers that can be reached and have not told that it is in force there; at most
    /// 64 are named. None while nothing is wanted.
    pub unconfirmed: Vec<String>,
    /// What it wants.
    pub entries: Vec<Wanted>,
}

/// How well the interest that others were told fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Versions that others were told since the start.
    pub versions: u64,
    /// Events of other brokers that came for this one.
    pub received: u64,
    /// Those of them that nobody here wanted.
    pub unwanted: u64,
    /// Those of them that were known already.
    pub repeated: u64,
}

/// What brokers want: the one that answers, and those that have told it what they want of its
/// events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interests {
    /// The broker's clock.
    pub now_ms: u64,
    /// How well the own interest fits.
    pub fit: Fit,
    /// Some of them, the own first.
    pub brokers: Vec<BrokerInterest>,
    /// Where the others follow.
    pub next: Option<u64>,
}

/// A broker was forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    /// Its name.
    pub name: String,
    /// How many hosts had that name: a broker that came back without its data is another host.
    pub hosts: u64,
    /// Whether that is on the disk; else it was not within 10 s, and may not be known after a
    /// restart. Also without a data directory.
    pub durable: bool,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupFile {
    /// Its name within `journal/`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// So many of its bytes follow; the others are zeros.
    pub used: u64,
}

/// What a backup is of: its first line, and the file `backup.json` in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// [`Manifest::FORMAT`].
    pub format: u32,
    /// The broker's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The moment at which the journal was as it is in the backup.
    pub taken_ms: u64,
    /// The files, in the order in which they follow.
    #[serde(default)]
    pub files: Vec<BackupFile>,
}

impl Manifest {
    /// The format that this version reads and writes.
    pub const FORMAT: u32 = 1;

    /// Its file in a backup, and in a restored data directory until the journal has the restore.
    pub const FILE: &str = "backup.json";
}

/// The last line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finished {
    /// Always: whoever reads it has got everything before.
    pub finished: bool,
}
