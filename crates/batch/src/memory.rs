//! How much memory this process may use.
//!
//! What follows from a file or a flag is held against this before it is allocated: beyond it the kernel kills the
//! process, or an allocation fails where nothing can be said any more. The number is the smallest of the machine's
//! memory, cgroup v2 limit (own group and every parent), cgroup v1 limit and the limit of the address space.

use std::{fs, path::Path};

/// A number of bytes, and what decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes that may be used; the largest number where nothing is known.
    pub bytes: u64,
    /// The limit that decided, for people to read.
    pub decided_by: &'static str,
}

/// Memory this process may use now.
#[must_use]
pub fn memory_limit() -> MemoryLimit {
    decide(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

fn decide(proc: &Path, groups: &Path) -> MemoryLimit {
    let read = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
    let own_groups = read("self/cgroup");
    let of_group = |start: &str, root: &Path, file: &str| {
        let own = own_groups.lines().find_map(|line| group_of(line, start))?;
        tightest(own, root, file)
    };
    [
        (machine(&read("meminfo")), "the machine's memory"),
        (of_group("", groups, "memory.max"), "cgroup v2 memory.max"),
        (of_group("memory", &groups.join("memory"), "memory.limit_in_bytes"), "cgroup v1 limit"),
        (address_space(&read("self/limits")), "the limit of the address space (ulimit -v)"),
    ]
    .into_iter()
    .filter_map(|(bytes, decided_by)| Some(MemoryLimit { bytes: bytes?, decided_by }))
    .min_by_key(|limit| limit.bytes)
    .unwrap_or(MemoryLimit { bytes: u64::MAX, decided_by: "nothing known" })
}

/// The group of a controller in a line of `/proc/self/cgroup`, such as `4:memory:/a/b`; version 2 has one without a name.
fn group_of<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    controllers.split(',').any(|name| name == controller).then_some(group)
}

/// The smallest limit between the process's own group and the root.
fn tightest(own: &str, root: &Path, file: &str) -> Option<u64> {
    // A group named `..` (as seen from a container) must not lead out of the tree.
    let parts = own.split('/').filter(|part| !matches!(*part, "" | ".."));
    let mut group = root.join(parts.collect::<Vec<_>>().join("/"));
    let mut least: Option<u64> = None;
    loop {
        let limit = fs::read_to_string(group.join(file)).ok();
        // `max` means no limit.
        if let Some(limit) = limit.and_then(|text| text.trim().parse::<u64>().ok()) {
            least = Some(least.map_or(limit, |old| old.min(limit)));
        }
        if group.components().count() <= root.components().count() || !group.pop() {
            return least;
        }
    }
}

fn machine(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit; `unlimited` means none.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_machine_groups_and_address_space_decides() {
        let root = std::env::temp_dir().join(format!("paceline-memory-{}", std::process::id()));
        let (proc, groups) = (root.join("proc"), root.join("groups"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || decide(&proc, &groups);
        assert_eq!(found().bytes, u64::MAX);
        write(&proc.join("meminfo"), "MemTotal:       1000 kB\nMemFree: 10 kB\n");
        assert_eq!(found(), MemoryLimit { bytes: 1_024_000, decided_by: "the machine's memory" });
        write(&proc.join("self/cgroup"), "4:cpu,memory:/x/y\n0::/../a/b\n");
        write(&groups.join("a/b/memory.max"), "max\n");
        assert_eq!(found().decided_by, "the machine's memory");
        write(&groups.join("a/memory.max"), "900000\n");
        write(&groups.join("a/b/memory.max"), "950000\n");
        assert_eq!(found(), MemoryLimit { bytes: 900_000, decided_by: "cgroup v2 memory.max" });
        // In a container of version 1 the own group is the root of what is mounted.
        write(&groups.join("memory/memory.limit_in_bytes"), "800000\n");
        assert_eq!(found(), MemoryLimit { bytes: 800_000, decided_by: "cgroup v1 limit" });
        write(&groups.join("memory/x/memory.limit_in_bytes"), "9223372036854771712\n");
        assert_eq!(found().bytes, 800_000);
        write(&proc.join("self/limits"), "Max address space  unlimited  unlimited  bytes\n");
        assert_eq!(found().bytes, 800_000);
        write(&proc.join("self/limits"), "Max address space  700000  unlimited  bytes\n");
        assert_eq!(found().bytes, 700_000);
        assert!(found().decided_by.contains("ulimit"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_process_has_a_limit() {
        let found = memory_limit();
        assert!((1 << 20..u64::MAX).contains(&found.bytes), "{found:?}");
    }
}
