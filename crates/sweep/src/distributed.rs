//! Cells that run as tasks of an engine such as Spark.
//!
//! A cell becomes a self-contained line of text. The worker that gets it runs it in a temporary folder beside the cell's, writes
//! the row there, and renames the folder to the cell's name: the first attempt wins, exactly once, and a later one finds the row
//! and runs nothing. The sweep copies the rows into its journal as they appear.
//!
//! ```text
//! SWEEP/cells/0123456789abcdef.4711-89ab…/   one attempt at a cell, while it runs
//! SWEEP/cells/0123456789abcdef/row.json      its result
//! ```

use crate::error::SweepError;
use crate::grid::Cell;
use crate::journal::Row;
use crate::recipe::Recipe;
use crate::run::{Places, Runner};
use paceline_runs::{Machine, write_atomically};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The row in a cell's folder.
const ROW: &str = "row.json";

/// The header that every worker gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WorkHeader {
    /// Program and version that made it: both sides must be the same.
    program: String,
    out: PathBuf,
    data: Option<PathBuf>,
    /// Time limit of a cell in seconds.
    timeout: Option<f64>,
    keep_all: bool,
    discard: Vec<String>,
}

/// A sweep whose cells run elsewhere.
#[derive(Debug)]
pub struct Distributed {
    heading: WorkHeader,
    places: Places,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellsDone {
    /// Cells it ran, those that failed included.
    pub run: u64,
    /// Cells that another attempt had already run.
    pub found: u64,
}

impl Distributed {
    /// A sweep in `places`, which every worker must see under the same paths.
    ///
    /// # Errors
    /// The current folder is gone, so that paths cannot be made absolute.
    pub fn new(
        recipe: &Recipe,
        places: &Places,
        timeout: Option<Duration>,
        keep_all: bool,
    ) -> Result<Self, SweepError> {
        let absolute = |path: &Path| {
            let failed = |source| SweepError::Read { path: path.to_owned(), source };
            std::path::absolute(path).map_err(failed)
        };
        let places = Places {
            out: absolute(&places.out)?,
            data: places.data.as_deref().map(absolute).transpose()?,
        };
        let heading = WorkHeader {
            program: program(),
            out: places.out.clone(),
            data: places.data.clone(),
            timeout: timeout.map(|limit| limit.as_secs_f64()),
            keep_all,
            discard: recipe.discard.clone(),
        };
        Ok(Self { heading, places })
    }

    /// A header, then one line per cell. Leftovers of earlier attempts at these cells are removed.
    ///
    /// # Errors
    /// A folder that cannot be removed.
    pub fn hand_out(&self, cells: &[&Cell]) -> Result<Vec<String>, SweepError> {
        let mut lines = vec![text(&self.heading)];
        for cell in cells {
            remove(&self.places.cell(cell))?;
            lines.push(text(cell));
        }
        Ok(lines)
    }

    /// The row of a cell that a worker has run.
    ///
    /// # Errors
    /// A row that is there and cannot be read.
    pub fn row(&self, cell: &Cell) -> Result<Option<Row>, SweepError> {
        read_row(&self.places.cell(cell))
    }

    /// Removes what interrupted attempts left behind.
    ///
    /// # Errors
    /// A folder that cannot be listed or removed.
    pub fn sweep_up(&self) -> Result<(), SweepError> {
        let cells = self.places.out.join("cells");
        let listed = match fs::read_dir(&cells) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(SweepError::Read { path: cells, source }),
        };
        for entry in listed.flatten() {
            if entry.file_name().to_string_lossy().contains('.') {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Runs the cells of a header and lines of [`Distributed::hand_out`], except those that were run already.
///
/// # Errors
/// Malformed lines, a folder that this machine cannot see, a set `cancel`. Errors inside a cell are part of its
/// row.
pub fn run_cells(
    input: &mut dyn BufRead,
    program: &Path,
    cancel: &AtomicBool,
) -> Result<CellsDone, SweepError> {
    let mut lines = input.lines().enumerate().map(|(index, line)| (index + 1, line));
    let bad = |line| move |source| SweepError::BadWork { line, source };
    let first = lines.next().map_or_else(|| Ok(String::new()), |(_, line)| line);
    let heading: WorkHeader = parse(first).map_err(bad(1))?;
    if heading.program != self::program() {
        return Err(SweepError::Foreign { theirs: heading.program, ours: self::program() });
    }
    if !heading.out.join(crate::journal::JOURNAL).exists() {
        return Err(SweepError::Unseen { path: heading.out });
    }
    let places = Places { out: heading.out.clone(), data: heading.data.clone() };
    let timeout = heading.timeout.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    let runner = Runner {
        program: program.to_owned(),
        places: &places,
        timeout,
        keep_all: heading.keep_all,
        cancel,
    };
    let mut done = CellsDone::default();
    for (number, line) in lines {
        let cell: Cell = parse(line).map_err(bad(number))?;
        if run_once(&runner, &heading.discard, &cell)? {
            done.run += 1;
        } else {
            done.found += 1;
        }
    }
    Ok(done)
}

/// Runs a cell unless it was run; returns whether this attempt is the one that counts.
fn run_once(runner: &Runner<'_>, discard: &[String], cell: &Cell) -> Result<bool, SweepError> {
    let folder = runner.places.cell(cell);
    if read_row(&folder)?.is_some() {
        return Ok(false);
    }
    let token = RandomState::new().hash_one(std::process::id());
    let name = format!("{}.{}-{token:016x}", cell.key, std::process::id());
    let own = folder.with_file_name(name);
    let finished = run_in(runner, discard, cell, &own).and_then(|()| {
        match fs::rename(&own, &folder) {
            Ok(()) => Ok(true),
            // Another attempt was first; its row is equally valid.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(false)
            }
            Err(source) => Err(SweepError::Write { path: folder.clone(), source }),
        }
    });
    if !matches!(finished, Ok(true)) {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&own);
    }
    finished
}

fn run_in(
    runner: &Runner<'_>,
    discard: &[String],
    cell: &Cell,
    folder: &Path,
) -> Result<(), SweepError> {
    let row = runner.run_in(discard, cell, folder)?.ok_or(SweepError::Interrupted)?;
    let row = Row { host: Some(Machine::detect().host), ..row };
    let path = folder.join(ROW);
    write_atomically(&path, text(&row).as_bytes())
        .map_err(|error| SweepError::Write { path, source: io::Error::other(error) })
}

fn read_row(folder: &Path) -> Result<Option<Row>, SweepError> {
    let path = folder.join(ROW);
    let failed = |source| SweepError::Read { path: path.clone(), source };
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(source)),
    }
}

