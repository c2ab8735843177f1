//! What an account may rent, and whether a shape stays within it.

use crate::catalogue::{Disk, DiskQuota, MachineType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What may still be rented; `None` where it is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default)]
    pub vcpus: Option<f64>,
    /// External addresses: one for each machine.
    #[serde(default)]
    pub addresses: Option<f64>,
    #[serde(default)]
    pub standard_disk_gb: Option<f64>,
    #[serde(default)]
    pub ssd_disk_gb: Option<f64>,
    /// By the provider's names, such as `K80`.
    #[serde(default)]
    pub gpus: BTreeMap<String, f64>,
}

/// What a shape takes of the quotas.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Demand {
    pub vcpus: f64,
    pub addresses: f64,
    pub standard_disk_gb: f64,
    pub ssd_disk_gb: f64,
    pub gpus: BTreeMap<String, f64>,
}

/// One quota that is too small.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shortage {
    pub what: String,
    pub asked: f64,
    pub limit: f64,
}

impl Demand {
    /// Of so many machines with a disk each.
    #[must_use]
    pub fn of(machine: &MachineType, machines: u32, disk: Option<&Disk>) -> Self {
        let count = f64::from(machines);
        let gb =
            |quota| disk.filter(|disk| disk.quota == quota).map_or(0.0, |disk| disk.gb * count);
        Self {
            vcpus: machine.vcpus * count,
            addresses: count,
            standard_disk_gb: gb(DiskQuota::Standard),
            ssd_disk_gb: gb(DiskQuota::Ssd),
            gpus: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Every quota that the demand exceeds.
    #[must_use]
    pub fn shortages(&self, demand: &Demand) -> Vec<Shortage> {
        let known = [
            ("vCPUs", demand.vcpus, self.vcpus),
            ("addresses", demand.addresses, self.addresses),
            ("GB of standard disk", demand.standard_disk_gb, self.standard_disk_gb),
            ("GB of SSD disk", demand.ssd_disk_gb, self.ssd_disk_gb),
        ];
        let named = known.into_iter().map(|(what, asked, limit)| (what.to_owned(), asked, limit));
        let gpus = demand
            .gpus
            .iter()
            .map(|(kind, asked)| (format!("{kind} GPUs"), *asked, self.gpus.get(kind).copied()));
        named
            .chain(gpus)
            .filter_map(|(what, asked, limit)| {
                let limit = limit?;
                (asked > limit).then_some(Shortage { what, asked, limit })
            })
            .collect()
    }

    /// Gigabytes of one kind that each of so many machines may have.
    #[must_use]
    pub fn disk_gb_each(&self, quota: DiskQuota, machines: u32) -> f64 {
        let all = match quota {
            DiskQuota::Standard => self.standard_disk_gb,
            DiskQuota::Ssd => self.ssd_disk_gb,
        };
        all.map_or(f64::INFINITY, |gb| gb / f64::from(machines.max(1)))
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} asked, {} left", round(self.asked), self.what, round(self.limit))
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reports_account_allows_four_machines_of_two_vcpus_and_no_gpu() {
        let limits = Limits {
            vcpus: Some(8.0),
            addresses: Some(4.0),
            gpus: [("K80".to_owned(), 0.0)].into(),
            ..Limits::default()
        };
        let demand = |vcpus, addresses| Demand { vcpus, addresses, ..Demand::default() };
        assert!(limits.shortages(&demand(8.0, 4.0)).is_empty());
        let short = limits.shortages(&demand(10.0, 5.0));
        let words: Vec<String> = short.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["10 vCPUs asked, 8 left", "5 addresses asked, 4 left"]);
        let gpu = Demand { gpus: [("K80".to_owned(), 1.0)].into(), ..Demand::default() };
        assert_eq!(limits.shortages(&gpu)[0].to_string(), "1 K80 GPUs asked, 0 left");
    }

    #[test]
    fn disk_is_shared_by_all_machines() {
        let limits = Limits { standard_disk_gb: Some(716.0), ..Limits::default() };
        assert!((limits.disk_gb_each(DiskQuota::Standard, 3) - 238.67).abs() < 0.01);
        assert!(limits.disk_gb_each(DiskQuota::Ssd, 3).is_infinite());
    }
}
