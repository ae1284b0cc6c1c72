//! Filters: which of them cover others, and wider ones that replace several.

use whimbrel_event::Seeded;
use whimbrel_selector::TopicFilter;

use super::TrafficEstimate;
use super::group::FilterGroup;
use super::plan::Spans;
use super::term::{Names, Term};

/// The most first levels that begin with `$` under which a broker wants something. No filter covers
/// two of them.
pub const SYSTEM_ROOTS_MAX: usize = 16;

/// Bytes of such a first level; under a longer one nothing is wanted of other brokers. One filter
/// for each of them, as must be where all filters are too long, leaves room in a frame for two more
/// lists.
pub const SYSTEM_ROOT_BYTES_MAX: usize = 16 << 10;

/// Classes of filters, of which each can be covered by one filter: those under each first level
/// that begins with `$`, and all others.
pub(super) const CLASSES_MAX: usize = SYSTEM_ROOTS_MAX + 1;

/// Steps of the search for filters that cover one.
const COVER_STEPS_MAX: usize = 256;

/// Levels of a filter at which a wildcard is tried.
const LEVELS_TRIED: usize = 8;

/// Rounds of replacing filters by wider ones; each can put one wildcard into each filter. If there
/// are still too many afterwards, each class gets one filter.
const ROUNDS_MAX: usize = 8;

/// Seed of hashes that are only used to group equal values.
const SEED: u64 = 12;

/// The first level, if wildcards do not match it.
pub(super) fn system_root(filter: &str) -> Option<&str> {
    filter.starts_with('$').then(|| filter.split('/').next().unwrap_or(filter))
}

/// Events per second under a filter; a value out of range is clamped, and NaN
/// counts as 0.
pub(super) fn rate(traffic: &dyn TrafficEstimate, filter: TopicFilter<'_>) -> f64 {
    traffic.rate(filter).clamp(0.0, 1e18).max(0.0)
}

/// The least filter that covers both; `None` if none does, because one begins with a level that
/// wildcards do not match.
pub(super) fn union(one: &str, two: &str) -> Option<Box<str>> {
    let root = system_root(one);
    if root != system_root(two) {
        return None;
    }
    let mut levels = Vec::new();
    let (mut of_one, mut of_two) = (one.split('/'), two.split('/'));
    loop {
        match (of_one.next(), of_two.next()) {
            (None, None) => break,
            (Some(a), Some(b)) if a == b => levels.push(a),
            (Some("#") | None, _) | (_, Some("#") | None) => {
                levels.push("#");
                break;
            }
            (Some(_), Some(_)) => levels.push("+"),
        }
    }
    let text = levels.join("/");
    Some(if TopicFilter::new(&text).is_ok() { tidied(&text).into() } else { class_filter(one) })
}

/// The canonical form among filters that match the same topics.
pub(super) fn tidied(filter: &str) -> &str {
    if filter == "+/#" { "#" } else { filter }
}

/// The filter that covers this one and all others of its class.
fn class_filter(filter: &str) -> Box<str> {
    system_root(filter).map_or_else(|| "#".into(), |root| format!("{root}/#").into())
}

/// Places of the sorted groups whose filters cover `filter`, its own among them; may be incomplete
/// if more than [`COVER_STEPS_MAX`] steps are needed.
fn coverers(groups: &[FilterGroup], filter: &str) -> Vec<usize> {
    let levels: Vec<&str> = filter.split('/').collect();
    let first = |text: &str| groups.partition_point(|group| *group.filter < *text);
    let exact = |text: &str| Some(first(text)).filter(|at| groups.get(*at).is_some_and(|group| *group.filter == *text));
    let mut found = Vec::new();
    let mut open: Vec<(String, usize)> = vec![(String::new(), 0)];
    for _ in 0..COVER_STEPS_MAX {
        let Some((begin, depth)) = open.pop() else { break };
        let is_hidden = depth == 0 && filter.starts_with('$');
        let child = |level: &str| if depth == 0 { level.to_owned() } else { format!("{begin}/{level}") };
        if !is_hidden {
            found.extend(exact(&child("#")));
        }
        match levels.get(depth) {
            None => found.extend(exact(&begin)),
            Some(&"#") => {}
            Some(level) => {
                let ways = [Some(*level), (*level != "+" && !is_hidden).then_some("+")];
                for next in ways.into_iter().flatten().map(child) {
                    if groups.get(first(&next)).is_some_and(|group| group.filter.starts_with(&next)) {
                        open.push((next, depth + 1));
                    }
                }
            }
        }
    }
    found
}

/// Drops from each of the sorted groups what groups with wider filters want too.
pub(super) fn drop_covered(groups: &mut Vec<FilterGroup>, names: &mut Names) {
    let mut left: Vec<Option<FilterGroup>> = Vec::with_capacity(groups.len());
    for (own, group) in groups.iter().enumerate() {
        let wider: Vec<usize> = coverers(groups, &group.filter).into_iter().filter(|at| *at != own).collect();
        if wider.iter().any(|at| groups[*at].wants_all()) {
            left.push(None);
            continue;
        }
        let is_covered = |term: &Term| wider.iter().any(|at| groups[*at].covers(term));
        let mut is_left = |term: &&Term| {
            // A term that is kept as text is covered if one of its parts is.
            let parts = if wider.is_empty() { Vec::new() } else { names.simple_parts(term) };
            !is_covered(term) && !parts.iter().any(|terms| terms.iter().all(is_covered))
        };
        let terms: Vec<Term> = group.terms.iter().filter(|term| is_left(term)).cloned().collect();
        let is_kept = group.wants_all() || !terms.is_empty();
        left.push(is_kept.then(|| FilterGroup { filter: group.filter.clone(), terms }));
    }
    *groups = left.into_iter().flatten().collect();
}

