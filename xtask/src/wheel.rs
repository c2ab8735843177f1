//! `cargo xtask wheel`: the Python wheel, which carries the program.
//!
//! `python/wheel_backend.py` writes it, so that `pip wheel python` gives the same file; here the program is built first.

use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// Builds the program, unless one is named, and the wheel below `target/wheels`.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let binary = match words {
        [] => {
            call(
                crate::environment::cargo(root).args([
                    "build",
                    "--release",
                    "--package",
                    "paceline",
                ]),
                root,
            )?;
            root.join("target/release/paceline")
        }
        [binary] => Path::new(binary)
            .canonicalize()
            .with_context(|| format!("cannot find the program `{binary}`"))?,
        _ => bail!("usage: cargo xtask wheel [BINARY]"),
    };
    pack(root, &binary, None, &root.join("target/wheels"))
}

/// Packs a program into a wheel in `folder`; `machine` is its processor where that is not this one's.
pub fn pack(
    root: &Path,
    binary: &Path,
    machine: Option<&str>,
    folder: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let script = "import sys, wheel_backend; print(sys.argv[1] + '/' + wheel_backend.build_wheel(sys.argv[1]))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(folder).env("PACELINE_BINARY", binary);
    if let Some(machine) = machine {
        python.env("PACELINE_MACHINE", machine);
    }
    call(python.env("PYTHONDONTWRITEBYTECODE", "1"), &root.join("crates/cli/python"))
}

fn call(command: &mut Command, folder: &Path) -> anyhow::Result<()> {
    let words = format!("{command:?}");
    let status =
        command.current_dir(folder).status().with_context(|| format!("cannot run {words}"))?;
    if !status.success() {
        bail!("{words}: {status}");
    }
    Ok(())
}
