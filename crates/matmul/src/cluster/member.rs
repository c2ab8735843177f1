//! Every task but the chief: does the jobs it is given, and gives others the blocks it holds.

use super::blocks::{SharedBlocks, Shelf};
use super::{BLOCK, END, FAILED, JOB, LONGEST, Node, NodeReport, PLAN, RESULT};
use crate::{MatmulError, Plan, worker::BlockWorker};
use paceline_kernels::Compute;
use paceline_wire::{Channel, Link, LinkError, collective::number_bytes};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

impl<'a> Node<'a> {
    /// Multiplies with blocks of all tasks.
    pub(super) fn worker(
        &'a self,
        plan: &'a Plan,
        stop: [&'a AtomicBool; 2],
    ) -> Result<BlockWorker<'a, SharedBlocks<'a>>, MatmulError> {
        let compute = Compute::with_isa(self.settings.isa, self.settings.threads.max(1));
        let source = SharedBlocks::new(self, stop)?;
        Ok(BlockWorker::new(plan, source, self.settings.verify, compute, None))
    }

    /// Puts what was counted into a report.
    pub(super) fn count(&self, report: &mut NodeReport) {
        let traffic = &self.traffic;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        report.blocks_received = read(&traffic.blocks);
        report.blocks_reread = read(&traffic.reread);
        report.bytes_received = read(&traffic.received);
        report.bytes_sent = read(&traffic.sent);
        report.fetching_seconds = read(&traffic.microseconds) as f64 / 1e6;
        report.computing_seconds = (report.computing_seconds - report.fetching_seconds).max(0.0);
    }

    pub(super) fn follow(
        &self,
        mut report: NodeReport,
        resources: &dyn Fn() -> Value,
        stop: &AtomicBool,
    ) -> Result<NodeReport, MatmulError> {
        let wait = Self::wait("waiting for the chief").unless(stop);
        let chief = self.session.chief();
        let link = self.session.connect(chief, Channel::MatrixJobs, &wait);
        let mut link = self.of_link(link, stop)?;
        let mut text = Vec::new();
        let head = link.receiver.receive_into(&wait, LONGEST, &mut text);
        let head = self.of_link(head, stop)?;
        let plan: Option<Plan> = serde_json::from_slice(&text).ok();
        let Some(plan) = plan.filter(|_| head.kind == PLAN) else {
            return Err(MatmulError::Protocol { task: chief });
        };
        let (shelf, over) = (Shelf::new(self, &plan)?, AtomicBool::new(false));
        thread::scope(|scope| {
            for task in self.tasks.iter().filter(|task| **task != self.session.me()) {
                let (plan, shelf, over) = (&plan, &shelf, &over);
                scope.spawn(move || self.serve(plan, shelf, *task, over));
            }
            let outcome = self.obey(&plan, &mut link, &mut report, [stop, &over]);
            let outcome = outcome.and_then(|()| {
                report.resources = resources();
                self.count(&mut report);
                let said = serde_json::to_value(&report).expect("plain data becomes JSON");
                Ok(self.session.finish(said).map(drop)?)
            });
            over.store(true, Ordering::Relaxed);
            outcome
        })?;
        Ok(report)
    }

    /// Does one job after the other.
    fn obey(
        &self,
        plan: &Plan,
        link: &mut Link,
        report: &mut NodeReport,
        stop: [&AtomicBool; 2],
    ) -> Result<(), MatmulError> {
        let stopped = || stop.iter().any(|flag| flag.load(Ordering::Relaxed));
        let mut worker = match self.worker(plan, stop) {
            Ok(worker) => worker,
            Err(error) => return Err(refuse(link, 0, error)),
        };
        let mut computing = Duration::ZERO;
        loop {
            let wait = Self::wait("waiting for a job").unless(stop[0]);
            let head = self.of_link(link.receiver.receive(&wait), stop[0])?;
            let job = match (head.kind, usize::try_from(head.number)) {
                (JOB, Ok(job)) if job < plan.jobs() => job,
                (END, _) => break,
                _ => return Err(MatmulError::Protocol { task: self.session.chief() }),
            };
            let begun = Instant::now();
            let part = match worker.job(job, &stopped) {
                Ok(Some(part)) => part,
                Ok(None) => return Err(MatmulError::Stopped),
                Err(error) => return Err(refuse(link, head.number, error)),
            };
            computing += begun.elapsed();
            if self.settings.output.is_some() {
                let bytes = number_bytes(worker.product_block(job));
                self.traffic.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.of_link(link.sender.send(BLOCK, head.number, &[bytes]), stop[0])?;
            }
            let said = serde_json::to_vec(&part).expect("numbers become JSON");
            self.of_link(link.sender.send(RESULT, head.number, &[&said]), stop[0])?;
            report.jobs += 1;
        }
        report.computing_seconds = computing.as_secs_f64();
        Ok(())
    }

    /// A broken link to the chief is the end of the session, which knows better what happened.
    fn of_link<T>(
        &self,
        outcome: Result<T, LinkError>,
        stop: &AtomicBool,
    ) -> Result<T, MatmulError> {
        outcome.map_err(|error| {
            if stop.load(Ordering::Relaxed) {
                return MatmulError::Stopped;
            }
            // The session hears of it a moment later than the link.
            match self.session.regroup(None, &error.to_string()) {
                Ok(_) => MatmulError::Link(Box::new(error)),
                Err(ended) => ended.into(),
            }
        })
    }
}

/// Tells the chief why there is no result.
fn refuse(link: &mut Link, number: u64, error: MatmulError) -> MatmulError {
    let cause = std::error::Error::source(&error);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    // Where it cannot be told, the chief sees this task go.
    let _ = link.sender.send(FAILED, number, &[format!("{error}{cause}").as_bytes()]);
    error
}
