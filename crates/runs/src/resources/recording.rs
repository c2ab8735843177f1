//! Recordings of machines as files of their own: ours, dstat's and dool's, sar's.
//!
//! A run folder's recordings may be torn, because a run may be killed, and are read as far as they go. A file that a person names is
//! read strictly instead: what cannot be understood is an error with its line, because a chart of half a file would be taken for the whole.

use super::{CORES, ELAPSED, MARK, Resources, TIME, cells, dstat, number, sadf};
use crate::error::RunsError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What one machine did.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The machine's name, where the file has one.
    pub node: Option<String>,
    pub file: PathBuf,
    pub resources: Resources,
}

/// A line that cannot be understood, from 1, and why.
pub(super) type Fault = (usize, String);

/// A machine's name, if it is known, with its readings.
pub(super) type Named = (Option<String>, Resources);

/// What to record instead of what cannot be read.
const KNOWN: &str =
    "a recording is what `paceline monitor --csv` writes, `dstat --output`, or `sadf -d`";

/// Reads a file by any of the programs whose recordings are known. One of sar's may hold several machines.
///
/// # Errors
/// The file cannot be read, is of no known kind, or a line of it cannot be understood.
pub fn read_recordings(path: &Path) -> Result<Vec<Recording>, RunsError> {
    let bytes =
        fs::read(path).map_err(|source| RunsError::Read { path: path.to_owned(), source })?;
    // Comments and names may be in any encoding; numbers are not.
    let text = String::from_utf8_lossy(&bytes);
    let found = parse(&text).map_err(|(line, reason)| RunsError::Recording {
        path: path.to_owned(),
        line,
        reason,
    })?;
    let file = |(node, resources)| Recording { node, file: path.to_owned(), resources };
    Ok(found.into_iter().map(file).collect())
}

fn parse(text: &str) -> Result<Vec<Named>, Fault> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if first.contains('\0') {
        return Err((1, format!("not text; {KNOWN}")));
    }
    let found = if first.starts_with(TIME) || first.contains(&format!(",{TIME}")) {
        vec![(None, ours(text)?)]
    } else if first.starts_with("# hostname;") {
        sadf::parse(text)?
    } else if first.starts_with('"') {
        vec![dstat::parse(text)?]
    } else if first.is_empty() {
        return Err((1, format!("the file is empty; {KNOWN}")));
    } else {
        return Err((1, format!("not a recording that is known; {KNOWN}")));
    };
    let lines = text.lines().count();
    match found.iter().all(|(_, resources)| resources.rows.is_empty()) {
        true => Err((lines, "the file ends before its first reading".to_owned())),
        false => Ok(found),
    }
}

/// Our own file. One that was resumed has its header again in the middle, and the last line may be cut off by a kill.
fn ours(text: &str) -> Result<Resources, Fault> {
    let mut found = Resources::default();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let Some(whole) = line.strip_suffix('\n') else { break };
        let cells = cells(whole.trim_end_matches('\r'), ',');
        if cells.iter().any(|cell| cell == TIME) {
            if found.header.is_empty() {
                found.header = cells;
            } else if found.header != cells {
                return Err((at + 1, "the columns change here; split the file".to_owned()));
            }
            continue;
        }
        if cells.len() != found.header.len() {
            let (have, want) = (cells.len(), found.header.len());
            return Err((at + 1, format!("{have} values for {want} columns")));
        }
        for (name, cell) in found.header.iter().zip(&cells) {
            let words = name == CORES || name == MARK;
            if !words && !cell.is_empty() && number(cell).is_none() {
                return Err((at + 1, format!("`{cell}` is not a number, in column {name}")));
            }
        }
        found.push(&cells);
    }
    if let Some(missing) = [TIME, ELAPSED].iter().find(|name| found.place(name).is_none()) {
        return Err((1, format!("there is no column {missing}")));
    }
    Ok(found)
}

/// Readings of another program, gathered by moment and column under our names.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// By milliseconds since 1970.
    moments: BTreeMap<i64, BTreeMap<String, f64>>,
    cores: BTreeMap<i64, BTreeMap<usize, f64>>,
    marks: Vec<(f64, String)>,
    /// Seconds that the first reading covers, where the file says so.
    pub(super) interval: Option<f64>,
}

impl Gathered {
    /// Adds to a column at a moment, given in seconds.
    pub(super) fn add(&mut self, time: f64, column: &str, value: f64) {
        *self.of(time).entry(column.to_owned()).or_default() += value;
    }

    /// Keeps the highest value of a column at a moment.
    pub(super) fn highest(&mut self, time: f64, column: &str, value: f64) {
        let known = self.of(time).entry(column.to_owned()).or_insert(value);
        *known = known.max(value);
    }

    pub(super) fn core(&mut self, time: f64, core: usize, busy: f64) {
        let shares = self.cores.entry(milliseconds(time)).or_default();
        shares.insert(core, busy.clamp(0.0, 100.0));
    }

