//! Temporary.
use core::ops::ControlFlow;
use core::time::Duration;
use std::sync::Arc;
use whimbrel_event::{Event, PubendId, Tick, Time};
use whimbrel_selector::{Selector, TopicFilter};
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub partitions: Vec<PartitionPlan>,
}
#[derive(Debug, Clone)]
pub struct PartitionPlan {
    pub filter: Box<str>,
    pub selector: Option<Selector>,
}
#[derive(Debug, Clone, Copy)]
pub struct PartitionSet;
pub enum Item<'a> {
    Event { serial: u64, event: &'a Arc<Event> },
    Hole { pubend: PubendId, from: Tick, to: Tick },
}
pub struct Next {
    pub serial: u64,
    pub exhausted: bool,
    pub looked_at: usize,
}
#[derive(Debug)]
pub struct Cache {
    all: Vec<(u64, Arc<Event>)>,
}
impl Cache {
    pub fn new(_: Plan, _: u64) -> Self {
        Cache { all: Vec::new() }
    }
    pub fn plan(&self) -> u64 {
        0
    }
    pub fn all_partitions(&self) -> PartitionSet {
        PartitionSet
    }
    pub fn candidates(&self, _: TopicFilter<'_>, _: Option<&Selector>) -> PartitionSet {
        PartitionSet
    }
    pub fn write(&mut self, serial: u64, _: usize, event: Arc<Event>, _: Time) {
        self.all.push((serial, event));
    }
    pub fn incomplete(&self, _: &PartitionSet, _: PubendId) -> Tick {
        Tick(0)
    }
    pub fn serial_for(&self, _: PubendId, _: Tick) -> u64 {
        1
    }
    pub fn events(&self) -> u64 {
        self.all.len() as u64
    }
    pub fn bytes(&self) -> u64 {
        0
    }
    pub fn observe_outage(&mut self, _: Duration) {}
    pub fn read(
        &self,
        from: u64,
        _: &PartitionSet,
        budget: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Next {
        let mut looked_at = 0;
        for (serial, event) in self.all.iter().filter(|e| e.0 >= from) {
            if looked_at == budget {
                return Next { serial: *serial, exhausted: false, looked_at };
            }
            looked_at += 1;
            if visit(Item::Event { serial: *serial, event }).is_break() {
                return Next { serial: *serial, exhausted: false, looked_at };
            }
        }
        Next { serial: u64::MAX, exhausted: true, looked_at }
    }
}
