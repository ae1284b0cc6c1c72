//! The search of one event in the nodes of one group.

use core::cell::OnceCell;

use whimbrel_event::Seeded;

use super::axis::{CLASSES, FENCE, Kind, Point, Use, Uses};
use super::clause::EXACT;
use super::guard::{Guard, Prints};
use super::node::{Nodes, filter_bit, sight_of};
use super::sight::Sight;
use crate::facts::{CONTENT_TYPE, CORRELATION_ID, Facts, FieldId, MESSAGE_ID, NOTHING, PRIORITY, TIMESTAMP};
use crate::number::double;
use crate::subject::{Datum, Number};

/// Memory of [`Probe`] that is reused for the next event.
#[derive(Debug)]
pub(super) struct Memory {
    axes: Vec<Point>,
    /// For each attribute of the event, the beginning of its axes; then the end of the last one's.
    places: Vec<u32>,
    /// The numbers by attribute; NaN if the event has none.
    numbers: Vec<f64>,
    /// Attributes that have a number.
    numbered: Vec<u32>,
    /// All numbers are exact as doubles.
    exact: bool,
    prints: Prints,
}

impl Memory {
    pub(super) fn new() -> Self {
        Memory {
            axes: Vec::new(),
            places: Vec::new(),
            numbers: Vec::new(),
            numbered: Vec::new(),
            exact: true,
            prints: Prints::new(),
        }
    }
}

/// The values of one event on the axes of the index.
pub(super) struct Probe<'p, 'f> {
    nodes: &'p Nodes,
    facts: &'p Facts<'f>,
    memory: &'p Memory,
    hasher: &'p Seeded,
    /// Axes of values in the payload, computed when a node first needs them.
    json: OnceCell<Vec<Point>>,
}

impl Memory {
    /// Computes the axes of an event's attributes and headers.
    pub(super) fn fill(&mut self, facts: &Facts<'_>, uses: &Uses, hasher: &Seeded) {
        self.axes.clear();
        self.places.clear();
        self.prints.clear();
        for field in self.numbered.drain(..) {
            self.numbers[field as usize] = f64::NAN;
        }
        self.exact = true;
        for (field, value) in facts.present() {
            self.number(*field, *value);
            self.places.push(self.axes.len() as u32);
            push_axes(&mut self.axes, *field, *value, uses.of(*field), hasher);
        }
        self.places.push(self.axes.len() as u32);
        for header in [PRIORITY, TIMESTAMP, MESSAGE_ID, NOTHING, CORRELATION_ID, CONTENT_TYPE] {
            let used = uses.of(header);
            if used.is_some() {
                push_axes(&mut self.axes, header, facts.value(header), used, hasher);
            }
        }
        for axis in &self.axes {
            self.prints.add(axis.hash);
        }
    }

    /// Records the number of an attribute.
    fn number(&mut self, field: FieldId, value: Datum<'_>) {
        let Some(number) = value.number() else { return };
        let near = double(number);
        self.exact &= matches!(number, Number::Double(_)) || near.abs() < EXACT;
        let place = field.0 as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, f64::NAN);
        }
        self.numbers[place] = near;
        self.numbered.push(field.0);
    }

    /// Records the numbers of the event for the estimates.
    pub(super) fn note(&self, sight: &mut Sight, uses: &Uses) {
        let ranges = (0..CLASSES).fold(0, |mask, class| mask | Kind::Range(class).bit());
        for field in self.numbered.iter().map(|&field| FieldId(field)) {
            if uses.of(field).is_some_and(|used| used.mask() & ranges != 0)
                && let Some(place) = sight_of(field)
            {
                sight.note(place, self.numbers[field.0 as usize], true);
            }
        }
    }
}

/// Adds the axes of one value that are in use.
fn push_axes(axes: &mut Vec<Point>, field: FieldId, value: Datum<'_>, uses: Option<&Use>, hasher: &Seeded) {
    let Some(uses) = uses.filter(|_| value != Datum::Null) else { return };
    let used = |kind: Kind| uses.mask() & kind.bit() != 0;
    if used(Kind::Present) {
        axes.push(Point::flag(field, Kind::Present, true, hasher));
    }
    if let Some(text) = value.text() {
        if used(Kind::Text) {
            axes.push(Point::text(field, Kind::Text, text.as_bytes(), hasher));
        }
        for (kind, length) in uses.prefixes() {
            if let Some(prefix) = text.as_bytes().get(..length) {
                axes.push(Point::text(field, kind, prefix, hasher));
            }
        }
    }
    if used(Kind::Boolean)
        && let Some(value) = value.boolean()
    {
        axes.push(Point::flag(field, Kind::Boolean, value, hasher));
    }
    match value.number() {
        Some(number) => {
            if used(Kind::Number) {
                axes.push(Point::number(field, double(number), hasher));
            }
            let classes = (0..CLASSES).filter(|class| used(Kind::Range(*class)));
            axes.extend(classes.map(|class| Point::range(field, class, hasher)));
        }
        None if used(Kind::NotNumber) => axes.push(Point::flag(field, Kind::NotNumber, true, hasher)),
        None => {}
    }
}

