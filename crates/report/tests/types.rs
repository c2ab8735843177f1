//! The types of the pages' script, checked by TypeScript's own compiler, which ships nothing into the page.

#![allow(clippy::unwrap_used)]

use paceline_testing::node_file;
use std::process::Command;

#[test]
fn the_script_has_no_type_error() {
    let Some(compiler) = node_file("test-env-typescript", "typescript/bin/tsc") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/charts.js");
    let output = Command::new("node")
        .arg(compiler)
        .args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals"])
        .args(["--target", "es2022", "--lib", "es2022,dom,dom.iterable", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
