//! When all sessions have ended, the log holds nothing of them or for them.

use whimbrel_core::store::LogState;

use super::Ledger;
use crate::check::Rule;

/// The keys' first bytes that may be left in the map: the broker itself, retained messages, the
/// numbers of publishers, up to where streams were given up early, and since when there are filter
/// records.
const LASTING: [u8; 5] = [b'h', b'r', b'n', b'e', b'f'];

impl Ledger {
    /// Checks a log that was opened again after all sessions had ended. `entries`: its map;
    /// `state`: how far its streams were given up.
    pub(crate) fn ended(&mut self, entries: &[(Vec<u8>, Vec<u8>)], state: &LogState) {
        for (key, value) in entries.iter().filter(|(key, _)| key.first().is_none_or(|kind| !LASTING.contains(kind))) {
            let what = format!("\"{}\" is left in the map: {} bytes", key.escape_ascii(), value.len());
            self.broken(Rule::Gauges, what);
        }
        for (pubend, stream) in state.events.iter().enumerate().filter(|(_, stream)| stream.chopped < stream.last) {
            let (last, chopped) = (stream.last, stream.chopped);
            let what =
                format!("stream {pubend} is held from {chopped} on, to {last}, and nobody is left who could want it");
            self.broken(Rule::Gauges, what);
        }
    }
}
