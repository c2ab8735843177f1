//! The machines a network would train on, and the ways of messages between their workers.
//!
//! Workers of a host share its network card. A ring of all of them, in the order of their hosts, crosses each card once in
//! each direction, so it has the card to itself. Groups that go around at the same time do not: where each worker of a host
//! is in another ring, all these rings leave by one card, and each has its part of it.

use super::Link;
use serde::Serialize;
use std::ops::Range;

/// The machines a network would train on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machines {
    /// Tasks on each host when all are used; the first tasks fill the first host.
    pub tasks_per_host: Vec<usize>,
    /// Cores of each host: inside one, messages are work for them.
    pub cores: f64,
    /// How much longer a task's compute takes when so many tasks share a host, against one alone:
    /// `(tasks, factor)`, measured, by rising number of tasks. Beyond the last the factor grows in
    /// proportion: the cores are spent.
    pub sharing: Vec<(usize, f64)>,
    /// Memory a host has for its tasks, in bytes.
    pub memory: f64,
    /// Between hosts: what one message gets that has both cards to itself.
    pub network: Link,
    /// Between tasks of one host.
    pub local: Link,
}

/// The way of messages that workers send at the same time: the slowest hop decides how long a round takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    /// Between neighbours on one host, where some are.
    pub local: Option<Link>,
    /// Between neighbours on two hosts, where some are: the part of a card that one message gets.
    pub network: Option<Link>,
}

impl Route {
    /// Seconds of one round in which each worker sends so many bytes.
    #[must_use]
    pub fn message(&self, bytes: f64) -> f64 {
        let seconds = |link: Option<Link>| link.map_or(0.0, |link| link.message(bytes));
        seconds(self.local).max(seconds(self.network))
    }
}

impl Machines {
    /// `tasks` hosts with one task each.
    #[must_use]
    pub fn one_each(tasks: usize, memory: f64, network: Link) -> Self {
        let (tasks_per_host, sharing) = (vec![1; tasks], vec![(1, 1.0)]);
        Self { tasks_per_host, cores: 1.0, sharing, memory, network, local: network }
    }

