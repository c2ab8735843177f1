//! The page in a real browser: it lists, renews itself while a run goes on, drills down, compares, and survives hostile names.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, unix_seconds};
use paceline_testing::browser::{chromium, page_after, picture};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Running, finished, planned, started, step};

#[test]
fn the_list_the_run_and_the_comparison_are_shown() {
    let Some(browser) = chromium() else { return };
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "one", "softmax", 0.91);
    finished(root.path(), "two<script>document.title='hacked'</script>", "lenet", 0.97);
    std::fs::write(root.path().join("one/worker-0.log"), "a line of the log <b>\n").unwrap();
    let server = Running::of(root.path());
    let profile = tempfile::tempdir().unwrap();
    let open = |hash: &str| {
        page_after(
            &browser,
            &format!("{}{hash}", server.url),
            Duration::from_secs(3),
            profile.path(),
        )
    };
    let list = open("");
    assert!(list.contains("softmax one-device") && list.contains("2 runs"), "{list}");
    assert!(list.contains("97.00"), "{list}");
    assert!(!list.contains("<title>hacked"), "a name must stay text");
    let run = open("#/run/one");
    assert!(run.contains("compute-bound: 80"), "{run}");
    assert!(run.contains("<svg") && run.contains("Training loss by step"), "{run}");
    assert!(run.contains("a line of the log &lt;b&gt;"), "{run}");
    let both = open("#/compare/one,two%3Cscript%3Edocument.title%3D%27hacked%27%3C%2Fscript%3E");
    assert!(both.contains("run by run") && !both.contains("<title>hacked"), "{both}");
    // For the eye: kept where one can look at them.
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for (name, hash, size, dark) in [
        ("list", "", (1200, 700), false),
        ("list-dark-phone", "", (500, 800), true),
        ("run", "#/run/one", (1200, 1800), false),
        ("run-dark-phone", "#/run/one", (500, 1600), true),
    ] {
        let file = shots.join(format!("{name}.png"));
        picture(&browser, &format!("{}{hash}", server.url), size, dark, &file, profile.path());
        assert!(std::fs::metadata(&file).unwrap().len() > 5000, "{name}");
    }
}

#[test]
fn a_running_run_is_renewed_without_a_reload() {
    let Some(browser) = chromium() else { return };
    let root = tempfile::tempdir().unwrap();
    let run = planned(root.path(), "live", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    log.write(unix_seconds(), &step(10)).unwrap();
    log.flush().unwrap();
    let server = Running::of(root.path());
    let (over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let page = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Steps go on as fast as the page looks, so that any look but the first sees more than ten.
            let mut at = 10;
            while !over.load(Ordering::Relaxed) {
                at += 10;
                log.write(unix_seconds(), &step(at)).unwrap();
                log.flush().unwrap();
                begun.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            at
        });
        let profile = tempfile::tempdir().unwrap();
        let page = page_after(&browser, &server.url, Duration::from_secs(6), profile.path());
        over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 20);
        page
    });
    assert!(page.contains("state running") && page.contains(">live<"), "{page}");
    let seen: u64 =
        page.split("data-step=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!(seen > 10, "the page shows step {seen}");
}
