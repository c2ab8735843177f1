//! `versus cluster`: work of several processes, one file per group of rows.
//!
//! Each group runs by itself (`versus cluster/servers`) in two or three minutes and replaces only its own section.

pub mod all_reduce;
pub mod mpi;
pub mod servers;
pub mod transfer;
