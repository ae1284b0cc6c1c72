//! File systems of their own for servers, which lose what was not synced: each is an ext4 in a
//! file, mounted over a loop device. What the file has at a moment is what a disk has when its
//! power fails: the file system's own cache is above it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a disk.
const DISK_BYTES: u64 = 256 << 20;

/// The file system writes back by itself this seldom, seconds: only what is synced is on the disk.
const WRITTEN_BACK_EVERY: &str = "commit=600";

/// Disks that are mounted as long as this lives.
pub struct LoopDisks {
    folder: tempfile::TempDir,
    count: usize,
}

/// Runs a program; what it says if it fails.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let told = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let error = || format!("{program}: {}", String::from_utf8_lossy(&told.stderr).trim());
    told.status.success().then_some(()).ok_or_else(error)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

impl LoopDisks {
    /// Empty disks; `None`, with a word, where they cannot be mounted: that takes root, Linux and
    /// loop devices.
    pub fn make(count: usize) -> Option<LoopDisks> {
        let mut disks = LoopDisks { folder: tempfile::tempdir().expect("a folder"), count: 0 };
        for number in 0..count {
            let (image, place) = (disks.image(number), disks.place(number));
            fs::File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("the disk's file is made");
            fs::create_dir(&place).expect("a folder");
            let made = run("mkfs.ext4", &["-q", text(&image)]).and_then(|()| disks.mount(number));
            if let Err(error) = made {
                println!("not tested: disks that lose power take root and loop devices ({error})");
                return None;
            }
            disks.count += 1;
        }
        Some(disks)
    }

    fn image(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.img"))
    }

    fn mount(&self, number: usize) -> Result<(), String> {
        run(
            "mount",
            &["-o", &format!("loop,{WRITTEN_BACK_EVERY}"), text(&self.image(number)), text(&self.place(number))],
        )
    }

    /// Where a disk is mounted.
    pub fn place(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    /// All of them.
    pub fn places(&self) -> Vec<PathBuf> {
        (0..self.count).map(|number| self.place(number)).collect()
    }

    /// All disks lose what is not on them, at once. No file on them may be open.
    pub fn lose_power(&self) {
        let copy = |number| self.image(number).with_extension("copy");
        for number in 0..self.count {
            run("cp", &["--sparse=always", text(&self.image(number)), text(&copy(number))]).expect("it is copied");
        }
        for number in 0..self.count {
            run("umount", &[text(&self.place(number))]).expect("no file on it is open");
            fs::rename(copy(number), self.image(number)).expect("it takes the other one's place");
            self.mount(number).expect("it is mounted as before");
        }
    }
}

impl Drop for LoopDisks {
    fn drop(&mut self) {
        for number in 0..self.count {
            if let Err(error) = run("umount", &["-l", text(&self.place(number))]) {
                println!("{error}");
            }
        }
    }
}

#[test]
fn a_disk_keeps_what_is_synced_and_loses_the_rest() {
    let Some(disks) = LoopDisks::make(1) else { return };
    let write = |name: &str| {
        let path = disks.place(0).join(name);
        fs::write(&path, vec![7; 100_000]).map(|()| fs::File::open(path)).expect("it is written").expect("it is there")
    };
    write("synced").sync_all().expect("it is synced");
    fs::File::open(disks.place(0)).and_then(|folder| folder.sync_all()).expect("so is its folder");
    drop(write("cached"));
    disks.lose_power();
    let kept = |name| fs::read(disks.place(0).join(name)).map_or(0, |bytes| bytes.len());
    assert_eq!((kept("synced"), kept("cached")), (100_000, 0));
}
