//! Control messages over a link.

use super::message::{CONTROL, LONGEST};
use paceline_wire::{LinkError, Receiver, Sender, TaskId, Wait};
use serde::{Serialize, de::DeserializeOwned};

/// Sends one message.
pub(super) fn send(sender: &mut dyn Sender, message: &impl Serialize) -> Result<(), LinkError> {
    let text = serde_json::to_vec(message).expect("control messages hold nothing JSON cannot say");
    sender.send(CONTROL, 0, &[&text])
}

/// Receives one message; `buffer` is reused.
pub(super) fn receive<T: DeserializeOwned>(
    receiver: &mut dyn Receiver,
    wait: &Wait<'_>,
    buffer: &mut Vec<u8>,
    (task, address): (TaskId, &str),
) -> Result<T, LinkError> {
    let head = receiver.receive_into(wait, LONGEST, buffer)?;
    let wrong = |found: String| LinkError::Protocol {
        task,
        address: address.to_owned(),
        found,
        expected: "a control message".to_owned(),
    };
    if head.kind != CONTROL {
        return Err(wrong(format!("a message of kind {}", head.kind)));
    }
    serde_json::from_slice(buffer).map_err(|error| wrong(error.to_string()))
}
