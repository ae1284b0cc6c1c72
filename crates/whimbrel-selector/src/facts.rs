//! The values of one event, each read at most once and only on demand.

use core::cell::OnceCell;

use smallvec::SmallVec;

use whimbrel_event::Seeded;

use crate::fence::Fences;
use crate::json::{JsonFacts, JsonFields};
use crate::number::double;
use crate::selector::Field;
use crate::store::{Slab, Table};
use crate::subject::{Datum, Subject};

/// The number of a field that some selector uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FieldId(pub(crate) u32);

/// The attribute `lat`.
pub(crate) const LAT: FieldId = FieldId(0);
/// The attribute `lon`.
pub(crate) const LON: FieldId = FieldId(1);
/// The importance.
pub(crate) const PRIORITY: FieldId = FieldId(HEADER);
/// The time of acceptance.
pub(crate) const TIMESTAMP: FieldId = FieldId(HEADER + 1);
/// The event's id.
pub(crate) const MESSAGE_ID: FieldId = FieldId(HEADER + 2);
/// Headers that are always NULL.
pub(crate) const NOTHING: FieldId = FieldId(HEADER + 3);
/// The Correlation Data.
pub(crate) const CORRELATION_ID: FieldId = FieldId(HEADER + 4);
/// The Content Type.
pub(crate) const CONTENT_TYPE: FieldId = FieldId(HEADER + 5);

/// Flag of values in the payload.
const JSON: u32 = 1 << 30;
/// Flag of headers.
const HEADER: u32 = 1 << 31;

impl FieldId {
    /// Whether the field is an attribute, not a header or a value in the payload.
    pub(crate) fn is_attribute(self) -> bool {
        self.0 < JSON
    }

    pub(crate) fn is_json(self) -> bool {
        self.0 & (JSON | HEADER) == JSON
    }

    /// The field's number among values in the payload.
    pub(crate) fn json_index(self) -> u32 {
        self.0 & !JSON
    }
}

/// The number of headers.
pub(crate) const HEADERS: usize = 6;

/// The header's number among headers.
pub(crate) fn header_index(field: FieldId) -> usize {
    (field.0 - HEADER) as usize
}

#[derive(Debug)]
struct Attribute {
    name: Box<str>,
    uses: u32,
}

/// The fields and fences that selectors use, by number.
#[derive(Debug)]
pub(crate) struct Fields {
    attributes: Slab<Attribute>,
    by_name: Table,
    json: JsonFields,
    fences: Slab<Attribute>,
    by_fence: Table,
    hasher: Seeded,
}

impl Fields {
    pub(crate) fn new(seed: u64) -> Self {
        let mut fields = Fields {
            attributes: Slab::new(),
            by_name: Table::new(),
            json: JsonFields::new(seed),
            fences: Slab::new(),
            by_fence: Table::new(),
            hasher: Seeded::new(seed),
        };
        // The position is read whichever selectors there are.
        assert!(fields.attribute("lat") == LAT && fields.attribute("lon") == LON, "the first two places");
        fields
    }

    /// The number of a field, with one more use.
    pub(crate) fn retain(&mut self, field: &Field) -> FieldId {
        match field {
            Field::Attribute(name) => self.attribute(name),
            Field::Priority => PRIORITY,
            Field::Timestamp => TIMESTAMP,
            Field::MessageId => MESSAGE_ID,
            Field::CorrelationId => CORRELATION_ID,
            Field::ContentType => CONTENT_TYPE,
            Field::Header(_) => NOTHING,
            Field::Json(path) => FieldId(JSON | self.json.retain(&path.0)),
        }
    }

    /// The number of a field in use.
    pub(crate) fn find_field(&self, field: &Field) -> Option<FieldId> {
        match field {
            Field::Attribute(name) => self.find(&self.attributes, &self.by_name, name).map(FieldId),
            Field::Priority => Some(PRIORITY),
            Field::Timestamp => Some(TIMESTAMP),
            Field::MessageId => Some(MESSAGE_ID),
            Field::CorrelationId => Some(CORRELATION_ID),
            Field::ContentType => Some(CONTENT_TYPE),
            Field::Header(_) => Some(NOTHING),
            Field::Json(path) => self.json.find(&path.0).map(|id| FieldId(JSON | id)),
        }
    }

