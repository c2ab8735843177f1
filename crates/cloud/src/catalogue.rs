//! What a provider rents: machine types, and disks whose speed follows their size.
//!
//! Three catalogues are shipped, each with its date and source: prices change, so every answer names them, and a newer file
//! of the same form can be given instead.

use crate::error::CloudError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Whose machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Google Cloud.
    Gcp,
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gcp, Self::Aws, Self::Azure];

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcp => "gcp",
            Self::Aws => "aws",
            Self::Azure => "azure",
        }
    }
}

/// A provider's machines and disks in one region at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudCatalogue {
    pub provider: Provider,
    pub region: String,
    /// When the prices were read, year and month.
    pub date: String,
    pub source: String,
    #[serde(rename = "machine")]
    pub machines: Vec<MachineType>,
    #[serde(rename = "disk")]
    pub disks: Vec<DiskType>,
    /// GPUs by the names that the quotas have: prices of those that are attached to a machine (of the shipped catalogues Google's
    /// has some, others come with machine types of their own), and speeds where the shipped list is not to be used.
    #[serde(default, rename = "gpu", skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuType>,
}

/// What one GPU costs beside its machine, and how fast it is by its data sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuType {
    pub name: String,
    /// Beside the machine's price, where it is attached to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<f64>,
    /// How the names of machines begin that it can be attached to; of all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attaches_to: Option<String>,
    /// Peak of single-precision arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_tflops: Option<f64>,
    /// Peak of mixed precision on tensor cores, without sparsity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_tflops: Option<f64>,
    /// From its own memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb_per_s: Option<f64>,
}

/// The shipped list of speeds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuSpeeds {
    #[allow(dead_code)] // for those who read the file
    date: String,
    #[allow(dead_code)]
    source: String,
    gpu: Vec<GpuType>,
}

impl GpuType {
    /// All whose speed a source tells.
    #[must_use]
    pub fn shipped() -> Vec<Self> {
        let speeds: GpuSpeeds = toml::from_str(include_str!("../catalogues/gpus.toml"))
            .expect("the shipped list is read by a test");
        speeds.gpu
    }

    /// The first figure that cannot be, by its key.
    fn wrong(&self) -> Option<(&'static str, f64)> {
        let figures = [
            ("usd_per_hour", self.usd_per_hour),
            ("fp32_tflops", self.fp32_tflops),
            ("mixed_tflops", self.mixed_tflops),
            ("memory_gb_per_s", self.memory_gb_per_s),
        ];
        let found = figures.into_iter().filter_map(|(key, value)| Some((key, value?)));
        found.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
    }
}

/// One machine type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineType {
    pub name: String,
    pub vcpus: f64,
    pub memory_gib: f64,
    pub usd_per_hour: f64,
    /// What it can send, sustained.
    pub network_gbit: f64,
    /// Speed of one vCPU compared with a core of the machine the job was measured on.
    #[serde(default = "one")]
    pub speed: f64,
    /// GPUs that it is only rented with, in its price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    #[serde(default)]
    pub gpus: u32,
}

/// One kind of disk: a price per GB with a speed that follows the size, or tiers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskType {
    pub name: String,
    /// Which of the account's disk quotas it counts against.
    pub quota: DiskQuota,
    #[serde(default)]
    pub usd_per_gb_month: f64,
    #[serde(default)]
    pub min_gb: f64,
    #[serde(default)]
    pub max_gb: f64,
    #[serde(default)]
    pub mb_per_s: Slope,
    #[serde(default)]
    pub iops: Slope,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<DiskTier>,
}

/// The two disk quotas that providers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskQuota {
    /// Hard disks.
    Standard,
    /// Solid-state disks, balanced ones included.
    Ssd,
}

/// A limit that grows with the size of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slope {
    pub base: f64,
    pub per_gb: f64,
    pub most: f64,
}

/// A size that is sold, and what comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskTier {
    pub gb: f64,
    pub mb_per_s: f64,
    pub iops: f64,
    pub usd_per_month: f64,
}

/// What reading asks of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct DiskRate {
    pub mb_per_s: f64,
    pub iops: f64,
}

/// A disk of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disk {
    pub kind: String,
    pub quota: DiskQuota,
    pub gb: f64,
    pub mb_per_s: f64,
    pub iops: f64,
    pub usd_per_month: f64,
}

fn one() -> f64 {
    1.0
}

impl Slope {
    fn at(self, gb: f64) -> f64 {
        (self.base + self.per_gb * gb).min(self.most)
    }

    /// The size that gives so much; beyond `most`, or beyond what the base has, more capacity buys nothing.
    fn size_for(self, asked: f64) -> f64 {
        if self.per_gb > 0.0 {
            ((asked.min(self.most) - self.base) / self.per_gb).ceil()
        } else {
            0.0
        }
    }
}

