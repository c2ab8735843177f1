//! A thread that runs on the core of the process that waits for it.
//!
//! A server's thread and its worker take turns: one works while the other waits. On a machine whose cores are
//! all taken by workers the system may queue that thread behind *another* worker, for the milliseconds of a time slice,
//! while its own worker sleeps and leaves a core idle. On the core of its own worker it runs at once, finds the
//! gradient in the cache, and takes no core from other tasks.

use std::io;

/// The core this thread is on, plus one; 0 where the system does not tell.
pub(super) fn here() -> u32 {
    // SAFETY: a plain call without arguments.
    let core = unsafe { libc::sched_getcpu() };
    u32::try_from(core.saturating_add(1)).unwrap_or(0)
}

/// One thread that goes where it is sent, within the cores it was allowed at first; gets them all back in
/// the end.
pub(super) struct Follower {
    thread: libc::pid_t,
    allowed: libc::cpu_set_t,
    /// The core it was sent to, plus one; 0 before the first.
    at: u32,
}

impl Follower {
    /// The calling thread.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: an empty set of cores is all zeros; the call fills a set of that size.
        let (thread, allowed, code) = unsafe {
            let thread = libc::gettid();
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            let code = libc::sched_getaffinity(thread, size_of_val(&allowed), &raw mut allowed);
            (thread, allowed, code)
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { thread, allowed, at: 0 })
    }

    /// Goes to a core (its number plus one), if it is not there and may.
    pub(super) fn go(&mut self, to: u32) {
        let core = (to as usize).wrapping_sub(1);
        if to == 0 || to == self.at || core >= libc::CPU_SETSIZE as usize {
            return;
        }
        // SAFETY: the core is within the size of a set.
        let only = unsafe {
            if !libc::CPU_ISSET(core, &self.allowed) {
                return;
            }
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut only);
            only
        };
        if self.set(&only) {
            self.at = to;
        }
    }

    fn set(&self, cores: &libc::cpu_set_t) -> bool {
        // SAFETY: the set lives as long as the call. Where it fails, the thread stays where it was.
        unsafe { libc::sched_setaffinity(self.thread, size_of_val(cores), cores) == 0 }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.at != 0 {
            self.set(&self.allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_goes_where_it_is_sent_and_is_free_again_in_the_end() {
        let before = Follower::new().unwrap();
        // SAFETY: within the size of a set.
        let allowed = |core: usize| unsafe { libc::CPU_ISSET(core, &before.allowed) };
        let mut cores = (0..libc::CPU_SETSIZE as usize).filter(|core| allowed(*core));
        let Some(last) = cores.next_back() else { return };
        let mut follower = Follower::new().unwrap();
        follower.go(u32::try_from(last).unwrap() + 1);
        assert_eq!(here() as usize, last + 1);
        follower.go(0); // nowhere
        follower.go(u32::MAX);
        assert_eq!(follower.at as usize, last + 1);
        drop(follower);
        let after = Follower::new().unwrap();
        // SAFETY: as above.
        let same = |core: usize| unsafe { libc::CPU_ISSET(core, &after.allowed) } == allowed(core);
        assert!((0..libc::CPU_SETSIZE as usize).all(same));
    }
}
