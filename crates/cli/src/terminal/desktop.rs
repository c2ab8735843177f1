//! Shows a page in the browser of a desktop.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program that opens a file in what its kind is opened with.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Asks the desktop to open a page, if a person watches the terminal (`watched`), a desktop is running and a program opens files.
/// `variable` reads the environment.
pub(crate) fn open(
    page: &Path,
    watched: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<Child> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let desktop =
        cfg!(target_os = "macos") || ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(is_set);
    if !watched || !desktop {
        return None;
    }
    // What it and the browser say is not for this terminal.
    Command::new(OPENER)
        .arg(page)
        .env("PATH", variable("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// With a program in the PATH that notes what it is asked to open.
    #[test]
    fn a_page_is_opened_on_a_desktop_with_a_person_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OPENER);
        std::fs::write(&program, "#!/bin/sh\necho \"$@\" > \"${0%/*}/opened\"\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let (tools, opened) = (folder.path().to_owned(), folder.path().join("opened"));
        let with = |set: &'static str, path: &Path| {
            let path = path.as_os_str().to_owned();
            move |name: &str| match name {
                "PATH" => Some(path.clone()),
                name if name == set => Some(":0".into()),
                "DISPLAY" => Some(OsString::new()),
                _ => None,
            }
        };
        let page = Path::new("a tour/report.html");
        for display in ["DISPLAY", "WAYLAND_DISPLAY"] {
            let mut child = open(page, true, with(display, &tools)).unwrap();
            assert!(child.wait().unwrap().success());
            assert_eq!(std::fs::read_to_string(&opened).unwrap(), "a tour/report.html\n");
            std::fs::remove_file(&opened).unwrap();
        }
        assert!(open(page, false, with("DISPLAY", &tools)).is_none(), "no one is watching");
        assert!(open(page, true, with("NONE", &tools)).is_none(), "no desktop");
        let empty = folder.path().join("empty");
        assert!(open(page, true, with("DISPLAY", &empty)).is_none(), "nothing opens files");
        assert!(!opened.exists());
    }
}
