//! Copies of one version, from several servers that workers go on changing.
//!
//! Updates are held while the servers tell how far they are; each then makes the updates that it lacks, and that moment is the
//! same version on all of them. A gradient that is still on its way is waited for as long as the table says; one that its
//! worker's death cut short counts as made.

use super::{Core, Hold, Interrupted, ParameterServer, Table};
use std::{sync::MutexGuard, time::Instant};

impl<T: Table> ParameterServer<T> {
    /// Makes no update from here on, and says how far it is.
    pub(crate) fn hold(&self, by: Option<usize>) -> Result<T::Progress, Interrupted> {
        let mut core = self.locked();
        core.hold = Some(Hold { by, target: None });
        // Those that have begun are finished.
        let core = self.wait_while(core, |core| T::is_updating(&core.ledger))?;
        Ok(self.table.progress(&core.ledger))
    }

    /// Goes as far as `target`, and stays there while the core is locked. Nothing if a gradient may still come that is not
    /// here: then it is to be tried again.
    pub(crate) fn catch_up(
        &self,
        target: &T::Progress,
    ) -> Result<Option<MutexGuard<'_, Core<T>>>, Interrupted> {
        let since = Instant::now();
        let mut core = self.locked();
        self.aim(&mut core, target);
        let mut core = self.wait_while(core, |core| self.table.lags(core, target, since))?;
        Ok(self.table.go_without(&mut core, target).then_some(core))
    }

    /// Makes updates up to `target`, and none beyond it.
    pub(crate) fn aim(&self, core: &mut Core<T>, target: &T::Progress) {
        if let Some(hold) = &mut core.hold {
            hold.target = Some(target.clone());
        }
        self.table.resume(core, Some(target));
        self.notify(core);
    }

    /// Updates go on.
    pub(crate) fn release(&self) {
        self.release_locked(&mut self.locked());
    }

    /// As [`release`](Self::release), for those who hold the lock.
    pub(crate) fn release_locked(&self, core: &mut Core<T>) {
        core.hold = None;
        self.table.resume(core, None);
        self.notify(core);
    }
}
