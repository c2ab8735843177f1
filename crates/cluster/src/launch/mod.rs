//! Starting the tasks of a run: as children of this process, or on what a site already has.

pub mod local;
pub mod spark;
