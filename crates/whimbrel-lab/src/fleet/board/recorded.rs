//! A board whose run is recorded.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_client::Options;

use super::Board;
use crate::fleet::record::Recorder;
use crate::fleet::regions::Layout;

impl Board {
    /// The board with a recording of the run, and the recording's clock.
    pub fn recorded(self, recorder: Option<Arc<Recorder>>) -> Board {
        let start = recorder.as_ref().map_or(self.start, |recorder| recorder.start());
        Board { start, recorder, ..self }
    }

    /// The board of a run in these regions, with their brokers' addresses, and with alarms if they
    /// have a `deadline`.
    pub fn of_regions(self, layout: &Layout, addresses: &[String], deadline: Option<Duration>) -> Board {
        self.regions.open(layout, addresses);
        if let Some(deadline) = deadline {
            self.alarms.open(deadline, layout.count());
        }
        self
    }

    /// The options of a client's connection, which is recorded if the run is.
    pub(in crate::fleet) fn options(&self, address: &str, client: &str) -> Options {
        let options = Options::new(address).client_id(client);
        match &self.recorder {
            Some(recorder) => recorder.tap(client, options),
            None => options,
        }
    }

    /// Records an act of the run, if there is a recording.
    pub(in crate::fleet) fn note(&self, deed: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.says("run", deed);
        }
    }
}
