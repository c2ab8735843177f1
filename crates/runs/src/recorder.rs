//! Takes events from training threads and writes them on a thread of its own.
//!
//! Training must never wait for a disk, so nothing here blocks the caller: samples (steps, resource
//! readings, histograms) go into a bounded queue and are dropped when it is full; events that mark a
//! change are few and always kept. The writer flushes twice a second, so that a viewer lags little,
//! and once at the end. A disk that fails costs records, never the run: the first error and the
//! number of records lost come back from [`Recorder::close`].

use crate::{
    Event, EventLog, RunFolder, RunsError, clock,
    event::{Evaluation, Histograms, RunEnded, Step, Tensor},
    tensorboard::{EventWriter, GraphNode, Histogram, Scalar},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a record may stay in memory before it is flushed.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Tensors whose histograms go into the log, the largest; TensorBoard gets all.
const MOST_TENSORS: usize = 64;

/// Choices of a recorder.
#[derive(Debug, Clone)]
pub struct RecorderSettings {
    /// Samples that may wait for the writer.
    pub queue: usize,
    /// Whether to write TensorBoard files.
    pub tensorboard: bool,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self { queue: 4096, tensorboard: true }
    }
}

/// What became of the records.
#[derive(Debug, Default)]
pub struct RecorderReport {
    /// Events written.
    pub written: u64,
    /// Samples dropped because the disk was slower than the training.
    pub dropped: u64,
    /// Records lost to failing writes.
    pub lost: u64,
    /// The first failure.
    pub error: Option<RunsError>,
}

enum Message {
    Event(Event),
    Histograms { step: u64, values: Vec<(String, Histogram)> },
    Graph(Vec<GraphNode>),
}

struct Queue {
    messages: VecDeque<(f64, Message)>,
    samples: usize,
    dropped: u64,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    limit: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue stays consistent at every point where a holder could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records what a task does.
pub struct Recorder {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<RecorderReport>>,
    /// When it was started, also in seconds since 1970. Events are timed from here, so that a clock that is set in
    /// mid-run moves none of them.
    begun: (Instant, f64),
}

impl Recorder {
    /// Opens the log (and TensorBoard file) of `task`, such as `worker/0`, in the run's folder.
    pub fn start(
        run: &RunFolder,
        task: &str,
        settings: &RecorderSettings,
    ) -> Result<Self, RunsError> {
        let log = EventLog::append(&run.events_path(task), task)?;
        let board = settings
            .tensorboard
            .then(|| EventWriter::create(&run.tensorboard_path(task)))
            .transpose()?;
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                messages: VecDeque::new(),
                samples: 0,
                dropped: 0,
                closed: false,
            }),
            arrived: Condvar::new(),
            limit: settings.queue,
        });
        let sink = Sink { log, board, report: RecorderReport::default() };
        let reader = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || sink.run(&reader))
            .map_err(|source| RunsError::Create { path: run.events_path(task), source })?;
        let begun = (Instant::now(), clock::unix_seconds());
        Ok(Self { shared, writer: Some(writer), begun })
    }

    /// Records an event that happens now. Never blocks on the disk.
    pub fn record(&self, event: Event) {
        let sample = event.is_sample();
        self.send(Message::Event(event), sample);
    }

    /// Records the distribution of some tensors at a step.
    pub fn histograms(&self, step: u64, values: Vec<(String, Histogram)>) {
        self.send(Message::Histograms { step, values }, true);
    }

    /// Records the layer graph.
    pub fn graph(&self, nodes: Vec<GraphNode>) {
        self.send(Message::Graph(nodes), false);
    }

    /// Samples dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Records the end of the run, waits until everything is on its way to the disk, and says what
    /// became of it.
    #[must_use]
    pub fn close(mut self, mut end: RunEnded) -> RecorderReport {
        end.dropped_events = self.dropped();
        self.record(Event::RunEnded(end));
        self.finish()
    }

    fn finish(&mut self) -> RecorderReport {
        self.shared.lock().closed = true;
        self.shared.arrived.notify_one();
        let Some(writer) = self.writer.take() else { return RecorderReport::default() };
        let mut report = writer.join().unwrap_or_default();
        report.dropped = self.shared.lock().dropped;
        report
    }

    fn send(&self, message: Message, sample: bool) {
        let now = self.begun.1 + self.begun.0.elapsed().as_secs_f64();
        let mut queue = self.shared.lock();
        if sample {
            if queue.samples >= self.shared.limit {
                queue.dropped += 1;
                return;
            }
            queue.samples += 1;
        }
        queue.messages.push_back((now, message));
        // The writer looks twice a second by itself; waking it for every sample would cost the
        // training thread a system call each time.
        if !sample || queue.samples > self.shared.limit / 2 {
            self.shared.arrived.notify_one();
        }
    }
}

