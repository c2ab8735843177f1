//! Runs a plan: workers as threads or processes, their parts added up in one place, the state kept on disk.

use crate::{
    Input, MatmulError, Placement, Plan, Work,
    npy::Writer,
    state::{JobResult, ProductState},
    task::{Launch, Order},
    worker::either,
};
use paceline_kernels::Isa;
use paceline_store::durable;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often progress is reported while nothing happens.
const TICK: Duration = Duration::from_millis(250);

/// What to compute, and with what.
#[derive(Debug, Clone)]
pub struct MatmulSettings {
    /// `A`.
    pub left: Input,
    /// `B`.
    pub right: Input,
    pub work: Work,
    /// Rows of a block at most; chosen to fit where it is not given.
    pub block: Option<usize>,
    /// Bytes for all workers together.
    pub memory: u64,
    /// Tasks that share the block pairs.
    pub workers: usize,
    /// Threads, shared out among the workers (one each at least).
    pub threads: usize,
    /// The instruction set of the kernels.
    pub isa: Isa,
    pub verify: bool,
    /// Where the whole product goes, if anywhere.
    pub output: Option<PathBuf>,
    /// Where finished jobs are kept; nowhere without.
    pub state: Option<PathBuf>,
    /// Starts a process for each worker; without it they are threads.
    pub launch: Option<Launch>,
    /// The state is written at most this often.
    pub save_every: Duration,
    /// Which worker does which job.
    pub placement: Placement,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Jobs done, earlier runs included.
    pub done: usize,
    pub jobs: usize,
    /// Multiplications and additions per second, of this run.
    pub flops_per_second: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductOutcome {
    pub plan: Plan,
    /// Whether all jobs are done; if stopped early, the figures cover the jobs that were.
    pub complete: bool,
    pub done: usize,
    /// Of these, by earlier runs.
    pub resumed: usize,
    /// `trace(A B)`.
    pub trace: f64,
    /// Sum of all elements of the product; 0 unless it was computed whole.
    pub sum: f64,
    /// Square root of the sum of their squares.
    pub norm: f64,
    /// Seconds of this run.
    pub seconds: f64,
    /// Seconds of this run and the earlier ones it resumed.
    pub seconds_in_all: f64,
    /// Multiplications and additions of this run.
    pub flops: f64,
}

/// Computes the product; calls `tell` with progress; ends early when `stop` is set.
pub fn run(
    settings: &MatmulSettings,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress),
) -> Result<ProductOutcome, MatmulError> {
    let plan = |block| {
        let size = check_sizes(settings)?;
        Plan::new(settings.work, size, settings.workers, settings.memory, block)
            .map(|plan| Plan { placement: settings.placement, ..plan })
    };
    run_with(settings, &plan, &LocalWorkers { settings }, stop, tell)
}

/// What a runner gives: the result of a job, or why there are none.
pub(crate) type Given = Result<JobResult, MatmulError>;

/// What does the jobs of a plan: threads that give a result for each job and end with the last, or when either flag is up.
pub(crate) trait JobRunner {
    fn start<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, context: &JobContext<'s>);
}

/// What a runner is told.
pub(crate) struct JobContext<'s> {
    pub(crate) plan: &'s Plan,
    /// Jobs that are done already.
    pub(crate) done: &'s [usize],
    /// Where blocks of the product go.
    pub(crate) output: Option<&'s Path>,
    /// Raised by the caller, and by us after a failure.
    pub(crate) stop: &'s AtomicBool,
    pub(crate) halt: &'s AtomicBool,
    /// Bounded, so that workers do not get ahead of the state file.
    pub(crate) give: mpsc::SyncSender<Given>,
}

/// The same with any runner; `plan` makes the plan for blocks of so many rows.
pub(crate) fn run_with(
    settings: &MatmulSettings,
    plan: &dyn Fn(Option<usize>) -> Result<Plan, MatmulError>,
    runner: &dyn JobRunner,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress),
) -> Result<ProductOutcome, MatmulError> {
    let size = check_sizes(settings)?;
    let stored = settings.state.as_deref().map(ProductState::read).transpose()?.flatten();
    // A resumed run keeps its block size, whatever the memory would suggest now.
    let stored_block = stored.as_ref().map(|state| (size as usize).div_ceil(state.blocks.max(1)));
    let block = settings.block.or(stored_block.filter(|&block| block > 0));
    let plan = plan(block)?;
    let fresh = ProductState::new(&plan, settings.left.describe()?, settings.right.describe()?);
    let mut state = match (stored, &settings.state) {
        (Some(stored), Some(path)) => {
            stored.check(&fresh, path)?;
            stored
        }
        _ => fresh,
    };
    let partial = settings.output.as_deref().map(partial_name);
    let _ours = partial.as_deref().map(claim).transpose()?;
    if let Some(partial) = &partial {
        let (writer, there) = Writer::open(partial, size)?;
        if let (false, false, Some(path)) = (there, state.parts.is_empty(), &settings.state) {
            drop(writer);
            let _ = fs::remove_file(partial);
            return Err(MatmulError::OutputLost { state: path.clone(), output: partial.clone() });
        }
    }
    let result = work(settings, &plan, runner, &mut state, partial.as_deref(), stop, tell);
    let nothing_kept = settings.state.is_none() || state.parts.is_empty();
    if let (Err(_), true, Some(partial)) = (&result, nothing_kept, &partial) {
        let _ = fs::remove_file(partial); // a partial file without a state file cannot be resumed
    }
    let outcome = result?;
    if let (false, true, Some(partial)) = (outcome.complete, nothing_kept, &partial) {
        let _ = fs::remove_file(partial);
    }
    if outcome.complete {
        if let (Some(partial), Some(output)) = (&partial, &settings.output) {
            durable::settle_file(partial, output)
                .map_err(|source| MatmulError::Write { path: output.clone(), source })?;
        }
        if let Some(path) = settings.state.as_deref().filter(|path| path.exists()) {
            fs::remove_file(path)
                .map_err(|source| MatmulError::Write { path: path.to_owned(), source })?;
        }
    }
    Ok(outcome)
}

