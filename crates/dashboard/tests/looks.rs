//! The live page on a phone, a tablet and a desk, light and dark: nothing scrolls sideways, all text can be read. By eye:
//! `target/dashboard`.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, unix_seconds};
use paceline_testing::{browser::chromium, devtools::Tab};
use std::path::Path;
use support::{Running, finished, forming, joined, planned, started, step};

/// Widths in pixels.
const SCREENS: [u32; 3] = [390, 768, 1400];

/// A run of two tasks that goes on; its logs stay open.
fn running(root: &Path) -> [EventLog; 2] {
    let run = forming(root, "live", "joined");
    planned(root, "live", "lenet");
    ["worker/0", "worker/1"].map(|task| {
        let mut log = EventLog::append(&run.events_path(task), task).unwrap();
        for event in [joined(task), started("lenet")].into_iter().chain((1..50).map(step)) {
            log.write(unix_seconds(), &event).unwrap();
        }
        log.flush().unwrap();
        log
    })
}

#[test]
fn the_live_page_fits_every_screen() {
    let Some(browser) = chromium() else { return };
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, model) in [("one", "softmax"), ("two", "lenet"), ("three", "lenet")] {
        finished(root.path(), name, model, 0.9);
    }
    std::fs::write(root.path().join("one/worker-0.log"), "a line of the log\n".repeat(20)).unwrap();
    forming(root.path(), "forming", "waiting");
    let logs = running(root.path());
    let server = Running::of(root.path());
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 5");
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for (page, hash, there) in [
        ("list", "#", "document.querySelectorAll('tbody tr[data-run]').length === 5"),
        ("run", "#/run/one", "document.querySelector('figure svg.chart')"),
        (
            "forming",
            "#/run/forming",
            "document.body.innerText.includes('1 of 2 tasks have joined')",
        ),
        ("live", "#/run/live", "document.querySelector('figure svg[data-live]')"),
        ("compare", "#/compare/one,two", "document.querySelector('figure .entry[role=button]')"),
    ] {
        tab.evaluate(&format!("location.hash = '{hash}'"));
        tab.wait_for(there);
        for width in SCREENS {
            for (dark, theme) in [(true, "dark"), (false, "light")] {
                let file = shots.join(format!("fit-{page}-{width}-{theme}.png"));
                tab.picture(width, dark, &file);
                assert_eq!(tab.misfits(), Vec::<String>::new(), "{page} at {width}, {theme}");
                let ground = tab.evaluate("getComputedStyle(document.body).backgroundColor");
                assert_eq!(is_dark(ground.as_str().unwrap()), dark, "{page}: {ground}");
            }
        }
    }
    drop(logs);
}

/// Whether a colour such as `rgb(20, 22, 25)` is nearer to black than to white.
fn is_dark(colour: &str) -> bool {
    let numbers = colour.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    numbers.take(3).map(|number| number.parse::<u32>().unwrap()).sum::<u32>() < 3 * 128
}

/// The check sees what it is to see.
#[test]
fn small_text_and_a_page_that_is_too_wide_are_named() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let text = "<p style='font-size:9px'>tiny</p><p style='font-size:9px;display:none'>unseen</p>\
        <svg viewBox='0 0 800 100' width='400'><text y='20' font-size='14'>scaled</text></svg><div style='width:900px'>wide</div>";
    std::fs::write(&page, text).unwrap();
    let address = format!("file://{}", page.display());
    let mut tab = Tab::open(&browser, &address, folder.path());
    tab.wait_for("document.body.innerText.includes('wide')");
    tab.picture(700, false, &folder.path().join("page.png"));
    let found = tab.misfits();
    assert_eq!(found.len(), 3, "{found:?}");
    for (said, words) in found.iter().zip(["wide on 700 px", "9.00 px: tiny", "7.00 px: scaled"]) {
        assert!(said.ends_with(words), "{found:?}");
    }
}
