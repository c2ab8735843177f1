//! What would happen with another batch size, another way of parallelising, more workers or a bigger cluster.
//!
//! Measuring every choice costs what the choice should save. So a few measurements become a model of the job, and the model
//! answers: [`batch_size`] from step times and the noise of gradients, [`scaling`] by a curve over numbers of machines,
//! [`oracle`] layer by layer for each way of parallelising, [`simulate`] event by event for a whole cluster. Which machine to
//! rent is another question, and another crate's.
//!
//! What is measured comes from run folders, or from steps of the model timed here ([`measure`]).
//!
//! Every answer says how far it can be trusted: an interval, or where it leaves what was measured.
//!
//! ```
//! use paceline_forecast::scaling::{ScalingFit, ScalingRun};
//!
//! let runs = [(1.0, 100.0), (2.0, 52.0), (4.0, 28.0), (8.0, 16.0)]
//!     .map(|(machines, seconds)| ScalingRun { fraction: 1.0, machines, seconds });
//! let fit = ScalingFit::new(&runs)?;
//! let sixteen = fit.estimate(1.0, 16.0);
//! assert!((sixteen.seconds - 10.0).abs() < 0.1 && sixteen.extrapolated);
//! assert!(sixteen.low < sixteen.seconds && sixteen.seconds < sixteen.high);
//! # Ok::<(), paceline_forecast::ForecastError>(())
//! ```

pub mod batch_size;
mod doublings;
mod error;
mod estimate;
mod expectation;
pub mod measure;
pub mod oracle;
pub mod scaling;
pub mod simulate;
pub mod table;

pub use doublings::doublings;
pub use error::ForecastError;
pub use estimate::Estimate;
pub use expectation::{Expectation, Standing};
