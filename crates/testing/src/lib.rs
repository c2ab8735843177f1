//! Real data and real tools for tests.
//!
//! A test asks here for something that may be absent. What is absent is reported, and with `CI=true`
//! it is a failure: a test that silently did nothing is worse than no test.
//!
//! ```
//! // In a test: `let Some(photos) = paceline_testing::real_data("photos") else { return };`
//! let files = paceline_testing::contents(&paceline_testing::workspace().join("crates/testing/src"));
//! assert!(files.keys().any(|path| path.ends_with("lib.rs")));
//! ```

pub mod browser;
pub mod devtools;
pub mod emulators;
pub mod faults;
pub mod fuzzing;
mod google;
pub mod hdf5;
pub mod lateness;
pub mod schedules;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a test waits for an event before it says that the program hangs. Far beyond what the busiest machine needs: it
/// is there so that a hang ends with words, never to judge a speed.
pub const HANG: Duration = Duration::from_secs(900);

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("crates/testing lies two folders below the root").to_owned()
}

/// Every file below a folder with its bytes, to check that nothing was changed.
///
/// # Panics
/// When something cannot be read.
#[must_use]
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            let bytes = std::fs::read(&path).expect("the file can be read");
            files.insert(path, bytes);
        }
    }
    files
}

/// A file or folder of the real test data (`PACELINE_DATA`, else `../shared/data`), if it is there.
///
/// # Panics
/// With `CI=true`, when it is not.
#[must_use]
pub fn real_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PACELINE_DATA")
        .map_or_else(|| workspace().join("../shared/data"), PathBuf::from);
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    missing(&format!("no data at `{}`", path.display()))
}

/// The Python interpreter that `cargo xtask test` installs with the packages tests compare with, if
/// it is there and can import `module`.
///
/// # Panics
/// With `CI=true`, when it is not.
#[must_use]
pub fn python(module: &str) -> Option<PathBuf> {
    interpreter("PACELINE_TEST_PYTHON", "test-env", module)
}

/// The interpreter that `variable` names, else that of a folder below `target/`, if it can import `module`.
pub(crate) fn interpreter(variable: &str, folder: &str, module: &str) -> Option<PathBuf> {
    let python = std::env::var_os(variable)
        .map_or_else(|| workspace().join("target").join(folder).join("bin/python"), PathBuf::from);
    let works = Command::new(&python)
        .args(["-c", &format!("import {module}")])
        .output()
        .is_ok_and(|output| output.status.success());
    if works {
        return Some(python);
    }
    missing(&format!("`{}` cannot import {module}; run `cargo xtask test`", python.display()))
}

/// What is wrong with the lines of a file by a JSON Schema of `docs/`, or with the one document of a `.json` file, one finding a line;
/// `None` where no checker is installed.
///
/// # Panics
/// When the checker fails; with `CI=true` also when there is none.
#[must_use]
pub fn schema_errors(schema: &str, lines: &Path) -> Option<String> {
    const SCRIPT: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
checker = Draft202012Validator(json.load(open(sys.argv[1])))
file = open(sys.argv[2])
documents = [json.load(file)] if sys.argv[2].endswith(".json") else map(json.loads, file)
for number, document in enumerate(documents, 1):
    for error in checker.iter_errors(document):
        print(f"line {number}: {error.json_path}: {error.message}")
"#;
    let python = python("jsonschema")?;
    let schema = workspace().join("docs").join(schema);
    let output = Command::new(python).args(["-c", SCRIPT]).arg(schema).arg(lines).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Fields of a document that a JSON Schema of `docs/` does not list: schemas allow them, since readers do, but what is written here is to be
/// described.
///
/// # Panics
/// When there is no such schema.
#[must_use]
pub fn unlisted_fields(schema: &str, document: &Value) -> Vec<String> {
    let text = std::fs::read(workspace().join("docs").join(schema)).expect("the schema is there");
    let whole: Value = serde_json::from_slice(&text).expect("the schema is JSON");
    let mut found = Vec::new();
    unlisted(&whole, &whole, document, "", &mut found);
    found
}

fn unlisted(whole: &Value, schema: &Value, document: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|place| place.strip_prefix("#/$defs/")) {
        return unlisted(whole, &whole["$defs"][name], document, path, found);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        // The kind that says most about such a document; null fits anywhere.
        let lists = |kind: &Value| {
            let mut inner = Vec::new();
            unlisted(whole, kind, document, path, &mut inner);
            inner
        };
        let fewest = kinds.iter().filter(|kind| kind["type"] != "null").map(lists);
        found.extend(fewest.min_by_key(Vec::len).unwrap_or_default());
        return;
    }
    match document {
        Value::Array(all) => {
            all.iter().for_each(|each| unlisted(whole, &schema["items"], each, path, found));
        }
        Value::Object(fields) if !schema["properties"].is_null() => {
            for (name, value) in fields {
                let path = format!("{path}/{name}");
                match schema["properties"].get(name) {
                    Some(inner) => unlisted(whole, inner, value, &path, found),
                    None => found.push(path),
                }
            }
        }
        _ => {}
    }
}

