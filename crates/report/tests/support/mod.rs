//! Runs to be drawn, and their page in a real browser.

#![allow(dead_code)] // each test file uses some

use paceline_report::page::Page;
use paceline_report::training::{RunView, describe};
use paceline_runs::{
    Evaluation, Event, PhaseTimes, Record, RecordedPlan, Resources, Status, Step, Summary,
    TaskJoined, TaskLost, WorkerSummary,
};
use paceline_testing::devtools::Tab;
use serde_json::json;
use std::path::Path;

pub(crate) const STEPS: u32 = 600;

pub(crate) fn record(time: f64, task: &str, event: Event) -> Record {
    Record { time, task: task.to_owned(), kind: String::new(), event: Some(event) }
}

pub(crate) fn resources(seed: f64) -> Resources {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resources.csv");
    let mut text = "time_seconds,elapsed_seconds,cpu_idle_percent,memory_used_bytes,memory_free_bytes,disk_read_bytes_per_second,\
                    disk_reads_per_second,disk_writes_per_second,network_received_bytes_per_second,network_sent_bytes_per_second,\
                    network_received_packets_per_second,network_sent_packets_per_second,process_cpu_percent,process_rss_bytes,cpu_cores_percent\n"
        .to_owned();
    for at in 0..60 {
        let wave = seed + (f64::from(at) / 6.0).sin();
        text.push_str(&format!(
            "{},{at},{},{},{},{},{},4,{},{},{},{},{},{},{at} 90\n",
            1000 + at,
            40.0 + 20.0 * wave,
            4e9 + 1e8 * wave,
            9e9 - 1e8 * wave,
            2e6 * wave.abs(),
            30.0 * wave.abs(),
            5e6 * wave.abs(),
            4e6 * wave.abs(),
            900.0 * wave.abs(),
            800.0 * wave.abs(),
            120.0 + 30.0 * wave,
            4e8 + 2e7 * wave,
        ));
    }
    std::fs::write(&path, text).unwrap();
    Resources::read(&path).unwrap()
}

