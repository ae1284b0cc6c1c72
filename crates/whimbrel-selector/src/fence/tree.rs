//! A binary tree over the consecutive segments of a line.

use core::ops::Range;

/// Segments in a leaf: testing these costs about as much as one more level.
const LEAF: usize = 8;

/// The decision at a node of a [`SegmentTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Skip everything below.
    Skip,
    /// Continue below; at a leaf, test its segments.
    Descend,
    /// End the visit.
    Stop,
}

/// Summaries `B` of runs of segments: the root summarises all segments, its children the halves,
/// down to leaves of a few. Stored in preorder without pointers: a subtree of `n` leaves takes
/// `2 n - 1` nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentTree<B> {
    segments: usize,
    nodes: Vec<B>,
}

impl<B> SegmentTree<B> {
    /// A tree over `segments`, at least one; `summary` summarises a run of them. Takes `segments` ×
    /// log `segments` steps.
    pub fn new(segments: usize, mut summary: impl FnMut(Range<usize>) -> B) -> SegmentTree<B> {
        let leaves = segments.div_ceil(LEAF);
        let mut nodes = Vec::with_capacity((2 * leaves).saturating_sub(1));
        build(0..leaves, segments, &mut nodes, &mut summary);
        SegmentTree { segments, nodes }
    }

    /// Calls `decide` for nodes from the root on, and `leaf` with the segments of each leaf that
    /// was descended into, in order. Either may stop the visit.
    pub fn visit(
        &self,
        decide: &mut impl FnMut(&B, Range<usize>) -> Step,
        leaf: &mut impl FnMut(Range<usize>) -> Step,
    ) -> Step {
        self.visit_below(0, 0..self.segments.div_ceil(LEAF), decide, leaf)
    }

    fn visit_below(
        &self,
        node: usize,
        leaves: Range<usize>,
        decide: &mut impl FnMut(&B, Range<usize>) -> Step,
        leaf: &mut impl FnMut(Range<usize>) -> Step,
    ) -> Step {
        let run = run(&leaves, self.segments);
        match decide(&self.nodes[node], run.clone()) {
            Step::Descend if leaves.len() <= 1 => leaf(run),
            Step::Descend => {
                let middle = middle(&leaves);
                if self.visit_below(node + 1, leaves.start..middle, decide, leaf) == Step::Stop {
                    return Step::Stop;
                }
                let right = node + 2 * (middle - leaves.start);
                self.visit_below(right, middle..leaves.end, decide, leaf)
            }
            step => step,
        }
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        self.nodes.len() * size_of::<B>()
    }
}

fn middle(leaves: &Range<usize>) -> usize {
    leaves.start + leaves.len() / 2
}

/// The range of segments of these leaves.
fn run(leaves: &Range<usize>, segments: usize) -> Range<usize> {
    leaves.start * LEAF..segments.min(leaves.end * LEAF)
}

fn build<B>(leaves: Range<usize>, segments: usize, nodes: &mut Vec<B>, summary: &mut impl FnMut(Range<usize>) -> B) {
    nodes.push(summary(run(&leaves, segments)));
    if leaves.len() > 1 {
        let middle = middle(&leaves);
        build(leaves.start..middle, segments, nodes, summary);
        build(middle..leaves.end, segments, nodes, summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_sums_up_its_own_run_and_leaves_come_in_order() {
        for segments in 1..100 {
            let tree = SegmentTree::new(segments, |run| run);
            let mut next = 0;
            let mut decide = |sum: &Range<usize>, run: Range<usize>| {
                assert_eq!(*sum, run);
                Step::Descend
            };
            let mut leaf = |run: Range<usize>| {
                assert_eq!(run.start, next);
                assert!((1..=LEAF).contains(&run.len()));
                next = run.end;
                Step::Descend
            };
            tree.visit(&mut decide, &mut leaf);
            assert_eq!(next, segments);
        }
    }

    #[test]
    fn a_visit_leaves_out_what_is_skipped_and_stops_when_told() {
        let tree = SegmentTree::new(64, |run| run);
        let mut seen = Vec::new();
        let mut around_40 = |sum: &Range<usize>, _| if sum.contains(&40) { Step::Descend } else { Step::Skip };
        tree.visit(&mut around_40, &mut |run| {
            seen.push((run.start, run.end));
            Step::Descend
        });
        assert_eq!(seen, [(40, 48)]);
        let mut leaves = 0;
        let stopped = tree.visit(&mut |_, _| Step::Descend, &mut |_| {
            leaves += 1;
            if leaves == 2 { Step::Stop } else { Step::Descend }
        });
        assert_eq!((stopped, leaves), (Step::Stop, 2));
    }
}