impl Drop for Recorder {
    /// A recorder that was not closed (an error on the way out) still writes what it has.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// The writing side.
struct Sink {
    log: EventLog,
    board: Option<EventWriter>,
    report: RecorderReport,
}

impl Sink {
    fn run(mut self, shared: &Shared) -> RecorderReport {
        let mut batch = VecDeque::new();
        let mut flushed = Instant::now();
        loop {
            let closed = {
                let queue = shared.lock();
                let waits = |queue: &mut Queue| queue.messages.is_empty() && !queue.closed;
                let (mut queue, _) = shared
                    .arrived
                    .wait_timeout_while(queue, FLUSH_EVERY, waits)
                    .unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut batch, &mut queue.messages);
                queue.samples = 0;
                queue.closed
            };
            // A user who follows the run wants to see changes at once; samples can wait.
            let mut change = false;
            for (time, message) in batch.drain(..) {
                change |= matches!(&message, Message::Event(event) if !event.is_sample());
                self.write(time, &message);
            }
            if closed || change || flushed.elapsed() >= FLUSH_EVERY {
                self.flush();
                flushed = Instant::now();
            }
            if closed {
                return self.report;
            }
        }
    }

    fn write(&mut self, time: f64, message: &Message) {
        let result = match message {
            Message::Event(event) => {
                let logged = self.log.write(time, event);
                logged.and(self.board_event(time, event))
            }
            Message::Histograms { step, values } => {
                let logged = self.log.write(time, &Event::Histograms(largest(*step, values)));
                let board = self.board.as_mut();
                logged.and(board.map_or(Ok(()), |board| board.histograms(time, *step, values)))
            }
            Message::Graph(nodes) => match &mut self.board {
                Some(board) => board.graph(time, nodes),
                None => Ok(()),
            },
        };
        self.report.written += 1;
        self.keep(result);
    }

    /// What TensorBoard shows of an event.
    fn board_event(&mut self, time: f64, event: &Event) -> Result<(), RunsError> {
        let Some(board) = &mut self.board else { return Ok(()) };
        match event {
            Event::Step(step) => board.scalars(time, step.step, &step_scalars(step)),
            Event::Evaluation(evaluation) | Event::WorkerEvaluation(evaluation) => {
                board.scalars(time, evaluation.step, &evaluation_scalars(evaluation))
            }
            _ => Ok(()),
        }
    }

    fn flush(&mut self) {
        let logged = self.log.flush();
        self.keep(logged);
        if let Some(board) = &mut self.board {
            let result = board.flush();
            self.keep(result);
        }
    }

    fn keep(&mut self, result: Result<(), RunsError>) {
        if let Err(error) = result {
            self.report.lost += 1;
            self.report.error.get_or_insert(error);
        }
    }
}

/// The largest tensors, in the order of the model.
fn largest(step: u64, values: &[(String, Histogram)]) -> Histograms {
    let size = |at: usize| values[at].1.counts.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(size(*at)));
    order.truncate(MOST_TENSORS);
    order.sort_unstable();
    let tensors = order.into_iter().map(|at| {
        let (name, Histogram { min, max, counts }) = values[at].clone();
        Tensor { name, min, max, counts }
    });
    Histograms { step, tensors: tensors.collect() }
}

