//! Measured parts in files, so that an interrupted run resumes.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Effort;
use super::report::Part;

/// A folder with one file for each part.
pub struct Store {
    folder: PathBuf,
    prefix: String,
    made_by: MadeBy,
    fresh: bool,
}

/// The origin of a stored part; it is used again only if the origin agrees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MadeBy {
    /// The length and modification time of the program: another build measures again.
    program: (u64, u64),
    seeds: u64,
    quick: bool,
    #[serde(default)]
    full: bool,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    made_by: MadeBy,
    part: Part,
}

impl Store {
    /// The store of one experiment and driver in `folder`, which is created if it does not exist. A
    /// fresh store finds nothing.
    ///
    /// # Errors
    /// When the folder cannot be made or the running program's file cannot be found.
    pub fn open(folder: &Path, experiment: &str, driver: &str, effort: Effort, fresh: bool) -> Result<Store> {
        let parts = folder.join("parts");
        std::fs::create_dir_all(&parts).with_context(|| format!("making {}", parts.display()))?;
        let Effort { seeds, quick, full } = effort;
        let made_by = MadeBy { program: program().context("looking at this program's own file")?, seeds, quick, full };
        Ok(Store { folder: parts, prefix: format!("{experiment}-{driver}"), made_by, fresh })
    }

    /// The part of a name, if it was measured by this program in the same way.
    pub fn load(&self, id: &str) -> Option<Part> {
        let text = std::fs::read(self.path(id)).ok().filter(|_| !self.fresh)?;
        let stored: Stored = serde_json::from_slice(&text).ok()?;
        (stored.made_by == self.made_by).then_some(stored.part)
    }

    /// Stores `part`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, id: &str, part: &Part) -> Result<()> {
        let path = self.path(id);
        let stored = Stored { made_by: self.made_by.clone(), part: part.clone() };
        let text = serde_json::to_vec_pretty(&stored).context("writing a part as JSON")?;
        let unfinished = path.with_extension("new");
        std::fs::write(&unfinished, text)
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .with_context(|| format!("writing {}", path.display()))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{}-{id}.json", self.prefix))
    }
}

/// The length and modification time, in seconds since the epoch, of the running program.
fn program() -> Result<(u64, u64)> {
    let file = std::fs::metadata(std::env::current_exe()?)?;
    Ok((file.len(), file.modified()?.duration_since(UNIX_EPOCH)?.as_secs()))
}
