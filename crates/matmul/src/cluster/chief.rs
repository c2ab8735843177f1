//! The chief: deals out the jobs, takes the results, and multiplies like the others.

use super::{BLOCK, ClusterOutcome, END, FAILED, JOB, LONGEST, Node, NodeReport, PLAN, RESULT};
use super::{blocks::Shelf, board::Board};
use crate::{
    MatmulError, Plan, Progress,
    npy::Writer,
    run::{Given, JobContext, JobRunner, run_with},
    state::JobResult,
    worker::either,
};
use paceline_wire::{Channel, Link, LinkError, collective::number_bytes_mut};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, mpsc::SyncSender};
use std::thread;
use std::time::Duration;

/// How often the chief looks whether a lost task has come back.
const LOOK: Duration = Duration::from_millis(250);

/// What the threads of a chief share while the jobs are done.
struct Deal<'s> {
    plan: &'s Plan,
    board: &'s Board,
    stop: &'s AtomicBool,
    halt: &'s AtomicBool,
    output: Option<&'s Path>,
    give: SyncSender<Given>,
}

impl Deal<'_> {
    fn stopped(&self) -> bool {
        either(self.stop, self.halt)
    }
}

/// Why a task's turn ended.
enum Turn {
    /// All is done, or nothing more is wanted.
    Over,
    /// It is gone.
    Lost,
}

/// All tasks, as what does the jobs of a plan.
struct Tasks<'a> {
    node: &'a Node<'a>,
    board: OnceLock<Board>,
    shelf: OnceLock<Mutex<Shelf>>,
    /// Threads of this chief that still deal out jobs; when there are none, nothing is asked of its shelf any more.
    dealing: AtomicUsize,
    over: AtomicBool,
    own: Mutex<NodeReport>,
}

impl Node<'_> {
    pub(super) fn lead(
        &self,
        about: NodeReport,
        resources: &dyn Fn() -> Value,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<ClusterOutcome, MatmulError> {
        let tasks = Tasks {
            node: self,
            board: OnceLock::new(),
            shelf: OnceLock::new(),
            dealing: AtomicUsize::new(self.tasks.len()),
            over: AtomicBool::new(false),
            own: Mutex::new(about),
        };
        let outcome = run_with(self.settings, &|block| self.plan(block), &tasks, stop, tell);
        let outcome = match outcome {
            Ok(outcome) if outcome.complete => outcome,
            Ok(outcome) => {
                self.session.fail("it was asked to stop");
                return Ok(tasks.told(outcome, &[]));
            }
            Err(error) => {
                self.session.fail(&error.to_string());
                return Err(error);
            }
        };
        let own = {
            let mut own = tasks.own.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            own.resources = resources();
            self.count(&mut own);
            serde_json::to_value(&*own).expect("plain data becomes JSON")
        };
        // The product is whole and on disk: who is lost from here on does not matter.
        let reports = self.session.finish(own)?;
        let reports: Vec<NodeReport> = reports
            .into_iter()
            .filter_map(|(_, report)| serde_json::from_value(report).ok())
            .collect();
        Ok(tasks.told(outcome, &reports))
    }
}

