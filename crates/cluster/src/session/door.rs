//! Where connections come in.

use super::{
    chief::{self, Heard},
    gate::Gate,
    shared::Shared,
    spawn,
};
use paceline_wire::{Purpose, Wait};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

/// Accepts connections: control links for the chief, data links for the threads that ask for them.
pub(super) fn keep(gate: &dyn Gate, shared: &Arc<Shared>, chief: Option<&mpsc::Sender<Heard>>) {
    let numbers = AtomicU64::new(1);
    while !shared.closing.load(Ordering::Relaxed) {
        let wait =
            Wait::within(Duration::from_secs(60), "taking connections").unless(&shared.closing);
        let (purpose, link) = match gate.accept(&wait) {
            Ok(found) => found,
            Err(error) if error.is_timeout() => continue,
            Err(_) => {
                // A listener that fails (no file descriptors left) must not spin.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        match purpose {
            Purpose::Control => {
                let Some(chief) = chief else { continue };
                let (chief, knows) = (chief.clone(), Arc::clone(shared));
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                // Without a thread the task tries again.
                let _ = spawn("member", move || chief::listen(link, number, &chief, &knows));
            }
            Purpose::Data { generation, channel } => shared.change(|state| {
                if generation >= state.adopted.generation {
                    state.mailbox.insert((link.peer, generation, channel), link);
                }
            }),
        }
    }
}
