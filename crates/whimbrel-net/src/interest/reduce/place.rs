//! A place for new groups among entries that stay as they are.

use super::TrafficEstimate;
use super::group::{FilterGroup, gap};
use super::plan::Spans;
use super::widen::{rate, union};

/// The number of sorted entries on each side of a new group that are tried.
const BESIDE: usize = 4;

/// The number of others that are tried: those whose filters widen the least.
const ELSEWHERE: usize = 8;

/// Finds a place in sorted groups for a group of one term: it is covered, gets an entry of its own,
/// or joins the entry that is estimated to admit the least additional events. Returns false if
/// there is no place.
pub(super) fn place(
    groups: &mut Vec<FilterGroup>,
    new: FilterGroup,
    bound: usize,
    spans: &Spans,
    traffic: &dyn TrafficEstimate,
) -> bool {
    let covers_filter = |group: &FilterGroup| {
        group.filter == new.filter || (group.filter().has_wildcard() && group.filter().covers(new.filter()))
    };
    if groups.iter().any(|group| covers_filter(group) && group.covers_all(&new)) {
        return true;
    }
    if groups.len() < bound {
        add(groups, new);
        return true;
    }
    let mut best: Option<(f64, usize, FilterGroup)> = None;
    for at in candidates(groups, &new, traffic) {
        let group = &groups[at];
        let Some(wider) = together(group, &new, spans) else { continue };
        let before = rate(traffic, group.filter()) * spans.share(group);
        let cost = rate(traffic, wider.filter()) * spans.share(&wider) - before;
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, at, wider));
        }
    }
    let Some((_, at, wider)) = best else { return false };
    groups.remove(at);
    add(groups, wider);
    true
}

fn add(groups: &mut Vec<FilterGroup>, group: FilterGroup) {
    groups.insert(groups.partition_point(|other| *other < group), group);
}

/// The groups that are tried for `new`.
fn candidates(groups: &[FilterGroup], new: &FilterGroup, traffic: &dyn TrafficEstimate) -> Vec<usize> {
    let at = groups.partition_point(|group| group < new);
    let beside = at.saturating_sub(BESIDE)..groups.len().min(at + BESIDE);
    let mut others: Vec<(f64, usize)> = Vec::with_capacity(groups.len());
    for (number, group) in groups.iter().enumerate().filter(|(number, _)| !beside.contains(number)) {
        let Some(filter) = union(&group.filter, &new.filter) else { continue };
        let wider = FilterGroup { filter, terms: Vec::new() };
        others.push((rate(traffic, wider.filter()) - rate(traffic, group.filter()), number));
    }
    others.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    beside.chain(others.into_iter().take(ELSEWHERE).map(|(_, number)| number)).collect()
}

/// One group that wants what both want and fits into an entry; `None` if no filter covers both, or
/// no terms that fit do.
fn together(one: &FilterGroup, two: &FilterGroup, spans: &Spans) -> Option<FilterGroup> {
    let filter = union(&one.filter, &two.filter)?;
    if one.wants_all() || two.wants_all() {
        return Some(FilterGroup { filter, terms: Vec::new() });
    }
    let mut terms = [&one.terms[..], &two.terms[..]].concat();
    terms.sort_unstable();
    let mut group = FilterGroup { filter, terms };
    group.join();
    // Each round joins two terms, and there are at most as many as in an entry and one more.
    while !group.fits() {
        close_one(&mut group, spans)?;
    }
    Some(group)
}

/// Joins the two neighbours that become the least wider; `None` if there are none.
fn close_one(group: &mut FilterGroup, spans: &Spans) -> Option<()> {
    let mut best: Option<(f64, usize)> = None;
    for (at, pair) in group.terms.windows(2).enumerate() {
        let Some(wider) = gap(&pair[0], &pair[1], spans.width(&pair[0]), 0) else { continue };
        if best.is_none_or(|(least, _)| wider < least) {
            best = Some((wider, at));
        }
    }
    let (_, at) = best?;
    let next = group.terms.remove(at + 1);
    group.terms[at] = group.terms[at].joined(&next).expect("they are about one field");
    Some(())
}
