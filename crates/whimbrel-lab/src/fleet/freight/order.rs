//! The format of orders.

use serde::{Deserialize, Serialize};

use super::CLERKS;
use crate::fleet::message;

/// The filter of all orders.
pub const ALL: &str = "freight/#";
/// The filter of express orders.
pub const EXPRESS: &str = "freight/express/#";

/// The places between which freight goes.
const PLACES: [&str; 8] = ["Praga", "Wola", "Ursus", "Bemowo", "Mokotów", "Ochota", "Targówek", "Wawer"];
/// The largest order, pallets.
const PALLETS: u32 = 33;

/// The body of an order, as JSON.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The clerk's number for it: 1, 2, 3, ...
    pub order: u64,
    /// The place where it is fetched.
    pub from: String,
    /// The place where it goes.
    pub to: String,
    /// The number of pallets.
    pub pallets: u32,
}

/// Whether a clerk's orders are express ones, which use QoS 2.
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

/// The topic of a clerk's orders.
pub fn topic(clerk: usize) -> String {
    let kind = if is_express(clerk) { "express" } else { "standard" };
    format!("freight/{kind}/{}", name(clerk))
}

/// A made-up order of a number: its body, and the number of pallets.
pub fn make(number: u64, random: &mut fastrand::Rng) -> (Vec<u8>, u32) {
    let from = random.usize(..PLACES.len());
    let to = (from + random.usize(1..PLACES.len())) % PLACES.len();
    let pallets = random.u32(1..=PALLETS);
    let order = Order { order: number, from: PLACES[from].to_owned(), to: PLACES[to].to_owned(), pallets };
    (serde_json::to_vec(&order).expect("numbers and text can always be written as JSON"), pallets)
}

/// A hash of everything that must arrive unaltered.
pub fn digest(topic: &str, body: &[u8]) -> u64 {
    message::digest(topic, body, std::iter::empty())
}

/// The clerk and number of an order that arrived; `None` if it is not an order.
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
