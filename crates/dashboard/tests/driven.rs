//! The page as people use it: typed into and clicked in a real browser, while runs start, progress and end.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use paceline_runs::{Diagnosis, EventLog, RunState, unix_seconds};
use paceline_testing::{browser::chromium, devtools::Tab};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Running, finished, forming, joined, planned, started, step};

#[test]
fn runs_are_filtered_compared_and_opened_by_hand() {
    let Some(browser) = chromium() else { return };
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, model) in [("one", "softmax"), ("two", "lenet"), ("three", "lenet")] {
        finished(root.path(), name, model, 0.9);
    }
    let server = Running::of(root.path());
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelectorAll('tbody tr').length === 3");
    tab.fill("input[type=search]", "lenet done");
    tab.wait_for("document.querySelectorAll('tbody tr').length === 2");
    assert_eq!(tab.evaluate("document.querySelector('.count').textContent"), "2 of 3 runs");
    tab.fill("input[type=search]", "no such run");
    tab.wait_for("document.querySelectorAll('tbody tr').length === 0");
    tab.fill("input[type=search]", " ");
    tab.wait_for("document.querySelectorAll('tbody tr').length === 3");
    assert_eq!(tab.evaluate("document.querySelector('.compare').disabled"), true);
    tab.click("tr[data-run=one] input");
    tab.click("tr[data-run=two] input");
    assert_eq!(tab.evaluate("document.querySelector('.compare').textContent"), "Compare 2 runs");
    tab.click(".compare");
    tab.wait_for(
        "location.hash.startsWith('#/compare/') && document.body.innerText.includes('per run')",
    );
    // It is worked with: a run is hidden in a chart, the table is sorted.
    tab.wait_for("document.querySelector('figure .entry[role=button]') && document.querySelector('.controls')");
    let drawn =
        "document.querySelector('.entry').closest('figure').querySelectorAll('.series').length";
    let both = tab.evaluate(drawn).as_f64().unwrap();
    tab.evaluate("document.querySelector('.entry').dispatchEvent(new MouseEvent('click', { bubbles: true }))");
    assert!(tab.evaluate(drawn).as_f64().unwrap() < both);
    tab.click("main table thead th:nth-child(2)");
    let order = "document.querySelector('main table th:nth-child(2)').getAttribute('aria-sort')";
    assert_eq!(tab.evaluate(order), "ascending");
    // Another run that ends changes nothing of that.
    let name = "globalThis.kept = document.querySelector('figure svg.chart')";
    tab.evaluate(name);
    finished(root.path(), "one", "softmax", 0.5);
    tab.wait_for("document.querySelector('main').innerText.includes('50.00')");
    assert_eq!(tab.evaluate(order), "ascending");
    assert_eq!(tab.evaluate("kept === document.querySelector('figure svg.chart')"), true);
    assert!(tab.evaluate(drawn).as_f64().unwrap() < both);
    // Back, and into one of them.
    tab.click(".tools a.button");
    tab.click("tr[data-run=three]");
    tab.wait_for("location.hash === '#/run/three' && document.querySelector('svg')");
    assert_eq!(tab.evaluate("document.querySelector('.state').textContent"), "done");
}

/// A cell of a grid of 43 learning rates and 7 batch sizes.
fn cell(root: &Path, at: u32) {
    let accuracy = 0.5 + f64::from(at) / 1000.0;
    let run =
        finished(root, &format!("cells/{at:03}/20261117-222847-lenet-qrz7"), "lenet", accuracy);
    let plan = serde_json::json!({
        "threads": 2, "version": "0.1.0",
        "spec": { "model": "lenet", "strategy": "one-device", "data": "/data/digits", "keep": 2,
                  "learning_rate": f64::from(1 + at % 43) / 1000.0, "batch_size": 16 * (1 + at / 43) },
    });
    std::fs::write(run.path().join("plan.json"), plan.to_string()).unwrap();
    let RunState::Ended(mut summary) = run.state() else { panic!("it has ended") };
    summary.diagnosis = Some(Diagnosis::default());
    summary.global_batch = u64::from(16 * (1 + at / 43));
    run.write_summary(&summary).unwrap();
}

