//! One task's part in a run, from its first word to its last.

use super::{
    Inbox, Tasks,
    chief::Oversight,
    feed::Origin,
    report::{Known, Told, report},
    serve::serve,
    worker::{Course, Worker},
};
use crate::{
    Control, Earlier, Metrics, Plan, Report, Spec, StreamError, checkpoint,
    learn::{bytes_of, with_cause},
    outcome,
};
use paceline_cluster::{Role, session::Session};
use paceline_data::rows::Input;
use paceline_runs::{
    Event, FolderHandle, Learning, Machine, Recorder, RecorderSettings, RunEnded, RunFolder,
    RunStarted, Status, unix_seconds, write_atomically,
};
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
    /// Whether it goes on from its latest checkpoint.
    pub resume: bool,
}

/// Plays this task's part until the run is over. Workers have a report to show: the chief's is the run's and
/// is written to its folder, the others' tell of themselves.
///
/// # Errors
/// Whatever ends this task before its time. The other tasks are told.
pub fn take_part(
    spec: &Spec,
    task: &Task<'_>,
    control: &Control<'_>,
) -> Result<Option<Report>, StreamError> {
    let outcome = (|| {
        spec.check()?;
        let tasks = spec.tasks.as_ref().ok_or_else(|| StreamError::Setting {
            setting: "the strategy",
            found: spec.strategy().to_owned(),
            wanted: "ps-sync or ps-async for several tasks",
        })?;
        match task.session.me().role {
            Role::Chief | Role::Worker => Part::new(spec, tasks, task, control)?.play().map(Some),
            Role::Ps => serve(spec, tasks, task, control).map(|()| None),
            // Servers score held-out rows themselves, beside the weights.
            Role::Evaluator => task.session.wait_for_release().map(|_| None).map_err(Into::into),
        }
    })();
    if let Err(error) = &outcome {
        task.session.fail(&with_cause(error));
    }
    outcome
}

/// A worker's part.
struct Part<'a> {
    spec: &'a Spec,
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

