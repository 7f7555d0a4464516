//! Not yet built.
fn main() {}
