//! Trees that are refused, and their bounds from both sides.

use std::panic::{AssertUnwindSafe, catch_unwind};

use whimbrel_event::{PubendId, Tick};
use whimbrel_wire::{DEPTH_MAX, Dest, EventFrame, Frame, Invalid, NODES_MAX, Repairers, TreeReader, TreeWriter};

const TICK: Tick = Tick(1000);
const SHARED: Tick = Tick(900);
const DEST: Dest = Dest { tag: 7, previous: SHARED };

fn written(write: impl FnOnce(&mut TreeWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = TreeWriter::new(&mut out, TICK, SHARED);
    write(&mut writer);
    writer.finish();
    out
}

/// It is a bug of ours to write it.
fn refused(write: impl FnOnce(&mut TreeWriter<'_>)) {
    assert!(catch_unwind(AssertUnwindSafe(|| written(write))).is_err());
}

fn read(tree: &[u8]) -> Result<usize, Invalid> {
    let mut count = 0;
    TreeReader::new(tree, TICK, SHARED)?.destinations(|_, _| count += 1);
    Ok(count)
}

fn leaves(writer: &mut TreeWriter<'_>, count: usize) {
    (0..count).for_each(|port| writer.child(port as u16, Some(DEST), 0));
}

/// Each passes it on to the next.
fn chain(writer: &mut TreeWriter<'_>, links: usize) {
    writer.root(Some(DEST), 1);
    (1..=links).for_each(|at| writer.child(at as u16 % 60, Some(DEST), usize::from(at < links)));
}

#[test]
fn a_path_has_its_bound() {
    let tree = written(|writer| chain(writer, DEPTH_MAX));
    assert_eq!(read(&tree), Ok(DEPTH_MAX + 1));
    let mut longest = Vec::new();
    let reader = TreeReader::new(&tree, TICK, SHARED).unwrap();
    reader.children().next().unwrap().destinations(|path, _| longest = path.to_vec());
    assert_eq!(longest, (1..=DEPTH_MAX as u16).map(|at| at % 60).collect::<Vec<_>>());
    refused(|writer| chain(writer, DEPTH_MAX + 1));
    // Another broker's bug: the last leaf made a node with a leaf below. Flags, port, tag; then the
    // leaf.
    let longer = [&tree[..tree.len() - 3], &[0x41, 32, 7, 0], &tree[tree.len() - 3..]].concat();
    assert_eq!(read(&longer), Err(Invalid::TooMany("a tree's levels")));
}

#[test]
fn nodes_have_their_bound() {
    let star = |count: usize| {
        move |writer: &mut TreeWriter<'_>| {
            writer.root(None, count);
            leaves(writer, count);
        }
    };
    let tree = written(star(NODES_MAX - 1));
    assert_eq!(read(&tree), Ok(NODES_MAX - 1));
    refused(star(NODES_MAX));
    // 63 and 4032 children, made 4033.
    assert_eq!(tree[..3], [0x3f, 0xc0, 0x1f]);
    let more = [&[0x3f, 0xc1, 0x1f], &tree[3..], &[0x80, 7, 0]].concat();
    assert_eq!(read(&more), Err(Invalid::TooMany("a tree's nodes")));
    assert_eq!(
        read(&[0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        Err(Invalid::Range("the number of children"))
    );
    // Spread over levels, too.
    let spread = written(|writer| {
        writer.root(None, 3);
        for port in 0..3 {
            writer.child(port, None, 1364);
            leaves(writer, 1364);
        }
    });
    assert_eq!(read(&spread), Ok(3 * 1364));
    refused(|writer| {
        writer.root(None, 3);
        for (port, count) in [(0, 1364), (1, 1364), (2, 1365)] {
            writer.child(port, None, count);
            leaves(writer, count);
        }
    });
}

#[test]
fn numbers_around_the_escapes_survive() {
    for count in [30, 31, 32, 62, 63, 64, 200] {
        let tree = written(|writer| {
            writer.root(None, count);
            writer.child(1, Some(DEST), count);
            leaves(writer, count);
            leaves(writer, count - 1);
        });
        let reader = TreeReader::new(&tree, TICK, SHARED).expect("a tree");
        assert_eq!(reader.children().count(), count);
        let mut passed = Vec::new();
        reader.children().next().expect("the first").write_root(&mut passed);
        let passed = TreeReader::new(&passed, TICK, SHARED).expect("a tree");
        assert!(passed.children().map(|child| child.port()).eq(0..count as u16));
    }
    for port in [0, 62, 63, 64, 127, 128, 190, 191, u16::MAX] {
        let tree = written(|writer| {
            writer.root(None, 2);
            writer.child(port, None, 1);
            leaves(writer, 1);
            writer.child(port, Some(DEST), 0);
        });
        let reader = TreeReader::new(&tree, TICK, SHARED).expect("a tree");
        assert!(reader.children().map(|child| child.port()).eq([port, port]));
    }
}

#[test]
fn each_node_has_one_form() {
    for (tree, invalid) in [
        (&[][..], Invalid::Truncated),
        // No broker gets the event.
        (&[0], Invalid::Form("a tree without destinations")),
        // A previous tick of no destination.
        (&[0x41, 0x80, 7, 0], Invalid::Form("a node that is no destination")),
        (&[1, 0x21, 2, 0x80, 7, 0], Invalid::Form("a node that is no destination")),
        // A leaf in the form of an inner node.
        (&[1, 0x40, 2, 7, 0], Invalid::Form("a node without children")),
        // The frame's previous tick as an own one; one before the first tick.
        (&[0xc0, 7, 0, 100], Invalid::Form("a previous tick")),
        (&[0xc0, 7, 0, 0xe9, 7], Invalid::Range("a previous tick")),
        // Ports beyond 65535: the escape and one too many, and a plain one.
        (&[1, 0xbf, 0xc1, 0xff, 3, 7, 0], Invalid::Range("a port")),
        (&[1, 0x41, 0x80, 0x80, 4, 7, 0, 0x80, 7, 0], Invalid::Range("a port")),
        (&[0x80, 7, 0, 0], Invalid::Form("a tree with something behind it")),
    ] {
        assert_eq!(read(tree), Err(invalid), "{tree:02x?}");
    }
    assert_eq!(read(&[1, 0xbf, 0xc0, 0xff, 3, 7, 0]), Ok(1));
    assert_eq!(read(&[0xc0, 7, 0, 0xe8, 7]), Ok(1));
}

#[test]
fn a_tree_that_is_written_wrongly_is_a_bug() {
    refused(|writer| writer.root(None, 0));
    refused(|writer| writer.root(None, 1));
    refused(|writer| {
        writer.root(Some(DEST), 0);
        writer.child(1, Some(DEST), 0);
    });
    refused(|writer| {
        writer.root(Some(DEST), 1);
        writer.child(1, None, 0);
    });
    refused(|writer| writer.root(Some(Dest { tag: 1, previous: Tick(1001) }), 0));
}

#[test]
fn a_frame_with_a_bad_tree_is_refused_as_a_whole() {
    let good = written(|writer| writer.root(Some(DEST), 0));
    let frame = |tree| {
        let header = EventFrame {
            pubend: PubendId(1),
            tick: TICK,
            age_us: 0,
            answer: false,
            retain: false,
            repairers: Repairers::NONE,
            tree,
            default_previous: SHARED,
            event: b"",
        };
        let mut out = Vec::new();
        Frame::Event(header).encode(&mut out);
        out.split_off(1)
    };
    assert!(Frame::decode(&frame(&good)).is_ok());
    assert_eq!(Frame::decode(&frame(&[0])), Err(Invalid::Form("a tree without destinations")));
    // A default before the first tick, one that is said although it is the tick itself, and flags
    // that are not defined.
    let mut bytes = frame(&good);
    bytes[1] |= 0x20;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Form("flags of an event's frame")));
    bytes[1] &= !0x20;
    bytes[19] = 0;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Form("a previous tick")));
    bytes[10..18].fill(0);
    bytes[19] = 1;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a previous tick")));
}

#[test]
fn no_more_repairers_than_there_is_room_for() {
    let mut repairers = Repairers::NONE;
    let host = |number: u64| whimbrel_event::HostId::new(number << 4);
    assert!((1..=3).all(|number| repairers.push(host(number))));
    assert!(!repairers.push(host(4)));
    assert_eq!(repairers.as_slice(), [host(1), host(2), host(3)]);
}
