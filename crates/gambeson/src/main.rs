//! The `gambeson` command line.

fn main() {}
