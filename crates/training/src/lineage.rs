//! Where servers get their weights from: the chief, at the beginning of every generation.
//!
//! A server says which *lineage* of weights it holds: none, when it was just started. If all hold the
//! chief's lineage, they keep what they have. Otherwise a new one begins, and all of them get the last
//! checkpoint (or the initial weights), so that no two ever hold parts of different versions. Nothing
//! needs a shared disk: only the chief reads and writes checkpoints.

use crate::{TrainError, loop_state::Origin};
use paceline_cluster::session::Session;
use paceline_data::order::Position;
use paceline_models::optimizer::{Optimizer, OptimizerState};
use paceline_wire::{Channel, Link, LinkError, Role, TaskId, Wait};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// "I hold weights of this lineage", from a server; "keep them", from the chief.
const HOLD: u8 = 1;
/// "Take these": an origin as JSON, then weights, then one message per buffer of the optimiser.
const TAKE: u8 = 2;
const WEIGHTS: u8 = 3;
const STATE: u8 = 4;
/// How long anybody may take: a large checkpoint has to be read from a disk.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest description of an origin; batches outstanding are a few per worker.
const LONGEST: u64 = 1 << 20;

/// What precedes weights.
#[derive(Serialize, Deserialize)]
struct Description {
    lineage: u32,
    step: u64,
    position: Position,
    examples: u64,
    outstanding: Vec<u64>,
    /// Whether the optimiser's state follows.
    state: bool,
}

/// Weights to begin with.
pub(crate) struct Beginning {
    pub(crate) lineage: u32,
    pub(crate) origin: Origin,
    pub(crate) state: Option<OptimizerState>,
}

/// The chief asks all servers what they hold; says whether they must be given weights, and keeps the
/// links for that.
pub(crate) fn ask(session: &Session, lineage: u32) -> Result<Option<Vec<Link>>, TrainError> {
    let servers: Vec<TaskId> =
        session.view().circle.into_iter().filter(|task| task.role == Role::Ps).collect();
    let wait =
        Wait::within(PATIENCE, "asking servers what they hold").unless(session.interrupted());
    let mut links = Vec::with_capacity(servers.len());
    let mut same = lineage > 0;
    for server in servers {
        let mut link = session.accept(server, Channel::Lineage, &wait)?;
        let head = link.receiver.receive(&wait)?;
        same &= head.kind == HOLD && head.number == u64::from(lineage);
        links.push(link);
    }
    if !same {
        return Ok(Some(links));
    }
    for mut link in links {
        link.sender.send(HOLD, u64::from(lineage), &[])?;
    }
    Ok(None)
}

/// The chief gives all servers the same weights.
pub(crate) fn give(
    links: Vec<Link>,
    lineage: u32,
    origin: &Origin,
    params: &[f32],
    state: Option<&OptimizerState>,
) -> Result<(), TrainError> {
    let description = Description {
        lineage,
        step: origin.step,
        position: origin.position,
        examples: origin.examples,
        outstanding: origin.outstanding.clone(),
        state: state.is_some(),
    };
    let text = serde_json::to_vec(&description).expect("an origin is plain numbers");
    for mut link in links {
        link.sender.send(TAKE, origin.step, &[&text])?;
        link.sender.send(WEIGHTS, origin.step, &[as_bytes(params)])?;
        for buffer in state.into_iter().flat_map(OptimizerState::buffers) {
            link.sender.send(STATE, origin.step, &[as_bytes(buffer)])?;
        }
    }
    Ok(())
}

/// A server says what it holds; nothing comes back if it shall keep that.
pub(crate) fn take(
    session: &Session,
    lineage: u32,
    optimizer: &Optimizer,
    params: &mut [f32],
) -> Result<Option<Beginning>, TrainError> {
    let wait =
        Wait::within(PATIENCE, "waiting for weights from the chief").unless(session.interrupted());
    let mut link = session.connect(session.chief(), Channel::Lineage, &wait)?;
    link.sender.send(HOLD, u64::from(lineage), &[])?;
    let mut text = Vec::new();
    let head = link.receiver.receive_into(&wait, LONGEST, &mut text)?;
    if head.kind == HOLD {
        return Ok(None);
    }
    let wrong = |found: String| {
        TrainError::Link(LinkError::Protocol {
            task: session.chief(),
            address: String::new(),
            found,
            expected: "weights to begin with".to_owned(),
        })
    };
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let mut floats = |kind: u8, into: &mut [f32]| -> Result<(), TrainError> {
        let head = link.receiver.receive(&wait)?;
        if head.kind != kind || head.length != 4 * into.len() as u64 {
            return Err(wrong(format!("{} bytes of kind {}", head.length, head.kind)));
        }
        Ok(link.receiver.read(as_bytes_mut(into))?)
    };
    floats(WEIGHTS, params)?;
    let mut state = description.state.then(|| optimizer.state());
    for buffer in state.iter_mut().flat_map(OptimizerState::buffers_mut) {
        floats(STATE, buffer)?;
    }
    let origin = Origin {
        step: description.step,
        position: description.position,
        examples: description.examples,
        outstanding: description.outstanding,
        ..Origin::default()
    };
    Ok(Some(Beginning { lineage: description.lineage, origin, state }))
}

/// Floats as they travel: all our hosts are little-endian, and the handshake compares versions.
#[allow(unsafe_code)]
pub(crate) fn as_bytes(values: &[f32]) -> &[u8] {
    // SAFETY: any f32 is four initialised bytes, and u8 needs no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to read into.
#[allow(unsafe_code)]
pub(crate) fn as_bytes_mut(values: &mut [f32]) -> &mut [u8] {
    let bytes = size_of_val(values);
    // SAFETY: as above, and any four bytes are an f32.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes) }
}
