//! What both ends of every conversation about weights need: payloads of bounded length, and words for a message that does not fit.

use paceline_wire::{Head, Link, LinkError, Receiver, TaskId};
use std::time::Instant;

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

/// Nanoseconds since then.
pub(crate) fn nanoseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
