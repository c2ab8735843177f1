//! The tasks of a run: which have joined, how far each is, and which are missing or lost.

use paceline_runs::{Event, Record, RunFolder, StartRow, TaskJoined};
use serde::Serialize;

/// A task as its log tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Task {
    pub(crate) task: String,
    pub(crate) role: String,
    pub(crate) address: String,
    pub(crate) state: String,
    pub(crate) joined: Option<f64>,
    pub(crate) step: u64,
    pub(crate) last: f64,
    pub(crate) words: String,
    pub(crate) host: String,
}

impl From<StartRow> for Task {
    fn from(row: StartRow) -> Task {
        let since = format!("for {:.0} s", row.seconds);
        Task {
            words: match (row.state.as_str(), row.error) {
                ("waiting", Some(error)) => format!("{since}, last error: {error}"),
                ("waiting", None) => since,
                _ if row.host.is_empty() => String::new(),
                _ => format!("on {}", row.host),
            },
            task: row.task,
            address: row.address,
            state: row.state,
            host: row.host,
            ..Task::default()
        }
    }
}

/// The tasks of a run: which have joined, how far each is, and which are missing or lost.
pub(crate) fn tasks(run: &RunFolder, records: &[Record]) -> Vec<Task> {
    let table = run.start_table().unwrap_or_default();
    let mut tasks: Vec<Task> = table.tasks.into_iter().map(Task::from).collect();
    fn of<'a>(tasks: &'a mut Vec<Task>, name: &str) -> &'a mut Task {
        let at = tasks.iter().position(|task| task.task == name).unwrap_or_else(|| {
            tasks.push(Task { task: name.to_owned(), ..Task::default() });
            tasks.len() - 1
        });
        &mut tasks[at]
    }
    for record in records {
        let task = of(&mut tasks, &record.task);
        task.last = record.time;
        match &record.event {
            // The chief writes this of every task that joins; the name of that task is in it.
            Some(Event::TaskJoined(TaskJoined { role, address, process, host, .. })) => {
                let name = if role.contains('/') { role.clone() } else { record.task.clone() };
                let (role, time) = (role.clone(), record.time);
                let (address, words) = (address.clone(), format!("process {process} on {host}"));
                let task = of(&mut tasks, &name);
                task.host.clone_from(host);
                task.role = role;
                task.address = address.unwrap_or_else(|| std::mem::take(&mut task.address));
                task.joined = Some(time);
                if task.state.is_empty() || task.state == "waiting" {
                    task.state = "joined".to_owned();
                }
                task.words = words;
            }
            Some(Event::RunStarted(_)) => task.state = "running".to_owned(),
            Some(Event::Step(step)) => {
                task.state = "running".to_owned();
                task.step = step.step;
            }
            Some(Event::RunEnded(end)) => {
                task.state = end.status.to_string();
                task.words = end.reason.clone().unwrap_or_default();
            }
            Some(Event::TaskLost(lost)) => {
                let (name, reason) = (lost.lost.clone(), lost.reason.clone());
                let task = of(&mut tasks, &name);
                task.state = "lost".to_owned();
                task.words = reason;
            }
            Some(Event::TaskRecovered(back)) => {
                let (name, seconds) = (back.recovered.clone(), back.seconds);
                let task = of(&mut tasks, &name);
                task.state = "running".to_owned();
                task.words = format!("back after {seconds:.1} s");
            }
            _ => {}
        }
    }
    tasks
}