fn step_scalars(step: &Step) -> [Scalar; 4] {
    let rate = if step.seconds > 0.0 { step.examples as f64 / step.seconds } else { 0.0 };
    [
        Scalar::new("train/loss", step.loss),
        Scalar::new("train/accuracy", step.accuracy),
        Scalar::new("train/learning_rate", step.learning_rate),
        Scalar::new("train/examples_per_second", rate),
    ]
}

fn evaluation_scalars(evaluation: &Evaluation) -> [Scalar; 2] {
    [Scalar::new("test/loss", evaluation.loss), Scalar::new("test/accuracy", evaluation.accuracy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Status, read_events};

    #[test]
    fn a_full_queue_drops_samples_but_no_milestones() {
        let (_root, run) = RunFolder::temporary();
        let settings = RecorderSettings { queue: 8, tensorboard: false };
        let recorder = Recorder::start(&run, "worker/0", &settings).unwrap();
        let sent = 20_000;
        for step in 0..sent {
            recorder.record(Event::Step(Step { step, ..Step::default() }));
            if step % 100 == 0 {
                recorder.record(Event::Evaluation(Evaluation { step, ..Default::default() }));
            }
        }
        let report = recorder.close(RunEnded { status: Status::Done, ..Default::default() });
        assert!(report.error.is_none());
        let (records, broken) = read_events(&run.events_path("worker/0")).unwrap();
        assert_eq!(broken, 0);
        let count = |kind: &str| records.iter().filter(|record| record.kind == kind).count();
        assert_eq!(count("evaluation") as u64, sent / 100, "milestones are never dropped");
        assert_eq!(count("step") as u64 + report.dropped, sent, "drops are counted");
        assert!(report.dropped > 0);
        let Some(Event::RunEnded(end)) = &records.last().unwrap().event else { panic!("no end") };
        assert_eq!(end.dropped_events, report.dropped);
    }

    #[test]
    fn histograms_of_the_largest_tensors_are_in_the_log_without_tensorboard_too() {
        let (_root, run) = RunFolder::temporary();
        let settings = RecorderSettings { queue: 8, tensorboard: false };
        let recorder = Recorder::start(&run, "worker/0", &settings).unwrap();
        let values = |size: usize| (0..size).map(|at| at as f32).collect::<Vec<_>>();
        let all = (1..=70).map(|size| (format!("t{size}"), Histogram::of(&values(size))));
        recorder.histograms(7, all.collect());
        drop(recorder);
        let (records, broken) = read_events(&run.events_path("worker/0")).unwrap();
        let Some(Event::Histograms(found)) = &records[0].event else { panic!("{records:?}") };
        assert_eq!((broken, found.step, found.tensors.len()), (0, 7, MOST_TENSORS));
        assert_eq!(
            (found.tensors[0].name.as_str(), found.tensors[63].name.as_str()),
            ("t7", "t70")
        );
        assert_eq!(found.tensors[63].counts.iter().sum::<u64>(), 70);
        assert_eq!((found.tensors[63].min, found.tensors[63].max), (0.0, 69.0));
    }

    #[test]
    fn a_recorder_that_is_dropped_still_writes() {
        let (_root, run) = RunFolder::temporary();
        let recorder = Recorder::start(&run, "worker/0", &RecorderSettings::default()).unwrap();
        recorder.record(Event::Step(Step { step: 3, ..Step::default() }));
        drop(recorder);
        assert_eq!(read_events(&run.events_path("worker/0")).unwrap().0.len(), 1);
    }

    #[test]
    fn a_full_disk_costs_records_not_the_run() {
        let (_root, run) = RunFolder::temporary();
        // Every write to this device fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", run.events_path("worker/0")).unwrap();
        let settings = RecorderSettings { queue: 8, tensorboard: false };
        let recorder = Recorder::start(&run, "worker/0", &settings).unwrap();
        recorder.record(Event::Evaluation(Evaluation::default()));
        let report = recorder.close(RunEnded::default());
        assert!(report.lost > 0);
        assert!(matches!(report.error, Some(RunsError::Write { .. })), "{report:?}");
    }
}
