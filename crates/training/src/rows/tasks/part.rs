//! One task's part in a run, from its first word to its last.

use super::{
    Tasks,
    chief::Oversight,
    evaluator::score_weights,
    feed::Origin,
    serve::serve,
    worker::{LoopState, RowsWorker},
};
use crate::{
    Inbox, TrainError,
    error::with_causes,
    memory,
    rows::{
        Control, Earlier, Metrics, Plan, RowsReport, RowsSpec, checkpoint,
        memory::Holder,
        outcome,
        report::{RunFacts, WorkerReport, report},
    },
};
use paceline_cluster::session::Session;
use paceline_data::rows::Input;
use paceline_runs::{
    FolderHandle, Learning, Machine, Recorder, RecorderSettings, RunFolder, unix_seconds,
};
use paceline_wire::Role;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// This process's part in a run.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Who else takes part.
    pub session: &'a Arc<Session>,
    /// What the session says.
    pub inbox: &'a Inbox,
    /// The run's folder, on this machine.
    pub run: &'a RunFolder,
    /// Whether it continues from its latest checkpoint.
    pub resume: bool,
}

/// Plays this task's part until the run is over. Workers have a report to show: the chief's is the run's and
/// is written to its folder, the others' tell of themselves.
///
/// # Errors
/// Whatever ends this task before its time. The other tasks are told.
pub fn take_part(
    spec: &RowsSpec,
    task: &Task<'_>,
    control: &Control<'_>,
) -> Result<Option<RowsReport>, TrainError> {
    let outcome = (|| {
        spec.check()?;
        let tasks = spec.tasks.as_ref().ok_or_else(|| TrainError::Setting {
            setting: "the strategy",
            found: spec.strategy().to_owned(),
            wanted: "ps-sync or ps-async for several tasks".to_owned(),
        })?;
        check_memory(spec, tasks, task.session)?;
        match task.session.me().role {
            Role::Chief | Role::Worker => {
                RowsTaskRunner::new(spec, tasks, task, control)?.play().map(Some)
            }
            Role::Ps => serve(spec, tasks, task, control).map(|()| None),
            Role::Evaluator => score_weights(spec, tasks, task, control).map(|()| None),
        }
    })();
    if let Err(error) = &outcome {
        task.session.fail(&with_causes(error));
    }
    outcome
}

/// Refuses weights that this task would have to hold and cannot.
fn check_memory(spec: &RowsSpec, tasks: &Tasks, session: &Session) -> Result<(), TrainError> {
    let holder = match session.me().role {
        Role::Ps => Holder::Server { of: tasks.servers },
        Role::Evaluator => Holder::Process,
        Role::Chief | Role::Worker if session.is_chief() => Holder::Process,
        // Other workers see only the weights that their rows touch.
        Role::Chief | Role::Worker => return Ok(()),
    };
    holder.check(spec.hashing.bits, memory::limit())
}

/// A worker's part.
struct RowsTaskRunner<'a> {
    spec: &'a RowsSpec,
    tasks: &'a Tasks,
    task: &'a Task<'a>,
    control: &'a Control<'a>,
    name: String,
    origin: Origin,
    recorder: Recorder,
    folder: FolderHandle,
    begun: Instant,
    /// When that was, in seconds since 1970.
    started: f64,
}

impl<'a> RowsTaskRunner<'a> {
    fn new(
        spec: &'a RowsSpec,
        tasks: &'a Tasks,
        task: &'a Task<'a>,
        control: &'a Control<'a>,
    ) -> Result<Self, TrainError> {
        let session = task.session;
        let name = session.me().to_string();
        // A chief beside the workers comes before them; ranks stay when a task is lost.
        let rank = match (session.me().role, session.chief().role) {
            (Role::Worker, Role::Chief) => session.me().index as usize + 1,
            _ => session.me().index as usize,
        };
        let dealt = tasks.deal(spec)?.into_iter().nth(rank);
        let dealt = dealt.ok_or_else(|| TrainError::Setting {
            setting: "the number of workers",
            found: format!("{} with {name} among them", tasks.workers),
            wanted: "that of the cluster".to_owned(),
        })?;
        let rejects = if session.is_chief() {
            "rejects.jsonl".to_owned()
        } else {
            format!("rejects-{}.jsonl", name.replace('/', "-"))
        };
        let origin = Origin {
            files: dealt.files,
            rows: tasks.share(spec.batch_size, rank),
            rejects: task.run.path().join(rejects),
        };
        if session.is_chief() {
            if task.resume {
                spec.check_data(task.run, false)?;
            }
            task.run.write_machine(&Machine::detect())?;
        }
        let settings =
            RecorderSettings { tensorboard: spec.tensorboard, ..RecorderSettings::default() };
        let recorder = Recorder::start(task.run, &name, &settings)?;
        let folder = FolderHandle::open(task.run)?;
        let (begun, started) = (Instant::now(), unix_seconds());
        Ok(Self { spec, tasks, task, control, name, origin, recorder, folder, begun, started })
    }