/// Rows of both matrices.
pub(crate) fn check_sizes(settings: &MatmulSettings) -> Result<u64, MatmulError> {
    let (left, right) = (settings.left.open()?.size(), settings.right.open()?.size());
    if left != right {
        return Err(MatmulError::Sizes {
            left_path: settings.left.path(),
            left,
            right_path: settings.right.path(),
            right,
        });
    }
    Ok(left)
}

/// Keeps other processes from writing a file until the answer is dropped.
fn claim(path: &Path) -> Result<fs::File, MatmulError> {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|source| MatmulError::Write { path: path.to_owned(), source })?;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(MatmulError::Busy { path: path.to_owned() }),
        // A file system without locks: better unguarded than unusable.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(file),
    }
}

/// The output's name until it is whole.
fn partial_name(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    output.with_file_name(name)
}

/// Threads or processes of this machine.
struct LocalWorkers<'a> {
    settings: &'a MatmulSettings,
}

impl JobRunner for LocalWorkers<'_> {
    fn start<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, context: &JobContext<'s>) {
        let (settings, plan) = (self.settings, context.plan);
        for number in 0..plan.workers {
            let order = Order {
                worker: number,
                plan: plan.clone(),
                left: settings.left.clone(),
                right: settings.right.clone(),
                // Threads are shared out; the first workers get what does not divide.
                threads: (settings.threads + number) / plan.workers,
                verify: settings.verify,
                output: context.output.map(Path::to_owned),
                done: context.done.to_vec(),
            };
            let (give, stop, halt) = (context.give.clone(), context.stop, context.halt);
            scope.spawn(move || {
                let stopped = || either(stop, halt);
                // Sending fails only when the run is over.
                let mut pass_on = |part| {
                    let _ = give.send(Ok(part));
                    Ok(())
                };
                let outcome = match settings.launch {
                    None => order.carry_out(settings.isa, &stopped, &mut pass_on),
                    Some(launch) => order.delegate(launch, &stopped, &mut pass_on),
                };
                if let Err(error) = outcome {
                    let _ = give.send(Err(error));
                }
            });
        }
    }
}

fn work(
    settings: &MatmulSettings,
    plan: &Plan,
    runner: &dyn JobRunner,
    state: &mut ProductState,
    partial: Option<&Path>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress),
) -> Result<ProductOutcome, MatmulError> {
    let resumed = state.parts.len();
    let done: Vec<usize> = state.parts.iter().map(|part| part.job).collect();
    let (halt, started) = (AtomicBool::new(false), Instant::now());
    let earlier = state.seconds;
    let mut flops = 0.0;
    let mut failure = None;
    thread::scope(|scope| {
        let (give, receiver) = mpsc::sync_channel::<Given>(plan.workers);
        let (done, halt) = (&done, &halt);
        runner.start(scope, &JobContext { plan, done, output: partial, stop, halt, give });
        let mut saved = Instant::now();
        let mut unsaved = false;
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(Ok(part)) => {
                    flops += plan.flops_of(part.job);
                    state.parts.push(part);
                    unsaved = true;
                }
                Ok(Err(error)) => {
                    failure.get_or_insert(error);
                    halt.store(true, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            state.seconds = earlier + started.elapsed().as_secs_f64();
            let due = saved.elapsed() >= settings.save_every;
            let last = state.parts.len() == plan.jobs();
            if let (true, true, false, Some(path)) = (unsaved, due, last, &settings.state) {
                let before = Instant::now();
                if let Err(error) = state.write(path) {
                    failure.get_or_insert(error);
                    halt.store(true, Ordering::Relaxed);
                }
                // A long list of small jobs must not spend its time on writing.
                saved = Instant::now() + 20 * before.elapsed();
                unsaved = false;
            }
            let rate = flops / started.elapsed().as_secs_f64().max(1e-9);
            let done = state.parts.len();
            tell(Progress { done, jobs: plan.jobs(), flops_per_second: rate });
        }
    });
    state.parts.sort_unstable_by_key(|part| part.job);
    let complete = state.parts.len() == plan.jobs();
    if let (false, Some(path)) = (complete || state.parts.is_empty(), &settings.state) {
        state.write(path)?;
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let total = |of: fn(&JobResult) -> f64| state.parts.iter().map(of).sum::<f64>();
    Ok(ProductOutcome {
        plan: plan.clone(),
        complete,
        done: state.parts.len(),
        resumed,
        trace: total(|part| part.trace),
        sum: total(|part| part.sum),
        norm: total(|part| part.squares).sqrt(),
        seconds: started.elapsed().as_secs_f64(),
        seconds_in_all: state.seconds,
        flops,
    })
}
