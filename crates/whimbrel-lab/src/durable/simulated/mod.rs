//! The virtual driver: the brokers' cores, linked by their overlay, with logs in memory, in virtual
//! time.
//!
//! Behaviour is simulated with processors that cost nothing and the paper's times. The rates of
//! brokers on processors of their own are modelled with the cost of each operation on this machine,
//! as measured in the same run.

mod behaviour;
mod modelled;
mod people;
mod world;

pub use behaviour::{ABSENCES, CHAIN, CRASH};
pub use modelled::PLAN as MODELLED;
