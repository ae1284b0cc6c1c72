//! A storm: publishers and durable subscribers around the real binary, which is killed again and
//! again, traced, filled up and damaged. What is owed to whom is judged from what the clients saw
//! alone.

mod book;
mod broker;
mod calm;
mod damage;
mod full;
mod judge;
mod judge_test;
mod kills;
mod publisher;
mod rig;
mod subscriber;
mod sync;
mod sync_test;
mod trace;
mod weather;
