//! The binary `kai`.

fn main() {}
