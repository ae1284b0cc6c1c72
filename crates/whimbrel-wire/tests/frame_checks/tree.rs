//! Trees as plain data, to compare with.

use whimbrel_event::Tick;
use whimbrel_wire::{Dest, TreeReader, TreeWriter};

/// A node and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub port: u16,
    pub dest: Option<Dest>,
    pub children: Vec<Node>,
}

impl Node {
    /// Appends the tree that begins here.
    pub fn write(&self, out: &mut Vec<u8>, tick: Tick, default_previous: Tick) {
        let mut writer = TreeWriter::new(out, tick, default_previous);
        writer.root(self.dest, self.children.len());
        self.children.iter().for_each(|child| child.write_below(&mut writer));
        writer.finish();
    }

    fn write_below(&self, writer: &mut TreeWriter<'_>) {
        writer.child(self.port, self.dest, self.children.len());
        self.children.iter().for_each(|child| child.write_below(writer));
    }

    /// All destinations and how to get there.
    fn destinations(&self, path: &[u16], found: &mut Vec<(Vec<u16>, Dest)>) {
        found.extend(self.dest.map(|dest| (path.to_vec(), dest)));
        for child in &self.children {
            child.destinations(&[path, &[child.port]].concat(), found);
        }
    }
}

/// The tree, written and read, is what it was, and so is each that is passed on, down to the
/// leaves.
pub fn check(root: &Node, tick: Tick, default_previous: Tick) {
    let mut bytes = Vec::new();
    root.write(&mut bytes, tick, default_previous);
    let reader = TreeReader::new(&bytes, tick, default_previous).expect("a tree");
    assert_eq!(reader.own(), root.dest);
    let mut wanted = Vec::new();
    root.destinations(&[], &mut wanted);
    let mut found = Vec::new();
    reader.destinations(|path, dest| found.push((path.to_vec(), dest)));
    assert_eq!(found, wanted);
    assert_eq!(reader.children().count(), root.children.len());
    for (subtree, node) in reader.children().zip(&root.children) {
        assert_eq!((subtree.port(), subtree.own()), (node.port, node.dest));
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        node.destinations(&[node.port], &mut wanted);
        subtree.destinations(|path, dest| found.push((path.to_vec(), dest)));
        assert_eq!(found, wanted);
        let (mut passed, mut anew) = (Vec::new(), Vec::new());
        subtree.write_root(&mut passed);
        node.write(&mut anew, tick, default_previous);
        assert_eq!(passed, anew);
        check(node, tick, default_previous);
    }
}

/// All that can be done with the tree of a frame that came from elsewhere.
pub fn walk(tree: &[u8], tick: Tick, default_previous: Tick) {
    let reader = TreeReader::new(tree, tick, default_previous).expect("it was checked when the frame was decoded");
    let mut all = 0;
    reader.destinations(|_, _| all += 1);
    let mut below = usize::from(reader.own().is_some());
    for subtree in reader.children() {
        subtree.destinations(|path, dest| {
            assert!(path[0] == subtree.port() && dest.previous <= tick);
            below += 1;
        });
        let mut passed = Vec::new();
        subtree.write_root(&mut passed);
        let passed = TreeReader::new(&passed, tick, default_previous).expect("a part of a tree is one");
        assert_eq!(passed.own(), subtree.own());
    }
    assert_eq!(below, all);
}
