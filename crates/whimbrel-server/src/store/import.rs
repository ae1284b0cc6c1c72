//! Makes a data directory and the stream of its broker equal, while the broker does not run.

use std::fs;
use std::os::unix::fs::MetadataExt;

use whimbrel_engine::StartReport;

use super::open::{JOURNAL, OpenError, Opening, disk, lock};
use crate::engine::{Adoption, EngineStartError, Monitor};

/// Starts from the stream of a broker, as far as its directory and its stream are equal, and ends.
/// Blocks; not to be called by a task. `None`: the broker has no engine.
///
/// # Errors
/// As when the broker is started.
pub fn import(opening: &Opening) -> Result<Option<StartReport>, OpenError> {
    let Some(engine) = &opening.engine else { return Ok(None) };
    check_directory(opening, engine.adoption)?;
    let _lock = lock(&opening.directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let monitor = Monitor::new(engine.monitors.clone());
    let checked = runtime.map_err(OpenError::System)?.block_on(monitor.check_at_start());
    checked.map_err(EngineStartError::from)?;
    let keeper = disk(opening, Some(monitor))?.keeper;
    let report = keeper.as_ref().map(|keeper| keeper.report());
    if let Some(keeper) = keeper {
        keeper.end();
    }
    Ok(report)
}

/// Refuses a directory that has nothing to import, and one whose files would become another user's.
fn check_directory(opening: &Opening, adoption: Adoption) -> Result<(), OpenError> {
    let path = opening.directory.display().to_string();
    if adoption == Adoption::Import && !opening.directory.join(JOURNAL).is_dir() {
        return Err(OpenError::NoJournal { path });
    }
    let Ok(found) = fs::metadata(&opening.directory) else { return Ok(()) };
    if found.uid() == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(OpenError::OtherUser { path, owner: found.uid() })
    }
}
