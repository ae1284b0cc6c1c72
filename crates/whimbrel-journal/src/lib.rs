//! placeholder
mod collect;
mod drive;
mod frame;
mod log;
mod read;
mod recover;
mod scan;
mod segment;
mod storage;
pub mod twin;
mod types;
mod wire;

pub use drive::{Stepped, perform_write};
pub use log::{Chore, Log, RELOCATION_PART, RELOCATION_SHARE, WriteStep};
pub use read::{ReadBuffer, Wanted};
pub use recover::Report;
pub use storage::{Fault, Slot, Storage};
pub use types::*;
