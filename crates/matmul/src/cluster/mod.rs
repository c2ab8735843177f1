//! A product on several machines: each is a task of one session, as in training.
//!
//! The chief keeps the list of jobs and hands each to the task that holds its blocks; a block that lies on another task comes
//! from there over a link of its own. Results are added up at the chief, which also writes the product and the state file. A task
//! that is lost costs only the job it was doing: the others do what it had left, and read its blocks where they came from.

mod blocks;
mod board;
mod chief;
mod member;

use crate::{MatmulError, MatmulSettings, Plan, ProductOutcome, Progress, run::check_sizes};
use blocks::Traffic;
use paceline_cluster::session::Session;
use paceline_wire::{Role, TaskId, Wait};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long anything is waited for. A task that is gone is noticed by the session long before, which ends the wait.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// From the chief: everything about the work.
const PLAN: u8 = 1;
/// From the chief: do the job of this number.
const JOB: u8 = 2;
/// From the chief: all jobs are done.
const END: u8 = 3;
/// To the chief: the block of the product that a job made.
const BLOCK: u8 = 4;
/// To the chief: what a job gave.
const RESULT: u8 = 5;
/// To the chief: why there is no result.
const FAILED: u8 = 6;
/// Longest message that is not a block. Bytes.
const LONGEST: u64 = 1 << 20;

/// What one task did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    pub task: String,
    pub host: String,
    /// Jobs whose results counted.
    pub jobs: usize,
    /// Of these, jobs of tasks that were lost.
    pub taken_over: usize,
    /// Seconds of multiplying, and of waiting for blocks of others.
    pub computing_seconds: f64,
    pub fetching_seconds: f64,
    /// Blocks that came from other tasks, and those of lost tasks that were read here instead.
    pub blocks_received: u64,
    pub blocks_reread: u64,
    /// Bytes of blocks from and to other tasks, finished blocks for the chief included.
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Whether it was lost before the end; then only its jobs are known.
    pub lost: bool,
    /// What the machine did meanwhile, as the caller measured it.
    pub resources: Value,
}

/// The product and who did what of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterOutcome {
    pub outcome: ProductOutcome,
    /// In the order of the tasks.
    pub nodes: Vec<NodeReport>,
}

/// What a task has at the end.
#[derive(Debug)]
pub enum TaskResult {
    /// The chief: the product.
    Chief(Box<ClusterOutcome>),
    /// Every other task: its own part.
    Member(Box<NodeReport>),
}

/// Settings that all tasks must share, for the session to compare.
///
/// # Errors
/// A matrix cannot be read, or the two differ in size.
pub fn shared_settings(settings: &MatmulSettings) -> Result<Value, MatmulError> {
    let size = check_sizes(settings)?;
    Ok(json!({
        "work": settings.work, "size": size, "left": settings.left.contents()?, "right": settings.right.contents()?,
        "placement": settings.placement, "verified": settings.verify,
    }))
}

/// Plays this task's part to the end. `resources` is asked for last.
///
/// # Errors
/// Blocks that cannot be read, written or verified, and a session that does not hold together.
pub fn take_part(
    session: &Session,
    host: &str,
    settings: &MatmulSettings,
    resources: &dyn Fn() -> Value,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress),
) -> Result<TaskResult, MatmulError> {
    let tasks = workers(session);
    let me = session.me();
    let number = tasks.iter().position(|task| *task == me).unwrap_or_default();
    let node = Node { session, settings, tasks, number, traffic: Traffic::default() };
    let about = NodeReport { task: me.to_string(), host: host.to_owned(), ..NodeReport::default() };
    if session.is_chief() {
        return node.lead(about, resources, stop, tell).map(Box::new).map(TaskResult::Chief);
    }
    node.follow(about, resources, stop).map(Box::new).map(TaskResult::Member)
}

/// One task.
struct Node<'a> {
    session: &'a Session,
    settings: &'a MatmulSettings,
    /// All that work, in the order that placements count them in.
    tasks: Vec<TaskId>,
    /// Which of them this is.
    number: usize,
    traffic: Traffic,
}

impl Node<'_> {
    fn plan(&self, block: Option<usize>) -> Result<Plan, MatmulError> {
        let size = check_sizes(self.settings)?;
        // Memory is that of one machine; a block more is on its way to others.
        let plan = Plan::new(self.settings.work, size, 1, self.settings.memory, block)?;
        Ok(Plan { workers: self.tasks.len(), placement: self.settings.placement, ..plan })
    }

    fn wait(phase: &str) -> Wait<'_> {
        Wait::within(PATIENCE, phase)
    }
}

/// All tasks that compute.
fn workers(session: &Session) -> Vec<TaskId> {
    let members = session.view().members.into_iter().map(|member| member.task);
    members.filter(|task| matches!(task.role, Role::Chief | Role::Worker)).collect()
}
