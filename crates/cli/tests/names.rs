//! Names that are made to look like something else: line ends, colours and cursor movements in what files, runs and jobs are called.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use support::{run_in, said, train_as};

/// Ends its line, pretends to be an error, colours what follows, goes back and overwrites.
const EVIL: &str = "evil\nerror: fake\x1b[31m\rx\u{9b}2J";
const SHOWN: &str = "evil\\nerror: fake\\u{1b}[31m\\rx\\u{9b}2J";

/// What a call prints on both streams: nothing in it may act on the terminal.
#[track_caller]
fn printed(folder: &Path, words: &[&str]) -> String {
    let output = run_in(folder, words);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
    let acting = text.chars().filter(|c| c.is_control() && *c != '\n');
    assert_eq!(acting.count(), 0, "{words:?}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("error: fake")), "{words:?}: {text:?}");
    text
}

#[test]
fn a_name_with_control_characters_was_printed_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train_as(
        here,
        "one",
        "--model softmax --data generated:digits?examples=60 --steps 2 --batch-size 8",
    );
    fs::create_dir(here.join(EVIL)).unwrap();
    fs::rename(here.join("runs/one"), here.join(EVIL).join(EVIL)).unwrap();
    assert!(printed(here, &["runs", "--runs", EVIL]).contains(SHOWN));
    assert!(printed(here, &["runs", "--runs", &format!("{EVIL}/none")]).contains(SHOWN));
    assert!(printed(here, &["report", &format!("{EVIL}/none")]).contains(SHOWN));
    assert!(printed(here, &["cloud", "status", EVIL]).contains(SHOWN));
    assert!(printed(here, &["cloud", "plan", EVIL]).contains(SHOWN));
    // A class of photos, and a file in it that is not a photo.
    let photos = here.join("photos").join(EVIL);
    fs::create_dir_all(&photos).unwrap();
    fs::write(photos.join(format!("{EVIL}.jpg")), "no photo").unwrap();
    let made = printed(here, &["prepare", "photos", "shards", "--size", "8", "--shards", "1"]);
    assert!(made.contains("rejects.jsonl"), "{made}");
    let resumed = printed(here, &["train", "--resume", &format!("{EVIL}/{EVIL}")]);
    assert!(resumed.contains(SHOWN), "{resumed}");
}
