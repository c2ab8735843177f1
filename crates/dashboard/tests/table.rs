//! What people do with the table of runs and with a run, each in a real browser: sort, choose columns, group, filter by
//! settings, note, hide, archive, delete, stop, follow a log.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{
    Checkpoint, CheckpointAction, Event, EventLog, Machine, OWNER_FILE, RunFolder, unix_seconds,
};
use paceline_testing::{browser::chromium, devtools::Tab, node_file};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Running, finished, started, step};

const ROWS: &str =
    "[...document.querySelectorAll('tbody tr[data-run]')].map((row) => row.dataset.run).join(' ')";

/// Pictures for the eye, at the width of a desk and of a phone, in both themes.
fn pictures(tab: &mut Tab, name: &str) {
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for (width, dark) in [(390, true), (390, false), (1400, true), (1400, false)] {
        let theme = if dark { "-dark" } else { "" };
        tab.picture(width, dark, &shots.join(format!("{name}-{width}{theme}.png")));
        let wide = tab.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "{name} is {wide} wide at {width}");
    }
}

/// A run with a learning rate.
fn with_rate(root: &Path, name: &str, model: &str, accuracy: f64, rate: f64) -> RunFolder {
    let run = finished(root, name, model, accuracy);
    let plan = json!({
        "learning_rate": rate, "threads": 2, "version": "0.1.0",
        "spec": { "model": model, "strategy": "one-device", "data": "digits", "batch_size": 64, "seed": 1 },
    });
    std::fs::write(run.path().join("plan.json"), plan.to_string()).unwrap();
    run
}

/// The page's own script, checked by TypeScript's compiler, which ships nothing into the page.
#[test]
fn the_script_has_no_type_error() {
    let Some(compiler) = node_file("test-env-typescript", "typescript/bin/tsc") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/assets/app.js");
    let output = Command::new("node")
        .arg(compiler)
        .args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--noImplicitAny", "false"])
        .args(["--target", "es2022", "--lib", "es2022,dom,dom.iterable", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn three(root: &Path) {
    with_rate(root, "a", "lenet", 0.95, 0.3);
    with_rate(root, "b", "lenet", 0.97, 0.03);
    with_rate(root, "c", "softmax", 0.91, 0.01);
}

fn opened(root: &Path, profile: &Path, hash: &str) -> Option<(Running, Tab)> {
    let browser = chromium()?;
    let server = Running::of(root);
    let tab = Tab::open(&browser, &format!("{}{hash}", server.url), profile);
    Some((server, tab))
}

#[test]
fn the_table_is_sorted_filtered_grouped_and_has_the_columns_one_wants() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three(root.path());
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "") else { return };
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    // What tells the runs apart is shown, what they share is not.
    let heads = "[...document.querySelectorAll('thead [data-sort]')].map((one) => one.dataset.sort).join(' ')";
    let shown = tab.evaluate(heads).as_str().unwrap().to_owned();
    assert!(shown.contains("learning_rate") && !shown.contains("threads"), "{shown}");
    tab.click("[data-sort=accuracy]");
    tab.wait_for(&format!("{ROWS} === 'b a c'"));
    tab.click("[data-sort=accuracy]");
    tab.wait_for(&format!("{ROWS} === 'c a b'"));
    let sorted = "document.querySelector('[data-sort=accuracy]').closest('th').ariaSort";
    assert_eq!(tab.evaluate(sorted), "ascending");
    for (filter, left) in [
        ("lr<0.1 model=lenet", "b"),
        ("lr>=0.03", "a b"),
        ("model!=lenet", "c"),
        ("accuracy>0.92 state=done", "a b"),
        ("model~soft", "c"),
        ("seed=1 lr<0.02", "c"),
        ("lenet", "a b"),
    ] {
        tab.fill("input[type=search]", filter);
        tab.wait_for(&format!("{ROWS} === '{left}'"));
    }
    tab.fill("input[type=search]", " ");
    tab.wait_for(&format!("{ROWS} === 'c a b'"));
    tab.evaluate("{ const box = document.querySelector('select'); box.value = 'model'; box.dispatchEvent(new Event('change')) }");
    tab.wait_for("document.querySelectorAll('tr.group').length === 2");
    let group = tab.evaluate("document.querySelectorAll('tr.group')[1].textContent");
    assert_eq!(group, "model lenet: 2 runs, best accuracy 97.00 %");
    tab.click("details.menu summary");
    tab.click("input[data-column=threads]");
    tab.wait_for(&format!("{heads}.includes('threads')"));
    tab.click("input[data-column=accuracy]");
    tab.wait_for(&format!("!{heads}.includes('accuracy')"));
    pictures(&mut tab, "columns");
    // It is all there after a reload.
    tab.evaluate("location.reload()");
    tab.wait_for("document.querySelectorAll('tr.group').length === 2");
    tab.wait_for(&format!("{heads}.includes('threads')"));
    tab.click("details.menu summary");
    tab.click(".differing");
    tab.wait_for(&format!("!{heads}.includes('threads')"));
}

#[test]
fn the_filter_takes_regular_expressions_and_says_what_is_wrong() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three(root.path());
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "") else { return };
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    let said = "document.querySelector('output.wrong').textContent";
    for (filter, left, words) in [
        ("soft|nothing", "c", ""),
        ("model~^le lr~0.0[3]", "b", ""),
        ("model!~^le", "c", ""),
        ("\"lr 0.03\"", "b", ""),
        ("lenet|softmax lr<0.02", "c", ""),
        (
            "(lenet",
            "",
            "`(lenet` is not a regular expression (unterminated group): searched as plain text",
        ),
        (
            "model~[ lr<1",
            "",
            "`[` is not a regular expression (unterminated character class): searched as plain text",
        ),
        ("colour=red", "", "no run has `colour`"),
    ] {
        tab.fill("input[type=search]", filter);
        tab.wait_for(&format!("{ROWS} === '{left}'"));
        assert_eq!(tab.evaluate(said), words, "{filter}");
    }
    tab.fill("input[type=search]", "lenet");
    tab.wait_for(&format!("{said} === ''"));
}

