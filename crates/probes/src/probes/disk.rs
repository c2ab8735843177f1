//! Bytes, operations and busy time of whole disks.

use crate::counter::{growth, word};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "disk",
    columns: &[
        Column { name: "disk_read_bytes_per_second", about: "read from all disks" },
        Column { name: "disk_written_bytes_per_second", about: "written to all disks" },
        Column { name: "disk_reads_per_second", about: "read operations" },
        Column { name: "disk_writes_per_second", about: "write operations" },
        Column { name: "disk_busiest_percent", about: "time the busiest disk had work" },
    ],
    open: |roots, _| {
        Box::new(Disk {
            file: KernelFile::new(roots.proc.join("diskstats")),
            blocks: roots.sys.join("block"),
            ..Disk::default()
        })
    },
};

/// The kernel counts sectors of this size whatever the disk's own is.
const SECTOR_BYTES: f64 = 512.0;

/// Reads, sectors read, writes, sectors written, milliseconds busy.
type Counts = [u64; 5];

#[derive(Default)]
struct Disk {
    file: KernelFile,
    blocks: PathBuf,
    text: String,
    old: BTreeMap<String, Counts>,
}

impl Disk {
    /// Partitions and stacked devices would count the same bytes twice.
    fn is_whole_disk(&self, name: &str) -> bool {
        let stacked = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"];
        self.old.contains_key(name)
            || !stacked.iter().any(|prefix| name.starts_with(prefix))
                && self.blocks.join(name).exists()
    }
}

impl Probe for Disk {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], detail: &mut Detail) {
        if !self.file.read(&mut self.text) {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let mut new = BTreeMap::new();
        for line in self.text.lines() {
            let Some(name) = line.split_ascii_whitespace().nth(2) else { continue };
            let at = |index| word(line, index);
            if let (true, Some(counts)) =
                (self.is_whole_disk(name), (|| Some([at(3)?, at(5)?, at(7)?, at(9)?, at(12)?]))())
            {
                new.insert(name.to_owned(), counts);
            }
        }
        let had_interval = !self.old.is_empty() && seconds > 0.0;
        let mut sums = [0.0; 5];
        for (name, counts) in &new {
            let Some(old) = self.old.get(name) else { continue };
            let mut rates = [0.0; 5];
            for index in 0..5 {
                // A counter that started over says nothing about this interval; count it as still.
                rates[index] = growth(old[index], counts[index]).unwrap_or(0) as f64 / seconds;
            }
            let [reads, read, writes, written, busy_ms] = rates;
            let device = [
                read * SECTOR_BYTES,
                written * SECTOR_BYTES,
                reads,
                writes,
                (busy_ms / 10.0).min(100.0),
            ];
            for (index, value) in device.iter().enumerate() {
                sums[index] = if index == 4 { value.max(sums[4]) } else { sums[index] + value };
            }
            let columns = ENTRY.columns.iter().map(|column| column.name);
            detail.insert(name.clone(), columns.zip(device).collect());
        }
        if had_interval {
            for (slot, sum) in values.iter_mut().zip(sums) {
                *slot = Some(sum);
            }
        }
        self.old = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};
    use std::fs;

    #[test]
    fn partitions_count_once_and_replugged_disks_do_not_jump() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        fs::create_dir_all(sys.join("block/sda")).unwrap();
        fs::create_dir_all(sys.join("block/sdb")).unwrap();
        fs::create_dir_all(&proc).unwrap();
        let file = proc.join("diskstats");
        let line = |name: &str, reads: u64, busy: u64| {
            format!("8 0 {name} {reads} 0 {} 0 5 0 80 0 0 {busy} 0\n", reads * 8)
        };
        fs::write(&file, line("sda", 100, 0) + &line("sda1", 100, 0) + &line("sdb", 5_000, 0))
            .unwrap();
        let mut probe = (ENTRY.open)(&Roots { proc, sys }, Target::process(1));
        let mut values = [None; 5];
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[0], None);
        fs::write(&file, line("sda", 110, 500) + &line("sda1", 110, 500) + &line("sdb", 3, 0))
            .unwrap();
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[0], Some(10.0 * 8.0 * 512.0));
        assert_eq!(values[2], Some(10.0));
        assert_eq!(values[4], Some(50.0));
    }
}
