//! `cargo xtask sanitize`: unsafe code under tools that see what a test cannot.
//!
//! AddressSanitizer runs the tests of every crate whose unsafe code reads or writes memory, vector instructions, shared memory and
//! codecs included. Its runtime comes with the compiler, and `RUSTC_BOOTSTRAP` lets a stable one use it. Miri interprets the portable
//! path of the kernels and their threads, and also sees what happens to be harmless on this machine; it needs a nightly
//! compiler (`rustup component add miri rust-src --toolchain nightly`).

use crate::environment;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// Crates that AddressSanitizer looks at.
const ADDRESS: &[&str] = &[
    "data",
    "kernels",
    "matmul",
    "models",
    "photo",
    "probes",
    "store",
    "strategies",
    "training",
    "wire",
];
/// Crates that Miri can interpret.
const MIRI: &[&str] = &["kernels"];
/// Tests that are only larger than others, which Miri would take hours for.
const LARGE: &[&str] = &["shapes_of_the_models_match", "products_larger_than_every_block_match"];

/// Runs one of the tools, or both.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    match words {
        [] => address(root).and_then(|()| miri(root)),
        ["address"] => address(root),
        ["miri"] => miri(root),
        other => bail!("no such tool: {}; there are: address, miri", other.join(" ")),
    }
}

fn packages(command: &mut Command, crates: &[&str]) {
    for name in crates {
        command.args(["--package", &format!("paceline-{name}")]);
    }
}

fn address(root: &Path) -> anyhow::Result<()> {
    let mut cargo = environment::cargo(root);
    cargo.current_dir(root).args(["test", "--lib", "--tests", "--target"]);
    cargo.arg(environment::host()?);
    packages(&mut cargo, ADDRESS);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    cargo.env("CARGO_TARGET_DIR", root.join("target/sanitize"));
    finish(cargo, "AddressSanitizer")
}

fn miri(root: &Path) -> anyhow::Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["+nightly", "miri", "test", "--lib"]);
    packages(&mut cargo, MIRI);
    cargo.arg("--");
    for name in LARGE {
        cargo.args(["--skip", name]);
    }
    // A few random cases of each property: one takes as long as hundreds do without it.
    cargo.env("PROPTEST_CASES", "4").env("PROPTEST_FAILURE_PERSISTENCE", "off");
    cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    cargo.env("CARGO_TARGET_DIR", root.join("target/sanitize"));
    finish(cargo, "Miri")
}

fn finish(mut cargo: Command, tool: &str) -> anyhow::Result<()> {
    if !cargo.status().with_context(|| format!("cannot run {cargo:?}"))?.success() {
        bail!("{tool}: something is wrong, or it is not installed; see above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Crates whose unsafe code only asks the system for something, and hands it no memory to work on.
    const CALLS_ONLY: &[&str] = &["batch", "cluster"];

    fn has_unsafe_code(folder: &Path) -> bool {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().any(|path| {
            if path.is_dir() {
                return has_unsafe_code(&path);
            }
            path.extension().is_some_and(|end| end == "rs")
                && fs::read_to_string(&path).unwrap().contains("allow(unsafe_code")
        })
    }

    /// `data`, `matmul`, `strategies` and `training` have unsafe code and were missing from the list.
    #[test]
    fn every_crate_with_unsafe_memory_code_is_under_the_sanitizer() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for entry in fs::read_dir(crates).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !path.join("src").is_dir() || !has_unsafe_code(&path.join("src")) {
                continue;
            }
            let listed = ADDRESS.contains(&name.as_str());
            assert!(listed != CALLS_ONLY.contains(&name.as_str()), "{name}");
        }
    }
}
