//! A greater incarnation of this broker than its own, at other brokers.

/// The greatest incarnation of this broker that others have heard of, if it is to be outbid: caused
/// by a clock that ran ahead, or by another process with the same data.
#[derive(Debug, Default)]
pub(crate) struct GreaterIncarnation(Option<u64>);

impl GreaterIncarnation {
    /// Records an incarnation that is to be outbid; whether there was none before.
    pub(crate) fn record(&mut self, incarnation: u64) -> bool {
        let is_first = self.0.is_none();
        self.0 = self.0.max(Some(incarnation));
        is_first
    }

    /// Takes the incarnation that is to be outbid, if it is at most `upto`.
    pub(crate) fn take_upto(&mut self, upto: u64) -> Option<u64> {
        self.0.take_if(|incarnation| *incarnation <= upto)
    }

    /// The incarnation that is to be outbid.
    pub(crate) fn get(&self) -> Option<u64> {
        self.0
    }
}
