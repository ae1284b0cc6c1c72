//! Built-in faults, with which tests check that they would notice one. For tests only.

#![cfg(feature = "mutants")]

use super::MqttBroker;

impl MqttBroker {
    /// Builds a fault into the core.
    pub fn build_in(&mut self, mutant: whimbrel_core::Mutant) {
        self.core.build_in(mutant);
    }
}
