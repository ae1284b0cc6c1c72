//! Limits of the contents of a frame. A reader refuses more; for a writer more is a bug.

/// Bytes of a frame behind its length: 2 MiB.
pub const FRAME_BYTES_MAX: usize = 2 << 20;

/// Bytes of a broker's name; at least one.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of the version of a broker's program.
pub const VERSION_BYTES_MAX: usize = 64;

/// Bytes of the reason in a goodbye.
pub const GOODBYE_BYTES_MAX: usize = 256;

/// Bytes that later minor versions may add behind a link state. All minor versions of this major
/// one keep to it, so that each can pass on fields that it does not know.
pub const LATER_BYTES_MAX: usize = 1024;

/// Links of a broker with a surcharge, at most: with what a later version may add they are fewer
/// than [`LATER_BYTES_MAX`] bytes to an earlier one.
pub const SURCHARGES_MAX: usize = 64;

/// Addresses of one broker.
pub const ADDRESSES_MAX: usize = 4;

/// Bytes of an address; at least one.
pub const ADDRESS_BYTES_MAX: usize = 64;

/// Bytes of a message's contents, so that its frame has room for sender and receiver.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// Wanted entries of one request for a part of a log.
pub const READ_ENTRIES_MAX: usize = 64;

/// Events of one answer to it.
pub const READ_EVENTS_MAX: usize = 8192;

/// Lost ranges of one answer to it.
pub const READ_LOST_MAX: usize = 64;

/// Unsettled events of one shared subscription that a broker has for its members; numbers of such
/// events in a message.
pub const HANDED_MAX: usize = 1024;

/// Bytes of a client id.
pub const CLIENT_ID_BYTES_MAX: usize = 65_535;

/// Bytes of the name of a session's principal.
pub const PRINCIPAL_BYTES_MAX: usize = 256;

/// Claims in one message.
pub const CLAIMS_MAX: usize = 512;

/// Brokers that have copies of one broker's sessions.
pub const REPLICAS_MAX: usize = 512;

/// Neighbours of one broker.
pub const NEIGHBOURS_MAX: usize = 1024;

/// Hosts that had a broker's name before it.
pub const PREVIOUS_IDENTITIES_MAX: usize = 16;

/// The greatest loss, in thousandths: nothing arrives.
pub const LOSS_MAX: u16 = 1000;

/// Entries of one list of a digest, an interest update or a request for either.
pub const LIST_MAX: usize = 4096;

/// Bytes of a topic filter, at least one; of a topic; of a key of the registry.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// Bytes of a selector.
pub const SELECTOR_BYTES_MAX: usize = 8192;

/// Nodes of a tree, its root among them.
pub const NODES_MAX: usize = 4096;

/// Links from the root of a tree to any of its nodes.
pub const DEPTH_MAX: usize = 64;

/// Brokers that have repaired the tree of one frame.
pub const REPAIRERS_MAX: usize = 3;

/// Bytes of the frame of an event that is repeated, without its length.
pub const REPEATED_BYTES_MAX: usize = 512;

/// Streams of one silence: those of a host.
pub const PARTS_MAX: usize = whimbrel_event::HOST_PUBENDS_MAX as usize;

/// Ranges of one nack.
pub const RANGES_MAX: usize = 64;

/// Ranges into which the registry's keys are divided by their hash.
pub const REGISTRY_RANGES: usize = 256;

/// Bytes of a question to another broker.
pub const QUESTION_BYTES_MAX: usize = 512;

/// Bytes of the answer to it.
pub const REPLY_BYTES_MAX: usize = 256 << 10;
