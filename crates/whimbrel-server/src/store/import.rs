//! Makes a data directory and the stream of its broker equal, while the broker does not run.

use whimbrel_engine::StartReport;

use super::open::{OpenError, Opening, disk, lock};
use crate::engine::{EngineStartError, Monitor};

/// Starts from the stream of a broker, as far as its directory and its stream are equal, and ends.
/// Blocks; not to be called by a task. `None`: the broker has no engine.
///
/// # Errors
/// As when the broker is started.
pub fn import(opening: &Opening) -> Result<Option<StartReport>, OpenError> {
    let Some(engine) = &opening.engine else { return Ok(None) };
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
