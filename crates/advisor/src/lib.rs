//! Which configuration should the job run on.
