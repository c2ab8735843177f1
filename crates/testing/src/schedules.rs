//! Tries random schedules of faults on a deterministic simulation, and makes the first one small that breaks a promise.
//!
//! A simulation runs in one thread, with a clock and a network of its own. What happens in it follows from a [`Schedule`], and a
//! schedule follows from a seed, so that a seed replays everything. Here is what all simulations have in common: faults and when
//! they happen ([`Timeline`]), the search over seeds, the smallest schedule that still breaks a promise, and words about it.
//!
//! `PACELINE_SEED` is the first seed, and the only one unless `PACELINE_SCHEDULES` says how many are tried.

use paceline_stats::random::Random;
use std::{
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// How often a long search tells how far it is.
const REPORT: Duration = Duration::from_secs(10);

/// Something that goes wrong with tasks, which have numbers.
pub trait Fault: Copy + fmt::Debug {
    /// Whether it touches a task.
    fn touches(self, task: usize) -> bool;

    /// The same for a shorter time, where it takes any.
    fn shorter(self) -> Option<Self>;
}

/// What goes wrong in a run, each with its tick, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline<F>(Vec<(u32, F)>);

impl<F: Fault> Timeline<F> {
    /// Up to `most` faults within so many ticks from the start.
    pub fn draw(
        random: &mut Random,
        most: usize,
        ticks: usize,
        mut fault: impl FnMut(&mut Random) -> F,
    ) -> Self {
        let count = random.below(most + 1);
        Self::new((0..count).map(|_| (random.below(ticks) as u32, fault(random))).collect())
    }

    /// These faults, in order of their ticks.
    #[must_use]
    pub fn new(mut faults: Vec<(u32, F)>) -> Self {
        faults.sort_by_key(|(tick, _)| *tick);
        Self(faults)
    }

    /// Adds a fault.
    pub fn insert(&mut self, tick: u32, fault: F) {
        let at = self.0.partition_point(|(other, _)| *other <= tick);
        self.0.insert(at, (tick, fault));
    }

    /// Every fault with its tick, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, F)> + '_ {
        self.0.iter().copied()
    }

    /// Those of a tick.
    pub fn at(&self, tick: u32) -> impl Iterator<Item = F> + '_ {
        self.iter().filter(move |(when, _)| *when == tick).map(|(_, fault)| fault)
    }

    /// Whether any of them touches a task.
    #[must_use]
    pub fn touches(&self, task: usize) -> bool {
        self.0.iter().any(|(_, fault)| fault.touches(task))
    }

    /// Timelines that are a little simpler: without one of the faults, or with one that is shorter.
    pub fn simpler(&self) -> impl Iterator<Item = Self> + '_ {
        let without = (0..self.0.len()).map(|at| {
            let mut one = self.clone();
            one.0.remove(at);
            one
        });
        let shorter = self.0.iter().enumerate().filter_map(|(at, (_, fault))| {
            let mut one = self.clone();
            one.0[at].1 = fault.shorter()?;
            Some(one)
        });
        without.chain(shorter)
    }
}

/// A run and what happens to it. Its words end with a line break.
pub trait Schedule: Clone + PartialEq + fmt::Debug + fmt::Display {
    /// The schedule of a seed.
    fn draw(seed: u64) -> Self;

    /// Schedules that are a little simpler, the simplest first. A chain of them ends.
    fn simpler(&self) -> Vec<Self>;

    /// Whether anything goes wrong in it.
    fn has_faults(&self) -> bool;
}

/// A schedule that breaks a promise, as small as it was possible to make it.
#[derive(Debug, Clone)]
pub struct Broken<S> {
    /// Of the schedule that it was made from.
    pub seed: u64,
    pub schedule: S,
    pub promise: String,
}

impl<S: fmt::Display> fmt::Display for Broken<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.promise, self.schedule)
    }
}

/// A simulation: plays a schedule, and says which promise was broken.
pub type Play<'a, S> = &'a dyn Fn(&S) -> Result<(), String>;

/// Plays a schedule; a panic is a broken promise.
fn attempt<S>(schedule: &S, play: Play<'_, S>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| play(schedule))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// The first schedule of these seeds that breaks a promise in these words, as small as possible.
pub fn find<S: Schedule>(seeds: Range<u64>, words: &str, play: Play<'_, S>) -> Option<Broken<S>> {
    search(seeds, words, play, &mut |_, _| {})
}

fn search<S: Schedule>(
    seeds: Range<u64>,
    words: &str,
    play: Play<'_, S>,
    tried: &mut dyn FnMut(u64, &S),
) -> Option<Broken<S>> {
    let broken =
        |schedule: &S| attempt(schedule, play).err().filter(|promise| promise.contains(words));
    for seed in seeds {
        let mut schedule = S::draw(seed);
        let Some(mut promise) = broken(&schedule) else {
            tried(seed, &schedule);
            continue;
        };
        while let Some((simpler, why)) =
            schedule.simpler().into_iter().find_map(|one| broken(&one).map(|why| (one, why)))
        {
            (schedule, promise) = (simpler, why);
        }
        return Some(Broken { seed, schedule, promise });
    }
    None
}

/// What was tried, and held.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub schedules: u64,
    /// Those in which something goes wrong.
    pub with_faults: u64,
    pub took: Duration,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, with_faults, took } = self;
        let seconds = took.as_secs_f64();
        write!(
            f,
            "{schedules} schedules ({with_faults} with faults) broke nothing in {seconds:.1} s"
        )
    }
}

