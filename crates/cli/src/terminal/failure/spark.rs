//! What could be done about an error of Spark.

use super::{Exit, with_advice, with_exit};
use paceline_cluster::launch::spark::SparkError;

/// Gives an error its hint and exit code.
pub(crate) fn explain(error: SparkError) -> anyhow::Error {
    let exit = match &error {
        SparkError::Task { exit: 2, .. } => Exit::Usage,
        SparkError::Task { exit: 75, .. }
        | SparkError::NoExecutors { .. }
        | SparkError::TooFewSlots { .. }
        | SparkError::Stage { .. } => Exit::Retry,
        SparkError::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    };
    match error.hint() {
        Some(hint) => with_advice(error, hint, Some(exit)),
        None => with_exit(error.into(), exit),
    }
}