/// The list, a run and a comparison, light and dark.
#[test]
fn the_live_page_keeps_the_rules_of_accessibility() {
    let Some(axe) = node_file("test-env-axe", "axe-core/axe.min.js") else { return };
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three(root.path());
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "") else { return };
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    tab.evaluate(&std::fs::read_to_string(axe).unwrap());
    for (hash, there) in [
        ("#", "document.querySelectorAll('tbody tr[data-run]').length === 3"),
        ("#/run/b", "document.querySelector('figure svg[data-live]')"),
        ("#/compare/a,b", "document.querySelector('figure .entry[role=button]')"),
    ] {
        tab.evaluate(&format!("location.hash = '{hash}'"));
        tab.wait_for(there);
        for scheme in ["light", "dark"] {
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            tab.call("Emulation.setEmulatedMedia", &media);
            let found = tab.evaluate(
                "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'] }).then((found) => found.violations.map((it) =>
                   `${it.id}: ${it.nodes.length} x ${it.nodes[0].html.slice(0, 200)} ${it.nodes[0].failureSummary}`))",
            );
            assert_eq!(found, json!([]), "{hash}, {scheme}");
        }
    }
}

#[test]
fn tags_and_notes_are_kept_and_runs_are_hidden_archived_and_deleted() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three(root.path());
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "#/run/b") else { return };
    tab.wait_for("document.querySelector('svg')");
    tab.click(".notes-box summary");
    tab.fill("input.tags", "best for-the-paper");
    tab.fill("textarea", "the one <b>to keep</b>");
    tab.click(".save");
    tab.wait_for("document.getElementById('pulse').textContent === 'notes saved'");
    let notes = std::fs::read_to_string(root.path().join("b/notes.json")).unwrap();
    assert!(notes.contains("for-the-paper"), "{notes}");
    tab.evaluate("location.hash = '#'");
    tab.wait_for("document.querySelectorAll('tr[data-run=b] .chip').length === 2");
    tab.wait_for(
        "document.querySelector('tr[data-run=b] .note').textContent === 'the one <b>to keep</b>'",
    );
    tab.fill("input[type=search]", "tag=best");
    tab.wait_for(&format!("{ROWS} === 'b'"));
    tab.fill("input[type=search]", " ");
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    pictures(&mut tab, "notes");
    // Hidden in this browser, archived in the folder.
    tab.click("tr[data-run=a] input");
    tab.click(".hide");
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 2");
    tab.click(".unhide");
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    tab.click("tr[data-run=a] input");
    tab.click(".archive");
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 2");
    let notes = std::fs::read_to_string(root.path().join("a/notes.json")).unwrap();
    assert!(notes.contains("\"archived\": true"), "{notes}");
    tab.click(".acts label input");
    tab.wait_for("document.querySelectorAll('tbody tr[data-run]').length === 3");
    // Deleting asks first.
    tab.click("tr[data-run=c] a");
    tab.click(".delete");
    tab.wait_for("document.querySelector('dialog').open");
    pictures(&mut tab, "dialog");
    tab.click("dialog .no");
    tab.wait_for("!document.querySelector('dialog').open");
    assert!(root.path().join("c").exists());
    tab.click(".delete");
    tab.click("dialog .yes");
    tab.wait_for(
        "location.hash === '' && document.querySelectorAll('tbody tr[data-run]').length === 2",
    );
    assert!(!root.path().join("c").exists());
}

