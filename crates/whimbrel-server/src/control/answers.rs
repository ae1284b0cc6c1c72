//! What the control socket answers, as JSON. Times are milliseconds since the Unix epoch, spans are milliseconds.

use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// In words, with what to do about it.
    pub error: String,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Whose.
    pub client_id: String,
    /// The client is there.
    pub connected: bool,
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
    /// How old the position of the durable subscription is that is furthest behind what it wants; none is behind if missing.
    pub lag_ms: Option<u64>,
    /// Deliveries that the client has not acknowledged.
    pub in_flight: u64,
    /// Messages that wait in memory.
    pub waiting: u64,
}

/// Some of the sessions, in no particular order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    /// The broker's clock.
    pub now_ms: u64,
    /// Those.
    pub sessions: Vec<Session>,
    /// Where the others follow.
    pub next: Option<u32>,
}

/// A position in a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The pubend.
    pub stream: String,
    /// The tick; nanoseconds since the Unix epoch.
    pub tick: String,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// As it was asked for.
    pub filter: String,
    /// Its selector, if the session is in the journal.
    pub selector: Option<String>,
    /// It has a selector.
    pub selective: bool,
    /// The most that deliveries have.
    pub qos: u8,
    /// `durable`, `semi-durable`, `queued` or `nondurable`.
    pub durability: String,
    /// `client` or `broker`.
    pub position_kept_by: String,
    /// How old its position is, if it is behind what it wants.
    pub lag_ms: Option<u64>,
    /// Up to where it has acknowledged, if it is durable.
    pub positions: Vec<Position>,
}

/// A session with some of its subscriptions, in the order of their filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The broker's clock.
    pub now_ms: u64,
    /// The session.
    pub session: Session,
    /// Those.
    pub subscriptions: Vec<Subscription>,
    /// The others come after this filter.
    pub next: Option<String>,
}

/// A session that was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// As it was.
    pub session: Session,
    /// That it has ended is on the disk. If not, the disk is slow, and the broker still waits for it.
    pub durable: bool,
}

/// Who holds a stream longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The journal as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// The broker's clock.
    pub now_ms: u64,
    /// The reliable ones.
    pub streams: Vec<Stream>,
    /// Missing without a data directory.
    pub journal: Option<JournalUse>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its name within `journal/`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// So many of its bytes follow; the others are zeros.
    pub used: u64,
}

/// What a backup is of: its first line, and the file `backup.json` in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The format that is known here.
    pub const FORMAT: u32 = 1;

    /// The file in a backup, and in a restored data directory until the broker has taken notice of it.
    pub const FILE: &str = "backup.json";
}

/// The last line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Always: whoever reads it has got everything before.
    pub finished: bool,
}
