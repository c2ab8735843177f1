//! Before money is spent: which machines and disks to rent for a job, and whether the account allows them. After that: the
//! job file, the site's own tool that submits it, its state, its logs, its end.
//!
//! A [`Job`] says what was measured at hand and how much there is to do, a [`CloudCatalogue`] what can be rented. A [`Plan`]
//! has every shape that fits the quotas, with time, cost, and what bounds it. [`check`] asks the provider's own command-line
//! tool for quotas, services and names; [`submit`] starts, follows and stops jobs the same way. No credential is read or kept
//! here: the tools have their own.
//!
//! ```
//! use paceline_cloud::{CloudCatalogue, DiskRate, Provider};
//!
//! let gcp = CloudCatalogue::shipped(Provider::Gcp)?;
//! // A standard disk is as fast as it is large: 500 GB for 60 MB/s.
//! let rate = DiskRate { mb_per_s: 60.0, iops: 0.0 };
//! let disk = gcp.disks[0].choose(50.0, rate, f64::INFINITY);
//! assert_eq!(disk.map(|disk| disk.gb), Some(500.0));
//! # Ok::<(), paceline_cloud::CloudError>(())
//! ```

mod catalogue;
pub mod check;
mod error;
mod gpu;
mod job;
mod mode;
mod plan;
mod quota;
mod reading;
pub mod submit;
mod tool;
pub mod words;

pub use catalogue::{
    CloudCatalogue, Disk, DiskQuota, DiskRate, DiskTier, DiskType, GpuType, MachineType, Provider,
    Slope,
};
pub use error::CloudError;
pub use gpu::GpuSpeed;
pub use job::{
    BatchAccuracy, DataPlace, ExchangeStrategy, GradientExchange, Job, JobData, JobLimits,
    MeasuredRate, ShapeBounds,
};
pub use mode::{DataFlow, ModeAdvice, ProcessingMode};
pub use plan::{Bound, Objective, Parts, Plan, Shape};
pub use quota::{Demand, Limits, Shortage};
pub use reading::ReadBound;
pub use tool::{Tool, advice, command_line};