impl DiskType {
    /// The cheapest disk of this kind that has `gb` and reads at `rate`, of at most `most_gb`; where none is that fast,
    /// the fastest allowed. `None` if not even `gb` fits.
    #[must_use]
    pub fn choose(&self, gb: f64, rate: DiskRate, most_gb: f64) -> Option<Disk> {
        if !self.tiers.is_empty() {
            let mut fits: Vec<&DiskTier> =
                self.tiers.iter().filter(|tier| tier.gb >= gb && tier.gb <= most_gb).collect();
            fits.sort_by(|a, b| a.usd_per_month.total_cmp(&b.usd_per_month));
            // How much of what is asked a tier gives, by the limit that is met first.
            let share = |tier: &DiskTier| {
                let megabytes = tier.mb_per_s / rate.mb_per_s.max(f64::MIN_POSITIVE);
                megabytes.min(tier.iops / rate.iops.max(f64::MIN_POSITIVE))
            };
            let fast = fits.iter().find(|tier| share(tier) >= 1.0);
            let fastest = || fits.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b)));
            return fast.or_else(fastest).map(|tier| self.of_tier(tier));
        }
        let most = self.max_gb.min(most_gb);
        let least = self.min_gb.max(gb).ceil();
        if least > most {
            return None;
        }
        let wanted = self.mb_per_s.size_for(rate.mb_per_s).max(self.iops.size_for(rate.iops));
        Some(self.of_size(wanted.clamp(least, most.floor().max(least))))
    }

    /// A disk of this size.
    #[must_use]
    pub fn of_size(&self, gb: f64) -> Disk {
        Disk {
            kind: self.name.clone(),
            quota: self.quota,
            gb,
            mb_per_s: self.mb_per_s.at(gb),
            iops: self.iops.at(gb),
            usd_per_month: self.usd_per_gb_month * gb,
        }
    }

    fn of_tier(&self, tier: &DiskTier) -> Disk {
        Disk {
            kind: self.name.clone(),
            quota: self.quota,
            gb: tier.gb,
            mb_per_s: tier.mb_per_s,
            iops: tier.iops,
            usd_per_month: tier.usd_per_month,
        }
    }
}

impl CloudCatalogue {
    /// The shipped one.
    pub fn shipped(provider: Provider) -> Result<Self, CloudError> {
        let (file, text) = match provider {
            Provider::Gcp => ("catalogues/gcp.toml", include_str!("../catalogues/gcp.toml")),
            Provider::Aws => ("catalogues/aws.toml", include_str!("../catalogues/aws.toml")),
            Provider::Azure => ("catalogues/azure.toml", include_str!("../catalogues/azure.toml")),
        };
        Self::parse(file, text)
    }

    /// One of the user's.
    pub fn read(path: &Path) -> Result<Self, CloudError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CloudError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self, CloudError> {
        let found: Self = toml::from_str(text).map_err(|source| CloudError::Toml {
            file: file.to_owned(),
            what: "catalogue of machines",
            source: Box::new(source),
        })?;
        let bad = |key: String, found: f64, needed| CloudError::Value {
            file: file.to_owned(),
            key,
            found: found.to_string(),
            needed,
        };
        let above = |value: f64| value.is_finite() && value > 0.0;
        for machine in &found.machines {
            let values = [
                ("vcpus", machine.vcpus),
                ("memory_gib", machine.memory_gib),
                ("usd_per_hour", machine.usd_per_hour),
                ("network_gbit", machine.network_gbit),
                ("speed", machine.speed),
            ];
            for (key, value) in values {
                if !above(value) {
                    return Err(bad(format!("{key} of {}", machine.name), value, "above zero"));
                }
            }
            if machine.gpu.is_some() != (machine.gpus > 0) {
                let key = format!("gpus of {}", machine.name);
                return Err(bad(key, f64::from(machine.gpus), "given together with gpu"));
            }
        }
        for gpu in &found.gpus {
            if let Some((key, value)) = gpu.wrong() {
                return Err(bad(format!("{key} of {}", gpu.name), value, "above zero"));
            }
        }
        for disk in &found.disks {
            let key = |key| format!("{key} of {}", disk.name);
            let tiers = disk.tiers.iter().flat_map(|tier| [tier.gb, tier.mb_per_s, tier.iops]);
            if let Some(value) = tiers.chain([disk.max_gb.max(1.0)]).find(|value| !above(*value)) {
                return Err(bad(key("tiers"), value, "above zero"));
            }
            let most = [("mb_per_s.most", disk.mb_per_s.most), ("iops.most", disk.iops.most)];
            if let Some((name, value)) = most.into_iter().find(|(_, value)| !above(*value))
                && disk.tiers.is_empty()
            {
                return Err(bad(key(name), value, "above zero, or tiers given"));
            }
        }
        if found.machines.is_empty() || found.disks.is_empty() {
            return Err(bad("machine and disk".to_owned(), 0.0, "one of each at least"));
        }
        Ok(found)
    }

