//! The Python package by itself: its types, every version of Python that it says it runs on, and the columns that it hands to others.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{program, said};

/// The versions that `pyproject.toml` and its page promise.
const VERSIONS: [&str; 5] = ["3.10", "3.11", "3.12", "3.13", "3.14"];

/// A loop by hand, columns, a forked child that records nothing, a failed run, and callbacks without their frameworks.
const USE: &str = r#"
import json, os, sys, paceline
with paceline.Run("by hand", batch_size=8, data="numbers") as run:
    for number in run.batches(range(40)):
        with run.exchange():
            pass
        run.step(1 / (number + 1), learning_rate=0.25)
    run.evaluation(0.5, 0.75, examples=10, seconds=0.1)
child = os.fork()
if child == 0:
    run.step(1.0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
record = paceline.read(run.path)
columns = record.columns()
assert sum(columns["steps"]) == 40 and sum(columns["examples"]) == 320, columns
assert columns["learning_rate"][-1] == 0.25 and "exchange_seconds" in columns, columns
assert record.columns("evaluation")["accuracy"] == [0.75]
try:
    with paceline.Run("broken"):
        raise ValueError("shapes differ")
except ValueError:
    pass
for make in (paceline.keras_callback, paceline.lightning_callback, paceline.trainer_callback):
    try:
        make()
        raise AssertionError("made without its framework")
    except ImportError:
        pass
print(json.dumps({"version": list(sys.version_info[:2]), "run": str(run.path)}))
"#;

fn package() -> PathBuf {
    paceline_testing::workspace().join("crates/cli/python")
}

/// An interpreter of a version: on the `PATH`, or one that pyenv has built.
fn interpreter(version: &str) -> Option<PathBuf> {
    let works = |python: &PathBuf| {
        let asked = "import sys; print('%d.%d' % sys.version_info[:2])";
        let output = Command::new(python).args(["-c", asked]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == version)
    };
    let home = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")))?;
    let built = fs::read_dir(home.join("versions")).into_iter().flatten().flatten();
    let built = built
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{version}.")))
        .map(|entry| entry.path().join("bin/python"));
    std::iter::once(PathBuf::from(format!("python{version}"))).chain(built).find(works)
}

fn python(interpreter: &Path, folder: &Path, script: &str) -> Command {
    let mut command = Command::new(interpreter);
    // Python 3.12 and later warn of a fork beside threads, which is what is tried here.
    command.current_dir(folder).args(["-W", "error", "-W", "ignore::DeprecationWarning"]);
    command.args(["-c", script]);
    command.env("PYTHONPATH", package()).env("PACELINE", program());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn every_version_of_python_that_is_promised_records_and_reads_a_run() {
    let mut tried = Vec::new();
    for version in VERSIONS {
        let Some(interpreter) = interpreter(version) else {
            // Not all of them are on one machine, and none of them is what the others are not.
            eprintln!("skipped: no Python {version} on the PATH or in pyenv");
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let output = python(&interpreter, folder.path(), USE).output().unwrap();
        assert!(output.status.success(), "{version}: {}", said(&output));
        let listed = support::json_in(folder.path(), &["runs", "--json"]);
        let listed = listed.as_array().unwrap();
        let named = |name: &str| listed.iter().find(|run| run["summary"]["model"] == name).unwrap();
        assert_eq!(named("by hand")["summary"]["examples"], 320, "{version}");
        assert_eq!(named("broken")["verdict"], "ValueError: shapes differ", "{version}");
        for run in paceline_runs::list(&folder.path().join("runs")).unwrap() {
            for log in run.event_files().unwrap() {
                let errors = paceline_testing::schema_errors("run-folder.schema.json", &log);
                assert_eq!(errors.unwrap_or_default(), "", "{version}");
            }
        }
        tried.push(version);
    }
    eprintln!("tried: {}", tried.join(", "));
    if tried.is_empty() {
        let _: Option<()> = paceline_testing::missing("no Python from 3.10 on");
    }
}

/// It says that it is typed (`py.typed`).
#[test]
fn the_package_passes_the_strictest_checks_of_its_types() {
    let Some(interpreter) = paceline_testing::python("mypy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut mypy = Command::new(interpreter);
    mypy.current_dir(package()).args(["-m", "mypy", "--strict", "--python-version", "3.10"]);
    mypy.args(["--ignore-missing-imports", "-p", "paceline", "--cache-dir"]).arg(folder.path());
    let output = mypy.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

const COLUMNS: &str = r#"
import sys, paceline
with paceline.Run("by hand", batch_size=8) as run:
    for number in run.batches(range(40)):
        run.step(1 / (number + 1))
record = paceline.read(run.path)
frame, table = record.dataframe(), record.arrow()
columns = record.columns()
assert list(frame.columns) == list(columns) == table.column_names, (frame.columns, table)
assert len(frame) == table.num_rows == len(columns["step"])
assert frame["examples"].sum() == 320 and table["examples"].to_pylist() == columns["examples"]
assert frame["seconds"].dtype.kind == "f" and str(table.schema.field("step").type) == "int64"
ended = record.dataframe("run_ended")
assert ended["status"].tolist() == ["done"] and record.arrow("run_started").num_rows == 1
"#;

#[test]
fn events_become_a_table_of_pandas_and_of_arrow() {
    let folder = tempfile::tempdir().unwrap();
    let Some(interpreter) = paceline_testing::python("pandas, pyarrow") else { return };
    let output = Command::new(interpreter)
        .current_dir(folder.path())
        .args(["-c", COLUMNS])
        .env("PYTHONPATH", package())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn without_pandas_or_arrow_it_is_said_what_to_install() {
    let Some(interpreter) = paceline_testing::python("json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
import sys, paceline
sys.modules["pandas"] = sys.modules["pyarrow"] = None
with paceline.Run("by hand", batch_size=8) as run:
    run.step(0.5)
record = paceline.read(run.path)
for call in (record.dataframe, record.arrow):
    try:
        call()
    except ImportError as error:
        print(error)
"#;
    let output = python(&interpreter, folder.path(), script).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        told,
        "dataframe() needs pandas (pip install pandas); columns() needs nothing\n\
         arrow() needs pyarrow (pip install pyarrow); columns() needs nothing\n"
    );
}