    fn play(self) -> Result<RowsReport, TrainError> {
        let plan = self.spec.plan(&Input::Files(self.origin.files.clone()), 1)?;
        let is_chief = self.task.session.is_chief();
        let (mut step, mut rows) = (0, 0);
        if is_chief {
            if self.task.resume {
                let (kept, _) = checkpoint::latest(self.task.run, checkpoint::load)?;
                (step, rows) = (kept.step, kept.rows);
            }
            self.task.run.write_plan(&plan)?;
            self.control.observer.started(&plan, self.task.run, rows);
        }
        self.recorder.record(plan.started(self.task.run, step));
        let mut earlier = (Earlier::default(), 0);
        let mut so_far = None;
        let outcome = self.learn(&plan, &mut earlier, &mut so_far);
        let home = self.folder.present().unwrap_or_else(|_| self.task.run.clone());
        let seconds = self.begun.elapsed().as_secs_f64();
        let (mut report, failure) = match outcome {
            Ok(report) => (report, None),
            Err(error) => (so_far.unwrap_or_default(), Some(error)),
        };
        let now = (self.started, seconds);
        let nothing_left =
            report.conclude(self.spec, &home, now, failure.as_ref(), earlier, self.recorder);
        nothing_left.iter().for_each(|why| self.control.observer.warned(why));
        let written = if is_chief { report.write(&home) } else { Ok(()) };
        match failure {
            Some(error) => Err(error),
            None => written.map(|()| report),
        }
    }

    /// Learns, and meets the others at the end; fills in what was done before, at the chief, and what it did before something failed.
    fn learn(
        &self,
        plan: &Plan,
        earlier: &mut (Earlier, u64),
        so_far: &mut Option<RowsReport>,
    ) -> Result<RowsReport, TrainError> {
        let Self { spec, tasks, task, control, recorder, begun, .. } = self;
        let worker = |oversight| RowsWorker {
            spec,
            tasks,
            task,
            origin: self.origin.clone(),
            recorder,
            control,
            oversight,
            begun: *begun,
        };
        if !task.session.is_chief() {
            let mut loop_state = LoopState::new(spec);
            worker(None).run(&mut loop_state)?;
            let own = WorkerReport::from((self.name.clone(), &loop_state));
            let value = serde_json::to_value(&own).expect("a report is plain data");
            task.session.finish(value)?;
            return Ok(report(spec, &[own], self.known(loop_state, None, 0)));
        }
        let now = (*begun, self.started);
        let oversight = Oversight::new(spec, tasks, task, recorder, control, now)?;
        let mut loop_state = LoopState::new(spec);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| oversight.look_after());
            // Dropped at the end of the scope, however it ends.
            let _ended = Ended(&oversight);
            worker(Some(&oversight)).run(&mut loop_state)
        });
        *earlier = oversight.earlier();
        let before = earlier.0.totals.clone();
        if let Err(error) = outcome {
            let own = WorkerReport::from((self.name.clone(), &loop_state));
            *so_far = Some(report(spec, &[own], self.known(loop_state, None, 0)));
            return Err(error);
        }
        // The last word is on the weights as they ended; a user in a hurry gets none.
        let hurry = control.cancel.load(Ordering::Relaxed);
        let scores = spec.test.is_some() && !hurry;
        let held_out = if scores { oversight.evaluate()? } else { None };
        // The others did their part, whatever becomes of the weights: they are met before that is told.
        let saved = oversight.save_last(plan);
        let learned = oversight.learned();
        let run = oversight.run();
        let (reached, warnings) = oversight.close();
        let own = WorkerReport::from((self.name.clone(), &loop_state));
        let own = serde_json::to_value(&own).expect("a report is plain data");
        let reports = task.session.finish(own)?;
        // A report is our own type; one that does not read back is of another version.
        let told: Vec<WorkerReport> =
            reports.into_iter().filter_map(|(_, told)| serde_json::from_value(told).ok()).collect();
        // Which tasks were lost after the last step, before all tasks were done.
        task.inbox.record(recorder, loop_state.version, &mut loop_state.log);
        let mut known = self.known(loop_state, held_out, saved?);
        (known.reached, known.learned, known.before) = (reached, learned, before.clone());
        let mut totals = before.unwrap_or_default();
        told.iter().for_each(|one| totals.merge(&one.totals));
        if totals.loss.is_finite() {
            let amended = checkpoint::amend(&run.checkpoints_path(), known.version, |kept| {
                kept.totals = Some(totals);
            });
            // Only a resumed run would miss them.
            known.warnings.extend(amended.err().map(|error| with_causes(&error)));
        }
        known.warnings.extend(warnings);
        let report = report(spec, &told, known);
        let rows = report.progressive.rows;
        let loss = told.iter().filter_map(|one| one.exploded).max_by(f64::total_cmp);
        let exploded = outcome::exploded(spec, rows, report.held_out.as_ref())
            .or_else(|| loss.map(|loss| outcome::ended_with(spec, rows, loss)));
        if let Some(error) = exploded.filter(|_| !hurry) {
            *so_far = Some(report);
            return Err(error);
        }
        if let Some(warning) = report.summary.learning.as_ref().and_then(Learning::warning) {
            control.observer.warned(&warning);
        }
        // Of a run that was killed, nothing is known of rows that were learned from before.
        if report.progressive.rows == 0 && report.summary.global_steps == 0 {
            return Err(TrainError::NoRows { data: spec.data.to_string() });
        }
        Ok(report)
    }

    fn known(&self, loop_state: LoopState, held_out: Option<Metrics>, nonzero: u64) -> RunFacts {
        RunFacts {
            version: loop_state.version,
            cancelled: self.control.cancel.load(Ordering::Relaxed),
            held_out,
            nonzero,
            lost: loop_state.log.lost,
            warnings: loop_state.log.remarks,
            ..RunFacts::default()
        }
    }
}

/// Ends the chief's care when training has ended, well or not.
struct Ended<'a, 'b>(&'a Oversight<'b>);

impl Drop for Ended<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
