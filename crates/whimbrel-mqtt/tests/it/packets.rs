//! Packets of clients, byte by byte.

/// A string as packets hold it: behind its length in bytes, which is at most 65,535.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A packet with that first byte, whose body is shorter than 128 bytes.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128, "one byte of length is enough");
    [&[first, body.len() as u8], body].concat()
}
