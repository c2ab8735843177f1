//! The probes, one file each.

mod cgroup;
mod cpu;
mod disk;
mod memory;
mod network;
mod pressure;
mod process;

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

/// Reads a small kernel file into a buffer that is used again and again.
fn reread(path: &std::path::Path, buffer: &mut String) -> bool {
    use std::io::Read;
    buffer.clear();
    std::fs::File::open(path).and_then(|mut file| file.read_to_string(buffer)).is_ok()
}