impl<'p, 'f> Probe<'p, 'f> {
    pub(super) fn new(nodes: &'p Nodes, facts: &'p Facts<'f>, memory: &'p Memory, hasher: &'p Seeded) -> Self {
        Probe { nodes, facts, memory, hasher, json: OnceCell::new() }
    }

    /// Calls `found` with the selector of each clause at and below `at` that may hold. The depth of
    /// recursion is at most the number of points and ranges of a clause.
    pub(super) fn visit(&self, at: u32, found: &mut impl FnMut(u32)) {
        let node = &self.nodes.nodes[at];
        for entry in &node.list {
            if self.passes(&entry.held.guards) {
                found(entry.held.selector);
            }
        }
        let Some(more) = &node.more else { return };
        self.search(&more.dims, more.root, found);
        if node.filter == 0 {
            return;
        }
        let mut enter = |point: Point| {
            if node.filter & filter_bit(point.hash) != 0
                && let Some(child) = self.nodes.child(at, point)
            {
                self.visit(child, found);
            }
        };
        if more.fences > 0 {
            for fence in self.facts.inside().unwrap_or_default() {
                enter(Point::fence(*fence, self.hasher));
            }
        }
        if more.wide {
            self.memory.axes.iter().for_each(|point| enter(*point));
            if more.json > 0 {
                self.json().iter().for_each(|point| enter(*point));
            }
            return;
        }
        for (field, kind) in &more.axes {
            if *field == FENCE || (field.is_json() && more.json == 0) {
                continue;
            }
            let of_field = if field.is_attribute() { self.axes_of(*field) } else { self.late_axes_of(*field) };
            if let Some(axis) = of_field.iter().find(|axis| axis.kind == *kind && axis.field == *field) {
                enter(*axis);
            }
        }
    }

    fn search(&self, dims: &[FieldId], root: u32, found: &mut impl FnMut(u32)) {
        let point: [f64; 3] = core::array::from_fn(|axis| dims.get(axis).map_or(0.0, |field| self.number(*field)));
        match dims.len() {
            0 => {}
            1 => self.nodes.one.visit(root, &[point[0]], &mut |held| {
                if self.passes(&held.guards) {
                    found(held.selector);
                }
            }),
            2 => self.nodes.two.visit(root, &[point[0], point[1]], &mut |held| {
                if self.passes(&held.guards) {
                    found(held.selector);
                }
            }),
            _ => self.nodes.three.visit(root, &point, &mut |held| found(held.selector)),
        }
    }

    /// Whether a hit marked [`super::guard::DECIDES`] needs no evaluation.
    pub(super) fn is_exact(&self) -> bool {
        self.memory.exact
    }

    /// The number of a field; NaN, which is in no range, if it has none.
    #[inline]
    fn number(&self, field: FieldId) -> f64 {
        if field.is_attribute() {
            return self.memory.numbers.get(field.0 as usize).copied().unwrap_or(f64::NAN);
        }
        self.facts.value(field).number().map_or(f64::NAN, double)
    }

    #[inline]
    fn passes(&self, guards: &[Guard]) -> bool {
        guards.iter().all(|guard| match *guard {
            Guard::Pass => true,
            Guard::Range { field, low, high } => {
                let number = self.number(field);
                f64::from(low) <= number && number <= f64::from(high)
            }
            Guard::Point { print, .. } => self.memory.prints.may_have(print),
        })
    }

    fn axes_of(&self, field: FieldId) -> &[Point] {
        let Some(place) = self.facts.place(field) else { return &[] };
        let (from, to) = (self.memory.places[place], self.memory.places[place + 1]);
        &self.memory.axes[from as usize..to as usize]
    }

    /// Axes of headers, or of values in the payload from the field's own on.
    fn late_axes_of(&self, field: FieldId) -> &[Point] {
        if field.is_json() {
            let axes = self.json();
            let from = axes.partition_point(|axis| axis.field < field);
            return &axes[from..];
        }
        let headers = self.memory.places.last().map_or(0, |from| *from as usize);
        &self.memory.axes[headers..]
    }

    /// The axes of values in the payload, sorted by field.
    fn json(&self) -> &[Point] {
        self.json.get_or_init(|| {
            let mut axes = Vec::new();
            for (field, value) in self.facts.json_present() {
                push_axes(&mut axes, field, value, self.nodes.uses.of(field), self.hasher);
            }
            axes
        })
    }
}
