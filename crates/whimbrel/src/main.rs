//! The `whimbrel` command.
fn main() {}
