//! The step loop: the one place where model, data and strategy meet.
//!
//! A [`RunSpec`] says what was asked for; [`RunPlan`] is the same after every check, with all that
//! was decided filled in; [`train`] carries it out and leaves a run folder behind. Steps, evaluations
//! and checkpoints follow from seed and position alone, so a resumed run continues to the bit, and
//! every replica reaches the same decisions without asking.

pub mod checkpoint;
mod checkpoint_keeper;
mod course;
mod crew;
mod error;
mod evaluate;
mod input;
mod lineage;
mod look;
pub mod memory;
mod meter;
mod observer;
mod pace;
mod parts;
mod plan;
mod poison;
mod recover;
mod session_log;
mod spec;
mod stop;
mod summarize;
mod task;
mod train;
mod weights;
mod worker;

pub use crew::{Inbox, Onlooker};
pub use error::TrainError;
pub use observer::{Observer, Progress, Silent};
pub use parts::{HeldOut, Parts};
pub use plan::RunPlan;
pub use session_log::{Notices, SessionLog};
pub use spec::{RunSpec, Stop};
pub use task::train_task;
pub use train::{Control, Start, Task, check, check_resume, train};
pub use weights::{Exported, Which, export};
