//! Work on all cores, results in order, memory bounded.
//!
//! Threads take the next item as soon as they are free; one consumer receives the results in the order
//! of the items. Results that came too early wait in a window bounded in bytes and items: when it is
//! full, threads stop taking new items, never in the middle of one. The oldest item is always
//! being worked on by a thread that need not wait, so the window always drains.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How to work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workers {
    /// Threads besides the consumer; at least one is used.
    pub(super) threads: usize,
    /// Results that may wait, in bytes.
    pub(super) window_bytes: usize,
    /// Items that may be ahead of the oldest unfinished one.
    pub(super) window_items: usize,
    /// The consumer is called at least this often.
    pub(super) tick: Duration,
}

/// Why the consumer is called.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// The next result in order.
    Done(T),
    /// Nothing is ready, but time has passed.
    Idle,
}

struct OrderedResults<T> {
    /// Next item to be taken.
    next: usize,
    /// First item whose result has not been handed over.
    first: usize,
    /// Results from `first` on; `None` while being worked on.
    window: VecDeque<Option<T>>,
    /// Weight of the results in the window and of those being consumed.
    bytes: usize,
    /// No new items: error, cancellation or panic.
    stop: bool,
}

struct Shared<T> {
    state: Mutex<OrderedResults<T>>,
    room: Condvar,
    ready: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, OrderedResults<T>> {
        self.state.lock().expect("no code that can panic runs under this lock")
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.room.notify_all();
        self.ready.notify_all();
    }
}

/// Ends the others when its thread panics: a result that never comes would be waited for for ever.
struct StopOnPanic<'a, T>(&'a Shared<T>);

impl<T> Drop for StopOnPanic<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

