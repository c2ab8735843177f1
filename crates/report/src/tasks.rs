//! The tasks of a run, side by side: what each worker did, what each machine did meanwhile, how stale the updates were.

use crate::chart::{Axis, Chart, Series, Span};
use crate::page::Figure;
use crate::table::{Column, Table};
use crate::training::{RunView, decimal};

/// Staleness beyond this is summed in one last bar.
const MOST_STALE: usize = 12;

/// A cell of a table of tasks: the heading, its unit, and how it reads.
type Field<T> = (&'static str, &'static str, fn(&T) -> Option<String>);

fn percent(share: f64) -> Option<String> {
    (share > 0.0).then(|| decimal(100.0 * share, 0))
}

fn megabytes(bytes: u64) -> Option<String> {
    (bytes > 0).then(|| decimal(bytes as f64 / 1e6, 1))
}

/// A table with a row per task and a column per field; fields that no task has are left out.
fn table<'a, T: 'a>(
    rows: impl Iterator<Item = (String, &'a str, &'a T)>,
    fields: &[Field<T>],
) -> Table {
    let rows: Vec<(String, &str, Vec<Option<String>>)> = rows
        .map(|(run, task, of)| (run, task, fields.iter().map(|(.., read)| read(of)).collect()))
        .collect();
    let used: Vec<usize> =
        (0..fields.len()).filter(|at| rows.iter().any(|row| row.2[*at].is_some())).collect();
    let several = rows.windows(2).any(|pair| pair[0].0 != pair[1].0);
    let mut columns = if several { vec![Column::words("run")] } else { Vec::new() };
    columns.push(Column::words("task"));
    columns.extend(used.iter().map(|at| {
        let (name, unit, _) = fields[*at];
        Column::numbers(name).unit(unit)
    }));
    let mut table = Table::new(columns);
    for (run, task, cells) in rows {
        let mut row = if several { vec![run] } else { Vec::new() };
        row.push(task.to_owned());
        row.extend(used.iter().map(|at| cells[*at].clone().unwrap_or_else(|| "–".to_owned())));
        table.rows.push(row);
    }
    table
}

/// What every worker did, where a run has several.
pub(crate) fn workers(runs: &[&RunView], names: &[String]) -> Table {
    let rows = runs.iter().zip(names).filter(|(run, _)| run.summary.workers.len() > 1);
    let rows = rows.flat_map(|(run, name)| {
        run.summary.workers.iter().map(move |worker| (name.clone(), &*worker.task, worker))
    });
    table(
        rows,
        &[
            ("iterations", "", |worker| Some(worker.iterations.to_string())),
            ("examples", "", |worker| Some(worker.examples.to_string())),
            ("finished after", "s", |worker| {
                (worker.finished > 0.0).then(|| decimal(worker.finished, 2))
            }),
            ("accuracy", "%", |worker| {
                worker.accuracy.is_finite().then(|| decimal(100.0 * worker.accuracy, 1))
            }),
            ("test accuracy", "%", |worker| {
                worker.test_accuracy.map(|accuracy| decimal(100.0 * accuracy, 1))
            }),
            ("test loss", "", |worker| worker.test_loss.map(|loss| decimal(loss, 4))),
            ("input", "%", |worker| percent(worker.phases.input)),
            ("compute", "%", |worker| percent(worker.phases.compute)),
            ("exchange", "%", |worker| percent(worker.phases.exchange)),
            ("wait", "%", |worker| percent(worker.phases.wait)),
            ("recovery", "%", |worker| {
                percent(worker.phases.recovery).filter(|_| worker.phases.recovery > 0.0)
            }),
            ("sent", "MB", |worker| megabytes(worker.traffic.sent_bytes)),
            ("received", "MB", |worker| megabytes(worker.traffic.received_bytes)),
            ("gradients dropped", "", |worker| {
                (worker.dropped > 0).then(|| worker.dropped.to_string())
            }),
        ],
    )
}