impl<'a> Part<'a> {
    fn new(
        spec: &'a Spec,
        tasks: &'a Tasks,
        task: &'a Task<'a>,
        control: &'a Control<'a>,
    ) -> Result<Self, StreamError> {
        let session = task.session;
        let name = session.me().to_string();
        // A chief beside the workers comes before them; ranks stay when somebody is lost.
        let rank = match (session.me().role, session.chief().role) {
            (Role::Worker, Role::Chief) => session.me().index as usize + 1,
            _ => session.me().index as usize,
        };
        let dealt = tasks.deal(spec)?.into_iter().nth(rank);
        let dealt = dealt.ok_or_else(|| StreamError::Setting {
            setting: "the number of workers",
            found: format!("{} with {name} among them", tasks.workers),
            wanted: "that of the cluster",
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
                spec.check_data(task.run, &task.run.plan::<Plan>()?.data, false)?;
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

    fn plan(&self) -> Result<Plan, StreamError> {
        Ok(Plan {
            kind: Plan::KIND.to_owned(),
            spec: self.spec.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            strategy: self.spec.strategy().to_owned(),
            parameters: (1 << self.spec.hashing.bits) + 1,
            threads: 1,
            bytes: bytes_of(&Input::Files(self.origin.files.clone()), self.spec.epochs),
            data: self.spec.marks()?,
        })
    }

    fn play(self) -> Result<Report, StreamError> {
        let started = self.started;
        let plan = self.plan()?;
        let is_chief = self.task.session.is_chief();
        if is_chief {
            self.task.run.write_plan(&plan)?;
            self.control.observer.started(&plan, self.task.run, 0);
        }
        self.recorder.record(Event::RunStarted(RunStarted {
            run: self.task.run.name(),
            model: self.spec.model.clone(),
            strategy: plan.strategy.clone(),
            version: plan.version.clone(),
            parameters: plan.parameters,
            global_batch: self.spec.batch_size,
            ..RunStarted::default()
        }));
        let mut earlier = (Earlier::default(), 0);
        let mut outcome = self.learn(&plan, &mut earlier);
        let (earlier, steps_before) = earlier;
        let home = self.folder.present().unwrap_or_else(|_| self.task.run.clone());
        let (status, step) = match &outcome {
            Ok(report) => (report.summary.status, report.summary.global_steps),
            Err(_) => (Status::Failed, 0),
        };
        let seconds = self.begun.elapsed().as_secs_f64();
        let closed = self.recorder.close(RunEnded {
            status,
            step,
            seconds,
            reason: outcome.as_ref().err().map(with_cause),
            dropped_events: 0,
        });
        let mut failed = Report::default();
        let report = match &mut outcome {
            Ok(report) => report,
            Err(error) => {
                failed.summary.status = Status::Failed;
                failed.summary.verdict = with_cause(error);
                failed.summary.learning = outcome::of_failure(self.spec, error);
                &mut failed
            }
        };
        let summary = &mut report.summary;
        summary.run = home.name();
        summary.model.clone_from(&self.spec.model);
        summary.data = self.spec.data.to_string();
        summary.strategy = plan.strategy;
        (summary.started, summary.seconds) = (started, seconds);
        report.settle();
        let summary = &mut report.summary;
        if closed.dropped > 0 {
            let text = format!("{} events were dropped: the disk was too slow", closed.dropped);
            summary.warnings.push(text);
        }
        if let Some(error) = &closed.error {
            summary.warnings.push(format!("{} records were lost: {error}", closed.lost));
        }
        let steps = summary.global_steps.saturating_sub(steps_before);
        if steps == 0 && status != Status::Failed && earlier.report.is_some() {
            self.control.observer.warned(&report.keep(earlier, self.spec));
        } else {
            summary.add_legs(&earlier.legs, steps);
        }
        let text = serde_json::to_vec_pretty(&report).expect("a report is plain data");
        if is_chief {
            let written = write_atomically(&home.path().join("summary.json"), &text);
            if outcome.is_ok() {
                written?;
            }
        }
        outcome
    }

    /// Learns, and meets the others at the end; fills in what was done before, at the chief.
    fn learn(&self, plan: &Plan, earlier: &mut (Earlier, u64)) -> Result<Report, StreamError> {
        let Self { spec, tasks, task, control, recorder, begun, .. } = self;
        let worker = |oversight| Worker {
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
            let course = worker(None).run()?;
            let own = Told::new(self.name.clone(), &course);
            let value = serde_json::to_value(&own).expect("a report is plain data");
            task.session.finish(value)?;
            return Ok(report(spec, tasks, &[own], self.known(course, None, 0)));
        }
        let now = (*begun, self.started);
        let oversight = Oversight::new(spec, tasks, task, recorder, control, now)?;
        let course = std::thread::scope(|scope| {
            scope.spawn(|| oversight.look_after());
            // Dropped at the end of the scope, however it ends.
            let _ended = Ended(&oversight);
            worker(Some(&oversight)).run()
        });
        *earlier = oversight.earlier();
        let before = earlier.0.totals.clone();
        let course = course?;
        // The last word is on the weights as they ended; a user in a hurry gets none.
        let hurry = control.cancel.load(Ordering::Relaxed);
        let scores = spec.test.is_some() && !hurry;
        let held_out = if scores { oversight.evaluate()? } else { None };
        // The others did their part, whatever becomes of the weights: they are met before that is told.
        let saved = oversight.save_last(plan);
        let learned = oversight.learned();
        let run = oversight.run();
        let (reached, warnings) = oversight.close();
        let own = Told::new(self.name.clone(), &course);
        let own = serde_json::to_value(&own).expect("a report is plain data");
        let reports = task.session.finish(own)?;
        // A report is our own type; one that does not read back is of another version.
        let told: Vec<Told> =
            reports.into_iter().filter_map(|(_, told)| serde_json::from_value(told).ok()).collect();
        let mut course = course;
        // Who was lost after the last step, before everybody was done.
        task.inbox.record(recorder, course.version, &mut course.log);
        let mut known = self.known(course, held_out, saved?);
        (known.reached, known.learned, known.before) = (reached, learned, before.clone());
        let mut totals = before.unwrap_or_default();
        told.iter().for_each(|one| totals.merge(&one.totals));
        if totals.loss.is_finite() {
            let amended = checkpoint::amend(&run.checkpoints_path(), known.version, |kept| {
                kept.totals = Some(totals);
            });
            // Only a resumed run would miss them.
            known.warnings.extend(amended.err().map(|error| with_cause(&error)));
        }
        known.warnings.extend(warnings);
        let report = report(spec, tasks, &told, known);
        let rows = report.progressive.rows;
        let loss = told.iter().filter_map(|one| one.exploded).max_by(f64::total_cmp);
        let exploded = outcome::exploded(spec, rows, report.held_out.as_ref())
            .or_else(|| loss.map(|loss| outcome::ended_with(spec, rows, loss)));
        if let Some(error) = exploded.filter(|_| !hurry) {
            return Err(error);
        }
        if let Some(warning) = report.summary.learning.as_ref().and_then(Learning::warning) {
            control.observer.warned(&warning);
        }
        // Of a run that was killed, nothing is known of rows that were learned from before.
        if report.progressive.rows == 0 && report.summary.global_steps == 0 {
            return Err(StreamError::NoRows { data: spec.data.to_string() });
        }
        Ok(report)
    }

    fn known(&self, course: Course, held_out: Option<Metrics>, nonzero: u64) -> Known {
        Known {
            version: course.version,
            cancelled: self.control.cancel.load(Ordering::Relaxed),
            held_out,
            nonzero,
            learned: 0,
            reached: None,
            lost: course.log.lost,
            warnings: course.log.remarks,
            before: None,
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
