//! The attribution of the data shown. The terms of the recording ask for its source, when it was
//! produced and obtained, and how it was processed, wherever it is shown.

use std::path::{Path, PathBuf};

/// The path of the recording of Warsaw's buses, from the project's root. The recording is not part
/// of the project.
pub const RECORDING: &str = "../shared/data/mobility/warsaw_buses_1h_500.csv.zst";
/// The beginning of the names of files with positions of Warsaw's buses.
const WARSAW: &str = "warsaw_buses";
/// The attribution of these files.
const WARSAW_NOTICE: &str = "Bus positions: Public Transport Authority / City of Warsaw (Miasto stołeczne Warszawa), \
    api.um.warszawa.pl; produced 2024-02-19, obtained the same day; processed: cleaned, sampled, times converted to UTC; \
    speeds and headings derived.";

/// The path of the recording, if it is there.
pub fn recording() -> Option<PathBuf> {
    let path = PathBuf::from(RECORDING);
    path.is_file().then_some(path)
}

/// The attribution that the data in a file need; `None` for unknown data.
pub fn notice(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    name.starts_with(WARSAW).then_some(WARSAW_NOTICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_is_attributed_and_other_files_are_not() {
        let notice_of = |name: &str| notice(Path::new(name));
        let said = notice_of(RECORDING).expect("the recording has a notice");
        for part in
            ["City of Warsaw", "api.um.warszawa.pl", "produced 2024-02-19", "obtained the same day", "processed"]
        {
            assert!(said.contains(part), "{part}");
        }
        assert_eq!(notice_of("buses.csv"), None);
    }
}
