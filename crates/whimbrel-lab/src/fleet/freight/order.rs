//! What an order looks like.

use serde::{Deserialize, Serialize};

use super::CLERKS;
use crate::fleet::message;

/// Every order.
pub const ALL: &str = "freight/#";
/// Express orders.
pub const EXPRESS: &str = "freight/express/#";

/// Where freight goes.
const PLACES: [&str; 8] = ["Praga", "Wola", "Ursus", "Bemowo", "Mokotów", "Ochota", "Targówek", "Wawer"];
/// The largest order.
const PALLETS: u32 = 33;

/// The body, as JSON.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The clerk's number for it: 1, 2, 3, ...
    pub order: u64,
    /// Where it is fetched.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// How much.
    pub pallets: u32,
}

/// Whether the orders of a clerk are express ones, which go with QoS 2.
pub fn is_express(clerk: usize) -> bool {
    clerk >= CLERKS / 2
}

/// The clerks whose orders match a filter of a dispatcher.
pub fn clerks(filter: &str) -> Vec<bool> {
    (0..CLERKS).map(|clerk| filter == ALL || is_express(clerk)).collect()
}

/// A clerk's name.
pub fn name(clerk: usize) -> String {
    format!("clerk-{}", clerk + 1)
}

/// Where a clerk publishes.
pub fn topic(clerk: usize) -> String {
    let kind = if is_express(clerk) { "express" } else { "standard" };
    format!("freight/{kind}/{}", name(clerk))
}

/// A made-up order of that number: its body, and how many pallets.
pub fn make(number: u64, random: &mut fastrand::Rng) -> (Vec<u8>, u32) {
    let from = random.usize(..PLACES.len());
    let to = (from + random.usize(1..PLACES.len())) % PLACES.len();
    let pallets = random.u32(1..=PALLETS);
    let order = Order { order: number, from: PLACES[from].to_owned(), to: PLACES[to].to_owned(), pallets };
    (serde_json::to_vec(&order).expect("numbers and text can always be written as JSON"), pallets)
}

/// Hash of what has to arrive unaltered.
pub fn digest(topic: &str, body: &[u8]) -> u64 {
    message::digest(topic, body, std::iter::empty())
}

/// Clerk and number of an order that arrived; `None` if it is none.
pub fn read(topic: &str, body: &[u8]) -> Option<(usize, u64)> {
    let clerk = (0..CLERKS).find(|&clerk| self::topic(clerk) == topic)?;
    let order: Order = serde_json::from_slice(body).ok()?;
    Some((clerk, order.order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_made() {
        let mut random = fastrand::Rng::with_seed(1);
        for clerk in 0..CLERKS {
            let (body, _) = make(7, &mut random);
            assert_eq!(read(&topic(clerk), &body), Some((clerk, 7)));
            assert_eq!(clerks(EXPRESS)[clerk], topic(clerk).starts_with("freight/express/"));
        }
        assert_eq!(read("freight/express/clerk-1", b"{}"), None);
        assert_eq!(read(&topic(0), b"{}"), None);
    }
}
