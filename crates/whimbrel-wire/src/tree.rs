//! The destinations of a frame from the broker that reads it: a tree of *ports*, each a number by
//! which a broker knows one of its neighbours. So a broker on the way needs no table, and a frame
//! cannot loop.
//!
//! Nodes are in pre-order. The first is the reader itself; each other one is written relative to
//! its parent. A tree ends with its last node, so it needs no length.
//!
//! | node | first byte, from the highest bit | then |
//! |---|---|---|
//! | root | is a destination, has a previous tick, 6 bits: children; 63: varint of children − 63 follows | if it is a destination: tag (2 bytes, little endian), varint of tick − previous tick if it has one |
//! | leaf | 1, has a previous tick, 6 bits: port; 63: varint of port − 63 follows | tag, previous tick as above |
//! | other | 0, is a destination, has a previous tick, 5 bits: children; 31: varint of children − 31 follows | varint of port; tag and previous tick as above |
//!
//! A destination without a previous tick has the frame's default. Nodes other than leaves have
//! children.

use whimbrel_event::Tick;

use crate::bytes::{Put, Reader};
use crate::{DEPTH_MAX, Invalid, NODES_MAX};

const ROOT_DESTINATION: u8 = 0x80;
const ROOT_PREVIOUS: u8 = 0x40;
const ROOT_CHILDREN: u8 = 0x3f;

const LEAF: u8 = 0x80;
const LEAF_PREVIOUS: u8 = 0x40;
const LEAF_PORT: u8 = 0x3f;

const INNER_DESTINATION: u8 = 0x40;
const INNER_PREVIOUS: u8 = 0x20;
const INNER_CHILDREN: u8 = 0x1f;

/// The information of a frame for one of its destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// The version of its interest that the event was matched against, in a form that only sender
    /// and destination need to understand.
    pub tag: u16,
    /// The last tick before the frame's that was sent to this destination: all ticks between are
    /// silence under that version.
    pub previous: Tick,
}

/// The ticks to which previous ticks are relative.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    tick: Tick,
    default_previous: Tick,
}

impl Ticks {
    fn read(self, input: &mut Reader<'_>, has_previous: bool) -> Result<Dest, Invalid> {
        let tag = u16::from_le_bytes(input.array()?);
        if !has_previous {
            return Ok(Dest { tag, previous: self.default_previous });
        }
        let before = input.varint()?;
        let previous = Tick(self.tick.0.checked_sub(before).ok_or(Invalid::Range("a previous tick"))?);
        if previous == self.default_previous {
            return Err(Invalid::Form("a previous tick"));
        }
        Ok(Dest { tag, previous })
    }

    fn put(self, dest: Dest, out: &mut Vec<u8>) {
        out.extend_from_slice(&dest.tag.to_le_bytes());
        if dest.previous != self.default_previous {
            out.put_varint(self.tick.0.checked_sub(dest.previous.0).expect("a previous tick is not after the frame's"));
        }
    }
}

/// The first part of a node: its port at its parent, and what follows.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The number at its parent; the root's is 0 and means nothing.
    port: u16,
    is_destination: bool,
    has_previous: bool,
    children: usize,
}

/// A number in the low bits of a node's first byte; if all of them are set, a varint of the
/// remainder follows.
fn low_bits<T: TryFrom<u64>>(input: &mut Reader<'_>, first: u8, mask: u8, what: &'static str) -> Result<T, Invalid> {
    let low = u64::from(first & mask);
    let more = if first & mask == mask { input.varint()? } else { 0 };
    low.checked_add(more).and_then(|value| T::try_from(value).ok()).ok_or(Invalid::Range(what))
}

fn put_low_bits(out: &mut Vec<u8>, flags: u8, mask: u8, value: usize) {
    let escape = usize::from(mask);
    out.push(flags | value.min(escape) as u8);
    if value >= escape {
        out.put_varint((value - escape) as u64);
    }
}

