//! The files a training run leaves behind.
//!
//! ```text
//! RUN/  tasks.json            which tasks have joined and which are missing, until all have joined
//!       owner.json            which process writes here, while it does
//!       plan.json             what was going to happen (written before the first step)
//!       machine.json          where it happened: CPU, limits, memory, versions
//!       events-<task>.jsonl   what happened, one JSON object a line, versioned
//!       resources-<task>.csv  what the machine did meanwhile
//!       summary.json          how it ended; its presence means that the run ended
//!       tensorboard/<task>/   the same curves, weight histograms and the layer graph for TensorBoard
//!       checkpoints/          written by the trainer
//! ```
//!
//! Writing never holds up training: [`Recorder`] hands everything to a thread of its own through a
//! bounded queue; what does not fit is dropped, counted and reported, except for events that say how
//! a run began, ended or changed. Reading ([`list`], [`RunFolder`], [`read_events`]) copes with runs
//! that still go on, that died, and that a later version of this program wrote.
//!
//! ```
//! use paceline_runs::{Event, EventLog, PhaseTimes, RunFolder, RunStarted, RunView, Step};
//!
//! let root = tempfile::tempdir()?;
//! let run = RunFolder::create(root.path(), "resnet18", "one-device")?;
//! let mut log = EventLog::append(&run.path().join("events-worker-0.jsonl"), "worker/0")?;
//! log.write(0.0, &Event::RunStarted(RunStarted { global_batch: 64, ..RunStarted::default() }))?;
//! let phases = PhaseTimes { input: 0.1, compute: 0.4, ..PhaseTimes::default() };
//! for step in 1..=40 {
//!     let event = Step { step, steps: 1, examples: 64, seconds: 0.5, phases, ..Step::default() };
//!     log.write(0.5 * step as f64, &Event::Step(event))?;
//! }
//! log.flush()?;
//! let view = RunView::read(run.path())?;
//! assert_eq!(view.summary.global_steps, 40);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic_file;
mod clock;
pub mod diagnosis;
mod error;
mod event;
mod event_log;
pub mod figures;
mod file_format;
mod folder_watch;
mod layers;
mod learning;
mod legs;
mod load;
mod machine;
mod ownership;
mod phase_times;
mod plan;
mod recorded_plan;
mod recorder;
mod rescue;
mod resources;
mod run_dir;
mod settings;
mod start_table;
mod summary;
pub mod tensorboard;
pub mod trace;
pub mod verdict;
mod view;

pub use atomic_file::{sync_folder, write_atomically};
pub use clock::{format_utc, unix_seconds};
pub use error::RunsError;
pub use event::{
    Checkpoint, CheckpointAction, ENVELOPE_VERSION, Evaluation, Event, Histograms, Resource,
    RunEnded, RunStarted, Status, Step, TaskJoined, TaskLost, TaskRecovered, Tensor,
};
pub use event_log::{EventLog, Record, read_events, read_last_events};
pub use file_format::FILE_FORMAT;
pub use folder_watch::{FolderHandle, FolderWatch};
pub use learning::{
    Divergence, Ending, Labels, Learning, LearningOutcome, LossGuard, Observed, Tried,
};
pub use legs::Leg;
pub use load::TaskLoad;
pub use machine::Machine;
pub use ownership::{OWNER_FILE, Owner, Ownership, owner};
pub use paceline_store::with_causes;
pub use phase_times::PhaseTimes;
pub use plan::{AskedSettings, RunKind, RunPlan};
pub use recorded_plan::RecordedPlan;
pub use recorder::{Recorder, RecorderReport, RecorderSettings};
pub use rescue::FinalWeights;
pub use resources::{Recording, Resources, read_recordings};
pub use run_dir::{RunFolder, RunState, list};
pub use settings::RunSettings;
pub use start_table::{StartRow, StartTable};
pub use summary::{Diagnosis, Final, Reached, Summary, Traffic, WorkerSummary};
pub use view::RunView;