pub(crate) fn run(model: &str, rate: f64, batch: u64) -> RunView {
    let mut records = Vec::new();
    for (role, host) in [("worker/0", "alpha"), ("worker/1", "beta")] {
        let joined = TaskJoined { role: role.into(), host: host.into(), ..TaskJoined::default() };
        records.push(record(1000.0, "worker/0", Event::TaskJoined(joined)));
    }
    let phases = PhaseTimes {
        input: 0.02,
        compute: 0.06,
        exchange: 0.015,
        wait: 0.005,
        ..PhaseTimes::default()
    };
    for at in 1..=STEPS {
        let share = f64::from(at) / f64::from(STEPS);
        let noise = 0.1 * (f64::from(at * 7919 % 101) / 101.0 - 0.5);
        let step = Step {
            step: u64::from(at),
            steps: 1,
            examples: batch,
            seconds: 0.1,
            loss: 0.2 + 2.0 * (-6.0 * rate * share).exp() + noise,
            accuracy: (0.9 - 0.8 * (-9.0 * rate * share).exp() + noise * 0.2).clamp(0.0, 1.0),
            phases,
            ..Step::default()
        };
        let time = 1000.0 + 60.0 * share;
        records.push(record(time, "worker/0", Event::Step(step)));
        if at % 100 == 0 {
            let score = Evaluation {
                step: u64::from(at),
                loss: 0.3 + 2.0 * (-6.0 * rate * share).exp(),
                accuracy: 0.88 - 0.8 * (-9.0 * rate * share).exp(),
                ..Evaluation::default()
            };
            records.push(record(time, "worker/0", Event::Evaluation(score)));
        }
    }
    let lost = TaskLost { lost: "worker/1".to_owned(), ..TaskLost::default() };
    records.push(record(1060.0, "worker/0", Event::TaskLost(lost)));
    let spec = json!({
        "model": model, "data": "flowers", "strategy": "multi-worker", "optimizer": "sgd", "learning_rate": rate, "batch_size": batch,
        "schedule": "cosine", "seed": 7, "workers": 2, "threads": 2,
    });
    let mut summary = Summary {
        run: format!("20261117-222847-{model}-multi-worker-qrz7"),
        status: Status::Done,
        model: model.to_owned(),
        data: "flowers".to_owned(),
        strategy: "multi-worker".to_owned(),
        global_batch: batch,
        global_steps: u64::from(STEPS),
        examples: u64::from(STEPS) * batch,
        seconds: 60.0,
        examples_per_second: 10.0 * batch as f64,
        phases: PhaseTimes {
            input: 0.2,
            compute: 0.6,
            exchange: 0.15,
            wait: 0.05,
            ..PhaseTimes::default()
        },
        verdict: format!("compute-bound: {rate} <b>"),
        workers: ["worker/0", "worker/1"]
            .map(|task| WorkerSummary {
                task: task.into(),
                iterations: 600,
                ..WorkerSummary::default()
            })
            .to_vec(),
        ..Summary::default()
    };
    summary.last.train_loss = 0.2 + rate;
    summary.last.test_loss = 0.3 + rate;
    summary.last.test_accuracy = 0.88 - rate / 10.0;
    RunView {
        name: format!("{model} multi-worker"),
        state: "done".to_owned(),
        summary,
        plan: RecordedPlan::of(json!({ "spec": spec, "version": "0.1.0" })),
        records,
        resources: vec![
            ("worker/0".to_owned(), resources(0.2)),
            ("worker/1".to_owned(), resources(0.9)),
        ],
        confusion: vec![
            ("daisy".to_owned(), vec![90, 6, 4]),
            ("rose".to_owned(), vec![12, 80, 8]),
            ("tulip".to_owned(), vec![3, 17, 80]),
        ],
        ..RunView::default()
    }
}

pub(crate) fn page(runs: &[RunView]) -> String {
    let mut page = Page::new("Training report", "What the runs did");
    describe(&mut page, runs);
    page.html()
}

pub(crate) fn open(browser: &Path, folder: &Path, runs: &[RunView]) -> Tab {
    open_page(browser, folder, &page(runs))
}

pub(crate) fn open_page(browser: &Path, folder: &Path, html: &str) -> Tab {
    let file = folder.join("report.html");
    std::fs::write(&file, html).unwrap();
    let mut tab = Tab::open(browser, &format!("file://{}", file.display()), folder);
    tab.wait_for("document.querySelector('svg[data-live]')");
    // Saved files are kept where the test can look at them.
    tab.evaluate(
        "window.saved = []; URL.createObjectURL = blob => { saved.push(blob); return 'data:,'; }; 1",
    );
    tab
}

pub(crate) fn two() -> [RunView; 2] {
    [run("lenet", 0.5, 256), run("lenet", 1.0, 64)]
}

/// An expression for the nth figure.
pub(crate) fn figure(at: usize) -> String {
    format!("document.querySelectorAll('figure')[{at}]")
}

/// The place on the screen of a share of the first chart's plot.
pub(crate) fn place(tab: &mut Tab, share: f64) -> (f64, f64) {
    let found = tab.evaluate(&format!(
        "(() => {{ const svg = document.querySelector('figure svg'); svg.scrollIntoView({{ block: 'center' }});
           const box = svg.getBoundingClientRect(), unit = box.width / svg.viewBox.baseVal.width;
           const [left, top, right, bottom] = JSON.parse(svg.querySelector('metadata').textContent).frame;
           const wider = svg.viewBox.baseVal.width - svg.dataset.box.split(' ')[2];
           return [box.left + unit * (left + {share} * (right + wider - left)), box.top + unit * (top + bottom) / 2]; }})()"
    ));
    (found[0].as_f64().unwrap(), found[1].as_f64().unwrap())
}
