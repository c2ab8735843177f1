//! Where data sets live: folders of this machine and object stores, behind one interface.
//!
//! The interface is a crate of its own, because run folders and checkpoints go through it too.

pub use paceline_store::*;
