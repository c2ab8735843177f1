//! `versus cluster/efficiency`: the speed-up by a second process, separated from the effect of other guests on the machine.
//!
//! Synchronous processes run at the speed of the slower core, a single process runs on the faster one: a guest that alternates
//! between the cores makes any mean of such a ratio smaller than on a dedicated machine. So this looks at single steps. The
//! fastest ones were undisturbed; two independent runs show what two cores can do at the same time.

use super::benchmarks;
use super::contest::median;
use super::paceline::Paceline;
use super::paused_run::{PausedRun, SKIP, now};
use super::training::{self, TWO, WORKS, Work};
use anyhow::ensure;
use std::fmt::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const CAVEATS: &str = "
- One thread per process, the same global batch on one process and on two; `--on-loss stop`. Times of single steps as the run reports them (LeNet: of some dozens of steps at a time).
- All runs are warm, and paused and continued by signals, one side after the other; a turn takes 1 s (LeNet) or 5 s (AlexNet). Only steps within a turn count.
- Efficiency is half of the step time of one process divided by that of two processes, in brackets the minimum and maximum of six segments. \"two runs\" are two independent runs of one process at the same time: without synchronisation they lose only what the two cores take from each other and what other guests on this machine take.
- The fastest tenth of each side's steps are undisturbed; the median includes other guests on the machine, which affect two synchronous processes twice, since each waits for the other.
";

/// Segments of the measurement, each with its own quantiles.
const SEGMENTS: usize = 6;
/// Turns of each side in a segment; a turn is longer for the larger model.
const TURNS: [usize; 2] = [12, 7];
/// How long a run continues after its last turn: reports are written twice a second.
const WRITING: Duration = Duration::from_millis(1200);
/// Shares of the steps that are at most as slow as what is told.
const SHARES: [(f64, &str); 3] =
    [(0.1, "fastest tenth"), (0.25, "fastest quarter"), (0.5, "median")];

/// Runs that are continued and paused together, and when they had their turns.
struct Side {
    runs: Vec<PausedRun>,
    turns: Vec<(f64, f64)>,
}

impl Side {
    fn go(&mut self) {
        let from = now() + SKIP;
        self.runs.iter().for_each(PausedRun::resume);
        sleep(self.runs[0].turn());
        let to = now();
        self.runs.iter().for_each(PausedRun::halt);
        self.turns.push((from, to));
    }

    /// Milliseconds of the steps in each segment, ascending.
    fn steps(&mut self) -> anyhow::Result<Vec<Vec<f64>>> {
        self.runs.iter().for_each(PausedRun::resume);
        sleep(WRITING);
        self.runs.iter().for_each(PausedRun::halt);
        let mut segments = vec![Vec::new(); SEGMENTS];
        let each = self.turns.len() / SEGMENTS;
        for run in &mut self.runs {
            for report in run.reports()? {
                let within = |(from, to): &(f64, f64)| {
                    report.time - report.seconds >= *from && report.time <= *to
                };
                if let Some(turn) = self.turns.iter().position(within) {
                    segments[turn / each].push(1e3 * report.seconds / report.steps as f64);
                }
            }
        }
        for steps in &mut segments {
            ensure!(steps.len() >= 5, "a segment of {each} turns has only {} steps", steps.len());
            steps.sort_by(f64::total_cmp);
        }
        Ok(segments)
    }
}

/// Runs it and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let program = Paceline::build(root)?;
    let mut text = String::from(
        "| work | steps | 1 process | 2 processes | two runs | efficiency | of two runs |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (work, turns) in WORKS.iter().zip(TURNS) {
        text += &measure(root, work, turns, &program)?;
    }
    benchmarks::write_body(root, "cluster/efficiency", &(text + CAVEATS))
}

fn measure(root: &Path, work: &Work, turns: usize, program: &Paceline) -> anyhow::Result<String> {
    let batch = work.batch.to_string();
    let start = |name: &str, more| training::start(root, work, program, name, &batch, more);
    let mut sides = Vec::new();
    for runs in [
        vec![start("one", &[])?],
        vec![start("two", TWO)?],
        vec![start("first of two", &[])?, start("second of two", &[])?],
    ] {
        sides.push(Side { runs, turns: Vec::new() });
    }
    for turn in 0..turns * SEGMENTS {
        let count = sides.len();
        for at in 0..count {
            sides[(turn + at) % count].go();
        }
        eprintln!("{}: turn {} of {}", work.model, turn + 1, turns * SEGMENTS);
    }
    let steps: Vec<Vec<Vec<f64>>> =
        sides.iter_mut().map(Side::steps).collect::<anyhow::Result<_>>()?;
    let mut text = String::new();
    for (at, (share, name)) in SHARES.into_iter().enumerate() {
        let figures: Vec<Vec<f64>> = steps
            .iter()
            .map(|side| side.iter().map(|one| quantile(one, share)).collect())
            .collect();
        let first =
            if at == 0 { format!("{}, global batch {batch}", work.model) } else { String::new() };
        let [one, two, apart] = [0, 1, 2].map(|side| median(&figures[side]));
        writeln!(
            text,
            "| {first} | {name} | {one:.3} ms | {two:.3} ms | {apart:.3} ms | {} | {} |",
            efficiency(&figures[0], &figures[1], 2.0),
            efficiency(&figures[0], &figures[2], 1.0),
        )?;
    }
    Ok(text)
}

/// The step that this share of all steps is not slower than.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    ascending[(ascending.len() as f64 * share) as usize]
}

/// Time of one over that of another, per segment.
fn efficiency(one: &[f64], other: &[f64], times: f64) -> String {
    let mut all: Vec<f64> = one.iter().zip(other).map(|(one, other)| one / other / times).collect();
    all.sort_by(f64::total_cmp);
    format!("**{:.3}** ({:.3}–{:.3})", median(&all), all[0], all[all.len() - 1])
}
