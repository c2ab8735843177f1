//! What the chief asks of a server of sparse weights: which weights it holds, others to begin with, copies, scores.

use super::{
    message,
    server::{Score, SparseTable},
    slots,
};
use crate::{bytes, protocol::protocol_error, server::ParameterServer};
use paceline_wire::{Channel, Head, Link, LinkError, TaskId, Wait};
use std::time::Duration;

/// Serves the chief until the server closes.
pub(super) fn serve_chief(
    server: &ParameterServer<SparseTable>,
    chief: TaskId,
    scorer: Option<&dyn Score>,
) {
    while let Some(mut link) = server.next_link(chief, Channel::Oversight, || {}) {
        // A chief that is gone is for the session to notice.
        while answer(server, &mut link, scorer).is_ok() {}
        server.release();
    }
}

fn answer(
    server: &ParameterServer<SparseTable>,
    link: &mut Link,
    scorer: Option<&dyn Score>,
) -> Result<(), LinkError> {
    let wait = Wait::within(server.table.options.patience, "waiting for the chief's next request");
    let wait = wait.unless(&server.closing);
    let head = link.receiver.receive(&wait)?;
    match head.kind {
        message::ASK => {
            let (lineage, versions) = {
                let core = server.locked();
                (
                    core.ledger.lineage,
                    [core.ledger.standing.version, core.earliest()].map(u64::to_le_bytes),
                )
            };
            link.sender.send(message::HOLDS, lineage.into(), &[&versions[0], &versions[1]])
        }
        message::KEEP => {
            server.settle(head.number);
            Ok(())
        }
        message::BEGIN => take_weights(server, link, head, &wait),
        message::HOLD => {
            // Who is interrupted closes: so does the link.
            let Ok(standing) = server.hold(None) else { return Ok(()) };
            link.sender.send(message::HELD, 0, &[&standing.write()])
        }
        message::CUT => server.cut(link, head),
        message::RELEASE => {
            server.release();
            Ok(())
        }
        message::IDLE => {
            let idle = server.locked().idle(Duration::from_millis(head.number));
            let names: Vec<String> = idle.iter().map(ToString::to_string).collect();
            link.sender.send(message::IDLERS, 0, &[names.join("\n").as_bytes()])
        }
        message::SCORE => send_scores(server, link, scorer),
        other => Err(protocol_error(link, format!("a message of kind {other}"))),
    }
}

/// Forgets what it held, and begins with the weights that come.
fn take_weights(
    server: &ParameterServer<SparseTable>,
    link: &mut Link,
    head: Head,
    wait: &Wait<'_>,
) -> Result<(), LinkError> {
    let lineage = u32::try_from(head.number).unwrap_or(u32::MAX);
    server.table.clear();
    let (table, first) = (server.table.model.table(), server.table.part.start);
    let standing = slots::receive(link, head, server.table.part.len(), wait, |at, slot| {
        table.set(first + at as usize, slot);
    })?;
    server.begin(lineage, standing);
    Ok(())
}

/// Scores held-out rows; none where there is no scorer, or it could not.
fn send_scores(
    server: &ParameterServer<SparseTable>,
    link: &mut Link,
    scorer: Option<&dyn Score>,
) -> Result<(), LinkError> {
    let (version, examples) = {
        let core = server.locked();
        (core.ledger.standing.version, core.ledger.standing.examples)
    };
    let (model, part) = (&server.table.model, server.table.part.clone());
    let scores = scorer.and_then(|scorer| scorer.score(model, part, &server.closing));
    let scores = scores.unwrap_or_default();
    let body = [&examples.to_le_bytes()[..], bytes::of(&scores.logits), &scores.labels];
    link.sender.send(message::SCORES, version, &body)
}
