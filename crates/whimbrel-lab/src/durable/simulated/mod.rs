//! The virtual driver: the brokers' cores, linked by their overlay, with logs in memory, in virtual
//! time.
//!
//! Behaviour is seen with processors that cost nothing and the paper's own times; what brokers on
//! processors of their own would deliver is modelled with what each operation costs on this
//! machine, as measured in the same run.

mod behaviour;
mod modelled;
mod people;
mod world;

pub use behaviour::{ABSENCES, CHAIN, CRASH};
pub use modelled::PLAN as MODELLED;
