//! A worker's gradient on its way to all servers, and their answers.

use super::{Client, flow::Body};
use crate::{
    Pushed, StepReport, StrategyError, Traffic, Version,
    dense::message::{self, Form, GrantHead, PushHead},
    protocol::nanoseconds,
};
use std::time::Instant;

impl Client {
    /// Sends the gradient of batch `number` and takes the answers.
    pub(crate) fn push(
        &mut self,
        number: u64,
        mut step_report: StepReport,
        params: &mut [f32],
        grad: &[f32],
    ) -> Result<Pushed, StrategyError> {
        let begun = Instant::now();
        step_report.nonfinite |= self.nonfinite;
        let wants_weights = !step_report.nonfinite;
        self.send_gradient(number, step_report, wants_weights, grad)?;
        if self.led {
            self.follow_first(number, wants_weights, params)?;
        } else {
            let all = 0..self.remotes.len();
            self.collect(all, message::GRANT, "waiting for the update", params)?;
        }
        let first = self.remotes[0].grant;
        let answers = self.remotes.iter().map(|remote| &remote.grant);
        // What was waited for weights after a gradient came too late is counted already.
        let counted = answers.clone().take(if first.dropped { 1 } else { usize::MAX });
        let held = counted.map(|grant| grant.held).max().unwrap_or(0);
        let staleness = answers.map(|grant| grant.staleness).max().unwrap_or(0);
        if self.led && wants_weights && !self.synchronous {
            self.fetch(params)?;
        }
        self.fresh = wants_weights;
        self.take_tickets(&first);
        let mut together = std::mem::take(&mut self.window);
        together.add(&first.step_report);
        let total = self.traffic();
        let traffic = Traffic {
            sent: total.sent.wrapping_sub(self.told.sent),
            received: total.received.wrapping_sub(self.told.received),
        };
        self.told = total;
        let wait = std::mem::take(&mut self.wait) + held;
        let exchange = std::mem::take(&mut self.exchange) + nanoseconds(begun);
        Ok(Pushed {
            step_report: together,
            version: Version(first.version),
            staleness,
            dropped: first.dropped,
            traffic,
            exchange: exchange.saturating_sub(wait),
            wait,
        })
    }

    /// Each server its part, to all of them at once.
    fn send_gradient(
        &mut self,
        number: u64,
        step_report: StepReport,
        wants_weights: bool,
        grad: &[f32],
    ) -> Result<(), StrategyError> {
        let none = step_report.nonfinite || step_report.loss.examples == 0;
        if !none && self.placed != grad.len() {
            // A model that does not say what is final.
            self.place(&(0..grad.len()), grad);
        }
        for (server, remote) in self.remotes.iter_mut().enumerate() {
            let mut head = PushHead {
                pulled: remote.version,
                rate: self.step.rate,
                form: Form::None,
                // With a bound on staleness, the first server hands them out when it is time.
                wants_weights: wants_weights && (self.synchronous || !self.led),
                kept: self.led && server > 0,
                global: self.step.examples,
                step_report,
            };
            let fixed = remote.outgoing.begin(number);
            fixed.resize(PushHead::BYTES, 0);
            let mut body = Body::Nothing;
            if !none && remote.windows.is_some() {
                head.form = Form::Mapped;
                self.through_windows.sent += 4 * remote.server.part.len() as u64;
            } else if !none {
                (head.form, body) = (Form::Dense, Body::Part);
            }
            fixed[..PushHead::BYTES].copy_from_slice(&head.write());
            remote.outgoing.body = body;
            remote.grant = GrantHead::default();
        }
        self.send_to(0..self.remotes.len(), message::PUSH, grad)
    }

    /// Takes the first server's answer, and has the others do the same with the gradient as it did.
    fn follow_first(
        &mut self,
        number: u64,
        wants_weights: bool,
        params: &mut [f32],
    ) -> Result<(), StrategyError> {
        const PHASE: &str = "waiting for the update";
        let others = 1..self.remotes.len();
        self.taken.clear();
        self.collect(0..1, message::GRANT, PHASE, params)?;
        let first = self.remotes[0].grant;
        if self.synchronous {
            self.least = first.version;
        }
        if first.dropped {
            // The others never hear of it again, and it is overwritten by the next.
            if wants_weights && self.synchronous {
                self.fetch_from(others, params)?;
            }
            return Ok(());
        }
        for remote in &mut self.remotes[1..] {
            remote.send(message::APPLY, number, &[&first.version.to_le_bytes(), &self.taken])?;
        }
        self.collect(others, message::GRANT, PHASE, params)?;
        if !self.synchronous {
            self.remotes[0].send(message::LANDED, 0, &[])?;
        }
        Ok(())
    }
}
