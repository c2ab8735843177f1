//! The command of a cell or of a side of a comparison: which program, with which arguments, and what it said last.

use crate::template::Names;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time a process has to exit after SIGTERM before it is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(20);
/// How much of a log is read for its last lines.
const TAIL: usize = 8 << 10;

/// The error in a log, else its last line.
pub(crate) fn last_error(log: &Path) -> Option<String> {
    let text = tail(log)?;
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines().next_back()).map(str::to_owned)
}

/// The last `count` lines of a log that say anything.
pub(crate) fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let text = tail(log).unwrap_or_default();
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

fn tail(log: &Path) -> Option<String> {
    let bytes = fs::read(log).ok()?;
    Some(String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]).into_owned())
}

/// Where a program is: by its path, else in a folder of `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    let folders =
        std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(runs)
}

/// Fills the placeholders that are known and leaves all other braces to the program, which may mean something else by them.
pub(crate) fn fill_known(text: &str, names: &Names) -> String {
    names
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_of_other_programs_stay_as_they_are() {
        let names = Names::from([("lr".to_owned(), "0.1".to_owned())]);
        assert_eq!(fill_known("{print $1} {lr} {lrr} {", &names), "{print $1} 0.1 {lrr} {");
    }

    #[test]
    fn programs_are_found_by_path_and_by_name() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert!(find_program("/bin/sh").is_some());
        assert!(find_program("/etc/passwd").is_none(), "a file that cannot be run");
        assert!(find_program("no-such-program-here").is_none());
    }
}
