//! Tasks of one run on this machine, for tests of links between them.

#![allow(unreachable_pub)]

use paceline_wire::{ClusterKey, Identity, Role, Security, TaskId, Wait};
use std::time::Duration;

pub fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

/// How long to wait for an event before saying that something hangs; never a bound on speed.
pub const HANG: Duration = Duration::from_secs(900);

/// Until something is sure to hang.
pub fn soon(phase: &str) -> Wait<'_> {
    Wait::within(HANG, phase)
}

/// A worker of the run, over sockets.
pub fn identity(index: u32, key: &ClusterKey, security: Security) -> Identity {
    Identity {
        me: worker(index),
        run: String::from("run-1"),
        version: String::from("1.0.0"),
        plan: [7; 32],
        key: key.clone(),
        security,
        shared_memory: false,
    }
}
