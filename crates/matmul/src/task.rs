//! Workers as processes: each gets its order as one line, and answers with a line for every job.
//!
//! A worker process keeps no state: a job counts when its line has arrived, so a killed worker only
//! loses the jobs in progress, and the same call continues with the rest.

use crate::{
    Input, MatmulError, Plan,
    input::Matrices,
    npy::Writer,
    state::JobResult,
    worker::{BlockWorker, either},
};
use paceline_kernels::{Compute, Isa};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    io::{self, BufRead, BufReader, ErrorKind, Write},
    path::PathBuf,
    process::{Child, ChildStdout, ExitStatus},
    sync::atomic::AtomicBool,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// How often it is asked whether to stop while a worker process says nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Everything a worker must know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub worker: usize,
    /// The work, and how it is cut.
    pub plan: Plan,
    /// `A`.
    pub left: Input,
    /// `B`.
    pub right: Input,
    pub threads: usize,
    pub verify: bool,
    /// Where blocks of the product go.
    pub output: Option<PathBuf>,
    /// Jobs that are done already.
    pub done: Vec<usize>,
}

/// Starts a process that does what is ordered: it gets the order as a line of JSON on its standard input
/// and runs [`obey`]; when that input ends, so does the process.
pub type Launch = fn(&Order) -> io::Result<Child>;

/// A message of a worker process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkerLine {
    Part(JobResult),
    Failed(String),
}

/// Runs all jobs of a worker; `say` gets a line for each.
///
/// # Errors
/// A line cannot be written; errors of a job are reported in a line.
pub fn obey(
    order: &Order,
    isa: Isa,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let mut tell = |line: WorkerLine| say(&serde_json::to_string(&line).map_err(io::Error::from)?);
    let never = AtomicBool::new(false);
    let outcome = order.carry_out(isa, &|| either(stop, &never), &mut |part| {
        tell(WorkerLine::Part(part))
            .map_err(|source| MatmulError::Write { path: PathBuf::from("standard output"), source })
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(MatmulError::Write { path, source }) if path.as_os_str() == "standard output" => {
            Err(source)
        }
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            tell(WorkerLine::Failed(format!("{error}{cause}")))
        }
    }
}

impl Order {
    /// Does the worker's jobs, one after the other, until done or stopped.
    pub(crate) fn carry_out(
        &self,
        isa: Isa,
        stopped: &dyn Fn() -> bool,
        give: &mut dyn FnMut(JobResult) -> Result<(), MatmulError>,
    ) -> Result<(), MatmulError> {
        let plan = &self.plan;
        let compute = Compute::with_isa(isa, self.threads.max(1));
        let output = self.output.as_deref().map(|path| Writer::open(path, plan.size as u64));
        let output = output.transpose()?.map(|(writer, _)| writer);
        let matrices = Matrices::open((&self.left, &self.right))?;
        let mut worker = BlockWorker::new(plan, matrices, self.verify, compute, output);
        let done: HashSet<usize> = self.done.iter().copied().collect();
        let mine = |job: &usize| !done.contains(job) && plan.worker_of(*job) == self.worker;
        for job in (0..plan.jobs()).filter(mine) {
            if stopped() {
                break;
            }
            match worker.job(job, stopped)? {
                None => break,
                Some(part) => give(part)?,
            }
        }
        Ok(())
    }

    /// Runs it in a process, and forwards its messages.
    pub(crate) fn delegate(
        &self,
        launch: Launch,
        stopped: &dyn Fn() -> bool,
        give: &mut dyn FnMut(JobResult) -> Result<(), MatmulError>,
    ) -> Result<(), MatmulError> {
        let worker = self.worker;
        let failed = |reason: String| MatmulError::Worker { worker, reason };
        let mut child = launch(self).map_err(|error| failed(format!("cannot start: {error}")))?;
        let mut text = serde_json::to_string(self).expect("an order is plain data");
        text.push('\n');
        // Held until the end: when it goes, the process ends.
        let input = child.stdin.take();
        let written = input.as_ref().map(|mut input| input.write_all(text.as_bytes()));
        let output = child.stdout.take();
        let unsent = written.and_then(Result::err);
        // A process that has gone already: how it ended says more than that it could not be written to.
        let gone = unsent.as_ref().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe);
        let unsent = unsent.map(|error| failed(format!("cannot send it its work: {error}")));
        let (mut outcome, unsent) = match unsent {
            Some(error) if !gone => (Err(error), None),
            unsent => (Ok(()), unsent),
        };
        if let (Ok(()), Some(output)) = (&outcome, output) {
            let lines = lines_of(output);
            while outcome.is_ok() && !stopped() {
                outcome = match lines.recv_timeout(LOOK) {
                    Ok(WorkerLine::Part(part)) => give(part),
                    Ok(WorkerLine::Failed(reason)) => Err(failed(reason)),
                    Err(RecvTimeoutError::Timeout) => Ok(()),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
            }
        }
        drop(input);
        if outcome.is_err() || stopped() {
            // It may be in the middle of a job whose result is no longer needed.
            let _ = child.kill();
        }
        let status = child.wait();
        outcome?;
        match status {
            Ok(status) if status.success() || stopped() => unsent.map_or(Ok(()), Err),
            Ok(status) => Err(failed(format!("ended with {}", ending(status)))),
            Err(error) => Err(failed(format!("cannot wait for it: {error}"))),
        }
    }
}

/// What a worker process says, line by line, until it ends. Read by a thread of its own: one in the middle of a job says nothing,
/// and the thread that waits for it must hear when to stop.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<WorkerLine> {
    let (give, lines) = mpsc::channel();
    thread::spawn(move || {
        let said = BufReader::new(output).lines().map_while(Result::ok);
        for line in said.filter_map(|line| serde_json::from_str(&line).ok()) {
            if give.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}