/// `flag` if `is_set`.
fn bit(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

impl Head {
    fn read_root(input: &mut Reader<'_>) -> Result<Head, Invalid> {
        let first = input.byte()?;
        let is_destination = first & ROOT_DESTINATION != 0;
        let has_previous = first & ROOT_PREVIOUS != 0;
        let children = low_bits(input, first, ROOT_CHILDREN, "the number of children")?;
        Head { port: 0, is_destination, has_previous, children }.checked()
    }

    fn read_child(input: &mut Reader<'_>) -> Result<Head, Invalid> {
        let first = input.byte()?;
        if first & LEAF != 0 {
            let port = low_bits(input, first, LEAF_PORT, "a port")?;
            return Ok(Head { port, is_destination: true, has_previous: first & LEAF_PREVIOUS != 0, children: 0 });
        }
        let is_destination = first & INNER_DESTINATION != 0;
        let has_previous = first & INNER_PREVIOUS != 0;
        let children = low_bits(input, first, INNER_CHILDREN, "the number of children")?;
        if children == 0 {
            return Err(Invalid::Form("a node without children"));
        }
        Head { port: input.small("a port")?, is_destination, has_previous, children }.checked()
    }

    fn checked(self) -> Result<Head, Invalid> {
        match (self.is_destination, self.has_previous) {
            (false, true) => Err(Invalid::Form("a node that is no destination")),
            (false, false) if self.children == 0 => Err(Invalid::Form("a tree without destinations")),
            _ => Ok(self),
        }
    }

    fn put_root(&self, out: &mut Vec<u8>) {
        let flags = bit(ROOT_DESTINATION, self.is_destination) | bit(ROOT_PREVIOUS, self.has_previous);
        put_low_bits(out, flags, ROOT_CHILDREN, self.children);
    }

    fn put_child(&self, out: &mut Vec<u8>) {
        if self.children == 0 {
            return put_low_bits(out, LEAF | bit(LEAF_PREVIOUS, self.has_previous), LEAF_PORT, usize::from(self.port));
        }
        let flags = bit(INNER_DESTINATION, self.is_destination) | bit(INNER_PREVIOUS, self.has_previous);
        put_low_bits(out, flags, INNER_CHILDREN, self.children);
        out.put_varint(u64::from(self.port));
    }
}

/// The number of children that are still to be read at each level above the present node.
#[derive(Clone, Copy, Debug)]
struct Levels {
    left: [u16; DEPTH_MAX],
    depth: usize,
    /// The number of nodes announced until now.
    nodes: usize,
}

impl Levels {
    /// The levels of a tree of one node, the root.
    const ROOT: Levels = Levels { left: [0; DEPTH_MAX], depth: 0, nodes: 1 };

    /// Enters the present node, which has that many children.
    fn enter(&mut self, children: usize) -> Result<(), Invalid> {
        self.nodes = self.nodes.saturating_add(children);
        if self.nodes > NODES_MAX {
            return Err(Invalid::TooMany("a tree's nodes"));
        }
        if children > 0 {
            *self.left.get_mut(self.depth).ok_or(Invalid::TooMany("a tree's levels"))? = children as u16;
            self.depth += 1;
        }
        Ok(())
    }

    /// The depth of the next node, 1 for the children of the root; `None` if there is none.
    fn next(&mut self) -> Option<usize> {
        while self.depth > 0 && self.left[self.depth - 1] == 0 {
            self.depth -= 1;
        }
        let left = self.left[..self.depth].last_mut()?;
        *left -= 1;
        Some(self.depth)
    }
}

/// Walks all nodes below one.
struct Walk<'a> {
    input: Reader<'a>,
    ticks: Ticks,
    levels: Levels,
}

impl<'a> Walk<'a> {
    /// Begins behind a node with that many children.
    fn new(input: Reader<'a>, ticks: Ticks, children: usize) -> Result<Self, Invalid> {
        let mut levels = Levels::ROOT;
        levels.enter(children)?;
        Ok(Walk { input, ticks, levels })
    }

    /// The next node: its depth below the first one, its port, and its [`Dest`] if it is a
    /// destination.
    fn next(&mut self) -> Result<Option<(usize, u16, Option<Dest>)>, Invalid> {
        let Some(depth) = self.levels.next() else { return Ok(None) };
        let head = Head::read_child(&mut self.input)?;
        let dest = read_dest(&head, &mut self.input, self.ticks)?;
        self.levels.enter(head.children)?;
        Ok(Some((depth, head.port, dest)))
    }

