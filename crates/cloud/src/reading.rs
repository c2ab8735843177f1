//! What a job reads, and what bounds that: megabytes or operations of a disk, or the network.
//!
//! A disk has two limits, and which one is met depends on how the data lie. Shards are read in large blocks, so that throughput
//! bounds them; single photos cost an operation or two each, and a small standard disk runs out of operations first.

use crate::catalogue::{Disk, DiskRate, MachineType};
use crate::job::Job;
use serde::Serialize;

/// Share of a machine's memory in which data stay after the first pass.
const CACHED: f64 = 0.6;
/// Bytes that providers count as one operation where reading is sequential.
const BLOCK: f64 = 256.0 * 1024.0;

/// Which limit reading meets first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadBound {
    /// Megabytes per second of the disk.
    Throughput,
    /// Operations per second of the disk.
    Operations,
    /// The machine's network, to a bucket.
    Network,
}

impl ReadBound {
    /// As a column of a table says it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Operations => "IOPS",
            Self::Network => "network",
        }
    }
}

/// All that one node reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodeReading {
    pub mb: f64,
    pub operations: f64,
}

impl NodeReading {
    /// Again at every pass where a node's part does not stay in memory.
    pub(crate) fn of(job: &Job, machine: &MachineType, nodes: u32) -> Self {
        let nodes = f64::from(nodes);
        let part = job.data.gb / nodes;
        let free = (machine.memory_gib * CACHED - job.measured.memory_gib).max(0.0);
        let passes = if part <= free { 1.0 } else { job.data.passes };
        let operations = match job.data.files {
            // One to find the file, then its blocks.
            Some(files) => files / nodes * (1.0 + (job.data.gb * 1e9 / files / BLOCK).ceil()),
            None => part * 1e9 / BLOCK,
        };
        Self { mb: part * 1000.0 * passes, operations: operations * passes }
    }

    /// What a disk must give so that reading takes no longer than so many seconds.
    pub(crate) fn within(&self, seconds: f64) -> DiskRate {
        DiskRate { mb_per_s: self.mb / seconds, iops: self.operations / seconds }
    }

    /// Seconds on a disk, and which of its limits they come from.
    pub(crate) fn on_disk(&self, disk: &Disk) -> (f64, ReadBound) {
        let (megabytes, operations) = (self.mb / disk.mb_per_s, self.operations / disk.iops);
        if operations > megabytes {
            (operations, ReadBound::Operations)
        } else {
            (megabytes, ReadBound::Throughput)
        }
    }

    /// Seconds over a network of so many MB/s.
    pub(crate) fn over_network(&self, mb_per_s: f64) -> (f64, ReadBound) {
        (self.mb / mb_per_s, ReadBound::Network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{CloudCatalogue, Provider};

    fn job(more: &str) -> Job {
        let text = format!(
            "name = 'flowers'\n[data]\ngb = 22\nexamples = 367000\n{more}[measured]\nexamples_per_second = 400\ncores = 2\n"
        );
        Job::parse("job.toml", &text).unwrap()
    }

    #[test]
    fn shards_meet_the_throughput_of_a_standard_disk_and_photos_its_operations() {
        let gcp = CloudCatalogue::shipped(Provider::Gcp).unwrap();
        let disk = gcp.disks[0].of_size(238.0);
        let machine = gcp.machine("n1-standard-2").unwrap();
        let shards = NodeReading::of(&job(""), machine, 3);
        let (seconds, bound) = shards.on_disk(&disk);
        assert_eq!(bound, ReadBound::Throughput);
        assert!((seconds - 22_000.0 / 3.0 / 28.56).abs() < 1e-6, "{seconds}");
        // 60 kB each: an operation to find one and another to read it, of 178.5 in a second.
        let photos = NodeReading::of(&job("files = 367000\n"), machine, 3);
        let (seconds, bound) = photos.on_disk(&disk);
        assert_eq!(bound, ReadBound::Operations);
        assert!((seconds - 2.0 * 367_000.0 / 3.0 / 178.5).abs() < 1e-6, "{seconds}");
        assert_eq!(photos.over_network(800.0).1, ReadBound::Network);
    }
}