    pub(super) fn mark(&mut self, time: f64, words: &str) {
        self.marks.push((time, words.to_owned()));
    }

    fn of(&mut self, time: f64) -> &mut BTreeMap<String, f64> {
        self.moments.entry(milliseconds(time)).or_default()
    }

    /// The same as a recording of ours.
    pub(super) fn finish(self) -> Resources {
        let mut header = vec![TIME.to_owned(), ELAPSED.to_owned()];
        for name in self.moments.values().flat_map(BTreeMap::keys) {
            if !header.contains(name) {
                header.push(name.clone());
            }
        }
        let moments: Vec<i64> = self.moments.keys().copied().collect();
        // Readings come at equal intervals; the first covers one too.
        let usual = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e3).next();
        let covers = self.interval.or(usual).unwrap_or(1.0);
        let begin = moments.first().map_or(0.0, |first| *first as f64 / 1e3 - covers);
        let rows = self.moments.iter().map(|(moment, values)| {
            let time = *moment as f64 / 1e3;
            let mut row = vec![Some(time), Some(time - begin)];
            row.extend(header[2..].iter().map(|name| values.get(name).copied()));
            row
        });
        let rows = rows.collect();
        let cores = self.cores.into_iter().map(|(moment, shares)| {
            let count = shares.keys().next_back().map_or(0, |last| last + 1);
            let share = |core| shares.get(&core).map_or(f32::NAN, |busy| *busy as f32);
            (moment as f64 / 1e3, (0..count).map(share).collect())
        });
        Resources { cores: cores.collect(), header, rows, marks: self.marks }
    }
}

fn milliseconds(time: f64) -> i64 {
    (time * 1e3).round() as i64
}

/// Most cores of a machine; a greater number is a damaged line.
pub(super) const MOST_CORES: usize = 1 << 14;

/// Seconds since 1970 of a moment that is taken to be UTC; nothing for one that no calendar has.
pub(super) fn moment(year: i64, month: i64, day: i64, clock: &str) -> Option<f64> {
    let mut parts = clock.split(':').map(str::parse::<f64>);
    let (hour, minute, second) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let within = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0.0..24.0).contains(&hour)
        && (0.0..60.0).contains(&minute)
        && (0.0..61.0).contains(&second);
    if !within || parts.next().is_some() {
        return None;
    }
    // Years from March, so that the leap day comes last; 146,097 days are 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