    /// The input behind the last node.
    fn finish(mut self) -> Result<Reader<'a>, Invalid> {
        while self.next()?.is_some() {}
        Ok(self.input)
    }
}

fn read_dest(head: &Head, input: &mut Reader<'_>, ticks: Ticks) -> Result<Option<Dest>, Invalid> {
    if head.is_destination { ticks.read(input, head.has_previous).map(Some) } else { Ok(None) }
}

/// Why reading cannot fail, for bytes that were found to be a tree before.
const CHECKED: &str = "all of the tree was checked when it was read";

/// A tree as the broker that received the frame sees it.
#[derive(Clone, Copy, Debug)]
pub struct TreeReader<'a> {
    own: Option<Dest>,
    children: usize,
    /// The nodes below.
    rest: &'a [u8],
    ticks: Ticks,
}

impl<'a> TreeReader<'a> {
    /// Reads the tree of a frame with this tick and this default of previous ticks. All of it is
    /// checked here.
    ///
    /// # Errors
    /// When it is malformed, has more than [`NODES_MAX`] nodes or a path longer than [`DEPTH_MAX`],
    /// or bytes follow it.
    pub fn new(tree: &'a [u8], tick: Tick, default_previous: Tick) -> Result<Self, Invalid> {
        let mut input = Reader(tree);
        let read = TreeReader::read(&mut input, tick, default_previous)?;
        if input.0.is_empty() { Ok(read) } else { Err(Invalid::Form("a tree with something behind it")) }
    }

    /// Reads the tree of a frame without previous ticks; those of its destinations are 0.
    ///
    /// # Errors
    /// As [`TreeReader::new`].
    pub fn target(tree: &'a [u8]) -> Result<Self, Invalid> {
        TreeReader::new(tree, Tick(0), Tick(0))
    }

    /// A reader of a tree that has been checked: only its first node is read.
    pub(crate) fn checked(tree: &'a [u8], tick: Tick, default_previous: Tick) -> Result<Self, Invalid> {
        let ticks = Ticks { tick, default_previous };
        let mut input = Reader(tree);
        let head = Head::read_root(&mut input)?;
        let own = read_dest(&head, &mut input, ticks)?;
        Ok(TreeReader { own, children: head.children, rest: input.0, ticks })
    }

    /// Reads the tree at the beginning of `input`, and moves `input` behind it.
    pub(crate) fn read(input: &mut Reader<'a>, tick: Tick, default_previous: Tick) -> Result<Self, Invalid> {
        let whole = TreeReader::checked(input.0, tick, default_previous)?;
        let below = whole.rest;
        *input = Walk::new(Reader(below), whole.ticks, whole.children)?.finish()?;
        Ok(TreeReader { rest: &below[..below.len() - input.0.len()], ..whole })
    }

    /// The [`Dest`] of the reader, if it is a destination itself.
    pub fn own(&self) -> Option<Dest> {
        self.own
    }

    /// The neighbours to which the frame is passed on, with their trees. The same port may occur
    /// twice; nothing is gained by that.
    pub fn children(&self) -> impl Iterator<Item = Subtree<'a>> + use<'a> {
        let ticks = self.ticks;
        let mut input = Reader(self.rest);
        (0..self.children).map(move |_| Subtree::read(&mut input, ticks))
    }

    /// Calls `visit` for each destination with the ports that lead to it from the reader; for the
    /// reader itself there are none.
    pub fn destinations(&self, mut visit: impl FnMut(&[u16], Dest)) {
        if let Some(own) = self.own {
            visit(&[], own);
        }
        visit_below(Reader(self.rest), self.ticks, self.children, &mut [0; DEPTH_MAX], 0, &mut visit);
    }
}

/// Visits the destinations below a node to which the first `above` ports of the path lead.
fn visit_below(
    input: Reader<'_>,
    ticks: Ticks,
    children: usize,
    path: &mut [u16; DEPTH_MAX],
    above: usize,
    visit: &mut impl FnMut(&[u16], Dest),
) {
    let mut walk = Walk::new(input, ticks, children).expect(CHECKED);
    while let Some((depth, port, dest)) = walk.next().expect(CHECKED) {
        path[above + depth - 1] = port;
        if let Some(dest) = dest {
            visit(&path[..above + depth], dest);
        }
    }
}