/// Tries as many schedules as are `usual`, or as the environment asks for.
///
/// # Panics
/// When one breaks a promise: with that promise, the smallest schedule, and how it is replayed. Also when a seed does not give the
/// same schedule and the same end again.
#[allow(clippy::print_stderr)] // how far a long search is
pub fn hold<S: Schedule>(usual: u64, play: Play<'_, S>) -> Held {
    let seed = number("PACELINE_SEED");
    let first = seed.unwrap_or(0);
    let count = number("PACELINE_SCHEDULES").unwrap_or(if seed.is_some() { 1 } else { usual });
    let (again, once) = (S::draw(first), S::draw(first));
    assert_eq!(again, once, "a seed is the same schedule again");
    assert_eq!(attempt(&again, play), attempt(&once, play), "a seed is the same run again");
    let begun = Instant::now();
    let mut held = Held { schedules: 0, with_faults: 0, took: Duration::ZERO };
    let mut reported = begun;
    let broken = search(first..first + count, "", play, &mut |_, schedule| {
        held.schedules += 1;
        held.with_faults += u64::from(schedule.has_faults());
        held.took = begun.elapsed();
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            eprintln!("{held}, of {count}");
        }
    });
    if let Some(broken) = broken {
        panic!("{broken}PACELINE_SEED={} replays it", broken.seed);
    }
    held
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Mishap {
        Kill(usize),
        Stop(usize, u32),
    }

    impl Fault for Mishap {
        fn touches(self, task: usize) -> bool {
            matches!(self, Self::Kill(of) | Self::Stop(of, _) if of == task)
        }

        fn shorter(self) -> Option<Self> {
            match self {
                Self::Stop(task, ticks) if ticks > 1 => Some(Self::Stop(task, ticks / 2)),
                _ => None,
            }
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    struct Toy {
        seed: u64,
        faults: Timeline<Mishap>,
    }

    impl Schedule for Toy {
        fn draw(seed: u64) -> Self {
            let mut random = Random::new(seed, 1);
            let faults = Timeline::draw(&mut random, 6, 50, |random| match random.below(2) {
                0 => Mishap::Kill(random.below(3)),
                _ => Mishap::Stop(random.below(3), 1 + random.below(40) as u32),
            });
            Self { seed, faults }
        }

        fn simpler(&self) -> Vec<Self> {
            self.faults.simpler().map(|faults| Self { faults, ..self.clone() }).collect()
        }

        fn has_faults(&self) -> bool {
            self.faults.iter().next().is_some()
        }
    }

    impl fmt::Display for Toy {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "seed {}: {:?}", self.seed, self.faults)
        }
    }

    /// Breaks when a task that dies was stopped before, for at least 5 ticks.
    fn play(toy: &Toy) -> Result<(), String> {
        for (tick, fault) in toy.faults.iter() {
            let Mishap::Kill(task) = fault else { continue };
            let stopped = |(when, fault): (u32, Mishap)| {
                when < tick && matches!(fault, Mishap::Stop(of, ticks) if of == task && ticks >= 5)
            };
            if toy.faults.iter().any(stopped) {
                return Err(format!("task {task} is lost twice"));
            }
        }
        Ok(())
    }

    #[test]
    fn what_breaks_is_made_as_small_as_it_can_be() {
        let found = find(0..1000, "twice", &play).unwrap();
        let faults: Vec<_> = found.schedule.faults.iter().collect();
        let [(first, Mishap::Stop(stopped, ticks)), (then, Mishap::Kill(killed))] = faults[..]
        else {
            panic!("{found}");
        };
        assert!(first < then && stopped == killed && (5..10).contains(&ticks), "{found}");
        assert!(play(&Toy::draw(found.seed)).is_err(), "its seed breaks the promise too");
        assert!(found.to_string().starts_with("task "), "{found}");
    }

    #[test]
    fn what_breaks_in_other_words_is_passed_over() {
        assert!(find(0..1000, "thrice", &play).is_none());
    }

    #[test]
    fn a_panic_is_a_broken_promise() {
        let panics = |toy: &Toy| {
            assert!(!toy.faults.touches(2), "task 2");
            Ok(())
        };
        let found = find(0..100, "", &panics).unwrap();
        assert_eq!(found.promise, "panic: task 2");
        assert_eq!(found.schedule.faults.iter().count(), 1, "{found}");
    }

    #[test]
    fn a_search_that_holds_says_how_much_it_tried() {
        let held = hold(200, &|_: &Toy| Ok(()));
        assert!(held.schedules > 0 && held.with_faults <= held.schedules, "{held}");
        assert!(held.to_string().contains("broke nothing"), "{held}");
    }

    #[test]
    #[should_panic(expected = "replays it")]
    fn a_search_that_breaks_says_how_it_is_replayed() {
        hold(u64::from(u32::MAX), &|_: &Toy| Err("a promise".to_owned()));
    }

    #[test]
    fn faults_of_a_timeline_are_in_order() {
        let mut faults = Timeline::new(vec![(9, Mishap::Kill(0)), (3, Mishap::Kill(1))]);
        faults.insert(3, Mishap::Kill(2));
        let tasks = [(3, Mishap::Kill(1)), (3, Mishap::Kill(2)), (9, Mishap::Kill(0))];
        assert_eq!(faults.iter().collect::<Vec<_>>(), tasks);
        assert_eq!(faults.at(3).count(), 2);
        assert!(faults.touches(2) && !faults.touches(3));
    }
}
