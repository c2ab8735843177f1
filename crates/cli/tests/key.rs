//! `paceline key` through the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use support::run_in;

fn key(folder: &Path, args: &[&str]) -> Output {
    run_in(folder, &[&["key"], args].concat())
}

#[test]
fn a_key_is_made_checked_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let made = key(folder.path(), &["new"]);
    assert!(made.status.success());
    let file = folder.path().join("cluster.key");
    let text = std::fs::read_to_string(&file).unwrap();
    let secret = text.trim().rsplit('-').next().unwrap();
    let said = [made.stdout.clone(), made.stderr].concat();
    assert!(!String::from_utf8(said).unwrap().contains(&secret[..16]), "the key was printed");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let checked = key(folder.path(), &["check"]);
    assert!(checked.status.success());
    assert_eq!(checked.stdout, made.stdout);
    let json = key(folder.path(), &["check", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["fingerprint"].as_str().unwrap().len(), 12);

    let again = key(folder.path(), &["new"]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "a key was overwritten");
}

#[test]
fn a_key_that_others_can_read_or_that_is_damaged_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    assert!(key(folder.path(), &["new", "k"]).status.success());
    let file = folder.path().join("k");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let exposed = key(folder.path(), &["check", "k"]);
    assert_eq!(exposed.status.code(), Some(1));
    let said = String::from_utf8(exposed.stderr).unwrap();
    assert!(said.contains("can be read by others") && said.contains("chmod 600 k"), "{said}");

    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 3]).unwrap();
    let damaged = key(folder.path(), &["check", "k"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(String::from_utf8(damaged.stderr).unwrap().contains("holds no cluster key"));

    let missing = key(folder.path(), &["check", "nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("key new nowhere"));
}
