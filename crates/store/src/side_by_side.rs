//! Many waits at once: a store answers many requests in the time it takes to answer one.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Calls `work` with the numbers below `count`, up to `at_once` of them at a time; the results are in order.
/// After a failure no further number is begun.
///
/// # Errors
/// The first failure, by the clock.
pub fn side_by_side<T: Send, E: Send>(
    count: usize,
    at_once: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(count), None));
    let draw = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let result = work(number);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(value) => done.0.push((number, value)),
                Err(error) => {
                    next.store(count, Ordering::Relaxed); // the others need not go on
                    done.1.get_or_insert(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..at_once.min(count) {
            // Fewer threads than hoped for are slower, not wrong.
            let _ = thread::Builder::new().spawn_scoped(scope, draw);
        }
        draw();
    });
    let (mut values, problem) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = problem {
        return Err(error);
    }
    values.sort_unstable_by_key(|(number, _)| *number);
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_a_failure_ends_it() {
        let squares = side_by_side(100, 7, |number| Ok::<_, ()>(number * number)).unwrap();
        assert!(squares.iter().enumerate().all(|(number, square)| number * number == *square));
        assert_eq!(squares.len(), 100);
        assert_eq!(side_by_side(0, 3, |_| Err::<(), _>("never")), Ok(Vec::new()));
        let begun = AtomicUsize::new(0);
        let failed = side_by_side(1000, 1, |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 3 { Err(number) } else { Ok(()) }
        });
        assert_eq!((failed, begun.into_inner()), (Err(3), 4));
    }
}
