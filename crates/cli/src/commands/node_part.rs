//! One task's part in a run, from joining to leaving: the same for tasks of a cluster and for those
//! that `paceline train` starts.

use super::{
    train_report::{missing, words},
    train_show::record_resources,
};
use paceline_cluster::{
    Endpoint, TaskId,
    session::{Notice, Row, Rules, Session, Settings, chief_of},
};
use paceline_runs::{Machine, RunFolder, Summary};
use paceline_strategies::find;
use paceline_trainer::{
    Control, Inbox, Observer, Onlooker, Parts, RunSpec, Start, Task, TrainError, train_task,
};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

/// One task's part.
pub(super) struct Part<'a> {
    /// This task.
    pub(super) own: TaskId,
    /// All tasks, with addresses where they are known.
    pub(super) tasks: &'a BTreeMap<TaskId, String>,
    /// Where the chief is.
    pub(super) chief_address: String,
    /// What to do.
    pub(super) spec: &'a RunSpec,
    /// Model and data.
    pub(super) parts: &'a Parts,
    /// Raised to stop.
    pub(super) cancel: Arc<AtomicBool>,
    /// How long to wait for the others.
    pub(super) join_timeout: Duration,
}

impl Part<'_> {
    /// Whether this task is the one that all join at.
    pub(super) fn is_chief(&self) -> bool {
        chief_of(self.tasks.keys().copied()) == self.own
    }

    /// Joins, trains (or serves, or evaluates), leaves.
    pub(super) fn play(
        &self,
        endpoint: Endpoint,
        start: &Start,
        observer: &dyn Observer,
        onlooker: Box<dyn Onlooker>,
    ) -> Result<(Option<Summary>, RunFolder), TrainError> {
        let strategy = find(&self.spec.strategy)?;
        // The chief names the run; the others learn its name when they join.
        let mut start = start.clone();
        let mut made = None;
        if self.is_chief()
            && let Start::New { out } = &start
        {
            let run = RunFolder::create(out, &self.spec.model, strategy.name)?;
            made = Some(run.clone());
            start = Start::In { run };
        }
        let name = match &start {
            Start::In { run } | Start::Resume { run } => run.name(),
            Start::New { .. } => String::new(),
        };
        let settings = Settings {
            me: self.own,
            tasks: self.tasks.clone(),
            chief_address: self.chief_address.clone(),
            run: name,
            plan: self.spec.shared(),
            rules: Rules {
                on_loss: self.spec.on_loss,
                regroup: strategy.synchronous,
                all_finish: false,
                join_timeout: self.join_timeout,
            },
            host: Machine::detect().host,
            cancel: Arc::clone(&self.cancel),
        };
        let inbox = Inbox::new(onlooker);
        let session = match Session::start(Arc::new(endpoint), &settings, inbox.clone()) {
            Ok(session) => Arc::new(session),
            Err(error) => {
                if let Some(run) = made {
                    // Nothing is in it yet; a folder with something in it stays.
                    let _ = std::fs::remove_dir(run.path());
                }
                return Err(error.into());
            }
        };
        let run = match &start {
            Start::New { out } => RunFolder::join(out, &session.view().run)?,
            Start::In { run } | Start::Resume { run } => run.clone(),
        };
        if let Start::New { .. } = start {
            start = Start::In { run: run.clone() };
        }
        let sampler = record_resources(&run.resources_path(&self.own.to_string()));
        if let Err(error) = &sampler {
            observer.warned(&format!("no resources are recorded: {error:#}"));
        }
        let control = Control { cancel: &self.cancel, observer };
        let task = Task { session: &session, inbox: &inbox };
        let summary = train_task(self.spec, self.parts, &start, &control, task)?;
        Ok((summary, run))
    }
}

/// Tells people on stderr what happens to the tasks of a cluster: a table that is redrawn on a
/// terminal, and a line every few seconds elsewhere.
#[derive(Default, Clone)]
pub(super) struct Talk {
    shown: Arc<Mutex<Option<Shown>>>,
}

/// When tasks were last said to be missing, and how many.
struct Shown {
    at: Instant,
    missing: usize,
}

/// Time between two lines about missing tasks.
const REPEAT: Duration = Duration::from_secs(5);

impl Talk {
    /// Says something people should worry about.
    pub(super) fn warn(&self, text: &str) {
        say(&format!("warning: {text}"));
    }
}

fn say(text: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

impl Onlooker for Talk {
    fn table(&self, rows: &[Row]) {
        let (missing, joined) = missing(rows);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let again = if io::stderr().is_terminal() { Duration::from_secs(1) } else { REPEAT };
        let due = match &*shown {
            None => !missing.is_empty(),
            Some(last) => {
                last.at.elapsed() >= again && !missing.is_empty() || last.missing != missing.len()
            }
        };
        if due {
            say(&format!("{joined} of {} tasks joined", rows.len()));
            for line in &missing {
                say(&format!("  {line}"));
            }
            *shown = Some(Shown { at: Instant::now(), missing: missing.len() });
        }
    }

    fn noticed(&self, notice: &Notice) {
        match words(notice) {
            Some((text, true)) => self.warn(&text),
            Some((text, false)) => say(&text),
            None => {}
        }
    }
}
