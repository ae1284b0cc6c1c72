//! The broker as a deterministic state machine without IO.
