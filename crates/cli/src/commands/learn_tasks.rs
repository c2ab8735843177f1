//! `paceline train --model sparse-logistic --strategy ps-…`: rows learned from by several tasks.

use super::{
    learn::{self, Watcher, explain, explain_in},
    node_links,
    node_load::{Gatherer, Loads, conclude, record_and_tell},
    node_part::Talk,
    node_place,
    staging::Staging,
    train_flags::Flags,
    train_local::{Place, carry_out, tasks},
    train_report::{Report as Word, Reporter, Whose, Work},
};
use crate::{failure::Exit, terminal::Terminal};
use paceline_cluster::{
    Endpoint, TaskId,
    session::{Rules, Session, Settings, chief_of},
};
use paceline_runs::{Machine, Ownership, RunFolder, StartTable, Summary};
use paceline_strategies::find;
use paceline_training::{
    Inbox, SessionObserver, TrainError,
    rows::{
        Control, Exchanged, Observer, Plan, Report, Spec, Start, Task, Tasks, check_resume,
        take_part,
    },
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Rows of an update where weights travel for it, unless the flags say otherwise. One process learns from each row
/// as it comes; few enough here that the rows of an update hardly notice that they are learned from together.
const SHARED_BATCH: u64 = 32;

/// Adds the tasks that the flags ask for, or that a cluster has, to what is to be learned.
pub(super) fn share_out(
    flags: &Flags,
    sizes: Option<(usize, usize)>,
    spec: &mut Spec,
) -> anyhow::Result<()> {
    spec.tasks = asked(flags, sizes)?;
    if let (Some(tasks), None) = (&spec.tasks, flags.batch_size) {
        spec.batch_size = SHARED_BATCH.max(tasks.workers as u64);
    }
    Ok(())
}

/// The tasks; nothing for one process.
fn asked(flags: &Flags, sizes: Option<(usize, usize)>) -> anyhow::Result<Option<Tasks>> {
    let name = flags.strategy.as_deref().unwrap_or("one-device");
    let strategy = find(name).map_err(|error| explain(error.into()))?;
    if strategy.in_process {
        return Ok(None);
    }
    let (workers, servers) = sizes.unwrap_or((flags.workers.unwrap_or(2), flags.ps.unwrap_or(1)));
    Ok(Some(Tasks {
        strategy: strategy.name.to_owned(),
        workers,
        servers,
        transfer: flags.transfer.unwrap_or_default(),
        on_loss: flags.on_loss.unwrap_or_default(),
        steps: flags.steps,
    }))
}

/// Learns with a process for each task.
pub(super) fn exec(
    flags: &Flags,
    spec: Spec,
    start: &Start,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    // What is wrong with the settings is said once, before any process starts.
    spec.check().map_err(explain)?;
    let (run, resume) = match start {
        Start::New { out } => (RunFolder::create(out, &spec.model, spec.strategy())?, false),
        Start::Resume { run } => (run.clone(), true),
    };
    let _owned = Ownership::take(&run).map_err(|error| explain(error.into()))?;
    if resume {
        match check_resume(&spec, &run) {
            Err(TrainError::Finished { .. }) => return learn::show_finished(&run, terminal),
            checked => checked.map_err(explain)?,
        }
    }
    let (workers, servers) = spec.tasks.as_ref().map_or((1, 1), |all| (all.workers, all.servers));
    let watcher = Watcher::new(terminal, false);
    let show = |word: Word, run: &RunFolder| match word {
        Word::RowsStarted { plan } => watcher.started(&plan, run, 0),
        Word::RowsProgressed { recent, rows, done, speed } => {
            watcher.progressed(&recent, rows, done, speed);
        }
        Word::RowsEvaluated { metrics, rows } => watcher.evaluated(&metrics, rows),
        Word::Warned { text } => watcher.warned(&text),
        _ => {}
    };
    let place = Place { run: &run, resume, join_timeout: flags.join_timeout.whole_seconds() };
    let work = Work::Rows(Box::new(spec));
    let all = tasks(workers, servers, false);
    let outcome = carry_out(work, &all, &place, &cancel, terminal, &show);
    drop(watcher);
    let (told, run) = outcome?;
    let mut report = learn::recorded(&run)?;
    report.summary.tasks.clone_from(&told.tasks);
    conclude(run.path(), &mut report.summary, terminal);
    learn::show(&report, run.path(), cancel.load(Ordering::Relaxed), terminal)
}

/// What a task of a cluster shall learn, where the flags speak of rows.
pub(super) struct Learning {
    spec: Spec,
    resumed: Option<RunFolder>,
}

/// How many servers a run had.
pub(super) fn servers_of(run: &RunFolder) -> usize {
    let plan: Option<Plan> = run.plan().ok();
    plan.and_then(|plan| plan.spec.tasks).map_or(0, |tasks| tasks.servers)
}

/// What to do at a place of a cluster, where the flags speak of rows.
pub(super) fn at(
    place: &node_place::Place,
    flags: &Flags,
    resumed: Option<RunFolder>,
) -> anyhow::Result<Learning> {
    let sizes = place.sizes(flags)?;
    let mut spec = match &resumed {
        Some(run) => learn::resumed(run, flags)?,
        None => learn::specification(flags)?,
    };
    match &mut spec.tasks {
        Some(tasks) => (tasks.workers, tasks.servers) = sizes,
        None => share_out(flags, Some(sizes), &mut spec)?,
    }
    Ok(Learning { spec, resumed })
}

impl Learning {
    /// Plays the part of this place of the cluster.
    pub(super) fn take_part(
        self,
        place: &node_place::Place,
        flags: &Flags,
        cancel: &Arc<AtomicBool>,
        staging: &mut Staging,
        terminal: &Terminal,
    ) -> anyhow::Result<Exit> {
        self.spec.check().map_err(explain)?;
        let talk = Talk::default();
        let heard = talk.clone();
        let strangers: paceline_cluster::endpoint::Notify =
            Arc::new(move |notice| heard.warn(&notice.to_string()));
        let endpoint = place.listen(strangers)?;
        let part = RowsPart {
            own: place.own,
            tasks: &place.tasks,
            chief_address: place.chief_address.clone(),
            spec: &self.spec,
            resume: self.resumed.is_some(),
            launched: false,
            cancel: Arc::clone(cancel),
            join_timeout: flags.join_timeout.duration(),
        };
        let is_chief = part.is_chief();
        let start = match self.resumed {
            Some(run) => Start::Resume { run },
            None => Start::New { out: flags.out.clone() },
        };
        if let (true, Start::Resume { run }) = (is_chief, &start) {
            staging.claim(run.path())?;
        }
        let watcher = Watcher::new(terminal, false);
        let outcome = part.play(endpoint, &start, &watcher, Box::new(talk));
        drop(watcher);
        if let (Err(TrainError::Finished { .. }), Start::Resume { run }) = (&outcome, &start) {
            return learn::show_finished(run, terminal);
        }
        let known = if let Start::Resume { run } = &start { Some(run) } else { None };
        let (report, run) = outcome.map_err(|error| explain_in(error, known))?;
        match report {
            Some(mut report) if is_chief => {
                conclude(run.path(), &mut report.summary, terminal);
                return learn::show(&report, run.path(), cancel.load(Ordering::Relaxed), terminal);
            }
            Some(report) => {
                let own = report.summary.workers.first().cloned().unwrap_or_default();
                terminal.data(format!(
                    "{}: done, {} iterations, {} rows",
                    place.own, own.iterations, own.examples
                ))?;
                terminal.json(&own)?;
            }
            None => {
                terminal.data(format!("{}: done", place.own))?;
                terminal.json(&serde_json::json!({ "task": place.own, "status": "done" }))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// One task's part in learning from rows, from joining to leaving.
pub(super) struct RowsPart<'a> {
    /// This task.
    pub(super) own: TaskId,
    /// All tasks, with addresses where they are known.
    pub(super) tasks: &'a BTreeMap<TaskId, String>,
    /// Where the chief is.
    pub(super) chief_address: String,
    /// What to do.
    pub(super) spec: &'a Spec,
    /// Whether to go on from the latest checkpoint.
    pub(super) resume: bool,
    /// Whether the process that started it owns the run folder.
    pub(super) launched: bool,
    /// Raised to stop.
    pub(super) cancel: Arc<AtomicBool>,
    /// How long to wait for the others.
    pub(super) join_timeout: Duration,
}

impl RowsPart<'_> {
    fn is_chief(&self) -> bool {
        chief_of(self.tasks.keys().copied()) == self.own
    }

    /// Does what `paceline train` ordered. Beside an error stands whose failure it is.
    pub(super) fn obey(
        &self,
        endpoint: Endpoint,
        run: &RunFolder,
        reporter: Reporter,
    ) -> Result<(), (anyhow::Error, Whose)> {
        let start = Start::Resume { run: run.clone() };
        match self.play(endpoint, &start, &reporter, Box::new(reporter)) {
            Ok((report, _)) => {
                let summary = report.map(|report| Box::new(report.summary));
                reporter.send(&Word::Done { summary });
                Ok(())
            }
            Err(error) => {
                let whose = match &error {
                    TrainError::Session(error) => Whose::of(error),
                    _ => Whose::Own,
                };
                Err((explain_in(error, Some(run)), whose))
            }
        }
    }

    /// Joins, learns or serves, leaves.
    fn play(
        &self,
        endpoint: Endpoint,
        start: &Start,
        observer: &dyn Observer,
        onlooker: Box<dyn SessionObserver>,
    ) -> Result<(Option<Report>, RunFolder), TrainError> {
        // The chief names the run; the others learn its name when they join.
        let (mut made, mut known) = (None, None);
        match start {
            Start::New { out } if self.is_chief() => {
                made = Some(RunFolder::create(out, &self.spec.model, self.spec.strategy())?);
            }
            Start::New { .. } => {}
            Start::Resume { run } => known = Some(run.clone()),
        }
        let own = made.as_ref().or(known.as_ref());
        let mut owned = None;
        if let (Some(run), false) = (own, self.launched) {
            if self.is_chief() {
                owned = Some(Ownership::take(run)?);
            }
            // A host without a shared disk has no checkpoints; it learns from the chief how far the run is.
            if self.resume && (self.is_chief() || run.is_resumable()) {
                check_resume(self.spec, run)?;
            }
        }
        let shared = match self.spec.shared() {
            Ok(shared) => shared,
            Err(error) => {
                drop(owned);
                if let Some(run) = made {
                    run.abandon();
                }
                return Err(error);
            }
        };
        let settings = Settings {
            me: self.own,
            tasks: self.tasks.clone(),
            chief_address: self.chief_address.clone(),
            run: own.map(RunFolder::name).unwrap_or_default(),
            plan: shared,
            rules: Rules {
                on_loss: self.spec.tasks.as_ref().map(|tasks| tasks.on_loss).unwrap_or_default(),
                regroup: find(self.spec.strategy())?.synchronous,
                all_finish: false,
                join_timeout: self.join_timeout,
            },
            host: Machine::detect().host,
            cancel: Arc::clone(&self.cancel),
        };
        let loads = Loads::default();
        let chiefs = own.filter(|_| self.is_chief()).map(|run| {
            let (model, strategy) = (self.spec.model.clone(), self.spec.strategy().to_owned());
            (run.clone(), StartTable { model, strategy, ..StartTable::default() })
        });
        let gatherer = Gatherer { onlooker, loads: Arc::clone(&loads), chiefs };
        let inbox = Inbox::new(Box::new(gatherer));
        let address = endpoint.public_address();
        let session = match Session::start(Arc::new(endpoint), &settings, inbox.clone()) {
            Ok(session) => Arc::new(session),
            Err(error) => {
                drop(owned);
                if let Some(run) = made {
                    run.abandon();
                }
                return Err(error.into());
            }
        };
        let run = match (start, own) {
            (_, Some(run)) => run.clone(),
            (Start::New { out }, None) => RunFolder::join(out, &session.view().run)?,
            (Start::Resume { run }, None) => run.clone(),
        };
        let capacity = node_links::measure(&session);
        let sampler = record_and_tell(&run, &session, address, capacity);
        if let Err(error) = &sampler {
            observer.warned(&format!("no resources are recorded: {error:#}"));
        }
        let control = Control { cancel: &self.cancel, observer };
        let task = Task { session: &session, inbox: &inbox, run: &run, resume: self.resume };
        let mut report = take_part(self.spec, &task, &control)?;
        if let Some(report) = &mut report {
            let told = std::mem::take(&mut *loads.lock().unwrap_or_else(PoisonError::into_inner));
            report.summary.tasks = told.into_values().collect();
        }
        Ok((report, run))
    }
}

/// Adds lines about what went between tasks.
pub(super) fn describe(summary: &Summary, exchange: &Exchanged, row: &mut dyn FnMut(&str, String)) {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let phases = &summary.phases;
    row(
        "step time",
        format!(
            "input {}, compute {}, exchange {}, wait {}",
            percent(phases.input),
            percent(phases.compute),
            percent(phases.exchange),
            percent(phases.wait)
        ),
    );
    let kilo = |bytes: f64| format!("{:.1} kB", bytes / 1e3);
    row(
        "traffic",
        format!(
            "{} an iteration ({} transfer); sparse takes {}, dense {}",
            kilo(exchange.bytes_per_iteration),
            exchange.transfer,
            kilo(exchange.sparse_bytes_per_iteration),
            kilo(exchange.dense_bytes_per_iteration)
        ),
    );
    for (worker, pace) in summary.workers.iter().zip(&exchange.tasks) {
        row(
            &worker.task,
            format!(
                "{} iterations of {:.3} ms, {} rows, finished after {:.2} s, waited {}",
                worker.iterations,
                1e3 * pace.seconds_per_iteration,
                worker.examples,
                worker.finished,
                percent(worker.phases.wait)
            ),
        );
    }
    let updates: u64 = summary.staleness.iter().sum();
    if summary.staleness.len() > 1 {
        let staleness = summary.staleness.iter().zip(0_u64..).map(|(count, at)| count * at);
        let mean = staleness.sum::<u64>() as f64 / updates.max(1) as f64;
        row("staleness", format!("{mean:.2} updates by others on average"));
    }
    for lost in &summary.lost {
        row("lost", lost.clone());
    }
}
