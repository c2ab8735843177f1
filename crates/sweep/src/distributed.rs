//! Cells that run as tasks of an engine such as Spark.
//!
//! A cell is handed out as [`paceline_store::handout`] describes. Its result is its folder with the row in it: an attempt
//! runs in a folder of its own beside the cell's, and the first to rename it to the cell's name wins. The sweep takes the
//! rows over into its journal as they appear.
//!
//! ```text
//! SWEEP/cells/.paceline-tmp-4711-89ab…/      one attempt at a cell, while it runs
//! SWEEP/cells/0123456789abcdef/row.json      what became of it
//! SWEEP/.ticket                              there while others may run cells
//! ```

use crate::error::SweepError;
use crate::grid::Cell;
use crate::journal::Row;
use crate::recipe::Recipe;
use crate::run::{Places, Runner};
use paceline_runs::Machine;
use paceline_store::{
    LocalStore,
    durable::{self, AtomicFolder},
    handout::{Attempt, Done, Handout, Published, Work},
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The row in a cell's folder.
const ROW: &str = "row.json";
/// Cells that others run.
const HANDOUT: Handout = Handout { ticket: ".ticket", sign: crate::journal::JOURNAL };

/// The header that every worker gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WorkHeader {
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
    store: LocalStore,
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
            out: places.out.clone(),
            data: places.data.clone(),
            timeout: timeout.map(|limit| limit.as_secs_f64()),
            keep_all,
            discard: recipe.discard.clone(),
        };
        let store = LocalStore::new(&places.out);
        Ok(Self { heading, places, store })
    }

    /// A header, then one line per cell. Leftovers of earlier attempts at these cells are removed.
    ///
    /// # Errors
    /// A folder that cannot be removed.
    pub fn hand_out(&self, cells: &[&Cell]) -> Result<Vec<String>, SweepError> {
        HANDOUT.hand_out(&self.store, &self.heading, cells, |cell| remove(&self.places.cell(cell)))
    }

    /// The row of a cell, if it was run.
    ///
    /// # Errors
    /// A row that is there and cannot be read.
    pub fn row(&self, cell: &Cell) -> Result<Option<Row>, SweepError> {
        read_row(&self.places.cell(cell))
    }

    /// Shuts out all attempts and removes what those that were cut off left behind.
    ///
    /// # Errors
    /// A folder that cannot be listed or removed.
    pub fn sweep_up(&self) -> Result<(), SweepError> {
        HANDOUT.close(&self.store)?;
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

impl Drop for Distributed {
    fn drop(&mut self) {
        // Best effort: a ticket that stays is replaced by the next one.
        let _ = HANDOUT.close(&self.store);
    }
}

/// Runs the cells of a heading and lines of [`Distributed::hand_out`], except those that were run already.
///
/// # Errors
/// Text that is not work of this program, a folder that this machine does not see, a raised `cancel`. What goes wrong inside a cell
/// is its row.
pub fn run_cells(
    input: &mut dyn BufRead,
    program: &Path,
    cancel: &AtomicBool,
) -> Result<Done, SweepError> {
    let work: Work<WorkHeader, Cell> = Work::read(input)?;
    let heading = work.heading();
    let store = LocalStore::new(&heading.out);
    let attempt = HANDOUT.enter(&store, work.ticket())?;
    let places = Places { out: heading.out.clone(), data: heading.data.clone() };
    let timeout = heading.timeout.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    let runner = Runner {
        program: program.to_owned(),
        places: &places,
        timeout,
        keep_all: heading.keep_all,
        cancel,
    };
    attempt.each(
        work.items(),
        |cell| Ok(read_row(&places.cell(cell))?.is_some()),
        |cell| run_cell(&attempt, &runner, &heading.discard, cell).map(Some),
    )
}

/// Runs a cell in a folder of this attempt's own; says whose counts.
fn run_cell(
    attempt: &Attempt<'_>,
    runner: &Runner<'_>,
    discard: &[String],
    cell: &Cell,
) -> Result<Published, SweepError> {
    let target = runner.places.cell(cell);
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| SweepError::Write { path, source }
    };
    let folder = AtomicFolder::create(&target).map_err(write(&target))?;
    let row = runner.run_in(discard, cell, folder.path())?.ok_or(SweepError::Interrupted)?;
    let row = Row { host: Some(Machine::detect().host), ..row };
    let path = folder.path().join(ROW);
    let text = serde_json::to_vec(&row).expect("plain structs with string keys become JSON");
    durable::write_file(&path, &text).map_err(write(&path))?;
    Ok(attempt.publish_folder(folder)?)
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
    durable::remove_if_there(folder)
        .map_err(|source| SweepError::Write { path: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::SweepSettings;
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
        let cells = SweepSettings::default().cells(&recipe).unwrap();
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

    fn work(lines: &[String], program: &Path) -> Result<Done, SweepError> {
        run_cells(&mut lines.join("\n").as_bytes(), program, &AtomicBool::new(false))
    }

    #[test]
    fn cells_are_run_once_and_say_where() {
        let setting = setting();
        let program = program(&setting, "echo '{\"seconds\": 2}'");
        let cells: Vec<&Cell> = setting.cells.iter().collect();
        let lines = setting.sweep.hand_out(&cells).unwrap();
        assert_eq!(work(&lines, &program).unwrap(), Done { made: 2, found: 0 });
        assert_eq!(work(&lines, &program).unwrap(), Done { made: 0, found: 2 });
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
        let done: Vec<Done> = thread::scope(|scope| {
            let attempts: Vec<_> =
                (0..3).map(|_| scope.spawn(|| work(&lines, &program).unwrap())).collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
        });
        assert_eq!(done.iter().map(|done| done.made).sum::<u64>(), 1, "{done:?}");
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