    /// By its name.
    pub fn machine(&self, name: &str) -> Result<&MachineType, CloudError> {
        self.machines.iter().find(|machine| machine.name == name).ok_or_else(|| {
            let known: Vec<&str> =
                self.machines.iter().map(|machine| machine.name.as_str()).collect();
            CloudError::Unknown {
                what: "machine",
                name: name.to_owned(),
                provider: self.provider.name().to_owned(),
                known: known.join(", "),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(mb_per_s: f64) -> DiskRate {
        DiskRate { mb_per_s, iops: 0.0 }
    }

    #[test]
    fn every_shipped_catalogue_reads_and_names_its_date_and_source() {
        for provider in Provider::ALL {
            let found = CloudCatalogue::shipped(provider).unwrap();
            assert_eq!(found.provider, provider);
            assert!(found.date.len() == 7 && found.source.len() > 20, "{found:?}");
            assert!(found.machines.len() >= 8 && found.disks.len() >= 2);
        }
    }

    #[test]
    fn every_gpu_of_the_shipped_list_has_two_figures_to_compare_at_least() {
        let shipped = GpuType::shipped();
        assert!(shipped.len() > 4);
        for gpu in shipped {
            assert_eq!((gpu.wrong(), gpu.usd_per_hour), (None, None), "{gpu:?}");
            assert!(gpu.memory_gb_per_s.is_some() && gpu.fp32_tflops.is_some(), "{gpu:?}");
        }
    }

    #[test]
    fn a_standard_disk_of_238_gb_reads_29_mb_a_second() {
        let gcp = CloudCatalogue::shipped(Provider::Gcp).unwrap();
        let disk = gcp.disks[0].of_size(238.0);
        assert!(
            (disk.mb_per_s - 28.56).abs() < 1e-9 && (disk.iops - 178.5).abs() < 1e-9,
            "{disk:?}"
        );
    }

    #[test]
    fn a_disk_is_as_large_as_its_throughput_asks_and_no_larger_than_allowed() {
        let gcp = CloudCatalogue::shipped(Provider::Gcp).unwrap();
        let standard = &gcp.disks[0];
        let photos = DiskRate { mb_per_s: 6.0, iops: 300.0 };
        assert_eq!(standard.choose(50.0, photos, 10_000.0).unwrap().gb, 400.0);
        assert_eq!(standard.choose(50.0, reads(60.0), 10_000.0).unwrap().gb, 500.0);
        assert_eq!(standard.choose(50.0, reads(60.0), 238.0).unwrap().gb, 238.0);
        assert_eq!(standard.choose(900.0, reads(60.0), 10_000.0).unwrap().gb, 900.0);
        assert!(standard.choose(900.0, reads(60.0), 500.0).is_none());
        // The base alone is enough: the smallest that holds the data.
        assert_eq!(gcp.disks[1].choose(50.0, reads(100.0), 10_000.0).unwrap().gb, 50.0);
    }

    #[test]
    fn tiers_are_chosen_by_price_and_the_fastest_where_none_is_fast_enough() {
        let azure = CloudCatalogue::shipped(Provider::Azure).unwrap();
        let premium = azure.disks.iter().find(|disk| disk.name == "Premium_LRS").unwrap();
        assert_eq!(premium.choose(30.0, reads(90.0), 4096.0).unwrap().gb, 128.0);
        assert_eq!(premium.choose(30.0, reads(900.0), 4096.0).unwrap().gb, 1024.0);
        assert_eq!(premium.choose(30.0, reads(900.0), 300.0).unwrap().gb, 256.0);
        assert!(premium.choose(3000.0, reads(9.0), 4096.0).is_none());
    }

    #[test]
    fn a_price_of_nothing_and_an_unknown_key_are_refused_by_name() {
        let good = include_str!("../catalogues/gcp.toml");
        let free = good.replacen("usd_per_hour = 0.0670", "usd_per_hour = 0", 1);
        let error = CloudCatalogue::parse("mine.toml", &free).unwrap_err().to_string();
        assert_eq!(error, "`mine.toml`: usd_per_hour of e2-standard-2 is 0, must be above zero");
        let odd = good.replacen("vcpus", "cpus", 1);
        assert!(matches!(CloudCatalogue::parse("mine.toml", &odd), Err(CloudError::Toml { .. })));
    }
}
