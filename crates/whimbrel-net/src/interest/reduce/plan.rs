//! From groups to entries: which neighbouring terms are joined so that all groups fit into the
//! bound of entries.

use core::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_selector::Field;

use super::TrafficEstimate;
use super::group::{BYTES_AT_FIRST, FilterGroup, TERMS_AT_FIRST, gap, share};
use super::term::{Names, Term, TermSizes, shared};
use super::widen::{CLASSES_MAX, rate, widen};

/// The least and the greatest number with which a field is compared.
#[derive(Debug, Default)]
pub(super) struct Spans(BTreeMap<Arc<Field>, (f64, f64)>);

impl Spans {
    pub(super) fn of(groups: &[FilterGroup]) -> Spans {
        let mut spans = BTreeMap::new();
        for term in groups.iter().flat_map(|group| &group.terms) {
            let Term::Range { field, low, high: Reverse(high) } = term else { continue };
            for at in [low.double(), high.double()].into_iter().flatten() {
                let (least, greatest) = spans.entry(field.clone()).or_insert((at, at));
                (*least, *greatest) = (least.min(at), greatest.max(at));
            }
        }
        Spans(spans)
    }

    /// The spread of the field's numbers; at least 1.
    pub(super) fn width(&self, term: &Term) -> f64 {
        let Term::Range { field, .. } = term else { return 1.0 };
        self.0.get(field).map_or(1.0, |(least, greatest)| (greatest - least).clamp(1.0, f64::MAX))
    }

    /// Estimated share of a filter's events that a group wants.
    pub(super) fn share(&self, group: &FilterGroup) -> f64 {
        if group.wants_all() {
            return 1.0;
        }
        group.terms.iter().map(|term| share(term, self.width(term))).sum::<f64>().min(1.0)
    }
}

/// Two neighbours that could be joined.
struct GapToJoin {
    cost: f64,
    group: usize,
    /// Between the term at this place and the next.
    at: usize,
}

/// Shares of the entries, in sixteenths, for filters if there are more filters than that. Each is
/// tried, and the cheapest is taken: fewer filters leave more entries for the terms under each.
const FILTERS_TRIED: [usize; 4] = [15, 12, 8, 4];

/// Fits sorted groups, of which none wants what another covers, into `bound` entries. If something
/// has to be joined for that, an eighth of the entries stays free for later changes.
pub(super) fn fit(
    mut groups: Vec<FilterGroup>,
    bound: usize,
    names: &mut Names,
    traffic: &dyn TrafficEstimate,
) -> Vec<FilterGroup> {
    let limit = bound - bound / 8;
    assert!(limit > CLASSES_MAX, "there is an entry for each class");
    groups.iter_mut().for_each(FilterGroup::join);
    if let Some(packed) = pack_exactly(&groups, bound) {
        return packed;
    }
    let spans = Spans::of(&groups);
    let mut best: Option<(f64, Vec<FilterGroup>)> = None;
    let targets = FILTERS_TRIED.iter().map(|part| (limit * part / 16).max(CLASSES_MAX));
    for target in targets.filter(|target| *target < groups.len()) {
        let fewer = widen(groups.clone(), target, names, traffic);
        let Some(packed) = pack(&fewer, limit, traffic) else { continue };
        let cost = packed.iter().map(|group| rate(traffic, group.filter()) * spans.share(group)).sum();
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, packed));
        }
    }
    if let Some(packed) = pack(&groups, limit, traffic) {
        let cost: f64 = packed.iter().map(|group| rate(traffic, group.filter()) * spans.share(group)).sum();
        if best.as_ref().is_none_or(|(least, _)| cost <= *least) {
            return packed;
        }
    }
    match best {
        Some((_, packed)) => packed,
        None => fit_coarsely(groups, limit, names, traffic),
    }
}

/// As [`fit`], for too many terms that cannot be joined: these are replaced by parts that can.
fn fit_coarsely(
    mut groups: Vec<FilterGroup>,
    limit: usize,
    names: &mut Names,
    traffic: &dyn TrafficEstimate,
) -> Vec<FilterGroup> {
    groups.iter_mut().for_each(|group| group.coarsen(names));
    for part in FILTERS_TRIED {
        groups = widen(groups, (limit * part / 16).max(CLASSES_MAX), names, traffic);
        if let Some(packed) = pack(&groups, limit, traffic) {
            return packed;
        }
    }
    // There are too many fields under each of the few filters.
    groups.iter_mut().for_each(|group| group.terms.clear());
    groups
}

/// Entries that admit no additional events; `None` if they are too many.
fn pack_exactly(groups: &[FilterGroup], bound: usize) -> Option<Vec<FilterGroup>> {
    if groups.len() > bound {
        return None;
    }
    let mut packed = Vec::with_capacity(bound);
    for group in groups {
        divide(group, &sizes(group), &vec![false; group.terms.len()], &mut packed);
    }
    (packed.len() <= bound).then_some(packed)
}

