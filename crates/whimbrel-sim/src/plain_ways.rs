//! Worlds whose brokers take the general way for every message, to be compared with others.

use std::cell::Cell;

use whimbrel_mqtt::MqttBroker;

thread_local! {
    /// A world is played by one thread.
    static ARE_USED: Cell<bool> = const { Cell::new(true) };
}

/// Plays a world of which no broker has shorter ways for messages that need nothing special.
pub fn without<R>(play: impl FnOnce() -> R) -> R {
    let before = ARE_USED.replace(false);
    let outcome = play();
    ARE_USED.set(before);
    outcome
}

/// Sets up a broker of a world.
pub(crate) fn set_up(mut broker: MqttBroker) -> MqttBroker {
    broker.set_plain_ways(ARE_USED.get());
    broker
}
