//! Virtual time, links and clients, and independent checkers.
