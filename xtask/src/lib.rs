//! The project's own checks and tools.
//!
//! [`tidy`] reads the workspace and reports every breach of the house rules: layers, purity of the
//! core, budgets, licences, known advisories. It needs no network beyond the packages that the
//! build needs. [`tokens`] compares the code of the working tree with that of a revision, without
//! its comments. [`traces`] shows that a change keeps every byte that brokers send in simulated
//! worlds.

mod git;
pub mod tidy;
pub mod tokens;
pub mod traces;
