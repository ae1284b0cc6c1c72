//! Positions that outlive their program.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use whimbrel_client::{
    CheckpointStore, CheckpointToken, Damage, Deployment, EventId, FileStore, HostId, Position, StoreError, Tick,
};

fn position(tick: u64) -> Position {
    let mut token = CheckpointToken::new(Deployment::named("test"), Tick(tick));
    token.cover(HostId::new(0xabc0), 4, 4).expect("one host");
    let mut position = Position::at(token);
    position.advance(EventId { pubend: HostId::new(0xabc0).pubend(3), tick: Tick(tick + 7) });
    position
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("buses.token");
    (directory, path)
}

#[test]
fn what_was_saved_last_is_loaded_and_nothing_else_is_left_there() {
    let (directory, path) = place();
    let mut store = FileStore::new(&path);
    assert_eq!(store.load().expect("a file that is not there is no error"), None);
    for tick in [5, 6, 1_000] {
        store.save(&position(tick)).expect("saved");
        assert_eq!(FileStore::new(&path).load().expect("readable"), Some(position(tick)));
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).expect("listed").map(|e| e.expect("a name").file_name()).collect();
    assert_eq!(names, ["buses.token"]);
}

#[test]
fn a_writer_that_died_half_way_leaves_what_was_there() {
    let (_directory, path) = place();
    let mut store = FileStore::new(&path);
    store.save(&position(5)).expect("saved");
    let whole = fs::read(&path).expect("read");
    fs::write(path.with_extension("token.new"), &whole[..whole.len() / 2]).expect("written");
    assert_eq!(store.load().expect("readable"), Some(position(5)));
    store.save(&position(6)).expect("saved over what is left of the other");
    assert_eq!(store.load().expect("readable"), Some(position(6)));
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_told_as_damaged() {
    let (_directory, path) = place();
    let mut store = FileStore::new(&path);
    store.save(&position(5)).expect("saved");
    let whole = fs::read(&path).expect("read");
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).expect("written");
        let error = store.load().expect_err("it is not whole");
        assert!(matches!(error, StoreError::Damaged(_, Damage::Torn)), "{length} bytes: {error}");
        assert!(error.to_string().contains("delete it to begin now"), "{error}");
    }
}

#[test]
fn a_file_in_which_anything_was_altered_is_not_believed() {
    let (_directory, path) = place();
    let mut store = FileStore::new(&path);
    store.save(&position(5)).expect("saved");
    let whole = fs::read(&path).expect("read");
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        fs::write(&path, &altered).expect("written");
        store.load().expect_err("something is wrong with it");
    }
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let (_directory, path) = place();
    let mut store = FileStore::new(&path);
    fs::write(&path, "shopping list\n").expect("written");
    assert!(matches!(store.load(), Err(StoreError::Foreign(_))));
    fs::write(&path, [0xff, 0xfe]).expect("written");
    assert!(matches!(store.load(), Err(StoreError::Foreign(_))));
    fs::write(&path, "whimbrel position 2\nx\n").expect("written");
    assert!(matches!(store.load(), Err(StoreError::Later(_))));
}

#[test]
fn a_place_that_cannot_be_written_says_so_and_keeps_what_was_saved() {
    let (directory, path) = place();
    let missing = directory.path().join("missing").join("buses.token");
    let error = FileStore::new(&missing).save(&position(5)).expect_err("there is no such directory");
    assert!(error.to_string().contains("missing/buses.token") && !path.exists(), "{error}");
}