/// What every task's machine did during its steps.
pub(crate) fn machines(runs: &[&RunView], names: &[String]) -> Table {
    let rows = runs.iter().zip(names).flat_map(|(run, name)| {
        run.summary.tasks.iter().map(move |load| (name.clone(), &*load.task, load))
    });
    fn rate(bytes: Option<f64>) -> Option<String> {
        bytes.filter(|bytes| *bytes >= 5e4).map(|bytes| decimal(bytes / 1e6, 1))
    }
    fn cores(value: Option<f64>) -> Option<String> {
        value.map(|value| decimal(value, 2))
    }
    fn share(value: Option<f64>) -> Option<String> {
        value.filter(|share| *share >= 0.005).and_then(percent)
    }
    table(
        rows,
        &[
            ("host", "", |load| (!load.host.is_empty()).then(|| load.host.clone())),
            ("CPU busy, process", "cores", |load| cores(load.process_cores)),
            ("CPU wait", "cores", |load| {
                cores(load.waiting_cores.filter(|waiting| *waiting >= 0.005))
            }),
            ("CPU busy, whole machine", "cores", |load| cores(load.machine_cores)),
            ("of", "cores", |load| (load.cores > 0).then(|| load.cores.to_string())),
            ("CPU steal", "cores", |load| {
                cores(load.stolen_cores.filter(|stolen| *stolen >= 0.005))
            }),
            ("CPU throttled", "%", |load| share(load.throttled)),
            ("process stopped", "%", |load| share(load.stopped)),
            ("disk busy", "%", |load| share(load.disk_busy)),
            ("disk wait", "%", |load| share(load.disk_pressure)),
            ("read", "MB/s", |load| rate(load.read_bytes_per_second)),
            ("received", "MB/s", |load| rate(load.received_bytes_per_second)),
            ("sent", "MB/s", |load| rate(load.sent_bytes_per_second)),
            ("link capacity", "MB/s", |load| rate(load.send_capacity)),
        ],
    )
}

/// How stale the updates were, one picture for all runs that have any.
pub(crate) fn staleness(runs: &[&RunView], names: &[String]) -> Option<Figure> {
    let stale: Vec<(usize, &&RunView)> =
        runs.iter().enumerate().filter(|(_, run)| run.summary.staleness.len() > 1).collect();
    let most = stale.iter().map(|(_, run)| run.summary.staleness.len()).max()?.min(MOST_STALE + 1);
    let labels = (0..most)
        .map(|value| if value == MOST_STALE { format!("{value}+") } else { value.to_string() });
    let mut chart = Chart::new(
        "How stale were the updates?",
        Axis::categories("updates by other workers between pull and push", labels),
        Axis::new("share of updates").unit("%").from_zero(),
    );
    let mut words = Vec::new();
    for (index, run) in &stale {
        let counts = &run.summary.staleness;
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let shares = (0..most).map(|value| {
            let count: u64 = match value {
                MOST_STALE => counts.iter().skip(MOST_STALE).sum(),
                _ => counts.get(value).copied().unwrap_or(0),
            };
            Span::exact(value as f64, (1000.0 * count as f64 / all).round() / 10.0)
        });
        chart = chart.with(Series::bars(&names[*index], shares).colour(*index));
        let sum: f64 = counts.iter().enumerate().map(|(value, n)| (value as u64 * n) as f64).sum();
        words.push(format!("{}: {:.2} on average", names[*index], sum / all));
    }
    Some(Figure {
        title: "How stale were the updates?".to_owned(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: format!(
            "{}. Stale: other workers updated the weights since they were pulled.",
            words.join("; ")
        ),
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Summary, TaskLoad, Traffic, WorkerSummary};

    fn run() -> RunView {
        let worker = |task: &str, sent_bytes| WorkerSummary {
            task: task.to_owned(),
            iterations: 7,
            traffic: Traffic { sent_bytes, received_bytes: 0 },
            ..WorkerSummary::default()
        };
        let mut staleness = vec![50, 30];
        staleness.resize(30, 1);
        RunView {
            name: "r".to_owned(),
            summary: Summary {
                workers: vec![worker("worker/0", 2_500_000), worker("worker/1", 0)],
                tasks: vec![TaskLoad {
                    task: "ps/0".to_owned(),
                    process_cores: Some(0.5),
                    ..TaskLoad::default()
                }],
                staleness,
                ..Summary::default()
            },
            ..RunView::default()
        }
    }

    #[test]
    fn columns_without_values_are_left_out() {
        let text = workers(&[&run()], &["r".to_owned()]).markdown();
        assert!(text.contains("sent (MB)") && text.contains("2.5"), "{text}");
        assert!(
            !text.contains("received") && !text.contains("dropped") && !text.contains("| r "),
            "{text}"
        );
        let text = machines(&[&run()], &["r".to_owned()]).markdown();
        assert!(text.contains("ps/0") && text.contains("0.50") && !text.contains("host"), "{text}");
    }

    /// The report of both panicked: one run's tail was looked up in the other.
    #[test]
    fn runs_with_little_and_with_much_staleness_share_one_picture() {
        let mut other = run();
        other.summary.staleness = vec![9, 3];
        let names = ["r".to_owned(), "s".to_owned()];
        let figure = staleness(&[&run(), &other], &names).unwrap();
        assert!(figure.words.contains("s: 0.25 on average"), "{}", figure.words);
    }

    #[test]
    fn a_long_tail_of_staleness_shares_one_bar() {
        let figure = staleness(&[&run()], &["r".to_owned()]).unwrap();
        assert!(figure.svg.contains(">12+<"), "{}", figure.svg);
        assert!(figure.words.contains("on average"));
        let mut fresh = run();
        fresh.summary.staleness.clear();
        assert!(staleness(&[&fresh], &["r".to_owned()]).is_none());
    }
}
