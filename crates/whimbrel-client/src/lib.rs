//! An asynchronous MQTT 5 and 3.1.1 client.
//!
//! ```no_run
//! use whimbrel_client::{Client, Event, Options, Publish, QoS};
//!
//! # async fn example() -> Result<(), whimbrel_client::Error> {
//! let (client, mut events) = Client::connect(Options::new("mqtt://127.0.0.1:1883").client_id("bus-7")).await?;
//! client.subscribe(&[("fleet/+/position", QoS::AtLeastOnce)]).await?;
//! client.publish(Publish::new("fleet/7/position", "52.2,21.0").qos(QoS::AtLeastOnce)).await?;
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::Message(message) => println!("{}: {} bytes", message.topic, message.payload.len()),
//!         Event::Disconnected { reason } => println!("over: {reason}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One [`Client`] is one connection. When it ends, [`Events`] gives the reason, and every call that
//! waits for an answer fails; whether and when to connect again is the application's decision. With
//! [`Client::session`] and [`Options::session`] the next connection sends unacknowledged publishes
//! again.
//!
//! [`Client::publish`] with QoS 1 or 2 waits for the acknowledgement; [`Client::send`] has several
//! messages on their way, in order. Packets that are ready while a write is under way are collected
//! and leave in one piece.
//!
//! Addresses are `mqtt://`, `mqtts://` (TLS), `ws://` and `wss://` (WebSocket, without and with
//! TLS). Over TLS the system's authorities are trusted unless [`Options::tls`] says otherwise.
//!
//! With the feature `discovery`, the module of that name finds brokers in the local network.
//!
//! # Coming back
//!
//! Whimbrel's brokers give each subscription a position that its client may keep. A [`Follower`] is
//! a semi-durable subscription that survives the loss of its connection, and with a
//! [`CheckpointStore`] also the end of its program: it resumes where it was, and what the broker no
//! longer has is told as a [`Gap`]. Applications that do this by other means find the parts here:
//! the [`Subscription`] with all its options, the tokens in an [`Answer`], [`Message::id`],
//! [`Message::notice`], and the [`Position`] that these add up to.

mod client;
#[cfg(feature = "discovery")]
pub mod discovery;
mod error;
mod follow;
mod link;
mod message;
mod notice;
mod options;
mod pause;
mod position;
mod protocol;
mod session;
mod store;
mod subscription;
mod tap;
mod task;
mod tls;
mod transport;
mod websocket;

pub use client::{Client, Events, Receipt};
pub use error::Error;
pub use follow::{Followed, Follower};
pub use link::{Link, Linked};
pub use message::{Answer, Event, Message, Publish, Published};
pub use notice::{Gap, GapReason, Notice};
pub use options::{Identity, Options, Tls, Will};
pub use pause::pause_after;
pub use position::{InvalidPosition, Position};
pub use session::Session;
pub use store::{CheckpointStore, Damage, FileStore, StoreError};
pub use subscription::{Durability, Start, Subscription};
pub use tap::Tap;
pub use tls::tls_config;
pub use whimbrel_event::{CheckpointToken, Deployment, EventId, HostId, PubendId, Reliability, Tick};
pub use whimbrel_mqtt::codec::{Filter, QoS, ReasonCode, RetainHandling, Version};
pub use whimbrel_mqtt::moment;