fn remove(folder: &Path) -> Result<(), SweepError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(SweepError::Write { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(line: io::Result<String>) -> io::Result<T> {
    Ok(serde_json::from_str(&line?)?)
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs with string keys become JSON")
}

fn program() -> String {
    format!("paceline {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Settings;
    use crate::journal::Journal;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    const RECIPE: &str = r#"
        title = "t"
        command = ["train"]
        flags = { model = "softmax" }
        discard = ["shards"]
        [[axis]]
        name = "batch-size"
        values = [10, 50]
    "#;

    struct Setting {
        folder: tempfile::TempDir,
        cells: Vec<Cell>,
        sweep: Distributed,
    }

    fn setting() -> Setting {
        let folder = tempfile::tempdir().unwrap();
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let places = Places { out: folder.path().join("sweep"), data: None };
        Journal::open(&places.out).unwrap();
        let cells = Settings::default().cells(&recipe).unwrap();
        let sweep = Distributed::new(&recipe, &places, None, false).unwrap();
        Setting { folder, cells, sweep }
    }

    /// A stand-in for our binary that counts its calls.
    fn program(setting: &Setting, body: &str) -> PathBuf {
        let path = setting.folder.path().join("program.sh");
        let calls = setting.folder.path().join("calls");
        fs::write(&path, format!("#!/bin/sh\necho x >> {}\n{body}\n", calls.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(setting: &Setting) -> usize {
        fs::read_to_string(setting.folder.path().join("calls")).unwrap_or_default().lines().count()
    }

    fn work(lines: &[String], program: &Path) -> Result<CellsDone, SweepError> {
        run_cells(&mut lines.join("\n").as_bytes(), program, &AtomicBool::new(false))
    }

    #[test]
    fn cells_are_run_once_and_say_where() {
        let setting = setting();
        let program = program(&setting, "echo '{\"seconds\": 2}'");
        let cells: Vec<&Cell> = setting.cells.iter().collect();
        let lines = setting.sweep.hand_out(&cells).unwrap();
        assert_eq!(work(&lines, &program).unwrap(), CellsDone { run: 2, found: 0 });
        assert_eq!(work(&lines, &program).unwrap(), CellsDone { run: 0, found: 2 });
        assert_eq!(calls(&setting), 2);
        for cell in cells {
            let row = setting.sweep.row(cell).unwrap().unwrap();
            assert_eq!((row.cell.as_str(), &row.output["seconds"]), (cell.key.as_str(), &2.into()));
            assert!(row.host.is_some_and(|host| !host.is_empty()));
        }
    }

    #[test]
    fn attempts_at_the_same_time_leave_one_row_and_nothing_else() {
        let setting = setting();
        let program = program(&setting, "sleep 0.3; echo '{}'; exit 3");
        let lines = setting.sweep.hand_out(&[&setting.cells[0]]).unwrap();
        let done: Vec<CellsDone> = thread::scope(|scope| {
            let attempts: Vec<_> =
                (0..3).map(|_| scope.spawn(|| work(&lines, &program).unwrap())).collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
        });
        assert_eq!(done.iter().map(|done| done.run).sum::<u64>(), 1, "{done:?}");
        let row = setting.sweep.row(&setting.cells[0]).unwrap().unwrap();
        assert_eq!(row.failure.unwrap().exit, Some(3), "a failure is a row like any other");
        let left = fs::read_dir(setting.folder.path().join("sweep/cells")).unwrap();
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn interrupted_attempts_are_removed_and_foreign_lines_are_refused() {
        let setting = setting();
        let program = program(&setting, "echo '{}'");
        let cells = setting.folder.path().join("sweep/cells");
        fs::create_dir_all(cells.join("0123.1-00")).unwrap();
        fs::create_dir_all(setting.sweep.places.cell(&setting.cells[0])).unwrap();
        let lines = setting.sweep.hand_out(&[&setting.cells[0]]).unwrap();
        setting.sweep.sweep_up().unwrap();
        assert_eq!(fs::read_dir(&cells).unwrap().count(), 0);
        let foreign = [lines[0].replace("paceline ", "paceline 99."), lines[1].clone()];
        assert!(matches!(work(&foreign, &program), Err(SweepError::Foreign { .. })));
        let cut = [lines[0].clone(), lines[1][..9].to_owned()];
        assert!(matches!(work(&cut, &program), Err(SweepError::BadWork { line: 2, .. })));
        assert!(matches!(work(&[], &program), Err(SweepError::BadWork { line: 1, .. })));
        fs::remove_dir_all(setting.folder.path().join("sweep")).unwrap();
        assert!(matches!(work(&lines, &program), Err(SweepError::Unseen { .. })));
        assert_eq!(calls(&setting), 0);
    }
}
