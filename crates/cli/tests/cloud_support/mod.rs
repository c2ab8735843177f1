//! A folder to submit from, with stand-ins for the sites' own tools.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use crate::support::{CLOUD_JOB, command_in};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A folder with the job and an empty folder of tools, which is all of the PATH but the system's own.
pub fn site() -> tempfile::TempDir {
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("job.toml"), CLOUD_JOB).unwrap();
    fs::create_dir(site.path().join("bin")).unwrap();
    site
}

/// Writes a tool that does what the script says.
pub fn tool(site: &Path, name: &str, script: &str) {
    let path = site.join("bin").join(name);
    fs::write(
        &path,
        format!("#!/bin/bash\necho \"$0 $*\" >> {}/calls\n{script}\n", site.display()),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `paceline cloud` that finds the stand-ins.
pub fn cloud_command(site: &Path, words: &[&str]) -> Command {
    let path = format!("{}:/usr/bin:/bin", site.join("bin").display());
    let words: Vec<&str> = ["cloud"].iter().chain(words).copied().collect();
    let mut command = command_in(site, &words);
    command.env("PATH", path);
    command
}

pub fn cloud(site: &Path, words: &[&str]) -> Output {
    cloud_command(site, words).output().unwrap()
}

/// The job with another command.
pub fn job_of(site: &Path, command: &str, more: &[(&str, &str)]) {
    let prepare = r#"["prepare", "gs://lab/photos", "gs://lab/shards", "--size", "192"]"#;
    let job = more.iter().fold(CLOUD_JOB.replace(prepare, command), |job, (from, to)| {
        assert!(job.contains(from), "{from}");
        job.replace(from, to)
    });
    fs::write(site.join("job.toml"), job).unwrap();
}

pub fn calls(site: &Path) -> String {
    fs::read_to_string(site.join("calls")).unwrap_or_default()
}

/// `ssh HOST COMMAND` and `scp FROM HOST:TO` on this machine: every host is a folder.
pub const SSH: &str = r#"while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done
home=$HOSTS/$1; mkdir -p "$home"; cd "$home" && HOME=$home exec bash -c "$2""#;
pub const SCP: &str = r#"words=(); while [[ $# -gt 0 ]]; do case $1 in -o) shift ;; -*) ;; *) words+=("$1") ;; esac; shift; done
place() { case $1 in *:/*) echo "${1#*:}" ;; *:*) echo "$HOSTS/${1%%:*}/${1#*:}" ;; *) echo "$1" ;; esac; }
cp -r "$(place "${words[0]}")" "$(place "${words[1]}")""#;