/// The number of a month by its English name.
pub(super) fn month(name: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let at = MONTHS.find(name).filter(|at| name.len() == 3 && at % 3 == 0)?;
    i64::try_from(at / 3 + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings").join(name)
    }

    fn read(name: &str) -> Vec<Recording> {
        read_recordings(&sample(name)).unwrap()
    }

    /// Written by dstat 0.8.0; its first line is the mean since the machine was started.
    #[test]
    fn what_dstat_wrote_is_read() {
        let [found] = &read("dstat.csv")[..] else { panic!("one machine") };
        assert_eq!(found.node.as_deref(), Some("vm"));
        let idle = found.resources.series("cpu_idle_percent");
        assert_eq!(idle, [(1.0, 0.0), (2.0, 0.0)], "without the first line");
        assert_eq!(found.resources.extent(), Some((1_794_973_420.0, 1_794_973_421.0)));
        assert_eq!(
            found.resources.mean("memory_used_bytes"),
            Some((2_822_615_040.0 + 2_767_765_504.0) / 2.0)
        );
        assert_eq!(found.resources.mean("disk_read_bytes_per_second"), Some(4096.0));
        assert_eq!(found.resources.mean("disk_writes_per_second"), Some(31.0));
        let [cores] = &read("dstat-cores.csv")[..] else { panic!("one machine") };
        assert_eq!(cores.resources.core_count(), Some(2));
        let busy = cores.resources.cores().next().unwrap().1.to_vec();
        assert!((busy[0] - 100.0).abs() < 1e-3 && (busy[1] - 100.0).abs() < 1e-3, "{busy:?}");
        assert_eq!(cores.resources.mean("network_sent_packets_per_second"), Some(0.0));
    }

    /// Written by dool 1.3.8, which names months and has another list of memory columns.
    #[test]
    fn what_dool_wrote_is_read() {
        let [found] = &read("dool.csv")[..] else { panic!("one machine") };
        assert_eq!(found.resources.series("cpu_user_percent").len(), 3);
        assert_eq!(found.resources.extent().unwrap().0, 1_794_973_395.0);
        let first = found.resources.series("memory_available_bytes")[0].1;
        assert_eq!(first, 21_782_237_184.0);
    }

    /// Written by sysstat 12.6: `sadf -d -- -u ALL -P ALL -r -n DEV -d -b`.
    #[test]
    fn what_sar_wrote_is_read() {
        let [found] = &read("sadf.csv")[..] else { panic!("one machine") };
        assert_eq!(found.node.as_deref(), Some("vm"));
        let user = found.resources.series("cpu_user_percent");
        assert_eq!((user.len(), user[0]), (4, (1.0, 86.89)));
        assert_eq!(found.resources.core_count(), Some(2));
        assert_eq!(found.resources.series("disk_reads_per_second")[0].1, 4.85);
        let read = found.resources.series("disk_read_bytes_per_second")[0].1;
        assert!((read - 683.5 * 512.0).abs() < 1e-6, "not once more by device: {read}");
        assert_eq!(found.resources.series("memory_free_bytes")[0].1, 10_082_644.0 * 1024.0);
        assert_eq!(found.resources.series("loopback_bytes_per_second").len(), 4);
        let [epoch] = &self::read("sadf-epoch.csv")[..] else { panic!("one machine") };
        assert_eq!(epoch.resources.extent(), found.resources.extent());
    }

    #[test]
    fn our_own_file_is_read_with_its_last_line_cut_off() {
        let text = "time_seconds,elapsed_seconds,cpu_idle_percent\n10,1,5\n11,2,7\n12,3";
        let found = parse(text).unwrap();
        assert_eq!(found[0].1.series("cpu_idle_percent"), [(1.0, 5.0), (2.0, 7.0)]);
    }

    /// Half of a file drawn as a whole one would be believed.
    #[test]
    fn what_cannot_be_understood_is_an_error_with_its_line() {
        let ours = "time_seconds,elapsed_seconds,cpu_idle_percent\n";
        let dstat = fs::read_to_string(sample("dstat.csv")).unwrap();
        let sar = fs::read_to_string(sample("sadf.csv")).unwrap();
        let cases: Vec<(String, usize, &str)> = vec![
            (String::new(), 1, "the file is empty"),
            ("a,b\n1,2\n".to_owned(), 1, "not a recording"),
            ("\0\0".to_owned(), 1, "not text"),
            (ours.to_owned(), 1, "before its first reading"),
            (format!("{ours}1,2\n"), 2, "2 values for 3 columns"),
            (format!("{ours}1,2,x\n"), 2, "`x` is not a number"),
            ("time_seconds,cpu\n1,2\n".to_owned(), 1, "no column elapsed_seconds"),
            (dstat[..dstat.find("18-11").unwrap()].to_owned(), 6, "before its first reading"),
            (dstat.replace("18-11 03:43:40", "18-11"), 8, "`18-11` is not a time"),
            (dstat.replace(",87.500", ""), 8, "17 values for 18 columns"),
            (dstat.replace("\"time\"", "\"load\""), 6, "without a time"),
            (sar.replace("03:42:43 UTC;-1;90.05", "03:42:43 UTC;-1"), 5, "13 values for 14"),
            (sar.replace("2026-11-18 03:42:43", "2026-13-18 03:42:43"), 5, "is not a time"),
        ];
        for (text, line, wanted) in cases {
            let (at, reason) = parse(&text).unwrap_err();
            assert!(reason.contains(wanted) && at == line, "line {at}: {reason}, for {wanted}");
        }
    }

    #[test]
    fn several_machines_in_one_file_of_sar_are_kept_apart_and_comments_are_marks() {
        let text = "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n\
                    a;5;1794973362;-1;10;1;2;0;0;87\nb;5;1794973362;-1;20;1;2;0;0;77\n\
                    a;-1;1794973364;COM job submitted\na;-1;1794973365;LINUX-RESTART\t(2 CPU)\n\
                    # hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;dkB/s;areq-sz;aqu-sz;await;%util\n\
                    a;5;1794973362;sda;7;1;2;0;0;0;0;3\na;5;1794973362;sdb;1;1;2;0;0;0;0;9\n";
        let found = parse(text).unwrap();
        let names: Vec<&str> = found.iter().filter_map(|(name, _)| name.as_deref()).collect();
        assert_eq!(names, ["a", "b"]);
        let a = &found[0].1;
        assert_eq!(a.series("cpu_user_percent"), [(5.0, 11.0)], "with nice; covers the interval");
        assert_eq!(a.series("disk_operations_per_second"), [(5.0, 8.0)]);
        assert_eq!(a.series("disk_written_bytes_per_second"), [(5.0, 4096.0)]);
        assert_eq!(a.series("disk_busiest_percent"), [(5.0, 9.0)]);
        let said: Vec<&str> = a.marks().iter().map(|(_, words)| words.as_str()).collect();
        assert_eq!((said, a.marks()[0].0), (vec!["job submitted", "restarted"], 1_794_973_364.0));
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(1970, 1, 1, "00:00:00"), Some(0.0));
        assert_eq!(moment(2000, 2, 29, "00:00:01"), Some(951_782_401.0));
        assert_eq!(moment(2024, 12, 31, "23:59:59"), Some(1_735_689_599.0));
        assert_eq!(moment(2024, 13, 1, "00:00:00"), None);
        assert_eq!(moment(2024, 1, 1, "25:00:00"), None);
        assert_eq!((month("Nov"), month("ovD"), month("")), (Some(11), None, None));
    }
}
