//! Data sources, order, loader, prepare and the reading speed test.
