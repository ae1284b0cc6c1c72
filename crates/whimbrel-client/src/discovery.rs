//! Brokers in the local network, found by multicast DNS (`_mqtt._tcp.local`).
//!
//! Only brokers that run with `--dev` and `--discover` announce themselves, and nothing
//! authenticates what is found: this is for development, and for networks in which every host is
//! trusted.
//!
//! ```no_run
//! use std::time::Duration;
//! use whimbrel_client::{Client, Options, discovery};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let found = discovery::search(Duration::from_secs(2)).await?;
//! let broker = found.iter().find(|broker| broker.deployment == "city").ok_or("none of the city")?;
//! let (client, events) = Client::connect(Options::new(broker.url())).await?;
//! # Ok(())
//! # }
//! ```

pub use whimbrel_discovery::{FOUND_MAX, FoundBroker, Unavailable, search};
