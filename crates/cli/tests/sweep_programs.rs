//! `paceline sweep` of programs that know nothing of Paceline.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_testing::{browser::chromium, devtools::Tab};
use serde_json::Value;
use std::{fs, path::Path};
use support::{document, json, run_in, said};

fn groups(document: &Value) -> Vec<(String, Value)> {
    let groups = document["findings"]["groups"].as_array().unwrap().iter();
    let mut found: Vec<(String, Value)> = groups
        .map(|group| {
            (group["settings"][0][1].as_str().unwrap().to_owned(), group["values"].clone())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn names(document: &Value) -> Vec<&str> {
    let measures = document["findings"]["measures"].as_array().unwrap().iter();
    measures.map(|measure| measure["name"].as_str().unwrap()).collect()
}

fn calls(folder: &Path) -> usize {
    fs::read_to_string(folder.join("calls")).unwrap_or_default().lines().count()
}

#[test]
fn a_pattern_finds_the_last_figure_and_nothing_is_run_twice() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "echo x >> calls; echo 'loss: 9'; echo 'loss: {lr}'; echo '{lr}' | awk '{print $1}' >&2";
    let words = [
        "sweep",
        "--json",
        "--out",
        "s",
        "--vary",
        "lr=0.1,0.01",
        "--measure",
        "loss=loss: ([0-9.]+)",
        "--measure",
        "again=^([0-9.]+)$",
        "--",
        "sh",
        "-c",
        script,
    ];
    let first = json(&run_in(folder.path(), &words));
    assert_eq!(names(&first), ["loss", "again", "duration"], "{first}");
    let found = groups(&first);
    assert_eq!((&found[0].0, &found[0].1[0]), (&"0.01".to_owned(), &serde_json::json!([0.01])));
    assert_eq!((&found[1].0, &found[1].1[0]), (&"0.1".to_owned(), &serde_json::json!([0.1])));
    assert_eq!(calls(folder.path()), 2);
    let again = run_in(folder.path(), &words);
    assert!(said(&again).contains("2 of 2 cells were there already"), "{}", said(&again));
    assert_eq!(calls(folder.path()), 2);
}

#[test]
fn numbers_of_printed_json_and_of_a_run_folder_are_measured_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
mkdir -p "$PACELINE_RUN_FOLDER"
cat > "$PACELINE_RUN_FOLDER/events-worker-0.jsonl" <<END
{"v":1,"time":1000,"task":"worker/0","kind":"run_started","data":{"run":"r","model":"m"}}
{"v":1,"time":1001,"task":"worker/0","kind":"step","data":{"step":10,"steps":10,"examples":{size}00,"seconds":1.0,"phases":{"compute":1.0}}}
{"v":1,"time":1001,"task":"worker/0","kind":"run_ended","data":{"status":"done","step":10,"seconds":1.0}}
END
echo epoch 1
echo '{"score": {size}.5, "name": "x"}'
"#;
    let words = ["sweep", "--json", "--out", "s", "--vary", "size=1,2", "--", "sh", "-c", script];
    let document = json(&run_in(folder.path(), &words));
    assert_eq!(names(&document), ["duration", "rate", "score"], "{document}");
    let found = groups(&document);
    assert_eq!(
        (&found[0].1[1], &found[0].1[2]),
        (&serde_json::json!([100.0]), &serde_json::json!([1.5]))
    );
    assert_eq!(
        (&found[1].1[1], &found[1].1[2]),
        (&serde_json::json!([200.0]), &serde_json::json!([2.5]))
    );
}

#[test]
fn failures_timeouts_and_missing_figures_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let script = "case {kind} in good) echo loss 1;; bad) echo no memory >&2; exit 3;; mute) ;; slow) exec sleep 1000;; esac";
    // One that hangs is ended at any limit; the others only where the machine is too slow for that limit.
    let document = ["3s", "30s", "300s"].into_iter().find_map(|limit| {
        let words = ["sweep", "--json", "--out", limit, "--timeout", limit];
        let vary = ["--vary", "kind=good,bad,mute,slow", "--measure", "loss=loss ([0-9]+)"];
        let words = [&words[..], &vary, &["--", "sh", "-c", script]].concat();
        let output = run_in(folder.path(), &words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let document = document(&output);
        let ended = document["findings"]["failures"].to_string().matches("stopped after").count();
        (ended == 1).then_some(document)
    });
    let document = document.expect("one that is stopped");
    let failures: Vec<String> = document["findings"]["failures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| {
            format!("{}: {}", failure[0].as_str().unwrap(), failure[1]["reason"].as_str().unwrap())
        })
        .collect();
    let has = |needle: &str| failures.iter().any(|failure| failure.contains(needle));
    assert!(
        has("kind bad #1: no memory") && has("kind mute #1: `loss` was not found"),
        "{failures:?}"
    );
    assert!(has("kind slow #1: stopped after"), "{failures:?}");
}