fn saved() -> Event {
    let action = CheckpointAction::Saved;
    Event::Checkpoint(Checkpoint { action, step: 1, seconds: 0.1, bytes: 9, reason: None })
}

/// The place on the screen of a share of the first chart's plot.
fn place(tab: &mut Tab, share: f64) -> (f64, f64) {
    let found = tab.evaluate(&format!(
        "(() => {{ const svg = document.querySelector('figure svg.chart'), box = svg.getBoundingClientRect();
           const unit = box.width / svg.viewBox.baseVal.width;
           const [left, top, right, bottom] = JSON.parse(svg.querySelector('metadata').textContent).frame;
           const wider = svg.viewBox.baseVal.width - svg.dataset.box.split(' ')[2];
           return [box.left + unit * (left + {share} * (right + wider - left)), box.top + unit * (top + bottom) / 2]; }})()"
    ));
    (found[0].as_f64().unwrap(), found[1].as_f64().unwrap())
}

/// The charts of the live page do what a report's do, and what is pushed takes nothing back: zoom, axes, smoothing, hidden
/// parts, the values under the pointer, the place on the page.
#[test]
fn charts_of_a_running_run_are_worked_with_while_steps_come() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = support::planned(root.path(), "live", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    let begin = unix_seconds() - 60.0;
    log.write(begin, &started("lenet")).unwrap();
    for at in 1..=50 {
        log.write(begin + at as f64, &step(10 * at)).unwrap();
    }
    log.flush().unwrap();
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "#/run/live") else {
        return;
    };
    tab.wait_for(
        "document.querySelector('figure svg[data-live]') && document.querySelector('.controls')",
    );
    let first = "document.querySelector('figure svg.chart')";
    tab.evaluate(&format!("globalThis.kept = {first}; kept.scrollIntoView({{ block: 'center' }})"));
    // Another axis, smoothing, a straight axis in place of the logarithmic one.
    tab.evaluate("(it => { it.value = 'examples'; it.dispatchEvent(new Event('change')); })(document.querySelector('[name=axis]'))");
    tab.evaluate("(it => { it.value = '0.9'; it.dispatchEvent(new Event('input')); })(document.querySelector('[name=smoothing]'))");
    let log_y = "document.querySelector('figure .actions button').getAttribute('aria-pressed')";
    assert_eq!(tab.evaluate(log_y), "true");
    tab.click("figure .actions button");
    // A part of another chart is hidden.
    let other = "[...document.querySelectorAll('figure')].find(it => it.querySelector('.entry[data-name=input]'))";
    let areas = format!("{other}.querySelectorAll('.series').length");
    let all = tab.evaluate(&areas).as_f64().unwrap();
    tab.evaluate(&format!("{other}.querySelector('.entry[data-name=input]').dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))"));
    assert_eq!(tab.evaluate(&areas), all - 1.0);
    // Zoomed to the middle, with the pointer resting there.
    let (from, to) = (place(&mut tab, 0.4), place(&mut tab, 0.7));
    tab.drag(from, to);
    let ticks = format!(
        "[...{first}.querySelectorAll('.axis text.mid')].map(it => it.textContent).join(' ')"
    );
    let zoomed = tab.evaluate(&ticks);
    assert!(zoomed.as_str().unwrap().starts_with("14,000"), "{zoomed}");
    tab.mouse("mouseMoved", from, 0);
    let tips = "[...document.querySelectorAll('.tip:not([hidden])')].map(it => it.innerText)";
    let tip = tab.evaluate(tips);
    assert!(tip[0].as_str().unwrap().starts_with("examples: ") && tip[1].is_string(), "{tip}");
    tab.evaluate("globalThis.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return 'data:,'; }; globalThis.top_ = scrollY");
    log.write(begin + 51.0, &step(777)).unwrap();
    log.write(begin + 51.0, &saved()).unwrap();
    log.flush().unwrap();
    tab.wait_for(&format!(
        "JSON.parse({first}.querySelector('metadata').textContent).series[0].x[0].includes(777)"
    ));
    assert_eq!(tab.evaluate(&format!("kept === {first} && scrollY === top_")), true);
    assert_eq!(tab.evaluate(&ticks), zoomed);
    assert_eq!(tab.evaluate(tips)[0], tip[0]);
    assert_eq!(tab.evaluate(&areas), all - 1.0);
    assert_eq!(tab.evaluate(log_y), "false");
    assert_eq!(tab.evaluate(&format!("{first}.querySelectorAll('.line.smooth').length")), 1.0);
    let (bars, controls) = (
        "document.querySelectorAll('figure .actions').length",
        "document.querySelectorAll('.controls').length",
    );
    assert_eq!(
        tab.evaluate(bars),
        tab.evaluate("document.querySelectorAll('figure svg.chart').length")
    );
    assert_eq!(tab.evaluate(controls), 1.0);
    // What is saved is what is drawn now, and a double click shows all of it.
    tab.evaluate("[...document.querySelectorAll('figure .actions button')].find(it => it.textContent === 'CSV').click()");
    tab.wait_for("saved.length === 1");
    let numbers = tab.evaluate("saved[0].text()");
    assert!(numbers.as_str().unwrap().contains(",777,"), "{numbers}");
    for clicks in [1, 2] {
        tab.mouse("mousePressed", from, clicks);
        tab.mouse("mouseReleased", from, clicks);
    }
    tab.wait_for(&format!("{ticks}.startsWith('0 ')"));
    drop(log);
}

