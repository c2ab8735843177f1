//! Starting the tasks of a run.

pub mod local;
