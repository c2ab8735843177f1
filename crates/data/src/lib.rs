//! Data sources, order, loader, prepare and the reading speed test.

pub mod manifest;
pub mod store;
