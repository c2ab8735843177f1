//! Bytes, packets and errors per interface; loopback separately, because local jobs communicate through it.

use crate::counter::{growth, word};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::{collections::BTreeMap, time::Duration};

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "network",
    columns: &[
        Column { name: "network_received_bytes_per_second", about: "all interfaces but loopback" },
        Column { name: "network_sent_bytes_per_second", about: "all interfaces but loopback" },
        Column { name: "network_received_packets_per_second", about: "packets received" },
        Column { name: "network_sent_packets_per_second", about: "packets sent" },
        Column { name: "network_errors_per_second", about: "errors and drops, both ways" },
        Column {
            name: "loopback_bytes_per_second",
            about: "sent between processes of this machine",
        },
    ],
    open: |roots, _| {
        Box::new(Network {
            file: KernelFile::new(roots.proc.join("net/dev")),
            ..Network::default()
        })
    },
};

/// Bytes in, packets in, errors in, bytes out, packets out, errors out.
type Counts = [u64; 6];

#[derive(Default)]
struct Network {
    file: KernelFile,
    text: String,
    old: BTreeMap<String, Counts>,
}

impl Probe for Network {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], detail: &mut Detail) {
        if !self.file.read(&mut self.text) {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let new: BTreeMap<String, Counts> = self.text.lines().filter_map(parse_line).collect();
        let had_interval = !self.old.is_empty() && seconds > 0.0;
        let mut sums = [0.0; 6];
        for (name, counts) in &new {
            let Some(old) = self.old.get(name) else { continue };
            let rate =
                |index: usize| growth(old[index], counts[index]).unwrap_or(0) as f64 / seconds;
            let interface = [rate(0), rate(3), rate(1), rate(4), rate(2) + rate(5)];
            if name == "lo" {
                sums[5] += interface[1];
            } else {
                for (sum, value) in sums.iter_mut().zip(interface) {
                    *sum += value;
                }
            }
            let columns = ENTRY.columns.iter().map(|column| column.name);
            detail.insert(name.clone(), columns.zip(interface).collect());
        }
        if had_interval {
            for (slot, sum) in values.iter_mut().zip(sums) {
                *slot = Some(sum);
            }
        }
        self.old = new;
    }
}

fn parse_line(line: &str) -> Option<(String, Counts)> {
    let (name, rest) = line.split_once(':')?;
    let at = |index| word(rest, index);
    let counts = [at(0)?, at(1)?, at(2)? + at(3)?, at(8)?, at(9)?, at(10)? + at(11)?];
    Some((name.trim().to_owned(), counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};
    use std::fs;

    #[test]
    fn loopback_is_kept_apart_and_new_interfaces_do_not_jump() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("net")).unwrap();
        let file = folder.path().join("net/dev");
        let head = "Inter-| Receive | Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n";
        let line = |name: &str, bytes: u64| {
            format!("{name}: {bytes} 10 0 0 0 0 0 0 {bytes} 10 0 0 0 0 0 0\n")
        };
        fs::write(&file, head.to_owned() + &line("lo", 0) + &line("eth0", 4_294_967_290)).unwrap();
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target::process(1));
        let mut values = [None; 6];
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        let after = head.to_owned() + &line("lo", 500) + &line("eth0", 94) + &line("wg0", 1 << 40);
        fs::write(&file, after).unwrap();
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[0], Some(100.0), "wrapped at 32 bits; wg0 has no interval yet");
        assert_eq!(values[5], Some(500.0));
    }
}
