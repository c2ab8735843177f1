//! Memory that a worker has in common with servers of its machine: gradients and weights lie there instead
//! of in messages.

use super::{Client, Remote};
use crate::{StrategyError, dense::message};
use paceline_wire::Window;
use std::ops::Range;

/// Where a gradient and weights lie instead of in messages.
pub(super) struct Windows {
    pub(super) gradient: Window,
    pub(super) weights: Window,
}

impl Client {
    /// Agrees with the servers of this machine on memory in common, once.
    pub(super) fn map(&mut self) -> Result<(), StrategyError> {
        if std::mem::replace(&mut self.mapped, true) {
            return Ok(());
        }
        let near =
            |client: &Self, server: usize| client.remotes[server].server.link.shares_memory();
        for server in 0..self.remotes.len() {
            if near(self, server) {
                self.remotes[server].send(message::MAP, 0, &[])?;
            }
        }
        for server in 0..self.remotes.len() {
            if !near(self, server) {
                continue;
            }
            let head = self.receive(server, message::WINDOWS, "agreeing on memory in common")?;
            let offers = self.small(server, head)?;
            let first = usize::try_from(head.number).unwrap_or(usize::MAX);
            let Some((first, second)) = offers.split_at_checked(first) else {
                return Err(self.protocol_error(server, head));
            };
            let remote = &mut self.remotes[server];
            let length = remote.server.part.len();
            // If the memory cannot be mapped, weights travel in messages.
            if let (Ok(gradient), Ok(weights)) =
                (Window::open(first, length), Window::open(second, length))
            {
                remote.windows = Some(Windows { gradient, weights });
                remote.send(message::USE, 0, &[])?;
            }
        }
        Ok(())
    }

    /// Copies a range of the gradient into the windows it belongs to.
    pub(super) fn place(&mut self, range: &Range<usize>, grad: &[f32]) {
        for Remote { server, windows, .. } in &mut self.remotes {
            let (Some(windows), part) = (windows, &server.part) else { continue };
            let (from, to) = (range.start.max(part.start), range.end.min(part.end));
            if from < to {
                windows.gradient.write()[from - part.start..to - part.start]
                    .copy_from_slice(&grad[from - range.start..to - range.start]);
            }
        }
    }
}
