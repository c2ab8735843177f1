//! The same sums by `MPI_Allreduce` and over our own links, in ranks that `mpirun` started.
//!
//! `mpirun -n 2 allreduce_mpi tcp|shared FLOATS OPERATIONS`, with `PACELINE_MPI=off` for our links alone (`shared`: numbers in buffers
//! that the ranks of one machine share). Rank 0 prints operations per second of the slower rank, the best of five.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use paceline_cluster::spec::{Members, from_environment};
use paceline_wire::Channel;
use paceline_wire::collective::summed_by_mpi;
use paceline_wire::{Endpoint, Group, Identity, Purpose, Role, Security, TaskId, Wait};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

fn wait(phase: &str) -> Wait<'_> {
    Wait::within(Duration::from_secs(120), phase)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [carrier, floats, operations] = &words[..] else {
        panic!("usage: mpirun -n 2 allreduce_mpi tcp|shared FLOATS OPERATIONS")
    };
    let (floats, operations): (usize, usize) =
        (floats.parse().unwrap(), operations.parse().unwrap());
    let cluster = from_environment(&|name| std::env::var(name).ok()).unwrap().unwrap();
    let Members::Rendezvous { coordinator, workers: 2 } = &cluster.members else {
        panic!("two ranks, started by mpirun")
    };
    let identity = Identity {
        me: cluster.own,
        run: String::from("speed"),
        version: String::from(env!("CARGO_PKG_VERSION")),
        plan: [0; 32],
        key: paceline_wire::ClusterKey::public(), // nothing here is secret
        security: Security::Plain,
        shared_memory: carrier == "shared",
    };
    let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
    // Links last as long as the endpoint they came from.
    let (_door, mut group) = if cluster.own.index == 0 {
        let door = Endpoint::bind(identity, coordinator).unwrap();
        let (_, link) = door.accept(&wait("the other rank")).unwrap();
        (door, Group::new(0, vec![None, Some(link)]))
    } else {
        let door = Endpoint::bind(identity, "127.0.0.1:0").unwrap();
        let first = TaskId::new(Role::Worker, 0);
        let link = door.dial(first, coordinator, purpose, &wait("joining")).unwrap();
        (door, Group::new(1, vec![Some(link), None]))
    };
    let mut numbers = group.buffer(floats, &wait("sharing")).unwrap();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        numbers.fill(1.0);
        group.all_reduce(&mut numbers, &wait("warming up")).unwrap();
        assert!(numbers.iter().all(|sum| *sum == 2.0), "a wrong sum");
        group.barrier(&wait("the start")).unwrap();
        let began = Instant::now();
        for _ in 0..operations {
            group.all_reduce(&mut numbers, &wait("adding up")).unwrap();
        }
        let own = began.elapsed().as_secs_f64() / operations as f64;
        let all = group.gather(0, &own.to_le_bytes(), 8, &wait("times")).unwrap();
        let times = all.into_iter().flatten().map(|b| f64::from_le_bytes(b.try_into().unwrap()));
        best = best.min(times.fold(0.0, f64::max));
    }
    if cluster.own.index == 0 {
        println!("{{\"value\": {}, \"mpi\": {}}}", 1.0 / best, summed_by_mpi());
    }
}
