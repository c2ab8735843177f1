//! Training beside held-out examples, evaluation by evaluation: what a model had learned, and what of it holds elsewhere.
//!
//! Runs score held-out examples once an epoch unless they are asked for more. Training figures are those of the steps since the
//! evaluation before, of all tasks together, as their weights were at each step: they lag behind a score of the weights at the end.

use crate::csv::Csv;
use crate::page::Page;
use crate::table::{Column, Table};
use crate::training::RunView;
use paceline_runs::Event;
use std::collections::BTreeMap;

/// Most rows of a table that is shown at once; longer ones are behind a fold.
const MOST_SHOWN: usize = 24;

/// The steps up to an evaluation, and that evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    step: u64,
    /// Passes over the training data; none where they are not counted.
    epochs: Option<f64>,
    /// Since the start of the run.
    seconds: f64,
    /// Loss and accuracy while training.
    training: [f64; 2],
    /// Loss and accuracy on held-out examples.
    test: [f64; 2],
}

/// Sums over steps: examples, and loss and hits weighted by them.
#[derive(Default, Clone, Copy)]
struct Sums {
    examples: f64,
    loss: f64,
    correct: f64,
}

fn stretches(run: &RunView) -> Vec<Stretch> {
    // Workers write logs of their own: by step, not by line.
    let mut scores = BTreeMap::new();
    let mut steps = Vec::new();
    for record in &run.records {
        match &record.event {
            Some(Event::Evaluation(score)) => {
                scores.entry(score.step).or_insert((record.time - run.start(), score.clone()));
            }
            Some(Event::Step(step)) => steps.push(step),
            _ => {}
        }
    }
    let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
    for step in steps {
        let Some((at, _)) = scores.range(step.step..).next() else { continue };
        let sum = sums.entry(*at).or_default();
        let examples = step.examples as f64;
        sum.examples += examples;
        sum.loss += examples * step.loss;
        sum.correct += examples * step.accuracy;
    }
    let told = scores.into_iter().map(|(step, (seconds, score))| {
        let sum = sums.get(&step).copied().unwrap_or_default();
        Stretch {
            step,
            epochs: Some(score.epochs).filter(|epochs| *epochs > 0.0),
            seconds,
            training: [sum.loss / sum.examples, sum.correct / sum.examples],
            test: [score.loss, score.accuracy],
        }
    });
    told.collect()
}

/// One row for each evaluation of each run; none where nothing was evaluated.
pub(crate) fn table(runs: &[&RunView], names: &[String]) -> Table {
    let several = runs.len() > 1;
    let mut columns: Vec<Column> = several.then(|| Column::words("run")).into_iter().collect();
    columns.extend([
        Column::numbers("epochs"),
        Column::numbers("step"),
        Column::numbers("time").unit("s"),
        Column::numbers("training loss"),
        Column::numbers("test loss"),
        Column::numbers("training accuracy").unit("%"),
        Column::numbers("test accuracy").unit("%"),
    ]);
    let mut table = Table::new(columns).captioned(
        "Training: mean of the steps since the row before, with the weights of each step. Test: the weights at the end of them.",
    );
    let told = |value: f64, decimals: usize| {
        if value.is_finite() { format!("{value:.decimals$}") } else { "–".to_owned() }
    };
    for (run, name) in runs.iter().zip(names) {
        for stretch in stretches(run) {
            let mut row: Vec<String> = several.then(|| name.clone()).into_iter().collect();
            row.extend([
                told(stretch.epochs.unwrap_or(f64::NAN), 2),
                stretch.step.to_string(),
                told(stretch.seconds, 2),
                told(stretch.training[0], 4),
                told(stretch.test[0], 4),
                told(100.0 * stretch.training[1], 2),
                told(100.0 * stretch.test[1], 2),
            ]);
            table.row(row);
        }
    }
    table
}

/// Puts the table on a page: at once where it is short, else behind a fold.
/// Beside other runs it is behind a fold, however short: the curves show the same.
pub(crate) fn place(page: &mut Page, table: &Table, crowded: bool) {
    match table.rows.len() {
        0 => {}
        1..=MOST_SHOWN if !crowded => page.table(table),
        rows => page.folded_table(&format!("Training and test at {rows} evaluations"), table),
    }
}

/// The table in Markdown; nothing where nothing was evaluated.
pub(crate) fn markdown(runs: &[&RunView], names: &[String]) -> String {
    let table = table(runs, names);
    if table.rows.is_empty() { String::new() } else { format!("\n{}", table.markdown()) }
}

/// The same at full precision, for other programs; empty cells where nothing is known.
#[must_use]
pub fn csv(runs: &[RunView]) -> String {
    let mut csv = Csv::new(&[
        "run",
        "epochs",
        "step",
        "seconds",
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
    ]);
    let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
    for run in runs {
        for stretch in stretches(run) {
            csv.row(&[
                run.summary.run.clone(),
                number(stretch.epochs.unwrap_or(f64::NAN)),
                stretch.step.to_string(),
                number(stretch.seconds),
                number(stretch.training[0]),
                number(stretch.training[1]),
                number(stretch.test[0]),
                number(stretch.test[1]),
            ]);
        }
    }
    csv.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Evaluation, Record, Step};

    fn record(time: f64, task: &str, event: Event) -> Record {
        Record { time, task: task.to_owned(), kind: String::new(), event: Some(event) }
    }

    fn step(step: u64, examples: u64, loss: f64, accuracy: f64) -> Event {
        Event::Step(Step { step, examples, loss, accuracy, ..Step::default() })
    }

    fn score(step: u64, epochs: f64, loss: f64) -> Event {
        Event::Evaluation(Evaluation { step, epochs, loss, accuracy: 0.5, ..Evaluation::default() })
    }

    /// Two workers, whose lines come one log after the other; the end is scored twice.
    fn run() -> RunView {
        let records = vec![
            record(10.0, "worker/0", step(1, 10, 3.0, 0.0)),
            record(11.0, "worker/0", step(3, 10, 1.0, 0.4)),
            record(12.0, "worker/0", score(2, 1.0, 2.0)),
            record(14.0, "worker/0", score(4, 2.0, 1.5)),
            record(15.0, "worker/0", score(4, 2.0, 9.0)),
            record(10.5, "worker/1", step(2, 30, 1.0, 0.2)),
            record(12.5, "worker/1", step(4, 10, 0.5, 0.6)),
            record(15.5, "worker/1", step(5, 10, 0.1, 1.0)),
        ];
        RunView { records, ..RunView::default() }
    }

    #[test]
    fn training_stands_beside_test_for_each_evaluation() {
        let found = stretches(&run());
        let told: Vec<_> = found.iter().map(|one| (one.step, one.training, one.test[0])).collect();
        assert_eq!(told, [(2, [1.5, 0.15], 2.0), (4, [0.75, 0.5], 1.5)]);
        let table = table(&[&run()], &["a".to_owned()]);
        assert_eq!(table.rows[1][3..], ["0.7500", "1.5000", "50.00", "50.00"].map(str::to_owned));
        let lines: Vec<String> = csv(&[run()]).lines().map(str::to_owned).collect();
        assert!(lines[0].starts_with("run,epochs,step,seconds,train_loss,train_accuracy,"));
        assert!(lines[2].contains(",2,4,") && lines[2].ends_with(",0.75,0.5,1.5,0.5"), "{lines:?}");
    }
}
