//! Several real brokers, joined by links that are slow, lose, are cut and healed; brokers that are
//! killed; strangers at the port of the links. What is owed to whom is judged from what the clients
//! saw alone.

mod book;
mod broker;
mod cuts;
mod dark;
mod discovery_net;
mod hostile;
mod judge;
mod judge_test;
mod kills;
mod net;
mod publisher;
mod roam;
mod subscriber;
mod world;
