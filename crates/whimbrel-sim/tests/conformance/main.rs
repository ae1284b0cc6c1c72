//! Does the broker do what MQTT 5.0 and 3.1.1 demand? Bytes in, bytes out, in virtual time.
//!
//! `// covers: MQTT-x.y.z-n` above a test names the conformance statements that it covers;
//! [`table`] makes `docs/mqtt-conformance.md` of them and of `statements.tsv`, and fails when a
//! statement for servers has no test.

mod mqtt311;
mod mqtt5;
mod selectors;
mod semi_durable;
mod table;
mod wire;
mod world;
