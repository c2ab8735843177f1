//! Thousands of runs compared at once: in bounded time and memory, and the page says what it leaves out.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{Diagnosis, Final, Status, Summary};
use paceline_testing::{browser::chromium, devtools::Tab};
use serde_json::{Value, json};
use std::path::Path;
use support::{Running, parts};

const RUNS: u32 = 1200;

/// A run that has ended, without events; written as it is, since waiting for the disk a thousand times shows nothing.
fn cell(root: &Path, at: u32) -> String {
    let name = format!("20261117-{at:06}-lenet");
    let path = root.join(&name);
    std::fs::create_dir_all(&path).unwrap();
    let plan = json!({
        "threads": 2, "version": "0.1.0",
        "spec": { "model": "lenet", "strategy": "one-device", "data": "digits", "learning_rate": f64::from(1 + at % 40) / 1000.0,
                  "batch_size": 16 * (1 + at / 40) },
    });
    std::fs::write(path.join("plan.json"), plan.to_string()).unwrap();
    let loss = 1.0 / f64::from(1 + at);
    let summary = Summary {
        run: name.clone(),
        status: Status::Done,
        model: "lenet".to_owned(),
        data: "digits".to_owned(),
        started: f64::from(at),
        global_batch: u64::from(16 * (1 + at / 40)),
        examples_per_second: 1000.0,
        last: Final { train_loss: loss, test_loss: loss, test_accuracy: 1.0 - loss },
        diagnosis: Some(Diagnosis::default()),
        ..Summary::default()
    };
    std::fs::write(path.join("summary.json"), serde_json::to_vec(&summary).unwrap()).unwrap();
    name
}

/// A comparison took at most 500 runs, and an address has no room for the names of more.
#[test]
fn all_runs_of_a_large_grid_are_compared() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..RUNS).map(|at| cell(root.path(), at)).collect();
    let server = Running::of(root.path());
    let body = json!({ "names": names }).to_string();
    let request = format!(
        "POST /api/compare/many HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    let (status, answer) = parts(&server.raw(request.as_bytes()));
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["chosen"], &answer["drawn"]), (&json!(RUNS), &json!(RUNS)));
    let html = answer["html"].as_str().unwrap();
    for said in [
        "28 of 1200 runs are drawn, those with the lowest loss; tables list 1000",
        "1000 of 1200 runs, evenly from best to worst",
    ] {
        assert!(html.contains(said), "{said}");
    }
    assert!(html.len() < 4 << 20, "{} bytes", html.len());
    // The same by hand: the box at the top of the table chooses those too that the table has no row for.
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 1000");
    tab.click("thead .all");
    tab.wait_for("document.querySelector('.compare').textContent === 'Compare 1200 runs'");
    tab.click(".compare");
    tab.wait_for("document.body.innerText.includes('28 of 1200 runs are drawn')");
    tab.wait_for("document.querySelector('figure svg[data-live]')");
    assert_eq!(tab.evaluate("document.querySelector('#where').textContent"), "1200 runs compared");
}
