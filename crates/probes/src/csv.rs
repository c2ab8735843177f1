//! Recordings as CSV, in our own fixed schema with units in the header or in dstat's layout.

use crate::probe::{Detail, columns};
use crate::sampler::Reading;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Which columns, in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Ours: `time_seconds, elapsed_seconds`, then every column, the share of every core, and a word for those who mark a moment.
    Full,
    /// What `dstat -tcdngy --output` wrote, for scripts that expect it.
    Dstat,
}

/// Writes readings as lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    layout: Layout,
}

/// Busy share of every core in per cent, with spaces between, a dash for one that is off: one column however many there are.
pub(crate) const CORES: &str = "cpu_cores_percent";
/// What someone said at a moment; such a row has nothing else but the time.
pub(crate) const MARK: &str = "mark";

/// Groups and columns of the dstat layout, and our column behind each.
const DSTAT: &[(&str, &[(&str, &str)])] = &[
    (
        "total cpu usage",
        &[
            ("usr", "cpu_user_percent"),
            ("sys", "cpu_system_percent"),
            ("idl", "cpu_idle_percent"),
            ("wai", "cpu_iowait_percent"),
            ("stl", "cpu_steal_percent"),
        ],
    ),
    (
        "dsk/total",
        &[("read", "disk_read_bytes_per_second"), ("writ", "disk_written_bytes_per_second")],
    ),
    (
        "net/total",
        &[("recv", "network_received_bytes_per_second"), ("send", "network_sent_bytes_per_second")],
    ),
    (
        "memory usage",
        &[
            ("used", "memory_used_bytes"),
            ("free", "memory_free_bytes"),
            ("cach", "memory_cached_bytes"),
        ],
    ),
    ("system", &[("csw", "context_switches_per_second")]),
];

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut out: W, layout: Layout) -> io::Result<Self> {
        match layout {
            Layout::Full => {
                write!(out, "time_seconds,elapsed_seconds")?;
                for column in columns() {
                    write!(out, ",{}", column.name)?;
                }
                writeln!(out, ",{CORES},{MARK}")?;
            }
            Layout::Dstat => {
                write!(out, "\"epoch\"")?;
                for (group, members) in DSTAT {
                    write!(out, ",\"{group}\"{}", ",".repeat(members.len() - 1))?;
                }
                write!(out, "\n\"epoch\"")?;
                for (name, _) in DSTAT.iter().flat_map(|(_, members)| *members) {
                    write!(out, ",\"{name}\"")?;
                }
                writeln!(out)?;
            }
        }
        // By its header a file is known to be a recording, before the first reading too.
        out.flush()?;
        Ok(Self { out, layout })
    }

    /// Appends a reading; unknown values stay empty.
    pub fn write(&mut self, reading: &Reading) -> io::Result<()> {
        match self.layout {
            Layout::Full => {
                write!(self.out, "{:.3},{:.3}", reading.time, reading.elapsed)?;
                for value in &reading.values {
                    write_value(&mut self.out, *value)?;
                }
                write!(self.out, ",{},", cores(&reading.detail))?;
            }
            Layout::Dstat => {
                write!(self.out, "{:.3}", reading.time)?;
                for (_, wanted) in DSTAT.iter().flat_map(|(_, members)| *members) {
                    let at = columns().position(|column| column.name == *wanted);
                    write_value(&mut self.out, at.and_then(|at| reading.values[at]))?;
                }
            }
        }
        writeln!(self.out)?;
        self.out.flush() // a recording must survive the death of its recorder
    }
}

/// The busy shares of all cores, in the order of their numbers.
fn cores(detail: &Detail) -> String {
    let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
    for (name, columns) in detail {
        let number = name.strip_prefix("cpu").and_then(|digits| digits.parse().ok());
        let free = ["cpu_idle_percent", "cpu_iowait_percent"].map(|column| columns.get(column));
        if let (Some(number), [Some(idle), Some(waiting)]) = (number, free) {
            shares.insert(number, (100.0 - idle - waiting).clamp(0.0, 100.0));
        }
    }
    let all = shares.keys().next_back().map_or(0, |last| last + 1);
    let share =
        |core| shares.get(&core).map_or_else(|| "-".to_owned(), |share| format!("{share:.0}"));
    (0..all).map(share).collect::<Vec<_>>().join(" ")
}

fn write_value(out: &mut impl Write, value: Option<f64>) -> io::Result<()> {
    match value {
        // Bytes and counts are whole; percentages deserve two digits.
        Some(value) if value.abs() >= 1000.0 => write!(out, ",{value:.0}"),
        Some(value) => write!(out, ",{value:.2}"),
        None => write!(out, ","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cores(idle: &[(usize, f64)]) -> Detail {
        let core = |(number, idle): &(usize, f64)| {
            let columns = [("cpu_idle_percent", *idle), ("cpu_iowait_percent", 0.0)];
            (format!("cpu{number}"), columns.into_iter().collect())
        };
        idle.iter().map(core).collect()
    }

    #[test]
    fn cores_stand_in_the_order_of_their_numbers_and_one_that_is_off_leaves_a_dash() {
        let idle: Vec<(usize, f64)> =
            (0..12).filter(|core| *core != 3).map(|core| (core, 100.0 - core as f64)).collect();
        assert_eq!(cores(&of_cores(&idle)), "0 1 2 - 4 5 6 7 8 9 10 11");
        assert_eq!(cores(&Detail::new()), "");
    }

    #[test]
    fn header_and_rows_have_the_same_width_and_every_dstat_column_exists() {
        let width = columns().count();
        let reading = Reading {
            time: 1.0,
            elapsed: 0.5,
            values: vec![Some(2.0); width],
            detail: of_cores(&[(0, 90.0)]),
        };
        for layout in [Layout::Full, Layout::Dstat] {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out, layout).unwrap();
            writer.write(&reading).unwrap();
            let text = String::from_utf8(out).unwrap();
            let widths: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
            assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
            assert!(!text.lines().last().unwrap().contains(",,"), "{text}");
        }
    }

    #[test]
    fn unknown_values_are_empty_cells() {
        let width = columns().count();
        let reading =
            Reading { time: 1.0, elapsed: 0.5, values: vec![None; width], detail: Detail::new() };
        let mut out = Vec::new();
        Writer::new(&mut out, Layout::Full).unwrap().write(&reading).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with(&format!("1.000,0.500{}\n", ",".repeat(width + 2))), "{text}");
    }
}
