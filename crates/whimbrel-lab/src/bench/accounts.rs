//! The state of a connection: received sequence numbers, and packet identifiers in use.

use anyhow::{Result, ensure};

/// The sequence numbers that one subscriber has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The sequence number expected next.
    pub next: u64,
    /// Messages received in sequence.
    pub received: u64,
    /// Messages skipped.
    pub lost: u64,
    /// Messages that were delivered again or out of order.
    pub repeated: u64,
}

impl Order {
    /// Records a received sequence number; returns whether it is new.
    #[inline]
    pub fn note(&mut self, sequence: u64) -> bool {
        if sequence < self.next {
            self.repeated += 1;
            return false;
        }
        self.lost += sequence - self.next;
        self.next = sequence + 1;
        self.received += 1;
        true
    }
}

/// MQTT packet identifiers that wait for their PUBACK.
pub struct PacketIds {
    waiting: Vec<bool>,
    next: u16,
}

impl Default for PacketIds {
    /// All identifiers are free.
    fn default() -> PacketIds {
        PacketIds { waiting: vec![false; 1 << 16], next: 1 }
    }
}

impl PacketIds {
    /// The next identifier, if its former use has been acknowledged.
    pub fn take(&mut self) -> Option<u16> {
        let id = self.next;
        if std::mem::replace(&mut self.waiting[usize::from(id)], true) {
            return None;
        }
        self.next = id.checked_add(1).unwrap_or(1);
        Some(id)
    }

    /// Frees an identifier.
    ///
    /// # Errors
    /// When it is not in use.
    pub fn free(&mut self, id: u16) -> Result<()> {
        let was = std::mem::replace(&mut self.waiting[usize::from(id)], false);
        ensure!(was, "the broker acknowledged packet identifier {id}, which is not in use");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_repeats_of_a_sequence() {
        let mut order = Order::default();
        let new = [0, 1, 4, 4, 2, 5].map(|sequence| order.note(sequence));
        assert_eq!(new, [true, true, true, false, false, true]);
        assert_eq!(order, Order { next: 6, received: 4, lost: 2, repeated: 2 });
    }

    #[test]
    fn packet_identifiers_are_never_zero_nor_in_use() {
        let mut ids = PacketIds::default();
        let all: Vec<u16> = (0..u16::MAX).map(|_| ids.take().expect("free")).collect();
        assert_eq!((all[0], all[all.len() - 1]), (1, u16::MAX));
        assert_eq!(ids.take(), None);
        ids.free(1).expect("in use");
        assert_eq!(ids.take(), Some(1));
        assert!(ids.free(1).is_ok() && ids.free(1).is_err());
    }
}
