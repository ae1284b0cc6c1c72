//! Drivers, configuration, metrics and HTTP around the core.