impl Workers {
    /// Calls `work` for items `0..count` and `consume` with their results in order.
    ///
    /// `scratch` makes what each thread keeps for itself; `weigh` says how many bytes a result takes.
    /// Returns whether all was consumed; `false` after `cancel` was raised.
    pub(super) fn run<S, T: Send, E>(
        &self,
        count: usize,
        cancel: &AtomicBool,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) -> T + Sync,
        weigh: impl Fn(&T) -> usize + Sync,
        mut consume: impl FnMut(Step<T>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let shared = Shared {
            state: Mutex::new(OrderedResults {
                next: 0,
                first: 0,
                window: VecDeque::new(),
                bytes: 0,
                stop: false,
            }),
            room: Condvar::new(),
            ready: Condvar::new(),
        };
        let (shared, scratch, work, weigh) = (&shared, &scratch, &work, &weigh);
        thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, count.max(1)) {
                scope.spawn(move || {
                    let _guard = StopOnPanic(shared);
                    let mut own = scratch();
                    while let Some(item) = self.take(shared, count) {
                        let result = work(&mut own, item);
                        let weight = weigh(&result);
                        let mut state = shared.lock();
                        state.bytes += weight;
                        let place = item - state.first;
                        state.window[place] = Some(result);
                        drop(state);
                        if place == 0 {
                            shared.ready.notify_one();
                        }
                    }
                });
            }
            // Also when `consume` panics, the threads must not wait for room for ever.
            let _guard = StopOnPanic(shared);
            let outcome = self.deliver(shared, count, cancel, weigh, &mut consume);
            shared.stop();
            outcome
        })
    }

    /// The next item, once there is room for its result.
    fn take<T>(&self, shared: &Shared<T>, count: usize) -> Option<usize> {
        let mut state = shared.lock();
        loop {
            if state.stop || state.next == count {
                return None;
            }
            if state.bytes < self.window_bytes && state.window.len() < self.window_items.max(1) {
                state.window.push_back(None);
                state.next += 1;
                return Some(state.next - 1);
            }
            state = shared.room.wait(state).expect("no code that can panic runs under this lock");
        }
    }

    fn deliver<T, E>(
        &self,
        shared: &Shared<T>,
        count: usize,
        cancel: &AtomicBool,
        weigh: &impl Fn(&T) -> usize,
        consume: &mut impl FnMut(Step<T>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut batch = Vec::new();
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let mut state = shared.lock();
            if state.first == count {
                return Ok(true);
            }
            if !matches!(state.window.front(), Some(Some(_))) {
                if state.stop {
                    return Ok(false); // a thread panicked; leaving the scope passes the panic on
                }
                state = shared
                    .ready
                    .wait_timeout(state, self.tick)
                    .expect("no code that can panic runs under this lock")
                    .0;
            }
            while matches!(state.window.front(), Some(Some(_))) {
                batch.extend(state.window.pop_front().flatten());
                state.first += 1;
            }
            drop(state);
            // Handing over leaves room for more items, if not for more bytes.
            shared.room.notify_all();
            if batch.is_empty() {
                consume(Step::Idle)?;
            }
            for result in batch.drain(..) {
                let weight = weigh(&result);
                consume(Step::Done(result))?;
                shared.lock().bytes -= weight;
                shared.room.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicUsize;

    fn workers(threads: usize, window_bytes: usize, window_items: usize) -> Workers {
        Workers { threads, window_bytes, window_items, tick: Duration::from_millis(1) }
    }

    fn results(workers: Workers, count: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        let done = workers.run(
            count,
            &AtomicBool::new(false),
            || (),
            |(), item| {
                // Uneven on purpose: early items are slow.
                thread::sleep(Duration::from_micros((item as u64 * 37) % 200));
                item
            },
            |_| 10,
            |step| {
                if let Step::Done(item) = step {
                    seen.push(item);
                }
                Ok::<_, ()>(())
            },
        );
        assert_eq!(done, Ok(true));
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn all_results_come_once_and_in_order(
            count in 0usize..200, threads in 1usize..9, bytes in 1usize..100, items in 1usize..20
        ) {
            let wanted: Vec<_> = (0..count).collect();
            prop_assert_eq!(results(workers(threads, bytes, items), count), wanted);
        }
    }

    /// One slow item must not let the fast ones behind it fill the memory.
    #[test]
    fn window_is_bounded_while_the_first_item_is_slow() {
        let alive = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let threads = 4;
        let done = workers(threads, 100, 1000).run(
            500,
            &AtomicBool::new(false),
            || (),
            |(), item| {
                if item == 0 {
                    thread::sleep(Duration::from_millis(50));
                }
                most.fetch_max(alive.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            },
            |()| 10,
            |step| {
                if matches!(step, Step::Done(())) {
                    alive.fetch_sub(1, Ordering::SeqCst);
                }
                Ok::<_, ()>(())
            },
        );
        assert_eq!(done, Ok(true));
        // 100 bytes hold 10 results; each thread may finish one more that it had begun.
        assert!(most.load(Ordering::SeqCst) <= 10 + threads, "{most:?}");
    }

    #[test]
    fn error_and_cancellation_end_all_threads() {
        let cancel = AtomicBool::new(false);
        let failed = workers(3, 10, 10).run(
            1000,
            &cancel,
            || (),
            |(), item| item,
            |_| 1,
            |step| if matches!(step, Step::Done(7)) { Err("full") } else { Ok(()) },
        );
        assert_eq!(failed, Err("full"));
        let cancelled = workers(3, 10, 10).run(
            1000,
            &cancel,
            || (),
            |(), item| {
                if item == 20 {
                    cancel.store(true, Ordering::Relaxed);
                }
            },
            |()| 1,
            |_| Ok::<_, ()>(()),
        );
        assert_eq!(cancelled, Ok(false));
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn panic_of_a_thread_is_passed_on_not_waited_for() {
        let _ = workers(2, 10, 10).run(
            100,
            &AtomicBool::new(false),
            || (),
            |(), item| assert!(item < 50, "broken"),
            |()| 1,
            |_| Ok::<_, ()>(()),
        );
    }
}
