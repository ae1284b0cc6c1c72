//! Frames as earlier versions sent them are understood by this one. `recorded/VERSION.frames` holds
//! a stream of frames, and stays as it is; `WHIMBREL_RECORD=1 cargo test --profile quick -p
//! whimbrel-wire --test it recorded` makes the file for this version, before it is released.

use std::fs;
use std::path::{Path, PathBuf};

use crate::frame_checks::generate::{Choices, with_frame};
use crate::frame_checks::{cut, encoded};
use whimbrel_wire::Frame;

/// Enough for each kind of frame several times.
const FRAMES: u64 = 400;

/// Bytes of choices for each.
const CHOICES: usize = 300;

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// Bytes that look arbitrary, and are always the same (xorshift*, Vigna 2016).
fn choices(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..CHOICES).map(|_| next()).collect()
}

/// Makes the file for this version.
fn record() {
    let frames: Vec<Vec<u8>> = (1..=FRAMES).map(|seed| with_frame(&mut Choices(&choices(seed)), encoded)).collect();
    fs::create_dir_all(recorded()).expect("a directory");
    fs::write(recorded().join(concat!(env!("CARGO_PKG_VERSION"), ".frames")), frames.concat()).expect("written");
}

#[test]
fn frames_of_earlier_versions_are_understood() {
    if std::env::var_os("WHIMBREL_RECORD").is_some() {
        record();
    }
    let mut versions = 0;
    for file in fs::read_dir(recorded()).expect("recorded frames") {
        let path = file.expect("read").path();
        let bytes = fs::read(&path).expect("read");
        let frames = cut(&bytes);
        for (number, frame) in frames.iter().enumerate() {
            // A frame without a body stood for one of a later version: its type may have a body by
            // now.
            if frame.len() == 1 {
                continue;
            }
            if let Err(error) = Frame::decode(frame) {
                panic!("{}, frame {number}: {error}", path.display());
            }
        }
        assert_eq!(frames.len() as u64, FRAMES, "{}", path.display());
        versions += 1;
    }
    assert!(versions > 0, "there is at least one");
}
