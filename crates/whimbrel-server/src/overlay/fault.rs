//! Faults that are built into the driver of links on purpose, to see whether tests notice.
//!
//! There are faults only with the feature `mutants`, which tests switch on. Without it
//! [`LinkFaults`] has size zero and its methods are constant `false`.

/// Which faults are built in; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaults {
    /// QUIC is given all events that its send window takes, whatever the path carries.
    #[cfg(feature = "mutants")]
    pub bulk_fills_window: bool,
}

impl LinkFaults {
    /// Whether QUIC is given all events that its send window takes.
    pub(super) const fn bulk_fills_window(self) -> bool {
        #[cfg(feature = "mutants")]
        return self.bulk_fills_window;
        #[cfg(not(feature = "mutants"))]
        false
    }
}
