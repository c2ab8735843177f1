//! The probes, one file each.

mod cgroup;
mod cpu;
mod disk;
mod gpu;
mod memory;
mod network;
mod pressure;
pub(crate) mod process;

use crate::probe::ProbeEntry;
use paceline_registry::Registry;

/// Every probe, in column order.
pub static ALL: Registry<ProbeEntry> = Registry::new(&[
    &cpu::ENTRY,
    &memory::ENTRY,
    &disk::ENTRY,
    &network::ENTRY,
    &pressure::ENTRY,
    &cgroup::ENTRY,
    &process::ENTRY,
    &gpu::ENTRY,
]);