    /// The number of a fence in use.
    pub(crate) fn fence(&self, name: &str) -> Option<u32> {
        self.find(&self.fences, &self.by_fence, name)
    }

    /// Ends one use of a field.
    pub(crate) fn release(&mut self, field: FieldId) {
        if field.is_json() {
            self.json.release(field.json_index());
        } else if field.is_attribute() {
            release(&mut self.attributes, &mut self.by_name, &self.hasher, field.0);
        }
    }

    fn attribute(&mut self, name: &str) -> FieldId {
        FieldId(retain(&mut self.attributes, &mut self.by_name, &self.hasher, name))
    }

    /// The number of a fence, with one more use.
    pub(crate) fn retain_fence(&mut self, name: &str) -> u32 {
        retain(&mut self.fences, &mut self.by_fence, &self.hasher, name)
    }

    /// Ends one use of a fence.
    pub(crate) fn release_fence(&mut self, fence: u32) {
        release(&mut self.fences, &mut self.by_fence, &self.hasher, fence);
    }

    fn find(&self, items: &Slab<Attribute>, table: &Table, name: &str) -> Option<u32> {
        table.find(self.hasher.hash_one(name), |&id| &*items[id].name == name)
    }
}

fn retain(items: &mut Slab<Attribute>, table: &mut Table, hasher: &Seeded, name: &str) -> u32 {
    let hash = hasher.hash_one(name);
    if let Some(id) = table.find(hash, |&id| &*items[id].name == name) {
        items[id].uses += 1;
        return id;
    }
    let id = items.insert(Attribute { name: name.into(), uses: 1 });
    table.insert(hash, id, |&id| hasher.hash_one(&*items[id].name));
    id
}

fn release(items: &mut Slab<Attribute>, table: &mut Table, hasher: &Seeded, id: u32) {
    items[id].uses -= 1;
    if items[id].uses == 0 {
        let hash = hasher.hash_one(&*items[id].name);
        table.remove(hash, id, |&id| hasher.hash_one(&*items[id].name));
        items.remove(id);
    }
}

/// Memory of [`Facts`] that is reused for the next event.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each attribute in use: the last event with it, and the index of its value there.
    slots: Vec<(u32, u32)>,
    event: u32,
    present: Vec<(FieldId, Datum<'static>)>,
}

impl Scratch {
    /// Reads an event's attributes, and returns the result of `ask`.
    pub(crate) fn ask<T>(
        &mut self,
        fields: &Fields,
        fences: &Fences,
        subject: &dyn Subject,
        ask: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        let facts = Facts::new(fields, fences, subject, self);
        let answer = ask(&facts);
        let mut present = facts.present;
        present.clear();
        // Collecting in place keeps the memory and ends the lifetime of the values.
        self.present = present.into_iter().map(|(field, _)| (field, Datum::Null)).collect();
        answer
    }
}

/// The values of one event.
pub(crate) struct Facts<'a> {
    fields: &'a Fields,
    fences: &'a Fences,
    subject: &'a dyn Subject,
    slots: &'a [(u32, u32)],
    event: u32,
    /// Attributes that some selector uses, in publishing order.
    present: Vec<(FieldId, Datum<'a>)>,
    json: OnceCell<JsonFacts<'a>>,
    message_id: OnceCell<Option<String>>,
    inside: OnceCell<Option<SmallVec<[u32; 8]>>>,
}

