//! Names of tasks.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a task does. The order is the order of display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A worker that also saves checkpoints and writes the summary. TensorFlow's `master` too.
    Chief,
    /// Computes gradients.
    Worker,
    /// Holds weights.
    Ps,
    /// Scores the model beside the training.
    Evaluator,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Chief, Self::Worker, Self::Ps, Self::Evaluator];

    /// The name in specifications, logs and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chief => "chief",
            Self::Worker => "worker",
            Self::Ps => "ps",
            Self::Evaluator => "evaluator",
        }
    }

    /// Reads a name; `master` is an older word for the chief.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if name == "master" {
            return Some(Self::Chief);
        }
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// One task of a cluster, such as `worker/2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TaskId {
    pub role: Role,
    /// Which of its kind, from 0.
    pub index: u32,
}

impl TaskId {
    /// The task of that role and number.
    #[must_use]
    pub const fn new(role: Role, index: u32) -> Self {
        Self { role, index }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role.name(), self.index)
    }
}

/// A task's name could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a task: expected chief/0, worker/N, ps/N or evaluator/N")]
pub struct NoTask(String);

impl FromStr for TaskId {
    type Err = NoTask;

    fn from_str(text: &str) -> Result<Self, NoTask> {
        let read = || {
            let (role, index) = text.split_once('/')?;
            Some(Self { role: Role::parse(role)?, index: index.parse().ok()? })
        };
        read().ok_or_else(|| NoTask(text.to_owned()))
    }
}

impl TryFrom<String> for TaskId {
    type Error = NoTask;

    fn try_from(text: String) -> Result<Self, NoTask> {
        text.parse()
    }
}

impl From<TaskId> for String {
    fn from(task: TaskId) -> Self {
        task.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for role in Role::ALL {
            let task = TaskId::new(role, 3);
            assert_eq!(task.to_string().parse(), Ok(task));
        }
        assert_eq!("master/0".parse(), Ok(TaskId::new(Role::Chief, 0)));
        for bad in ["worker", "worker/", "worker/-1", "boss/0", "/0", "worker/0/1"] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
