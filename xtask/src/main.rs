//! Checks, tests and benchmarks of this workspace.
fn main() {}