impl<'a> Facts<'a> {
    /// Looks up the attributes of `subject`.
    fn new(fields: &'a Fields, fences: &'a Fences, subject: &'a dyn Subject, scratch: &'a mut Scratch) -> Facts<'a> {
        let Scratch { slots, event, present } = scratch;
        if *event == u32::MAX {
            slots.clear();
            *event = 0;
        }
        *event += 1;
        let mut present: Vec<(FieldId, Datum<'a>)> = core::mem::take(present);
        let event = *event;
        subject.attributes(&mut |name, value| {
            let Some(id) = fields.find(&fields.attributes, &fields.by_name, name) else { return };
            let place = id as usize;
            if slots.len() <= place {
                slots.resize(place + 1, (0, 0));
            }
            if slots[place].0 != event {
                slots[place] = (event, present.len() as u32);
                present.push((FieldId(id), value.read()));
            }
        });
        Facts {
            fields,
            fences,
            subject,
            slots,
            event,
            present,
            json: OnceCell::new(),
            message_id: OnceCell::new(),
            inside: OnceCell::new(),
        }
    }

    /// Attributes that some selector uses, in publishing order, each once.
    pub(crate) fn present(&self) -> &[(FieldId, Datum<'a>)] {
        &self.present
    }

    /// The index of an attribute in [`Facts::present`].
    #[inline]
    pub(crate) fn place(&self, field: FieldId) -> Option<usize> {
        match self.slots.get(field.0 as usize) {
            Some((event, place)) if *event == self.event => Some(*place as usize),
            _ => None,
        }
    }

    /// Values in the payload that some selector uses, by field.
    pub(crate) fn json_present(&self) -> impl Iterator<Item = (FieldId, Datum<'_>)> {
        self.json().iter().map(|(id, value)| (FieldId(JSON | id), value))
    }

    fn json(&self) -> &JsonFacts<'a> {
        self.json.get_or_init(|| JsonFacts::of(self.subject.payload(), &self.fields.json))
    }

    /// The value of a field.
    #[inline]
    pub(crate) fn value(&self, field: FieldId) -> Datum<'_> {
        if field.is_attribute() {
            self.place(field).map_or(Datum::Null, |place| self.present[place].1)
        } else {
            self.rare(field)
        }
    }

    fn rare(&self, field: FieldId) -> Datum<'_> {
        if field.is_json() {
            return self.json().get(field.json_index());
        }
        match field {
            PRIORITY => self.subject.importance().map_or(Datum::Null, |value| Datum::Integer(value.into())),
            TIMESTAMP => self.subject.accepted_ms().map_or(Datum::Null, Datum::Integer),
            MESSAGE_ID => {
                let id = self.message_id.get_or_init(|| self.subject.message_id());
                id.as_deref().map_or(Datum::Null, Datum::Text)
            }
            CORRELATION_ID => self.subject.correlation_id().map_or(Datum::Null, Datum::Text),
            CONTENT_TYPE => self.subject.content_type().map_or(Datum::Null, Datum::Text),
            _ => Datum::Null,
        }
    }

    /// The numbers of the fences in use that contain the event's position, sorted; `None` if it has
    /// no position.
    pub(crate) fn inside(&self) -> Option<&[u32]> {
        let find = || {
            let (lat, lon) = self.position()?;
            let mut inside = SmallVec::new();
            self.fences.for_each_containing(lat, lon, &mut |name| {
                inside.extend(self.fields.fence(name));
            });
            inside.sort_unstable();
            Some(inside)
        };
        self.inside.get_or_init(find).as_deref()
    }

    /// Whether the position is in the fence; unknown without a position or without the fence.
    pub(crate) fn is_inside(&self, fence: u32) -> Option<bool> {
        let inside = self.inside()?;
        if inside.binary_search(&fence).is_ok() {
            return Some(true);
        }
        self.fences.contains_name(&self.fields.fences[fence].name).then_some(false)
    }

    /// The position in degrees, WGS 84: from the attributes if one of them is present, otherwise
    /// from the payload.
    fn position(&self) -> Option<(f64, f64)> {
        let (mut lat, mut lon) = (self.value(LAT), self.value(LON));
        if lat == Datum::Null && lon == Datum::Null {
            let (json_lat, json_lon) = self.fields.json.position();
            (lat, lon) = (self.json().get(json_lat), self.json().get(json_lon));
        }
        let degrees = |value: Datum<'_>, max: f64| value.number().map(double).filter(|value| value.abs() <= max);
        Some((degrees(lat, 90.0)?, degrees(lon, 180.0)?))
    }
}
