//! When the chief itself was suspended: no task counts as lost for heartbeats that the chief could not hear.

use super::{Presence, Roster};
use std::time::Duration;

impl Roster {
    /// This process stood still for so long (stopped and continued by its user, paused with its machine). As a rule all tasks did, and
    /// what those said who did not is about to be heard. So the time counts for nothing.
    pub(in crate::session) fn stood_still(&mut self, late: Duration) {
        for entry in self.entries.values_mut() {
            entry.heard += late;
            entry.since += late;
            if let Presence::Broken(since, _) = &mut entry.presence {
                *since += late;
            }
        }
        for (since, ..) in self.doubts.values_mut() {
            *since += late;
        }
        self.began += late;
    }
}
