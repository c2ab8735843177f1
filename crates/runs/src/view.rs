//! A run as its readers need it: how it ended or how far it came, with the verdict on it.
//!
//! Made here once, so that terminal, JSON, CSV, Markdown, HTML and live page cannot differ. A run that has ended said what
//! it did; of one that has not, the events tell, and it is judged by the same rules.

use crate::verdict::{Examples, Limit, Verdict};
use crate::{
    Event, Machine, PhaseTimes, Record, RecordedPlan, Resources, RunFolder, RunSettings, RunState,
    RunsError, Status, Step, Summary, WorkerSummary, diagnosis, layers,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One run, read from its folder.
#[derive(Debug, Clone, Default)]
pub struct RunView {
    /// How it is called in tables and beside curves.
    pub name: String,
    /// How it ended, or as far as it came; with the verdict, whether or not it has ended.
    pub summary: Summary,
    /// The state in a word: how it ended, `running`, `died` or `broken`.
    pub state: String,
    /// What it was asked to do, to be compared with other runs.
    pub settings: RunSettings,
    /// What it was going to do, as far as it was recorded.
    pub plan: RecordedPlan,
    pub machine: Option<Machine>,
    /// Threads that all replicas of a worker had together.
    pub threads: usize,
    /// What it read.
    pub examples: Examples,
    /// What happened, on the chief's clock.
    pub records: Vec<Record>,
    /// What the machine did meanwhile, per task.
    pub resources: Vec<(String, Resources)>,
    /// What the model took for what at the last evaluation: a class and how often each class was predicted for it; empty where
    /// that was not kept.
    pub confusion: Vec<(String, Vec<u64>)>,
    /// The network's tensors and their shapes, in its order, as the newest checkpoint tells; empty where none was kept.
    pub layers: Vec<(String, Vec<usize>)>,
}

impl RunView {
    /// Reads a run folder; a run without a summary is shown as far as it came.
    ///
    /// # Errors
    /// When the folder holds no run or its events cannot be read.
    pub fn read(path: &Path) -> Result<Self, RunsError> {
        let folder = RunFolder::open(path)?;
        let state = folder.state();
        let mut view = Self::gather(&folder, &state)?;
        if view.summary.diagnosis.is_none() {
            view.judge(&state);
        }
        Ok(view)
    }

    /// The same from events that the caller has read already, for one that follows a long log.
    #[must_use]
    pub fn of_events(folder: &RunFolder, records: Vec<Record>) -> Self {
        let state = folder.state();
        let mut view = Self::gather_from(folder, &state, records);
        if view.summary.diagnosis.is_none() {
            view.judge(&state);
        }
        view
    }

    /// Everything but the verdict.
    pub(crate) fn gather(folder: &RunFolder, state: &RunState) -> Result<Self, RunsError> {
        Ok(Self::gather_from(folder, state, folder.events()?.0))
    }

    fn gather_from(folder: &RunFolder, state: &RunState, mut records: Vec<Record>) -> Self {
        let ahead = clocks(&records);
        for record in &mut records {
            record.time -= ahead.get(&record.task).copied().unwrap_or(0.0);
        }
        records.sort_by(|a, b| a.time.total_cmp(&b.time));
        let plan = RecordedPlan::read(folder, &records);
        let mut summary = match state {
            RunState::Ended(summary) => (**summary).clone(),
            _ => Summary { run: folder.name(), ..Summary::default() },
        };
        if summary.data.is_empty() {
            summary.data = plan.data.clone().unwrap_or_default();
        }
        // A run that failed has said why, not what it had done by then.
        if summary.workers.is_empty() {
            as_far_as_it_came(&mut summary, &records);
        }
        // Servers and evaluators write no events of their own, but their machines are recorded.
        let tasks: BTreeSet<String> = records.iter().flat_map(named).collect();
        let resources = tasks
            .into_iter()
            .filter_map(|task| {
                let mut recording = Resources::read(&folder.resources_path(&task)).ok()?;
                recording.set_back(ahead.get(&task).copied().unwrap_or(0.0));
                Some((task, recording))
            })
            .collect();
        // A run that is known by its summary only is not drawn.
        let layers = match records.is_empty() {
            true => Vec::new(),
            false => layers::tensors(folder, plan.whole["parameters"].as_u64()),
        };
        Self {
            name: format!("{} {}", summary.model, summary.strategy).trim().to_owned(),
            state: state.word(),
            settings: RunSettings::of(&plan.whole, folder.machine().ok().as_ref()),
            machine: folder.machine().ok(),
            threads: plan.threads_of_worker(),
            examples: plan.examples(),
            plan,
            summary,
            records,
            resources,
            // Only a picture is missing without it.
            confusion: std::fs::read_to_string(folder.path().join("confusion.csv"))
                .map(|text| confusion(&text))
                .unwrap_or_default(),
            layers,
        }
    }

    /// Judges the run and writes the verdict into its summary. A run that failed keeps the reason it gave.
    pub(crate) fn judge(&mut self, state: &RunState) {
        let verdict = diagnosis::diagnose(self);
        self.summary.tasks = diagnosis::loads(self);
        self.summary.verdict = sentence(state, &self.summary, &verdict);
        self.summary.diagnosis = Some(verdict.into());
    }

    /// What trained it, such as `PyTorch 2.15`, where a script of another framework was recorded.
    #[must_use]
    pub fn framework(&self) -> Option<&str> {
        self.records.iter().find_map(|record| match &record.event {
            Some(Event::RunStarted(started)) if !started.framework.is_empty() => {
                Some(&*started.framework)
            }
            _ => None,
        })
    }

    /// When it began, in seconds since 1970.
    #[must_use]
    pub fn start(&self) -> f64 {
        self.records.first().map_or(0.0, |record| record.time)
    }

    /// What the verdict rests on, each in a sentence.
    #[must_use]
    pub fn evidence(&self) -> &[String] {
        self.summary.diagnosis.as_ref().map_or(&[], |diagnosis| &diagnosis.evidence)
    }
}

impl Summary {
    /// What a run had done up to a checkpoint: as it said when it ended there, else as its events tell.
    #[must_use]
    pub fn before(folder: &RunFolder, step: u64) -> Self {
        let told = folder.summary().ok().flatten();
        if let Some(told) =
            told.filter(|told| told.global_steps == step && !told.workers.is_empty())
        {
            return told;
        }
        let mut summary = Self::default();
        // Where they cannot be read, nothing is known.
        let (mut records, _) = folder.events().unwrap_or_default();
        // What lies beyond the checkpoint was lost.
        records.retain(|record| match &record.event {
            Some(Event::Step(made)) => made.step <= step,
            Some(Event::Evaluation(score)) => score.step <= step,
            Some(Event::Histograms(counted)) => counted.step <= step,
            _ => true,
        });
        records.sort_by(|a, b| a.time.total_cmp(&b.time));
        as_far_as_it_came(&mut summary, &records);
        summary
    }
}

/// The verdict in words, with what became of the run where that is not plain.
fn sentence(state: &RunState, summary: &Summary, verdict: &Verdict) -> String {
    let known = verdict.limit != Limit::Unknown;
    let (words, step) = (&verdict.words, summary.global_steps);
    match state {
        RunState::Ended(_) if summary.status == Status::Failed => summary.verdict.clone(),
        RunState::Ended(_) if known || summary.verdict.is_empty() => words.clone(),
        RunState::Ended(_) => summary.verdict.clone(),
        RunState::Running if known => format!("so far {words}"),
        RunState::Running => "no step has been recorded yet".to_owned(),
        RunState::Died if known => {
            format!("ended without a summary after step {step}; until then {words}")
        }
        RunState::Died => "ended without a summary before its first step".to_owned(),
        RunState::Broken(why) if known => {
            format!("the summary cannot be read ({why}); by its events {words}")
        }
        RunState::Broken(why) => format!("the summary cannot be read ({why})"),
    }
}

/// A matrix of counts under a header, the name of its class before each row; nothing where a row is damaged. Names may be quoted.
fn confusion(text: &str) -> Vec<(String, Vec<u64>)> {
    let classes = text.lines().count().saturating_sub(1);
    let row = |line: &str| {
        let mut cells: Vec<&str> = line.rsplitn(classes + 1, ',').collect();
        let name = cells.pop()?.trim_matches('"').replace("\"\"", "\"");
        let counts: Option<Vec<u64>> = cells.iter().rev().map(|cell| cell.parse().ok()).collect();
        Some((name, counts.filter(|counts| counts.len() == classes)?))
    };
    text.lines().skip(1).map(row).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The tasks that an event tells of.
fn named(record: &Record) -> Vec<String> {
    match &record.event {
        Some(Event::TaskJoined(joined)) if !joined.role.is_empty() => {
            vec![record.task.clone(), joined.role.clone()]
        }
        _ => vec![record.task.clone()],
    }
}

/// Seconds by which each task's clock was ahead of the chief's, as measured when it joined.
fn clocks(records: &[Record]) -> BTreeMap<String, f64> {
    let joined = records.iter().filter_map(|record| match &record.event {
        Some(Event::TaskJoined(joined)) => Some((joined.role.clone(), joined.clock_offset?)),
        _ => None,
    });
    joined.collect()
}

/// What a task did, as its events tell.
#[derive(Default)]
struct Told {
    steps: Vec<Step>,
    last: f64,
}

impl Told {
    /// Adds steps. Where they begin before the last ones ended, the run was resumed or rolled back, and what lay beyond
    /// that point was lost.
    fn add(&mut self, step: Step, time: f64) {
        // Streams round parts of a step up.
        let base = step.step.saturating_sub(step.steps) + 1;
        if self.steps.last().is_some_and(|last| last.step > base) {
            self.steps.retain(|known| known.step <= base);
        }
        self.steps.push(step);
        self.last = time;
    }
}

/// Fills in what the events tell. The time between two processes of a run is not part of it.
fn as_far_as_it_came(summary: &mut Summary, records: &[Record]) {
    let is_start = |record: &&Record| matches!(record.event, Some(Event::RunStarted(_)));
    let chief = records.iter().filter(is_start).map(|record| &record.task).min();
    let mut tasks: BTreeMap<&str, Told> = BTreeMap::new();
    // Begin and end of every process of the chief.
    let mut legs: Vec<(f64, f64)> = Vec::new();
    for record in records {
        match &record.event {
            Some(Event::RunStarted(started)) => {
                if chief == Some(&record.task) {
                    legs.push((record.time, record.time));
                }
                summary.model.clone_from(&started.model);
                summary.strategy.clone_from(&started.strategy);
                summary.seed = started.seed;
                summary.global_batch = started.global_batch;
            }
            Some(Event::Step(step)) => {
                tasks.entry(&record.task).or_default().add(*step, record.time);
                // One that tells of a recovery alone has no loss.
                if step.steps > 0 {
                    summary.last.train_loss = step.loss;
                }
            }
            Some(Event::Evaluation(evaluation)) => {
                summary.last.test_loss = evaluation.loss;
                summary.last.test_accuracy = evaluation.accuracy;
            }
            _ => {}
        }
        // The time of a run is the chief's: the clock of another task may be set in mid-run.
        if let Some(leg) = legs.last_mut().filter(|_| chief == Some(&record.task)) {
            leg.1 = leg.1.max(record.time);
        }
    }
    let begun = legs.first().map_or(0.0, |leg| leg.0);
    let workers: Vec<WorkerSummary> = tasks
        .iter()
        .filter(|(_, told)| !told.steps.is_empty())
        .map(|(task, told)| worker(task, told, begun))
        .collect();
    let all = || tasks.values().flat_map(|told| &told.steps);
    summary.global_steps = all().map(|step| step.step).max().unwrap_or(0).max(summary.global_steps);
    summary.examples = workers.iter().map(|worker| worker.examples).sum();
    summary.workers = workers;
    if summary.started == 0.0 {
        summary.started = begun;
    }
    if summary.seconds == 0.0 {
        summary.seconds = legs.iter().map(|(from, to)| to - from).sum();
    }
    summary.settle();
}

fn worker(task: &str, told: &Told, begun: f64) -> WorkerSummary {
    let phases: PhaseTimes = told.steps.iter().map(|step| step.phases).sum();
    let last = told.steps.last();
    WorkerSummary {
        task: task.to_owned(),
        iterations: told.steps.iter().map(|step| step.steps).sum(),
        examples: told.steps.iter().map(|step| step.examples).sum(),
        // Another program may record how long steps took and not what the time went into.
        seconds: match phases.total() {
            0.0 => told.steps.iter().map(|step| step.seconds).sum(),
            total => total,
        },
        finished: told.last - begun,
        loss: last.map_or(f64::NAN, |step| step.loss),
        accuracy: last.map_or(f64::NAN, |step| step.accuracy),
        phases: phases.shares(),
        ..WorkerSummary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventLog, RunStarted};

    fn step(step: u64, examples: u64) -> Event {
        Event::Step(Step {
            step,
            steps: 50,
            examples,
            seconds: 1.0,
            phases: PhaseTimes { input: 0.6, compute: 0.4, ..PhaseTimes::default() },
            ..Step::default()
        })
    }

    fn record(time: f64, task: &str, event: Event) -> Record {
        Record { time, task: task.to_owned(), kind: String::new(), event: Some(event) }
    }

    fn started(first_step: u64) -> Event {
        Event::RunStarted(RunStarted {
            model: "lenet".to_owned(),
            first_step,
            ..RunStarted::default()
        })
    }

    #[test]
    fn a_confusion_matrix_is_read_with_its_names_or_not_at_all() {
        let text = "label \\ prediction,\"a, b\",c\n\"a, b\",3,1\nc,0,9\n";
        assert_eq!(
            confusion(text),
            [("a, b".to_owned(), vec![3, 1]), ("c".to_owned(), vec![0, 9])]
        );
        assert!(confusion("label,a,b\na,1,2\nb,x,2\n").is_empty());
        assert!(confusion("").is_empty());
    }

    /// A worker's clock was set an hour ahead, and the run had taken an hour.
    #[test]
    fn a_jump_of_one_workers_clock_is_not_the_time_of_the_run() {
        let records = [
            record(10.0, "worker/0", started(0)),
            record(10.1, "worker/1", started(0)),
            record(11.0, "worker/0", step(50, 100)),
            record(11.0, "worker/1", step(50, 100)),
            record(12.0, "worker/0", step(100, 100)),
            record(3612.0, "worker/1", step(100, 100)),
        ];
        let mut summary = Summary::default();
        as_far_as_it_came(&mut summary, &records);
        assert_eq!((summary.seconds, summary.examples), (2.0, 400));
        assert!((summary.examples_per_second - 200.0).abs() < 1e-9);
    }

    /// Two workers' events added up to twice the examples, over the seconds of both.
    #[test]
    fn an_unfinished_run_of_two_workers_has_their_examples_and_one_clock() {
        let mut records =
            vec![record(10.0, "worker/0", started(0)), record(10.1, "worker/1", started(0))];
        for at in 1..=4 {
            for task in ["worker/0", "worker/1"] {
                records.push(record(10.0 + f64::from(at), task, step(50 * at as u64, 300)));
            }
        }
        let mut summary = Summary::default();
        as_far_as_it_came(&mut summary, &records);
        assert_eq!((summary.examples, summary.seconds), (2400, 4.0));
        assert_eq!((summary.examples_per_second, summary.global_steps), (600.0, 200));
        assert_eq!(summary.workers.len(), 2);
        assert!((summary.phases.input - 0.6).abs() < 1e-9);
    }

    #[test]
    fn steps_that_were_lost_with_a_process_count_once_and_time_between_processes_not_at_all() {
        let records = [
            record(0.0, "worker/0", started(0)),
            record(1.0, "worker/0", step(50, 100)),
            record(2.0, "worker/0", step(100, 100)),
            record(60.0, "worker/0", started(50)),
            record(61.0, "worker/0", step(100, 100)),
        ];
        let mut summary = Summary::default();
        as_far_as_it_came(&mut summary, &records);
        assert_eq!((summary.examples, summary.seconds, summary.global_steps), (200, 3.0, 100));
    }

    #[test]
    fn what_a_killed_run_did_beyond_its_checkpoint_is_lost() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(root.path(), "lenet", "one-device").unwrap();
        let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
        log.write(10.0, &started(0)).unwrap();
        log.write(11.0, &step(50, 100)).unwrap();
        log.write(12.0, &step(100, 100)).unwrap();
        log.flush().unwrap();
        let before = Summary::before(&run, 50);
        assert_eq!((before.examples, before.workers[0].iterations), (100, 50));
        run.write_summary(&Summary { examples: 7, global_steps: 50, ..before }).unwrap();
        assert_eq!(Summary::before(&run, 50).examples, 7, "it said so itself");
        assert_eq!(Summary::before(&run, 100).examples, 200, "it said so of another step");
    }

    /// Such a run gets a verdict too, not only the note that it has not ended.
    #[test]
    fn an_unfinished_run_is_judged_by_its_events() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(root.path(), "lenet", "one-device").unwrap();
        let plan = r#"{ "spec": { "data": "digits" }, "threads": 2 }"#;
        std::fs::write(run.path().join("plan.json"), plan).unwrap();
        assert_eq!(
            RunView::read(run.path()).unwrap().summary.verdict,
            "ended without a summary before its first step"
        );
        let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
        log.write(10.0, &started(0)).unwrap();
        log.write(12.0, &step(50, 100)).unwrap();
        log.flush().unwrap();
        let view = RunView::read(run.path()).unwrap();
        assert_eq!((&*view.state, &*view.summary.data), ("running", "digits"));
        assert!(view.summary.verdict.starts_with("so far input-bound"), "{}", view.summary.verdict);
        drop(log);
        let view = RunView::read(run.path()).unwrap();
        assert_eq!(view.state, "died");
        let verdict = &view.summary.verdict;
        assert!(
            verdict.starts_with("ended without a summary after step 50; until then input-bound"),
            "{verdict}"
        );
        assert!(view.evidence()[0].contains("input 60 %"), "{:?}", view.evidence());
    }
}
