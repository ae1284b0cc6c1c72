#![doc = include_str!("../README.md")]

mod check;
mod collect;
mod content;
mod cut;
mod drive;
pub mod file;
mod frame;
mod handover;
mod journal;
mod log;
mod map;
mod read;
mod recover;
mod scan;
mod segment;
mod storage;
mod sync;
pub mod twin;
mod types;
mod wire;

pub use check::{CheckReport, SegmentCheck, check};
pub use content::{SegmentContent, SegmentHead, segment_content, segment_head};
pub use cut::{Cut, CutFile};
pub use drive::{ChoreDone, Stepped, perform_chore, perform_write};
pub use handover::{FULL_RETRY, Handover, Progress, WriterReport};
pub use journal::Journal;
pub use log::{Chore, Counters, Log, Need, RELOCATION_PART, RELOCATION_SHARE, WriteStep};
pub use map::{
    CLEAN_ABOVE, CLEAN_MIN, CLEAN_PIECE, CLEAN_RATE, KEY_MAX, Map, MapInfo, MapOptions, Piece, RECORD_HEAD, Readable,
    RestoreError,
};
pub use read::{ReadBuffer, Wanted};
pub use recover::Report;
pub use segment::segment_number;
pub use storage::{Fault, Slot, Storage};
pub use types::{
    BATCH_BYTES_MAX, BATCH_BYTES_MIN, Damage, HEAD, MAP_SEGMENTS, OpenError, Options, RESERVE_SEGMENTS, ReadError,
    Refused, SECTOR, SEGMENT_BATCHES_MIN, SEGMENT_BYTES_MAX, SEGMENTS_MIN, STREAMS_MAX, Stream, StreamId, StreamInfo,
    StreamUse, Tick, Ticket,
};