/// The list called all of them `lenet one-device`, and a comparison left out all but twelve.
#[test]
fn the_runs_of_a_grid_are_told_apart_and_all_of_them_compared() {
    let Some(browser) = chromium() else { return };
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    (0..301).for_each(|at| cell(root.path(), at));
    let server = Running::of(root.path());
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 301");
    let names =
        "[...document.querySelectorAll('tr[data-run] .name a')].map((it) => it.textContent)";
    assert_eq!(tab.evaluate(&format!("new Set({names}).size")), 301);
    assert_eq!(tab.evaluate(&format!("{names}.includes('lenet: lr 0.043, batch 112')")), true);
    let heads = "[...document.querySelectorAll('thead [data-sort]')].map((it) => it.dataset.sort).join(' ')";
    let shown = tab.evaluate(heads).as_str().unwrap().to_owned();
    assert!(shown.starts_with("name state learning_rate batch_size step"), "{shown}");
    // Nothing is reached only by scrolling sideways.
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for width in [1400, 768, 390] {
        tab.picture(width, false, &shots.join(format!("grid-{width}.png")));
        let wide = "[document.documentElement, ...document.querySelectorAll('.scroll')].filter((it) => it.scrollWidth > it.clientWidth).length";
        assert_eq!(tab.evaluate(wide), 0, "at {width}");
    }
    tab.evaluate("document.querySelector('thead .all').click()");
    tab.wait_for("document.querySelector('.compare').textContent === 'Compare 301 runs'");
    tab.click(".compare");
    let lines = "[...document.querySelectorAll('figure')].find((it) => it.innerText.includes('Which settings go with'))?.querySelectorAll('path.line').length";
    tab.wait_for(&format!("{lines} === 301"));
    let text = tab.evaluate("document.querySelector('main').innerText");
    assert!(text.as_str().unwrap().contains("28 of 301 runs are drawn"), "{text}");
    // What there is no room for is said.
    let named = "name=cells/000/20261117-222847-lenet-qrz7";
    let (_, answer) = server.get(&format!("/api/compare?chosen=900&{named}"));
    assert!(answer.contains("900 runs were chosen; the first 1 are compared."), "{answer}");
}

#[test]
fn a_run_is_followed_from_the_first_task_to_the_last_step() {
    let Some(browser) = chromium() else { return };
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = forming(root.path(), "live", "waiting");
    let server = Running::of(root.path());
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelector('.state.forming')");
    tab.click("tr[data-run=live]");
    tab.wait_for("document.body.innerText.includes('1 of 2 tasks have joined')");
    tab.wait_for("document.body.innerText.includes('connection refused')");
    forming(root.path(), "live", "joined");
    tab.wait_for("document.body.innerText.includes('2 of 2 tasks have joined')");
    // All tasks have joined: the run begins, and the page with it.
    let mut logs = ["worker/0", "worker/1"]
        .map(|task| EventLog::append(&run.events_path(task), task).unwrap());
    for (log, task) in logs.iter_mut().zip(["worker/0", "worker/1"]) {
        log.write(unix_seconds(), &joined(task)).unwrap();
        log.write(unix_seconds(), &started("lenet")).unwrap();
        log.write(unix_seconds(), &step(10)).unwrap();
        log.flush().unwrap();
    }
    planned(root.path(), "live", "lenet");
    std::fs::create_dir_all(run.path().join("logs")).unwrap();
    for (name, text) in [("worker-0.log", "I am the chief"), ("worker-1.log", "I am the other")] {
        std::fs::write(run.path().join("logs").join(name), text).unwrap();
    }
    tab.wait_for("document.querySelector('.state.running')");
    // Into one task, and into its log.
    tab.wait_for("document.querySelectorAll('.tabs[aria-label=Task] button').length === 3");
    let pressed =
        "document.querySelector('.tabs[aria-label=Task] [aria-pressed=true]').textContent";
    assert_eq!(tab.evaluate(pressed), "All tasks");
    tab.click(".tabs[aria-label=Task] button:nth-child(3)");
    tab.wait_for(&format!("{pressed} === 'worker/1'"));
    tab.wait_for("document.querySelector('pre.log').textContent.includes('I am the chief')");
    tab.click(".tabs[aria-label=Log] button:nth-child(2)");
    tab.wait_for("document.querySelector('pre.log').textContent.includes('I am the other')");
    // Every step shows without a reload; how soon is said, not asserted.
    tab.evaluate("location.hash = '#'");
    let mut delays: Vec<Duration> = Vec::new();
    for at in 2..12 {
        logs[0].write(unix_seconds(), &step(10 * at)).unwrap();
        logs[0].flush().unwrap();
        let begun = Instant::now();
        tab.wait_for(&format!("document.querySelector('tr[data-step=\"{}\"]')", 10 * at));
        delays.push(begun.elapsed());
    }
    delays.sort();
    eprintln!("a step shows after {:?} at the median, {:?} at most", delays[5], delays[9]);
    drop(logs);
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    tab.picture(390, true, &shots.join("list-390-dark.png"));
    tab.picture(390, false, &shots.join("list-390.png"));
    assert_eq!(
        tab.evaluate("document.documentElement.scrollWidth <= 390"),
        true,
        "wider than the phone"
    );
}