impl Tasks<'_> {
    /// Every task in order: with its own report, or with what the chief knows of it.
    fn told(&self, outcome: crate::ProductOutcome, reports: &[NodeReport]) -> ClusterOutcome {
        let nodes = self.node.tasks.iter().enumerate().map(|(number, task)| {
            let name = task.to_string();
            let found = reports.iter().find(|report| report.task == name).cloned();
            let mut report = found.unwrap_or_default();
            report.task = name;
            if let Some(board) = self.board.get() {
                (report.jobs, report.taken_over) = board.counts(number);
                report.lost = board.is_lost(number);
            }
            report
        });
        ClusterOutcome { nodes: nodes.collect(), outcome }
    }

    /// This task's own jobs.
    fn work(&self, deal: &Deal<'_>) -> Result<(), MatmulError> {
        let node = self.node;
        let mut worker = node.worker(deal.plan, [deal.stop, deal.halt])?;
        let mut writer = writer(deal)?;
        let mut computing = Duration::ZERO;
        while let Some(job) = deal.board.next(node.number, &|| deal.stopped()) {
            let begun = std::time::Instant::now();
            let part = worker.job(job, &|| deal.stopped())?;
            computing += begun.elapsed();
            let Some(part) = part else { break };
            if let Some(writer) = &mut writer {
                store(deal.plan, writer, job, worker.product_block(job))?;
            }
            if deal.board.done(node.number, job) {
                let _ = deal.give.send(Ok(part));
            }
        }
        let mut own = self.own.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        own.computing_seconds = computing.as_secs_f64();
        Ok(())
    }

    /// Another task's jobs, over its link; again when it was lost and comes back.
    fn deal(&self, number: usize, deal: &Deal<'_>) -> Result<(), MatmulError> {
        let session = self.node.session;
        loop {
            let wait = Node::wait("waiting for a task").unless(deal.halt).unless(deal.stop);
            let link = session.accept(self.node.tasks[number], Channel::MatrixJobs, &wait);
            let turn = match link {
                Ok(link) => self.turn(number, link, deal)?,
                Err(_) => Turn::Lost,
            };
            if let Turn::Over = turn {
                return Ok(());
            }
            deal.board.lose(number);
            if deal.board.is_complete() || deal.stopped() {
                return Ok(());
            }
            session.check()?;
            session.follow();
            thread::sleep(LOOK);
            if deal.board.is_complete() {
                return Ok(());
            }
        }
    }

    /// Deals one task its jobs, as long as it is there.
    fn turn(&self, number: usize, mut link: Link, deal: &Deal<'_>) -> Result<Turn, MatmulError> {
        let plan = serde_json::to_vec(deal.plan).expect("a plan is plain data");
        if link.sender.send(PLAN, 0, &[&plan]).is_err() {
            return Ok(Turn::Lost);
        }
        let mut writer = writer(deal)?;
        let mut block =
            vec![0.0f32; if writer.is_some() { deal.plan.block_rows().pow(2) } else { 0 }];
        while let Some(job) = deal.board.next(number, &|| deal.stopped()) {
            let answer = match ask(&mut link, job, deal, &mut block) {
                Ok(answer) => answer,
                Err(_) if deal.stopped() => return Ok(Turn::Over),
                Err(_) => return Ok(Turn::Lost),
            };
            let part = answer.map_err(|reason| MatmulError::Worker { worker: number, reason })?;
            if let Some(writer) = &mut writer {
                let (row, column) = deal.plan.blocks_of(job);
                let length = deal.plan.range(row).len() * deal.plan.range(column).len();
                store(deal.plan, writer, job, &block[..length])?;
                self.node.traffic.received.fetch_add(4 * length as u64, Ordering::Relaxed);
            }
            if deal.board.done(number, job) {
                let _ = deal.give.send(Ok(part));
            }
        }
        // One that does not hear it any more has done its part all the same.
        let _ = link.sender.send(END, 0, &[]);
        Ok(Turn::Over)
    }
}

/// Sends a job and waits for what it gives: a result, or why there is none.
fn ask(
    link: &mut Link,
    job: usize,
    deal: &Deal<'_>,
    block: &mut [f32],
) -> Result<Result<JobResult, String>, LinkError> {
    link.sender.send(JOB, job as u64, &[])?;
    let wait = Node::wait("waiting for a result").unless(deal.halt).unless(deal.stop);
    let mut text = Vec::new();
    loop {
        let head = link.receiver.receive(&wait)?;
        let bytes = usize::try_from(head.length).unwrap_or(usize::MAX);
        if head.kind == BLOCK {
            let memory = number_bytes_mut(block);
            let most = memory.len() as u64;
            match memory.get_mut(..bytes) {
                Some(memory) => link.receiver.read(memory)?,
                None => return Err(link.receiver.too_long(head.length, most)),
            }
            continue;
        }
        if head.length > LONGEST {
            return Err(link.receiver.too_long(head.length, LONGEST));
        }
        text.resize(bytes, 0);
        link.receiver.read(&mut text)?;
        return Ok(match (head.kind, serde_json::from_slice::<JobResult>(&text)) {
            (RESULT, Ok(part)) if part.job == job => Ok(part),
            (FAILED, _) => Err(String::from_utf8_lossy(&text).into_owned()),
            _ => Err("it sent something else than the result of its job".to_owned()),
        });
    }
}

fn writer(deal: &Deal<'_>) -> Result<Option<Writer>, MatmulError> {
    let open = |path| Writer::open(path, deal.plan.size as u64).map(|(writer, _)| writer);
    deal.output.map(open).transpose()
}

fn store(plan: &Plan, writer: &mut Writer, job: usize, block: &[f32]) -> Result<(), MatmulError> {
    let (row, column) = plan.blocks_of(job);
    let (rows, columns) = (plan.range(row), plan.range(column));
    writer.write(rows.start, columns.start, columns.len(), block)?;
    writer.sync()
}

impl JobRunner for Tasks<'_> {
    fn start<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, context: &JobContext<'s>) {
        let (node, plan) = (self.node, context.plan);
        let board = self.board.get_or_init(|| Board::new(plan, context.done));
        let deal = |give| Deal {
            plan,
            board,
            stop: context.stop,
            halt: context.halt,
            output: context.output,
            give,
        };
        let shelf = match Shelf::new(node, plan) {
            Ok(shelf) => self.shelf.get_or_init(|| shelf),
            Err(error) => {
                let _ = context.give.send(Err(error));
                return;
            }
        };
        for (number, task) in node.tasks.iter().enumerate() {
            let deal = deal(context.give.clone());
            scope.spawn(move || {
                let outcome =
                    if number == node.number { self.work(&deal) } else { self.deal(number, &deal) };
                if let Err(error) = outcome {
                    let _ = deal.give.send(Err(error));
                }
                if self.dealing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.over.store(true, Ordering::Relaxed);
                }
            });
            if number != node.number {
                scope.spawn(move || node.serve(plan, shelf, *task, &self.over));
            }
        }
    }
}
