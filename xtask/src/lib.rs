//! The project's own checks and chores.
//!
//! [`tidy`] reads the workspace and reports every breach of the house rules: layers, purity of the
//! core, budgets, licences, known advisories. It needs no network beyond the packages the build
//! needs anyway. [`tokens`] compares the code of the working tree with that of a revision, without
//! its comments. [`traces`] shows that a change leaves every byte alone that brokers send in
//! simulated worlds.

pub mod tidy;
pub mod tokens;
pub mod traces;
