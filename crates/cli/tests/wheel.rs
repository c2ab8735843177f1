//! The Python wheel, built with this very program, installed into a fresh environment and used there.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{program, said};

const USE: &str = r#"
import importlib.metadata, json, pathlib, subprocess, sys, paceline
assert paceline.__version__ == sys.argv[1], paceline.__version__
assert "site-packages" in paceline.__file__, paceline.__file__
assert "\n# Paceline\n" in str(importlib.metadata.metadata("paceline")), "no README in the metadata"
with paceline.Run("by hand", batch_size=8) as run:
    for number in run.batches(range(20)):
        run.step(1.0 / (number + 1))
record = paceline.read(run.path)
assert sum(record.columns()["steps"]) == 20
assert record.summary()["status"] == "done" and record.verdict
assert "20 steps" in run._repr_html_(), run._repr_html_()
machine = json.loads((run.path / "machine.json").read_text())
assert "use.py" in machine["command"], machine
"#;

#[track_caller]
fn works(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Packs `binary` into a wheel and installs that into an environment below `folder`, which is returned.
fn install(folder: &Path, python: &Path, binary: &Path, machine: Option<&str>) -> PathBuf {
    let script = "import sys, wheel_backend; print(wheel_backend.build_wheel(sys.argv[1]))";
    let mut build = Command::new(python);
    build.current_dir(paceline_testing::workspace().join("crates/cli/python"));
    build.args(["-B", "-c", script]).arg(folder).env("PACELINE_BINARY", binary);
    build.envs(machine.map(|machine| ("PACELINE_MACHINE", machine)));
    let wheel = folder.join(works(&mut build).trim());
    let name = wheel.file_name().unwrap().to_string_lossy().into_owned();
    let start = format!("paceline-{}-py3-none-", env!("CARGO_PKG_VERSION"));
    assert!(name.starts_with(&start) && name.contains("linux_"), "{name}");
    let environment = folder.join("venv");
    works(Command::new(python).args(["-m", "venv"]).arg(&environment));
    let fresh = environment.join("bin/python");
    works(Command::new(&fresh).args(["-m", "pip", "install", "--no-index", "--quiet"]).arg(&wheel));
    environment
}

/// Its wheel was for systems with musl alone, so that pip refused it on every other.
#[test]
fn a_program_that_needs_no_c_library_is_for_every_linux() {
    let Some(python) = paceline_testing::python("venv") else { return };
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("static");
    fs::write(&binary, "#!/bin/sh\necho needs nothing\n").unwrap();
    let environment = install(folder.path(), &python, &binary, Some(std::env::consts::ARCH));
    let told = works(&mut Command::new(environment.join("bin/paceline")));
    assert_eq!(told, "needs nothing\n");
}

#[test]
fn a_wheel_is_installed_and_used_in_a_fresh_environment() {
    let Some(python) = paceline_testing::python("venv") else { return };
    let folder = tempfile::tempdir().unwrap();
    let environment = install(folder.path(), &python, Path::new(program()), None);
    let version = works(Command::new(environment.join("bin/paceline")).arg("--version"));
    assert_eq!(version.trim(), format!("paceline {}", env!("CARGO_PKG_VERSION")));
    fs::write(folder.path().join("use.py"), USE).unwrap();
    let mut by_hand = Command::new(environment.join("bin/python"));
    by_hand.current_dir(folder.path()).args(["use.py", env!("CARGO_PKG_VERSION")]);
    // Neither the sources nor a program of the shell it is run from.
    by_hand.env_remove("PYTHONPATH").env_remove("PACELINE").env_remove("PACELINE_RUN_FOLDER");
    works(&mut by_hand);
    // `pip check` reads the metadata, `pip uninstall` the record: nothing stays behind.
    works(Command::new(environment.join("bin/python")).args(["-m", "pip", "check"]));
    let mut remove = Command::new(environment.join("bin/python"));
    works(remove.args(["-m", "pip", "uninstall", "--yes", "--quiet", "paceline"]));
    assert!(!environment.join("bin/paceline").exists());
}
