//! Brokers in the local network: announced and found by DNS-SD over multicast DNS (RFC 6762 and
//! 6763).
//!
//! A broker announces what it offers: MQTT as `_mqtt._tcp.local`, links to other brokers as
//! `_whimbrel._udp.local`. The TXT record tells its name, its deployment and its version. Both
//! sides of the record are here, so that server and client read what the other one writes.
//!
//! Records are not authenticated: each host of the network can send any. What is read is therefore
//! bounded and checked ([`Unfit`]), and only addresses of loopback and of private networks are
//! taken.

mod daemon;
mod networks;
mod record;
mod search;

pub use daemon::{Browser, Discovery, RECORDS_MAX, SearchEnded, Sighting};
pub use networks::{NETWORKS_MAX, Unavailable, Within};
pub use record::{Announcement, FoundBroker, Offer, TEXT_MAX, Unfit};
pub use search::{FOUND_MAX, search};
