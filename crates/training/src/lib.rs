//! Training: the one place where model, data and strategy meet.
//!
//! There are two loops, because there are two kinds of data. *Examples* ([`train`]) belong to a set whose size is
//! known: batches are dealt by seed and position, so a resumed run continues to the bit, and replicas reach the
//! same decisions without asking. *Rows* ([`rows::learn`]) come as a stream that is read once and may have no end;
//! sparse models learn from each of them as it comes. What surrounds a loop is shared: plan, session log,
//! checkpoints, stop rules, summary.
//!
//! A [`RunSpec`] says what was asked for; [`RunPlan`] is the same after every check, with all that was decided
//! filled in; [`train`] carries it out and leaves a run folder behind.
//!
//! ```
//! use paceline_training::{Parts, RunSpec, Stop, check};
//!
//! let mut spec = RunSpec::new("softmax", "generated:digits?examples=600");
//! spec.stop = Stop { epochs: Some(2.0), ..Stop::default() };
//! let plan = check(&spec, &Parts::open(&spec)?)?;
//! assert_eq!(plan.planned_steps, Some(2 * plan.details.steps_per_epoch));
//! # Ok::<(), paceline_training::TrainError>(())
//! ```

pub mod checkpoint;
mod checkpoint_keeper;
mod error;
mod evaluate;
mod evaluate_and_checkpoint;
mod inference;
mod input;
mod lineage;
mod loop_state;
mod loss_watch;
pub mod memory;
mod meter;
mod nonfinite;
mod objective;
mod observer;
mod pace;
mod parts;
mod peers;
mod plan;
mod recover;
mod recovery;
pub mod rows;
mod session_log;
mod spec;
mod summarize;
mod task;
mod train;
mod weights;
mod worker;

pub use error::{Point, TrainError};
pub use inference::{ClassProbability, ClassScore, DataScore, Prediction, Trained};
pub use objective::{ClassWeights, Loss};
pub use observer::{Observer, Progress, Silent};
pub use parts::{HeldOut, Parts};
pub use plan::{ExamplesPlan, RunPlan};
pub use session_log::{Inbox, SessionObserver};
pub use spec::{RunSpec, Stop, UNIFORM};
pub use task::train_task;
pub use train::{Control, Start, Task, check, check_resume, train};
pub use weights::{Exported, Which, export};