/// A disk of a few kilobytes, to see what happens when it is full; unmounted even when the test fails.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of that size, such as `300k`, at a new folder, where this process may.
    ///
    /// # Panics
    /// With `CI=true`, where it may not.
    #[must_use]
    pub fn mount(folder: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(folder).expect("the folder can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder)
            .output()
            .is_ok_and(|output| output.status.success());
        if mounted { Some(Self(folder.to_owned())) } else { missing("no right to mount a tmpfs") }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A file of a Node package that `cargo xtask test` installs into a folder below `target/`, if it is there.
///
/// # Panics
/// With `CI=true`, when it is not.
#[must_use]
pub fn node_file(folder: &str, path: &str) -> Option<PathBuf> {
    let file = workspace().join("target").join(folder).join("node_modules").join(path);
    if file.is_file() {
        return Some(file);
    }
    missing(&format!("no `{}`; run `cargo xtask test`", file.display()))
}

/// What TypeScript's compiler finds wrong in a script with types in its comments; empty where all is well, none without the compiler.
///
/// # Panics
/// When `node` cannot be started; with `CI=true`, when the compiler is missing.
#[must_use]
pub fn type_errors(script: &Path) -> Option<String> {
    let compiler = node_file("test-env-typescript", "typescript/bin/tsc")?;
    let output = Command::new("node")
        .arg(compiler)
        .args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals"])
        .args(["--target", "es2022", "--lib", "es2022,dom,dom.iterable"])
        .arg(script)
        .output()
        .expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(if output.status.success() || !said.is_empty() { said } else { "tsc failed".to_owned() })
}

/// Says why a test does nothing.
///
/// # Panics
/// With `CI=true`.
#[allow(clippy::print_stderr)] // the report that something is missing
pub fn missing<T>(what: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "needed in CI: {what}");
    eprintln!("skipped: {what}");
    None
}

/// Open MPI's `mpirun`.
///
/// # Panics
/// With `CI=true`, when there is none.
#[must_use]
pub fn mpirun() -> Option<PathBuf> {
    let found = Command::new("mpirun").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        return missing("no Open MPI; run `cargo xtask test`");
    }
    Some(PathBuf::from("mpirun"))
}

/// The Python environment with Spark that `cargo xtask test` installs, if it is there and Java runs.
///
/// # Panics
/// With `CI=true`, when it is not.
#[must_use]
pub fn spark() -> Option<PathBuf> {
    let folder = std::env::var_os("PACELINE_TEST_SPARK")
        .map_or_else(|| workspace().join("target/test-spark"), PathBuf::from);
    if !folder.join("bin/spark-submit").exists() {
        return missing(&format!("no Spark at `{}`; run `cargo xtask test`", folder.display()));
    }
    let java = Command::new("java").arg("-version").output();
    if !java.is_ok_and(|output| output.status.success()) {
        return missing("no Java for Spark; run `cargo xtask test`");
    }
    Some(folder)
}