/// The part of a tree for one neighbour.
#[derive(Clone, Copy, Debug)]
pub struct Subtree<'a> {
    head: Head,
    own: Option<Dest>,
    /// The node behind its head, and all that is below it.
    rest: &'a [u8],
    /// Place of the nodes below it in `rest`.
    below: usize,
    ticks: Ticks,
}

impl<'a> Subtree<'a> {
    fn read(input: &mut Reader<'a>, ticks: Ticks) -> Self {
        let head = Head::read_child(input).expect(CHECKED);
        let rest = input.0;
        let own = read_dest(&head, input, ticks).expect(CHECKED);
        let below = rest.len() - input.0.len();
        let walk = Walk::new(*input, ticks, head.children).expect(CHECKED);
        *input = walk.finish().expect(CHECKED);
        Subtree { head, own, rest: &rest[..rest.len() - input.0.len()], below, ticks }
    }

    /// The reader's number of the neighbour.
    pub fn port(&self) -> u16 {
        self.head.port
    }

    /// The [`Dest`] of the neighbour, if it is a destination.
    pub fn own(&self) -> Option<Dest> {
        self.own
    }

    /// Appends the tree for the neighbour's frame, which must have the tick and default of this
    /// one. Only the first bytes are made anew.
    pub fn write_root(&self, out: &mut Vec<u8>) {
        self.head.put_root(out);
        out.extend_from_slice(self.rest);
    }

    /// Calls `visit` for each destination with the ports that lead to it from the reader of the
    /// whole tree, this neighbour's first.
    pub fn destinations(&self, mut visit: impl FnMut(&[u16], Dest)) {
        let mut path = [0; DEPTH_MAX];
        path[0] = self.head.port;
        if let Some(own) = self.own {
            visit(&path[..1], own);
        }
        visit_below(Reader(&self.rest[self.below..]), self.ticks, self.head.children, &mut path, 1, &mut visit);
    }
}

/// Writes a tree, node by node in pre-order.
#[derive(Debug)]
pub struct TreeWriter<'a> {
    out: &'a mut Vec<u8>,
    ticks: Ticks,
    levels: Levels,
}

impl<'a> TreeWriter<'a> {
    /// Appends a tree for a frame with this tick and this default of previous ticks to `out`. For a
    /// frame without previous ticks, both are 0, and so are those of all destinations.
    pub fn new(out: &'a mut Vec<u8>, tick: Tick, default_previous: Tick) -> Self {
        TreeWriter { out, ticks: Ticks { tick, default_previous }, levels: Levels::ROOT }
    }

    /// The first node: the broker that will read the tree.
    ///
    /// # Panics
    /// As [`TreeWriter::child`]; and if it is no destination and has no children.
    pub fn root(&mut self, dest: Option<Dest>, children: usize) {
        self.put(0, dest, children).put_root(self.out);
        self.put_dest(dest);
    }

    /// The next node: the neighbour of its parent that is known there by `port`.
    ///
    /// # Panics
    /// If no child is due; if it is no destination and has no children; if its previous tick is
    /// greater than the frame's; if there would be more than [`NODES_MAX`] nodes, or more than
    /// [`DEPTH_MAX`] links to one.
    pub fn child(&mut self, port: u16, dest: Option<Dest>, children: usize) {
        self.levels.next().expect("a child is due");
        self.put(port, dest, children).put_child(self.out);
        self.put_dest(dest);
    }

    /// Ends the tree.
    ///
    /// # Panics
    /// If nodes are missing.
    pub fn finish(mut self) {
        assert_eq!(self.levels.next(), None, "all children were written");
    }

    fn put(&mut self, port: u16, dest: Option<Dest>, children: usize) -> Head {
        self.levels.enter(children).expect("whoever makes a tree keeps its bounds");
        assert!(dest.is_some() || children > 0, "a tree ends in destinations");
        let has_previous = dest.is_some_and(|dest| dest.previous != self.ticks.default_previous);
        Head { port, is_destination: dest.is_some(), has_previous, children }
    }

    fn put_dest(&mut self, dest: Option<Dest>) {
        if let Some(dest) = dest {
            self.ticks.put(dest, self.out);
        }
    }
}