#[test]
fn a_value_without_a_place_and_a_program_that_is_not_there_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for (behind, needle) in [
        ("sh -c true", "`{lr}` stands nowhere in the command"),
        ("./missing {lr}", "unknown command `./missing`"),
    ] {
        let words = format!("sweep --vary lr=1,2 -- {behind}");
        let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
        let said = said(&output);
        assert!(output.status.code() == Some(2) && said.contains(needle), "{behind}: {said}");
    }
}

#[test]
fn a_dry_run_shows_the_command_lines_as_they_would_be_typed() {
    let folder = tempfile::tempdir().unwrap();
    let words = "sweep --dry-run --vary lr=0.1 -- sh train.sh --lr {lr} --out {cell}";
    let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("sh train.sh --lr 0.1 --out sweeps/sh-lr-"), "{text}{}", said(&output));
}

/// The page of a sweep over two axes: the map says which setting is best and gives its numbers, tables are sorted, and everything
/// fits desk and phone; by eye: `target/report/sweep-*.png`.
#[test]
fn the_map_of_a_sweep_is_read_saved_and_fits_every_screen() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "echo loss: $(({lr} * {batch}))";
    let vary = ["--vary", "lr=3,2", "--vary", "batch=10,20,40", "--repeats", "2"];
    let words = ["--measure", "loss=loss: ([0-9.]+)", "--", "sh", "-c", script];
    let call = [&["sweep", "--json", "--out", "s"][..], &vary, &words].concat();
    json(&run_in(folder.path(), &call));
    let page = format!("file://{}", folder.path().join("s/sweep.html").display());
    let mut tab = Tab::open(&browser, &page, folder.path());
    tab.wait_for("document.querySelector('svg[data-live]')");
    let best = "document.querySelector('.matrix .framed title').textContent";
    let said = tab.evaluate(best).as_str().unwrap().to_owned();
    assert!(said.starts_with("2, 10: 20"), "{said}");
    tab.evaluate("globalThis.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return 'data:,'; }");
    tab.evaluate("[...document.querySelector('.matrix').closest('figure').querySelectorAll('.actions button')].find((it) => it.textContent === 'CSV').click()");
    tab.wait_for("saved.length === 1");
    assert_eq!(tab.evaluate("saved[0].text()"), "lr / batch,10,20,40\n3,30,60,120\n2,20,40,80\n");
    let first = "[...document.querySelector('table').tBodies[0].rows].map((row) => row.cells[0].textContent)";
    tab.click("table thead th");
    let (up, many) = (tab.evaluate(first), tab.evaluate(&format!("{first}.length")));
    tab.click("table thead th");
    let down = tab.evaluate(first);
    assert!(many.as_f64().unwrap() > 1.0 && up != down, "{up} {down}");
    let shots = paceline_testing::workspace().join("target/report");
    fs::create_dir_all(&shots).unwrap();
    for (width, dark) in [(1400, false), (1400, true), (800, false), (390, true), (390, false)] {
        let theme = if dark { "dark" } else { "light" };
        tab.picture(width, dark, &shots.join(format!("sweep-{width}-{theme}.png")));
        let wide = tab.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "{wide} at {width}");
    }
}