    /// Tasks there is room for.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks_per_host.iter().sum()
    }

    /// The workers of each host when the first `workers` tasks are used. More workers than places crowd on every host alike.
    #[must_use]
    pub fn places(&self, workers: usize) -> Vec<Range<usize>> {
        let crowded = workers.div_ceil(self.tasks_per_host.len().max(1));
        let room = self.tasks() >= workers;
        let mut begin = 0;
        let mut places = Vec::new();
        for &tasks in &self.tasks_per_host {
            if begin == workers {
                break;
            }
            let end = workers.min(begin + if room { tasks } else { crowded });
            if end > begin {
                places.push(begin..end);
            }
            begin = end;
        }
        places
    }

    /// Workers on the fullest host.
    #[must_use]
    pub fn fullest(&self, workers: usize) -> usize {
        self.places(workers).iter().map(Range::len).max().unwrap_or(1)
    }

    /// The link inside a host that has so many tasks: those beyond the cores take turns at moving bytes.
    fn inside(&self, fullest: usize) -> Link {
        let turns = (fullest as f64 / self.cores).max(1.0);
        Link { latency: self.local.latency * turns, bandwidth: self.local.bandwidth / turns }
    }

    fn route(&self, places: &[Range<usize>], neighbours: bool, rings: usize) -> Route {
        let fullest = places.iter().map(Range::len).max().unwrap_or(1);
        Route {
            local: (neighbours || rings == 0).then(|| self.inside(fullest)),
            network: (rings > 0).then(|| self.network.shared(rings as f64)),
        }
    }

    /// The way around all workers in one ring.
    #[must_use]
    pub fn ring(&self, workers: usize) -> Route {
        self.groups(workers, workers)
    }

    /// The ways around groups of `size` neighbours each, all groups at the same time.
    #[must_use]
    pub fn groups(&self, workers: usize, size: usize) -> Route {
        let places = self.places(workers);
        let size = size.max(1);
        // A group lies across a border between hosts unless it begins there; a host has two borders.
        let crosses =
            |border: usize| border > 0 && border < workers && !border.is_multiple_of(size);
        let rings = places.iter().map(|host| match (crosses(host.start), crosses(host.end)) {
            (true, true) if (host.end - 1) / size != host.start / size => 2,
            (false, false) => 0,
            _ => 1,
        });
        let rings = rings.max().unwrap_or(0);
        let within = |host: &Range<usize>| {
            host.clone().skip(1).take(2).any(|worker| !worker.is_multiple_of(size))
        };
        self.route(&places, places.iter().any(within), rings)
    }

    /// The ways around every `stride`-th worker, one ring for each of the first `stride` workers, all at the same time.
    #[must_use]
    pub fn strided(&self, workers: usize, stride: usize) -> Route {
        let places = self.places(workers);
        let (stride, members) = (stride.max(1), workers / stride.max(1));
        let rings = places.iter().map(|host| {
            // Rings with a member here, but for those that have all of them here.
            let last = (members.max(1) - 1) * stride;
            let whole = host.end.saturating_sub(last).min(stride).saturating_sub(host.start);
            host.len().min(stride) - whole.min(host.len().min(stride))
        });
        let rings = rings.max().unwrap_or(0);
        self.route(&places, places.iter().any(|host| host.len() > stride), rings)
    }

    /// The way from a worker to the next one.
    #[must_use]
    pub fn onward(&self, workers: usize, worker: usize) -> Route {
        let places = self.places(workers);
        let border = places.iter().any(|host| host.end == worker + 1);
        self.route(&places, false, usize::from(border))
    }

    /// Factor on compute times when `tasks` share a host.
    pub(super) fn slowdown(&self, tasks: usize) -> f64 {
        let mut known = (1, 1.0);
        for &(count, factor) in &self.sharing {
            if count >= tasks {
                // Between two measured numbers of tasks, along the line.
                let along = (tasks - known.0) as f64 / (count - known.0).max(1) as f64;
                return known.1 + (factor - known.1) * if count == known.0 { 1.0 } else { along };
            }
            known = (count, factor);
        }
        known.1 * tasks as f64 / known.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Link = Link { latency: 1e-4, bandwidth: 1e9 };
    const LOCAL: Link = Link { latency: 1e-6, bandwidth: 1e10 };

    fn hosts(tasks_per_host: &[usize]) -> Machines {
        Machines {
            tasks_per_host: tasks_per_host.to_vec(),
            cores: 64.0,
            sharing: vec![(1, 1.0)],
            memory: 1e12,
            network: NETWORK,
            local: LOCAL,
        }
    }

    /// Rings that share the fullest card, counted one by one: those with a member on a host and one elsewhere.
    fn counted(places: &[Range<usize>], workers: usize, ring: impl Fn(usize) -> usize) -> f64 {
        let crossing = places.iter().map(|host| {
            let elsewhere: Vec<usize> =
                (0..workers).filter(|at| !host.contains(at)).map(&ring).collect();
            let mut here: Vec<usize> = host.clone().map(&ring).collect();
            here.sort_unstable();
            here.dedup();
            here.iter().filter(|ring| elsewhere.contains(ring)).count()
        });
        crossing.max().unwrap_or(0) as f64
    }

    #[test]
    fn rings_on_a_card_are_as_many_as_counting_finds() {
        let shares =
            |route: Route| route.network.map_or(0.0, |link| NETWORK.bandwidth / link.bandwidth);
        for tasks in [&[4, 4, 4][..], &[3, 3, 3, 3], &[1, 5, 2, 4], &[12], &[8, 4], &[1; 12]] {
            let machines = hosts(tasks);
            for workers in 1..=12 {
                let places = machines.places(workers);
                for size in (1..=workers).filter(|size| workers.is_multiple_of(*size)) {
                    let groups = counted(&places, workers, |worker| worker / size);
                    let strided = counted(&places, workers, |worker| worker % size);
                    let what = format!("{tasks:?}, {workers} workers, {size}");
                    assert_eq!(shares(machines.groups(workers, size)), groups, "groups: {what}");
                    assert_eq!(shares(machines.strided(workers, size)), strided, "strided: {what}");
                }
            }
        }
    }

    #[test]
    fn one_ring_has_the_card_to_itself_and_hops_inside_a_host_count_where_they_are_slower() {
        let two = hosts(&[4, 4]);
        assert_eq!(two.ring(8), Route { local: Some(LOCAL), network: Some(NETWORK) });
        assert_eq!(two.ring(8).message(1e6), NETWORK.message(1e6));
        let slow = Machines { local: Link { latency: 0.0, bandwidth: 1e8 }, ..two.clone() };
        assert_eq!(slow.ring(8).message(1e6), 1e-2);
        assert_eq!(two.ring(4), Route { local: Some(LOCAL), network: None });
        // Four rings of two, a member on each host: a quarter of the card for each.
        assert_eq!(two.strided(8, 4).message(1e6), 1e-4 + 4e6 / 1e9);
        assert_eq!(two.groups(8, 4), Route { local: Some(LOCAL), network: None });
        assert_eq!((two.onward(8, 3).network, two.onward(8, 2).network), (Some(NETWORK), None));
    }

    #[test]
    fn workers_beyond_the_places_crowd_on_every_host_alike() {
        assert_eq!(hosts(&[1, 1]).places(5), [0..3, 3..5]);
        assert_eq!(hosts(&[2, 3]).places(4), [0..2, 2..4]);
        assert_eq!(hosts(&[2, 3]).places(2), vec![0..2; 1]);
        assert_eq!(hosts(&[2, 3]).fullest(5), 3);
    }
}
