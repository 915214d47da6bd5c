//! Load generator: filled in by its own change.
fn main() {}
