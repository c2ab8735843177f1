//! The probes, one file each.

mod cgroup;
mod cpu;
mod disk;
mod memory;
mod network;
mod pressure;
pub(crate) mod process;

use crate::probe::Entry;

/// Every probe, in column order.
pub const ALL: &[&Entry] = &[
    &cpu::ENTRY,
    &memory::ENTRY,
    &disk::ENTRY,
    &network::ENTRY,
    &pressure::ENTRY,
    &cgroup::ENTRY,
    &process::ENTRY,
];
