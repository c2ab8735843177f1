//! One task's part in a run, from joining to leaving: the same for tasks of a cluster and for those
//! that `paceline train` starts.

use super::{
    node_links,
    node_load::{Gatherer, Loads, record_and_tell},
    train_report::{missing, words},
};
use paceline_cluster::{
    Endpoint, TaskId,
    session::{Notice, Row, Rules, Session, Settings, chief_of},
};
use paceline_runs::{Machine, Ownership, RunFolder, StartTable, Summary};
use paceline_strategies::find;
use paceline_training::{
    Control, Inbox, Observer, Parts, RunSpec, SessionObserver, Start, Task, TrainError, train_task,
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
    /// Whether the process that started it owns the run folder.
    pub(super) launched: bool,
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
        onlooker: Box<dyn SessionObserver>,
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
        let owned = match &start {
            Start::In { run } | Start::Resume { run } if self.is_chief() && !self.launched => {
                Some(Ownership::take(run)?)
            }
            _ => None,
        };
        if let Start::Resume { run } = &start
            && !self.launched
            // A host without a shared disk has neither; it learns from the chief how far the run is.
            && (self.is_chief() || run.is_resumable() && run.summary().is_ok_and(|found| found.is_some()))
        {
            paceline_training::check_resume(self.spec, self.parts, run)?;
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
            plan: self.parts.shared(self.spec),
            rules: Rules {
                on_loss: self.spec.on_loss,
                regroup: strategy.synchronous,
                all_finish: false,
                join_timeout: self.join_timeout,
            },
            host: Machine::detect().host,
            cancel: Arc::clone(&self.cancel),
        };
        let loads = Loads::default();
        let chiefs = match &start {
            Start::In { run } | Start::Resume { run } if self.is_chief() => {
                let plan = StartTable {
                    model: self.spec.model.clone(),
                    strategy: strategy.name.to_owned(),
                    ..StartTable::default()
                };
                Some((run.clone(), plan))
            }
            _ => None,
        };
        let inbox = Inbox::new(Box::new(Gatherer { onlooker, loads: Arc::clone(&loads), chiefs }));
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
        let run = match &start {
            Start::New { out } => RunFolder::join(out, &session.view().run)?,
            Start::In { run } | Start::Resume { run } => run.clone(),
        };
        if let Start::New { .. } = start {
            // Without a shared disk this host needs the plan too, to resume together with the others.
            if run.plan::<serde_json::Value>().is_err() {
                run.write_plan(&paceline_training::check(self.spec, self.parts)?)?;
            }
            start = Start::In { run: run.clone() };
        }
        let capacity = node_links::measure(&session);
        let sampler = record_and_tell(&run, &session, address, capacity);
        if let Err(error) = &sampler {
            observer.warned(&format!("no resources are recorded: {error:#}"));
        }
        let control = Control { cancel: &self.cancel, observer };
        let task = Task { session: &session, inbox: &inbox };
        let mut summary = train_task(self.spec, self.parts, &start, &control, task)?;
        if let Some(summary) = &mut summary {
            let told = std::mem::take(&mut *loads.lock().unwrap_or_else(PoisonError::into_inner));
            summary.tasks = told.into_values().collect();
        }
        Ok((summary, run))
    }
}

/// Tells people on stderr what happens to the tasks of a cluster: a table that is redrawn on a
/// terminal, and a line every few seconds elsewhere.
#[derive(Default, Clone)]
pub(super) struct Talk {
    shown: Arc<Mutex<Option<Shown>>>,
}

/// When tasks were last said to be missing, how many, and in how many lines that can still be redrawn.
struct Shown {
    at: Instant,
    missing: usize,
    lines: usize,
}

/// Time between two lines about missing tasks; a table that is redrawn moves faster.
const REPEAT: Duration = Duration::from_secs(5);
const REDRAW: Duration = Duration::from_millis(500);

impl Talk {
    /// Says something people should worry about.
    pub(super) fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    /// Says something; a table above it stays as it is.
    fn say(&self, text: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = &mut *shown {
            shown.lines = 0;
        }
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// The lines of a table; on a terminal they take the place of the last `drawn` ones, each cut at the edge.
fn draw(lines: &[String], live: bool, drawn: usize) -> String {
    let text = lines.join("\n");
    match (live, drawn) {
        (false, _) => format!("{text}\n"),
        (true, 0) => format!("\x1b[?7l{text}\x1b[?7h\n"),
        (true, drawn) => format!("\x1b[{drawn}A\x1b[J\x1b[?7l{text}\x1b[?7h\n"),
    }
}

impl SessionObserver for Talk {
    fn table(&self, rows: &[Row]) {
        let (missing, joined) = missing(rows);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let live = io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        let again = if live { REDRAW } else { REPEAT };
        let due = match &*shown {
            None => !missing.is_empty(),
            Some(last) => {
                last.at.elapsed() >= again && !missing.is_empty() || last.missing != missing.len()
            }
        };
        if due {
            let drawn = shown.as_ref().map_or(0, |last| last.lines);
            let mut lines = vec![format!("{joined} of {} tasks joined", rows.len())];
            lines.extend(missing.iter().map(|line| format!("  {line}")));
            let _ = io::stderr().write_all(draw(&lines, live, drawn).as_bytes());
            let (at, missing) = (Instant::now(), missing.len());
            *shown = Some(Shown { at, missing, lines: lines.len() });
        }
    }

    fn noticed(&self, notice: &Notice) {
        match words(notice) {
            Some((text, true)) => self.warn(&text),
            Some((text, false)) => self.say(&text),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_one_before_on_a_terminal_only() {
        let lines = ["1 of 2 tasks joined".to_owned(), "  waiting for worker/1".to_owned()];
        assert_eq!(
            draw(&lines, false, 2),
            "1 of 2 tasks joined\n  waiting for worker/1\n",
            "no control characters in a log"
        );
        assert!(draw(&lines, true, 2).starts_with("\x1b[2A\x1b[J"));
        assert!(!draw(&lines, true, 0).contains("\x1b[0A"), "which would move up by one");
    }
}
