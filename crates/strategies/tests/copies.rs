//! Copies of one version from several servers, while a push is on its way to some of them.

#![allow(clippy::unwrap_used)]

mod job;

use job::{Job, PATIENCE, WEIGHTS, server, worker};
use paceline_cluster::JobMembership;
use paceline_strategies::{Snapshot, server::parts};
use paceline_wire::{Channel, Link, Wait};
use std::{thread::Scope, time::Duration};

/// Kinds of messages, as they stand on the wire.
const ASK: u8 = 1;
const PUSH: u8 = 4;
const LEAVE: u8 = 11;
const GRANT: u8 = 17;

/// What every update changes every weight by.
const CHANGE: f32 = 0.125;

/// Two servers, and worker 1 in slow motion: its links, one to each.
struct Slow {
    links: [Link; 2],
}

impl Slow {
    fn new(job: &Job) -> Self {
        let membership = job.table.membership(worker(1));
        let wait = Wait::within(PATIENCE, "testing");
        Self {
            links: [0, 1]
                .map(|at| membership.connect(server(at), Channel::ParameterServer, &wait).unwrap()),
        }
    }

    fn grant(&mut self, server: usize) -> Vec<u8> {
        let wait = Wait::within(PATIENCE, "testing");
        let mut grant = Vec::new();
        let head = self.links[server].receiver.receive_into(&wait, 1 << 20, &mut grant).unwrap();
        assert_eq!(head.kind, GRANT);
        grant
    }

    /// Takes batches 0 to 2, as the first to ask.
    fn ask(&mut self) {
        self.links[0].sender.send(ASK, 0, &[]).unwrap();
        let grant = self.grant(0);
        let batches: Vec<u8> = [0u64, 1, 2].iter().flat_map(|batch| batch.to_le_bytes()).collect();
        assert_eq!(grant[24..48], batches);
    }

    /// Brings batch 0 to one server; says whether it was used.
    fn push(&mut self, server: usize) -> bool {
        let mut push = vec![0; 56];
        push[8..12].copy_from_slice(&CHANGE.to_le_bytes()); // the learning rate
        push[12] = 1; // dense
        push[16] = 1; // examples of the global batch, and of this one
        push[40] = 1;
        push.extend(parts(WEIGHTS, 2)[server].clone().flat_map(|at| gradient(at).to_le_bytes()));
        self.links[server].sender.send(PUSH, 0, &[&push]).unwrap();
        self.grant(server)[52] & 64 == 0
    }

    fn leave(mut self) {
        for link in &mut self.links {
            link.sender.send(LEAVE, 0, &[]).unwrap();
        }
    }
}

/// 1, and what has the same effect on statistics.
fn gradient(weight: usize) -> f32 {
    if (1_000..1_100).contains(&weight) { -CHANGE } else { 1.0 }
}

fn start<'scope>(job: &'scope Job, scope: &'scope Scope<'scope, '_>) {
    for index in 0..2 {
        let server = job.server(index);
        scope.spawn(move || server.serve().unwrap());
    }
}

fn job() -> Job {
    Job { optimizer: "sgd", ..Job::new("ps-async", 2, 2, 6) }
}

fn snapshot(job: &Job) -> Snapshot {
    let mut exchange = job.exchange(Some(job.table.membership(worker(0)))).unwrap();
    let snapshot = exchange.snapshot().unwrap().unwrap();
    exchange.leave().unwrap();
    snapshot
}

/// Updates that each server's part of a copy has.
fn updates(snapshot: &Snapshot) -> [f32; 2] {
    let params = snapshot.params.as_ref().unwrap();
    [0, 1].map(|server| {
        let part = &params[parts(WEIGHTS, 2)[server].clone()];
        assert!(part.iter().all(|weight| *weight == part[0]));
        (0.5 - part[0]) / CHANGE
    })
}

#[test]
fn a_copy_waits_for_the_part_of_a_push_that_is_on_a_slow_link() {
    for order in [[0, 1], [1, 0]] {
        let job = job();
        let (snapshot, used) = std::thread::scope(|scope| {
            start(&job, scope);
            let mut slow = Slow::new(&job);
            slow.ask();
            assert!(slow.push(order[0]));
            let copying = scope.spawn(|| snapshot(&job));
            // It used to wait for two seconds and no longer.
            std::thread::sleep(Duration::from_millis(2_300));
            let used = slow.push(order[1]);
            slow.leave();
            (copying.join().unwrap(), used)
        });
        assert!(used, "the late part is part of the update");
        assert_eq!(updates(&snapshot), [1.0; 2], "{order:?}: both parts are of one version");
        assert_eq!(snapshot.version.0, 1);
        assert_eq!(snapshot.outstanding, [1, 2, 3]);
    }
}

#[test]
fn a_copy_goes_without_the_part_of_a_push_whose_worker_died() {
    for reached in [0, 1] {
        let job = job();
        let snapshot = std::thread::scope(|scope| {
            start(&job, scope);
            let mut slow = Slow::new(&job);
            slow.ask();
            assert!(slow.push(reached));
            let copying = scope.spawn(|| snapshot(&job));
            drop(slow);
            job.table.miss(worker(1));
            copying.join().unwrap()
        });
        let mut wanted = [0.0; 2];
        wanted[reached] = 1.0;
        assert_eq!(updates(&snapshot), wanted, "{reached}");
        assert_eq!(snapshot.version.0, 1, "{reached}: it counts as made");
        // What is not in the copy is dealt again after it, and nothing is left out.
        let left: &[u64] = if reached == 0 { &[1, 2, 3] } else { &[1, 2] };
        assert_eq!(snapshot.outstanding, left, "{reached}");
    }
}

#[test]
fn the_end_does_not_wait_for_the_part_of_a_push_whose_worker_died() {
    let job = job();
    let outcome = std::thread::scope(|scope| {
        start(&job, scope);
        let mut slow = Slow::new(&job);
        slow.ask();
        assert!(slow.push(0));
        drop(slow);
        job.table.miss(worker(1));
        let exchange = job.exchange(Some(job.table.membership(worker(0)))).unwrap();
        job.work(exchange, |_| ()).unwrap()
    });
    assert_eq!(outcome.step, 6);
    let mut batches: Vec<u64> = job.served.lock().unwrap().iter().map(|served| served.0).collect();
    // What the dead one held is dealt again as soon as its end is noticed, before or after the rest.
    batches.sort_unstable();
    assert_eq!(batches, [1, 2, 3, 4, 5], "every other batch");
}