/// Filters that a wider one could replace.
struct Candidate {
    /// Cost per saved filter.
    cost: f64,
    filter: Box<str>,
    /// Groups with these filters; those that admit the least events come first.
    members: Vec<usize>,
}

/// At most `target` groups that want at least what `groups` want.
pub(super) fn widen(
    mut groups: Vec<FilterGroup>,
    target: usize,
    names: &mut Names,
    traffic: &dyn TrafficEstimate,
) -> Vec<FilterGroup> {
    assert!(target >= CLASSES_MAX, "there is a filter for each class");
    for _ in 0..ROUNDS_MAX {
        if groups.len() <= target {
            return groups;
        }
        let candidates = candidates(&groups, traffic);
        groups = widen_once(groups, &candidates, target, names);
    }
    if groups.len() > target {
        let classes = groups.iter().map(|group| class_filter(&group.filter)).collect();
        groups = merged(groups, classes, names);
    }
    groups
}

fn widen_once(
    groups: Vec<FilterGroup>,
    candidates: &[Candidate],
    target: usize,
    names: &mut Names,
) -> Vec<FilterGroup> {
    let mut filters: Vec<Option<&Box<str>>> = vec![None; groups.len()];
    let mut count = groups.len();
    for candidate in candidates {
        if count <= target {
            break;
        }
        let is_free = |at: &&usize| filters[**at].is_none();
        // Takes no more than needed, in the order of `members`: the others stay as they are unless
        // the wider filter covers them.
        let free: Vec<usize> = candidate.members.iter().filter(is_free).take(count - target + 1).copied().collect();
        if free.len() > 1 {
            count -= free.len() - 1;
            free.iter().for_each(|at| filters[*at] = Some(&candidate.filter));
        }
    }
    let filters = groups.iter().zip(filters).map(|(group, filter)| filter.unwrap_or(&group.filter).clone()).collect();
    merged(groups, filters, names)
}

/// Gives the groups new filters, and merges groups with the same filter.
fn merged(mut groups: Vec<FilterGroup>, filters: Vec<Box<str>>, names: &mut Names) -> Vec<FilterGroup> {
    groups.iter_mut().zip(filters).for_each(|(group, filter)| group.filter = filter);
    groups.sort_unstable();
    let mut merged: Vec<FilterGroup> = Vec::new();
    for group in groups {
        match merged.last_mut() {
            Some(last) if last.filter == group.filter => {
                // A group that wants all is sorted first.
                if !last.wants_all() {
                    last.terms.extend(group.terms);
                }
            }
            _ => merged.push(group),
        }
    }
    for group in &mut merged {
        group.simplify(names);
        group.join();
    }
    drop_covered(&mut merged, names);
    merged
}

/// Wider filters for those that differ in one level, or from some level on, sorted by cost.
fn candidates(groups: &[FilterGroup], traffic: &dyn TrafficEstimate) -> Vec<Candidate> {
    let hasher = Seeded::new(SEED);
    let mut keys: Vec<(u64, usize)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let levels: Vec<&str> = group.filter.split('/').collect();
        let first = usize::from(group.filter.starts_with('$'));
        for at in first..levels.len().min(first + LEVELS_TRIED) {
            keys.push((hasher.hash_one((&levels[..at], "+", &levels[at + 1..])), number));
            if at > 0 {
                keys.push((hasher.hash_one((&levels[..at], "#")), number));
            }
        }
    }
    keys.sort_unstable();
    keys.dedup();
    let spans = Spans::of(groups);
    let part: Vec<f64> = groups.iter().map(|group| spans.share(group)).collect();
    let worth: Vec<f64> = groups.iter().zip(&part).map(|(group, part)| rate(traffic, group.filter()) * part).collect();
    let mut candidates = Vec::new();
    for run in keys.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1) {
        let mut members: Vec<usize> = run.iter().map(|(_, number)| *number).collect();
        members.sort_unstable_by(|a, b| part[*a].total_cmp(&part[*b]).then(a.cmp(b)));
        let Some(filter) = union_of(groups, &members) else { continue };
        let before: f64 = members.iter().map(|at| worth[*at]).sum();
        let share = members.iter().map(|at| part[*at]).sum::<f64>().min(1.0);
        let whole = TopicFilter::new(&filter).map_or(0.0, |filter| rate(traffic, filter));
        let cost = (whole * share - before).max(0.0) / (members.len() - 1) as f64;
        candidates.push(Candidate { cost, filter, members });
    }
    candidates.sort_unstable_by(|a, b| {
        a.cost.total_cmp(&b.cost).then_with(|| (&a.filter, &a.members).cmp(&(&b.filter, &b.members)))
    });
    candidates
}

fn union_of(groups: &[FilterGroup], members: &[usize]) -> Option<Box<str>> {
    let first = groups[*members.first()?].filter.clone();
    members[1..].iter().try_fold(first, |filter, at| union(&filter, &groups[*at].filter))
}
