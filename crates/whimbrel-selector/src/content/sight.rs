//! Estimates of selectivity, from recent numbers of each field.

use super::axis::CLASSES;

/// Numbers recorded per field.
const SEEN: usize = 32;

/// Fields whose numbers are recorded. Beyond that, the field recorded longest is dropped.
const FIELDS_MAX: usize = 4096;

/// The last numbers of one field: of events, and until there are any, ends of ranges.
#[derive(Debug)]
struct Seen {
    numbers: [f64; SEEN],
    len: u8,
    next: u8,
    /// The numbers come from events.
    of_events: bool,
}

/// Recent numbers, by index of the field.
#[derive(Debug, Default)]
pub(super) struct Sight {
    fields: Vec<Option<Box<Seen>>>,
    /// Fields in the order of their first record; some may have been dropped since.
    order: Vec<usize>,
    oldest: usize,
}

impl Sight {
    /// Records a number of an event, or else the end of a range.
    pub(super) fn note(&mut self, field: usize, number: f64, of_event: bool) {
        if !number.is_finite() {
            return;
        }
        if self.fields.len() <= field {
            self.fields.resize_with(field + 1, || None);
        }
        if self.fields[field].is_none() {
            if self.order.len() < FIELDS_MAX {
                self.order.push(field);
            } else {
                let gone = core::mem::replace(&mut self.order[self.oldest], field);
                self.fields[gone] = None;
                self.oldest = (self.oldest + 1) % FIELDS_MAX;
            }
        }
        let slot = &mut self.fields[field];
        let seen =
            slot.get_or_insert_with(|| Box::new(Seen { numbers: [0.0; SEEN], len: 0, next: 0, of_events: false }));
        if of_event && !seen.of_events {
            (seen.len, seen.next, seen.of_events) = (0, 0, true);
        }
        if of_event || !seen.of_events {
            seen.numbers[usize::from(seen.next)] = number;
            seen.next = (seen.next + 1) % SEEN as u8;
            seen.len = (seen.len + 1).min(SEEN as u8);
        }
    }

    /// Drops a field that is not used any more: its index may be reused for another.
    pub(super) fn forget(&mut self, field: usize) {
        if let Some(slot) = self.fields.get_mut(field) {
            *slot = None;
        }
    }

    fn numbers(&self, field: usize) -> &[f64] {
        let seen = self.fields.get(field).and_then(|seen| seen.as_deref());
        seen.map_or(&[], |seen| &seen.numbers[..usize::from(seen.len)])
    }

    /// The class of a range: 0 lets through a quarter or more of the recorded numbers, each further
    /// class a quarter of the previous one.
    pub(super) fn class(&self, field: usize, low: f64, high: f64) -> u8 {
        let numbers = self.numbers(field);
        if numbers.is_empty() {
            return if low.is_finite() && high.is_finite() { 1 } else { 0 };
        }
        let inside = numbers.iter().filter(|&&number| low <= number && number <= high).count();
        let (from, to) = self.view(field);
        // A few numbers give only coarse shares; for ranges that contain none of them, the extent
        // is a better estimate.
        let extent = if to > from { (high.min(to) - low.max(from)).max(0.0) / (to - from) } else { 1.0 };
        let share = if inside * 8 >= numbers.len() { inside as f64 / numbers.len() as f64 } else { extent.min(0.12) };
        (0..CLASSES - 1).find(|class| share >= 0.25_f64.powi(i32::from(*class) + 1)).unwrap_or(CLASSES - 1)
    }

    /// The interval in which most numbers are expected.
    pub(super) fn view(&self, field: usize) -> (f64, f64) {
        let numbers = self.numbers(field);
        numbers
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &number| (low.min(number), high.max(number)))
    }
}
