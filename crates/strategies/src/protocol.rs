//! What both ends of every conversation about weights need: payloads of bounded length, and words for a message that does not fit.

use crate::StrategyError;
use paceline_cluster::JobMembership;
use paceline_wire::{Head, Link, LinkError, Receiver, TaskId, Wait};
use std::time::{Duration, Instant};

/// The longest name of a task.
const LONGEST_NAME: u64 = 256;
/// How long a last message may be on its way that came before the end of a link.
const LAST_MESSAGE: Duration = Duration::from_millis(100);

/// The error for a message that does not fit.
pub(crate) fn protocol_error(link: &Link, found: impl Into<String>) -> LinkError {
    protocol_error_of(link.peer, &link.address, found.into())
}

/// As [`protocol_error`], where a half of the link is in use.
pub(crate) fn protocol_error_of(task: TaskId, address: &str, found: String) -> LinkError {
    LinkError::Protocol {
        task,
        address: address.to_owned(),
        found,
        expected: "a message that fits these weights".to_owned(),
    }
}

/// The error for an answer that is not the one expected, or not as long.
pub(crate) fn unexpected(link: &Link, head: Head) -> LinkError {
    protocol_error(link, format!("a message of kind {} and {} bytes", head.kind, head.length))
}

/// The payload of a message that has come, which must not be longer than `most`.
pub(crate) fn payload(
    receiver: &mut dyn Receiver,
    head: Head,
    most: u64,
) -> Result<Vec<u8>, LinkError> {
    if head.length > most {
        return Err(receiver.too_long(head.length, most));
    }
    let mut payload = vec![0; usize::try_from(head.length).expect("checked above")];
    receiver.read(&mut payload)?;
    Ok(payload)
}

/// Reads a refusal, which names the task that was lost, and says whose loss ends the conversation at this step.
///
/// The task that hung up first may have done so because another one is gone: what the membership knows counts more.
pub(crate) fn refusal(
    receiver: &mut dyn Receiver,
    head: Head,
    membership: &dyn JobMembership,
    step: u64,
) -> Result<StrategyError, LinkError> {
    let name = payload(receiver, head, LONGEST_NAME)?;
    let named: Option<TaskId> = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
    let lost = membership.lost();
    let task = named
        .filter(|task| lost.is_empty() || lost.contains(task))
        .or_else(|| lost.last().copied())
        .or(named);
    Ok(StrategyError::PeerLost { task, step })
}

/// What a message means that could not be sent. A server that lost a worker says so and hangs up; a worker that is
/// about to send finds the link broken before it has read the refusal.
pub(crate) fn explain_send(
    error: LinkError,
    link: &mut Link,
    refused: u8,
    membership: &dyn JobMembership,
    step: u64,
) -> StrategyError {
    if error.is_lost() {
        let receiver = &mut *link.receiver;
        let last = receiver.receive(&Wait::within(LAST_MESSAGE, "reading its last message"));
        if let Ok(head) = last
            && head.kind == refused
            && let Ok(lost) = refusal(receiver, head, membership, step)
        {
            return lost;
        }
    }
    StrategyError::explain(error, membership, step)
}

/// Nanoseconds since then.
pub(crate) fn nanoseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
