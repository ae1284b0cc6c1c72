//! The packets that clients send.

pub const TOPIC: &str = "fleet/7/position";

/// A text behind its length.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A packet with this first byte and these parts as its body.
pub fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    assert!(body.len() < 128, "packets are small here");
    [&[first, body.len() as u8][..], &body].concat()
}