/// A process that owns a run as `paceline train` does: it locks the owner's file and ends its run at the first SIGINT.
#[test]
fn a_run_is_stopped_from_its_page() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = support::planned(root.path(), "live", "lenet");
    let owner = run.path().join(OWNER_FILE);
    let script = "exec 9<>\"$OWNER\"; flock 9; trap 'echo asked > \"$OWNER.asked\"; exit' INT; \
                  echo \"{\\\"pid\\\": $$, \\\"host\\\": \\\"$NAME\\\", \\\"since\\\": 0}\" >&9; echo ready; \
                  while :; do read -t 1 line || true; done";
    // A shell cannot trap what was ignored when it began, as it is below `nohup` and in the background of a script.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", "bash", "-c", script])
        .env("OWNER", &owner)
        .env("NAME", Machine::host_name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    assert_eq!(line, "ready\n");
    let page = opened(root.path(), profile.path(), "#/run/live");
    if let Some((_server, mut tab)) = page {
        tab.click(".stop:not([hidden])");
        tab.wait_for("document.querySelector('dialog').open");
        assert!(!root.path().join("live/owner.json.asked").exists(), "it asks first");
        tab.click("dialog .yes");
        tab.wait_for("document.getElementById('pulse').textContent.includes('asked to stop') || document.querySelector('.state.died')");
        child.wait().unwrap();
        assert!(root.path().join("live/owner.json.asked").exists());
        tab.wait_for("document.querySelector('.state.died')");
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_log_is_followed_and_what_is_selected_and_scrolled_stays() {
    let (root, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = support::planned(root.path(), "live", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    for at in 1..50 {
        log.write(unix_seconds(), &step(10 * at)).unwrap();
    }
    log.flush().unwrap();
    // A checkpoint in the last minute of the recording, which ends now.
    let now = unix_seconds();
    log.write(now - 20.0, &saved()).unwrap();
    log.flush().unwrap();
    let csv = "time_seconds,elapsed_seconds,cpu_user_percent,cpu_busiest_core_percent,process_rss_bytes,cpu_cores_percent,\
               memory_available_bytes,network_received_packets_per_second,network_sent_packets_per_second,disk_reads_per_second,\
               disk_writes_per_second\n";
    let line = |at: i32| {
        let time = now - f64::from(39 - at);
        format!("{time},{at},{at},99,5000000,{at} 99,7000000,421,86,60,3\n")
    };
    let csv: String = csv.to_owned() + &(1..40).map(line).collect::<String>();
    std::fs::write(run.path().join("resources-worker-0.csv"), csv).unwrap();
    let mut text = std::fs::File::create(run.path().join("worker-0.log")).unwrap();
    (0..500).for_each(|at| writeln!(text, "line {at}").unwrap());
    let Some((_server, mut tab)) = opened(root.path(), profile.path(), "#/run/live") else {
        return;
    };
    tab.wait_for("document.querySelector('pre.log').textContent.includes('line 499')");
    tab.wait_for("document.querySelector('.machines td').textContent.includes('39')");
    // Memory that is left, packets both ways, operations of the disks in one.
    for (name, shown) in [
        ("memory free", "7"),
        ("packets in", "421/s"),
        ("packets out", "86/s"),
        ("disk operations", "63/s"),
    ] {
        tab.wait_for(&format!(
            "(at => document.querySelectorAll('.machines td')[at - 1].textContent.startsWith('{shown}'))(\
             [...document.querySelectorAll('.machines thead th')].findIndex(th => th.textContent === '{name}'))"
        ));
    }
    // Every core, and what happened meanwhile.
    tab.wait_for("document.querySelectorAll('.cores g.c0').length === 2");
    tab.wait_for("document.querySelector('.cores').textContent.includes('core 0: 39 % busy')");
    tab.wait_for("document.querySelector('.cores .mark title').textContent === 'checkpoint saved'");
    tab.wait_for(
        "document.querySelector('.marks').textContent.startsWith('Lately: checkpoint saved (')",
    );
    pictures(&mut tab, "live");
    writeln!(text, "the newest line").unwrap();
    tab.wait_for("document.querySelector('pre.log').textContent.includes('the newest line')");
    let end = "(log => log.scrollTop + log.clientHeight >= log.scrollHeight - 8)(document.querySelector('pre.log'))";
    tab.wait_for(end);
    // Select the verdict, scroll the page, then let a step come.
    tab.evaluate(
        "getSelection().selectAllChildren(document.querySelector('.verdict strong')); \
         scrollTo(0, 300); globalThis.before = [String(getSelection()), scrollY]",
    );
    assert_eq!(tab.evaluate("before[0].length > 5 && before[1] === 300"), true);
    log.write(unix_seconds(), &step(777)).unwrap();
    log.flush().unwrap();
    tab.wait_for("document.body.innerText.includes('777')");
    let now = tab.evaluate("JSON.stringify([String(getSelection()), scrollY])");
    assert_eq!(now, tab.evaluate("JSON.stringify(before)"));
    // One that reads further up is not pulled down. A person does that after the page has been drawn at its present size.
    tab.evaluate(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))",
    );
    tab.evaluate("document.querySelector('pre.log').scrollTop = 0");
    tab.wait_for("!document.querySelector('section label input').checked");
    writeln!(text, "one more").unwrap();
    tab.wait_for("document.querySelector('pre.log').textContent.includes('one more')");
    assert_eq!(tab.evaluate("document.querySelector('pre.log').scrollTop"), 0);
    drop(log);
}