/// Bytes that each term of a group takes in an entry.
fn sizes(group: &FilterGroup) -> Vec<TermSizes> {
    group.terms.iter().map(Term::sizes).collect()
}

/// Joins as few neighbours as needed, the cheapest first. `None` if joining all of them is not
/// enough.
fn pack(groups: &[FilterGroup], limit: usize, traffic: &dyn TrafficEstimate) -> Option<Vec<FilterGroup>> {
    if groups.len() > limit {
        return None;
    }
    let gaps = gaps(groups, traffic);
    let sizes: Vec<Vec<TermSizes>> = groups.iter().map(sizes).collect();
    let needs = |closed: usize| -> usize {
        let closed = closings(groups, &gaps[..closed]);
        sizes.iter().zip(&closed).map(|(sizes, closed)| count(sizes, closed)).sum()
    };
    let (mut few, mut enough) = (0, gaps.len());
    if needs(enough) > limit {
        return None;
    }
    while few < enough {
        let middle = few.midpoint(enough);
        if needs(middle) <= limit {
            enough = middle;
        } else {
            few = middle + 1;
        }
    }
    let closed = closings(groups, &gaps[..enough]);
    let mut packed = Vec::with_capacity(limit);
    for ((group, sizes), closed) in groups.iter().zip(&sizes).zip(&closed) {
        divide(group, sizes, closed, &mut packed);
    }
    Some(packed)
}

/// All neighbours that can be joined, sorted by cost.
fn gaps(groups: &[FilterGroup], traffic: &dyn TrafficEstimate) -> Vec<GapToJoin> {
    let spans = Spans::of(groups);
    let mut gaps = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let rate = rate(traffic, group.filter());
        let common = common(&group.terms);
        for (at, pair) in group.terms.windows(2).enumerate() {
            if let Some(wider) = gap(&pair[0], &pair[1], spans.width(&pair[0]), common[at]) {
                gaps.push(GapToJoin { cost: rate * wider, group: number, at });
            }
        }
    }
    gaps.sort_unstable_by(|a, b| a.cost.total_cmp(&b.cost).then((a.group, a.at).cmp(&(b.group, b.at))));
    gaps
}

/// For each term the length of the common prefix of all texts about its field, bytes.
fn common(terms: &[Term]) -> Vec<usize> {
    let mut common = Vec::with_capacity(terms.len());
    for run in
        terms.chunk_by(|a, b| matches!((a, b), (Term::Text { field, .. }, Term::Text { field: of, .. }) if field == of))
    {
        let length = match (run.first(), run.last()) {
            (Some(Term::Text { text, .. }), Some(Term::Text { text: last, .. })) => shared(text, last),
            _ => 0,
        };
        common.extend(run.iter().map(|_| length));
    }
    common
}

/// For each group, whether each of its terms is joined with the next.
fn closings(groups: &[FilterGroup], gaps: &[GapToJoin]) -> Vec<Vec<bool>> {
    let mut closed: Vec<Vec<bool>> = groups.iter().map(|group| vec![false; group.terms.len()]).collect();
    gaps.iter().for_each(|gap| closed[gap.group][gap.at] = true);
    closed
}

/// Ends of the runs of joined terms, and a bound for the bytes of each joined run.
fn runs(sizes: &[TermSizes], closed: &[bool]) -> impl Iterator<Item = (usize, usize)> {
    let mut first: Option<usize> = None;
    sizes.iter().zip(closed).enumerate().filter_map(move |(at, (size, is_closed))| {
        if *is_closed {
            first.get_or_insert(size.as_first);
            return None;
        }
        Some((at + 1, first.take().map_or(size.alone, |first| first + size.as_last)))
    })
}

/// Walks the entries that a group needs: `entry` is called for each, with the ends of its runs.
fn walk(sizes: &[TermSizes], closed: &[bool], mut entry: impl FnMut(&[usize])) {
    let (mut ends, mut bytes) = (Vec::with_capacity(TERMS_AT_FIRST), 0);
    for (end, size) in runs(sizes, closed) {
        if ends.len() == TERMS_AT_FIRST || (bytes + size > BYTES_AT_FIRST && !ends.is_empty()) {
            entry(&ends);
            ends.clear();
            bytes = 0;
        }
        ends.push(end);
        bytes += size;
    }
    entry(&ends);
}

fn count(sizes: &[TermSizes], closed: &[bool]) -> usize {
    let mut entries = 0;
    walk(sizes, closed, |_| entries += 1);
    entries
}

fn divide(group: &FilterGroup, sizes: &[TermSizes], closed: &[bool], packed: &mut Vec<FilterGroup>) {
    let mut from = 0;
    walk(sizes, closed, |ends| {
        let mut terms = Vec::with_capacity(ends.len());
        for end in ends {
            let run = &group.terms[from..*end];
            let join = |one: Term, two: &Term| one.joined(two).expect("they are about one field");
            terms.push(run[1..].iter().fold(run[0].clone(), join));
            from = *end;
        }
        packed.push(FilterGroup { filter: group.filter.clone(), terms });
    });
}
