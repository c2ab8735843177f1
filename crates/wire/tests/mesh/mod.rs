//! Groups of threads joined by every kind of carrier, for the tests of collectives.

use paceline_wire::{
    Channel, ClusterKey, Endpoint, Group, Identity, Link, Purpose, Role, Security, TaskId, Wait,
    pair,
};
use std::thread;
use std::time::Duration;

/// What joins the ranks of a test's group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Carrier {
    Memory,
    Shared,
    Tcp,
    Tls,
}

impl Carrier {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Shared, Self::Tcp, Self::Tls];
}

pub(crate) fn worker(index: usize) -> TaskId {
    TaskId::new(Role::Worker, u32::try_from(index).unwrap())
}

pub(crate) fn soon(phase: &str) -> Wait<'_> {
    Wait::within(Duration::from_secs(900), phase)
}

fn endpoint(index: usize, key: &ClusterKey, carrier: Carrier) -> Endpoint {
    let security = if carrier == Carrier::Tls { Security::Tls } else { Security::Plain };
    let identity = Identity {
        me: worker(index),
        run: String::from("mesh"),
        version: String::from("1"),
        plan: [0; 32],
        key: key.clone(),
        security,
        shared_memory: carrier == Carrier::Shared,
    };
    Endpoint::bind(identity, "127.0.0.1:0").unwrap()
}

/// Links between all ranks: `mesh[a][b]` is what `a` talks to `b` with.
pub(crate) fn links(size: usize, carrier: Carrier) -> Vec<Vec<Option<Link>>> {
    let mut mesh: Vec<Vec<Option<Link>>> =
        (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    let key = ClusterKey::generate().unwrap();
    let doors: Vec<Endpoint> = if carrier == Carrier::Memory {
        Vec::new()
    } else {
        (0..size).map(|index| endpoint(index, &key, carrier)).collect()
    };
    for a in 0..size {
        for b in a + 1..size {
            let (near, far) = if carrier == Carrier::Memory {
                pair(worker(a), worker(b))
            } else {
                let address = doors[b].address().to_string();
                let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
                let near = doors[a].dial(worker(b), &address, purpose, &soon("joining")).unwrap();
                let wanted = if carrier == Carrier::Shared { "shared memory" } else { "tcp tls" };
                assert!(wanted.contains(near.carrier), "{} instead of {wanted}", near.carrier);
                (near, doors[b].accept(&soon("joining")).unwrap().1)
            };
            mesh[a][b] = Some(near);
            mesh[b][a] = Some(far);
        }
    }
    mesh
}

/// Runs `work` once per rank, each in a thread with its own group; results in order of rank.
pub(crate) fn run<R: Send>(
    size: usize,
    carrier: Carrier,
    work: impl Fn(Group) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let ranks: Vec<_> = links(size, carrier)
            .into_iter()
            .enumerate()
            .map(|(rank, links)| scope.spawn(move || work(Group::new(rank, links))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
