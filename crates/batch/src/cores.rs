//! How many cores this process may use.
//!
//! The host's core count is the wrong answer in a container: threads beyond the quota are throttled
//! together and everything becomes slower than with one thread. So the number is the smallest of
//! affinity mask, cgroup v2 quota (own group and every parent) and cgroup v1 quota.

use std::{fs, path::Path};

/// The number of cores, and what decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Threads worth starting; at least 1.
    pub count: usize,
    /// The limit that decided, for people to read.
    pub decided_by: &'static str,
}

/// Cores this process may use now.
#[must_use]
pub fn cores() -> Cores {
    let own_group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    decide(affinity(), &own_group, Path::new("/sys/fs/cgroup"))
}

fn decide(affinity: usize, own_group: &str, root: &Path) -> Cores {
    let mut best = Cores { count: affinity.max(1), decided_by: "affinity" };
    if let Some(quota) = quota_v2(own_group, root)
        && quota < best.count
    {
        best = Cores { count: quota, decided_by: "cgroup v2 cpu.max" };
    }
    if let Some(quota) = quota_v1(root)
        && quota < best.count
    {
        best = Cores { count: quota, decided_by: "cgroup v1 cpu quota" };
    }
    best
}

#[allow(unsafe_code)] // the affinity mask has no safe interface in std
fn affinity() -> usize {
    // SAFETY: an all-zero cpu_set_t is a valid empty set; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0 {
            return libc::CPU_COUNT(&set).unsigned_abs() as usize;
        }
    }
    1
}

/// The tightest `cpu.max` between the process's own group and the root.
fn quota_v2(own_group: &str, root: &Path) -> Option<usize> {
    let own = own_group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut group = root.join(own.trim_start_matches('/'));
    let mut least: Option<usize> = None;
    loop {
        if let Some(quota) =
            fs::read_to_string(group.join("cpu.max")).ok().and_then(|text| parse_cpu_max(&text))
        {
            least = Some(least.map_or(quota, |old| old.min(quota)));
        }
        if group == root || !group.pop() {
            return least;
        }
    }
}

/// `max 100000` means no limit; `150000 100000` means one and a half cores, worth two threads.
fn parse_cpu_max(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cores(quota.parse().ok()?, period.parse().ok()?)
}

fn quota_v1(root: &Path) -> Option<usize> {
    let read = |name: &str| -> Option<i64> {
        fs::read_to_string(root.join("cpu").join(name)).ok()?.trim().parse().ok()
    };
    let quota = read("cpu.cfs_quota_us")?;
    whole_cores(u64::try_from(quota).ok()?, u64::try_from(read("cpu.cfs_period_us")?).ok()?)
}

fn whole_cores(quota: u64, period: u64) -> Option<usize> {
    if period == 0 || quota == 0 {
        return None;
    }
    usize::try_from(quota.div_ceil(period)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_of_a_parent_group_counts() {
        let root = std::env::temp_dir().join(format!("paceline-cores-{}", std::process::id()));
        let leaf = root.join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(leaf.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.join("a/cpu.max"), "150000 100000\n").unwrap();
        let cores = decide(64, "0::/a/b\n", &root);
        assert_eq!(cores, Cores { count: 2, decided_by: "cgroup v2 cpu.max" });
        assert_eq!(decide(1, "0::/a/b\n", &root).decided_by, "affinity");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn no_limit_leaves_the_affinity() {
        assert_eq!(parse_cpu_max("max 100000"), None);
        assert_eq!(parse_cpu_max("50000 100000"), Some(1));
        assert_eq!(decide(3, "", Path::new("/nonexistent")).count, 3);
        assert!(cores().count >= 1);
    }
}
