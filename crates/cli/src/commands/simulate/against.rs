//! `paceline simulate --against RUN`: the prediction beside what a run really does, while it goes on.

use crate::terminal::Terminal;
use crate::terminal::failure::{FailureExt, usage};
use paceline_forecast::{Expectation, Standing};
use paceline_runs::{RunFolder, RunState, RunView};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at a run that goes on.
const EVERY: Duration = Duration::from_secs(2);
/// Time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(100);

/// Workers that a run has, as it recorded.
pub(super) fn workers(run: &Path) -> anyhow::Result<usize> {
    let view = read(run)?;
    match view.summary.workers.len() {
        0 => Err(usage(
            format!("`{}` has made no step yet", run.display()),
            "ask again when it has begun",
        )),
        workers => Ok(workers),
    }
}

fn read(run: &Path) -> anyhow::Result<RunView> {
    RunView::read(run).hint("`paceline runs` lists run folders")
}

/// Compares until the run has ended or the user has seen enough; says when it leaves the range and when it is back.
pub(super) fn follow(
    run: &Path,
    expectation: &Expectation,
    stop: &AtomicBool,
    terminal: &Terminal,
) -> anyhow::Result<Value> {
    let mut before = None;
    let mut left = 0;
    loop {
        let running = matches!(RunFolder::open(run)?.state(), RunState::Running);
        let view = read(run)?;
        let measured = view.summary.step_rate();
        let standing = expectation.standing(measured);
        let changed = before.is_some_and(|before| before != standing);
        left += usize::from(changed && standing != Standing::Inside);
        before = Some(standing);
        terminal.data(line(&view, measured, expectation, standing))?;
        if changed {
            terminal.warn(words(standing, changed));
        }
        if !running || stop.load(Ordering::Relaxed) {
            return Ok(json!({
                "run": view.summary.run, "state": view.state, "expected": expectation,
                "measured": measured, "standing": standing, "times_left": left,
            }));
        }
        let begun = Instant::now();
        while begun.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
    }
}

fn line(view: &RunView, measured: f64, range: &Expectation, standing: Standing) -> String {
    format!(
        "{}, step {}, {:.1} s: expected {:.0} examples/s ({:.0} to {:.0}), measured {measured:.0}: {}",
        view.state,
        view.summary.global_steps,
        view.summary.seconds,
        range.expected,
        range.low,
        range.high,
        words(standing, false),
    )
}

fn words(standing: Standing, changed: bool) -> &'static str {
    match (standing, changed) {
        (Standing::Inside, false) => "as expected",
        (Standing::Inside, true) => "the run is back in the expected range",
        (Standing::Below, false) => "slower than expected",
        (Standing::Below, true) => "the run has left the expected range: it is slower",
        (Standing::Above, false) => "faster than expected",
        (Standing::Above, true) => "the run has left the expected range: it is faster",
    }
}
