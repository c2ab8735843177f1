//! A real browser for tests of pages: headless Chromium, with its own profile and without network access of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No window, and no background network requests.
pub(crate) const QUIETLY: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// Chromium, if it is installed.
///
/// # Panics
/// With `CI=true`, when it is not.
#[must_use]
pub fn chromium() -> Option<PathBuf> {
    let names = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = names.iter().map(PathBuf::from).find(|path| path.is_file());
    found.or_else(|| crate::missing("no Chromium; `apt-get install chromium`"))
}

/// Opens a page, lets it run for `time`, and returns the page as it then is.
///
/// # Panics
/// When the browser cannot be started or does not end.
#[must_use]
pub fn page_after(chromium: &Path, address: &str, time: Duration, profile: &Path) -> String {
    let budget = format!("--virtual-time-budget={}", time.as_millis());
    run(chromium, profile, &[&budget, "--dump-dom", address])
}

/// Takes a picture of a page, in the given size and theme.
///
/// # Panics
/// When the browser cannot be started or does not end.
pub fn picture(
    chromium: &Path,
    address: &str,
    (width, height): (u32, u32),
    dark: bool,
    file: &Path,
    profile: &Path,
) {
    let size = format!("--window-size={width},{height}");
    let shot = format!("--screenshot={}", file.display());
    let mut args = vec!["--virtual-time-budget=3000", "--hide-scrollbars", &size, &shot];
    if dark {
        args.push("--blink-settings=preferredColorScheme=0");
    }
    args.push(address);
    run(chromium, profile, &args);
}

fn run(chromium: &Path, profile: &Path, args: &[&str]) -> String {
    // With a profile still in use, the page would open in the browser that is exiting.
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let profile = profile.join(STARTS.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir_all(&profile).expect("the folder for profiles can be written");
    let out = profile.join("stdout");
    let file = std::fs::File::create(&out).expect("the profile folder is there");
    let errors =
        std::fs::File::create(profile.join("stderr")).expect("the profile folder is there");
    let mut child = Command::new(chromium)
        .args(QUIETLY)
        .arg(format!("--user-data-dir={}", profile.join("profile").display()))
        .args(args)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .expect("Chromium starts");
    let begun = Instant::now();
    while child.try_wait().expect("Chromium can be waited for").is_none() {
        if begun.elapsed() > crate::HANG {
            let _ = child.kill();
            let _ = child.wait();
            panic!("Chromium did not end within 90 s");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let page = std::fs::read(&out).unwrap_or_default();
    if page.is_empty() && args.contains(&"--dump-dom") {
        let said = std::fs::read_to_string(profile.join("stderr")).unwrap_or_default();
        panic!("Chromium showed nothing: {said}");
    }
    String::from_utf8_lossy(&page).into_owned()
}
