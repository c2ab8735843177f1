//! How much the network between the hosts of a run can carry, measured when they have joined.
//!
//! A verdict of "network-bound" is worth little without the link's capacity. The hosts form a ring, and each sends to the next
//! at the same time for a tenth of a second: so the time does not grow with their number, and every link is measured in
//! both directions, through the same encryption that training uses. Nothing depends on the outcome but words, so whatever goes wrong
//! leaves the capacity unknown and nothing else.

use paceline_cluster::session::{Member, Session};
use paceline_wire::{Channel, Link, LinkError, TaskId, Wait};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Bytes of one message; on a slow link one must not take long.
const PIECE: usize = 64 << 10;
/// How long the hosts send.
const SENDING: Duration = Duration::from_millis(100);
/// How long a host may take, and how long nothing may move.
const PATIENCE: Duration = Duration::from_secs(4);
const STALL: Duration = Duration::from_secs(1);
/// Share of the bytes that is passed over: while a connection speeds up, and while buffers on the way fill.
const WARM_UP: f64 = 1.0 / 3.0;

const TAKE: u8 = 1;
const END: u8 = 2;

/// What the way from and to this host carries, in bytes a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Capacity {
    pub(crate) send: Option<f64>,
    pub(crate) receive: Option<f64>,
}

/// Measures this host's link, if the run has several hosts and this task speaks for its own.
pub(crate) fn measure(session: &Session) -> Capacity {
    let view = session.view();
    let ring = ring(&view.members);
    // A task that comes back finds the others at work, not here; the chief counts all processes it has seen.
    let seen = view.members.iter().map(|member| member.process as usize).max().unwrap_or(0);
    let first = view.generation == 1 && seen <= view.members.len();
    let Some(at) = ring.iter().position(|task| *task == session.me()) else {
        return Capacity::default();
    };
    if !first || ring.len() < 2 {
        return Capacity::default();
    }
    let next = ring[(at + 1) % ring.len()];
    let before = ring[(at + ring.len() - 1) % ring.len()];
    let wait = Wait::within(PATIENCE, "measuring the network").unless(session.interrupted());
    std::thread::scope(|scope| {
        let sending =
            scope.spawn(|| send(session.connect(next, Channel::GroupTest, &wait)?, &wait));
        let receive = session
            .accept(before, Channel::GroupTest, &wait)
            .and_then(|link| take(link, &wait))
            .ok();
        let send = sending.join().ok().and_then(Result::ok);
        Capacity { send: send.flatten(), receive: receive.flatten() }
    })
}

/// The first task of every host, in order.
fn ring(members: &[Member]) -> Vec<TaskId> {
    let mut seen = BTreeSet::new();
    members
        .iter()
        .filter(|member| {
            let host = member.address.rsplit_once(':').map_or("", |(host, _)| host);
            seen.insert(host.to_owned())
        })
        .map(|member| member.task)
        .collect()
}

/// Sends for a while; the other side says what arrived per second.
fn send(mut link: Link, wait: &Wait<'_>) -> Result<Option<f64>, LinkError> {
    link.sender.set_stall(STALL);
    let piece = vec![0; PIECE];
    let begun = Instant::now();
    while begun.elapsed() < SENDING {
        link.sender.send(TAKE, 0, &[&piece])?;
    }
    link.sender.send(END, 0, &[])?;
    let head = link.receiver.receive(wait)?;
    Ok(known(f64::from_bits(head.number)))
}

/// Takes what comes and says how fast it came.
fn take(mut link: Link, wait: &Wait<'_>) -> Result<Option<f64>, LinkError> {
    link.sender.set_stall(STALL);
    let mut buffer = vec![0; PIECE];
    let mut arrivals = Vec::new();
    loop {
        let head = link.receiver.receive(wait)?;
        if head.kind != TAKE {
            let rate = rate(&arrivals);
            link.sender.send(END, rate.to_bits(), &[])?;
            return Ok(known(rate));
        }
        let length = usize::try_from(head.length).unwrap_or(PIECE).min(PIECE);
        link.receiver.read(&mut buffer[..length])?;
        arrivals.push(Instant::now());
    }
}

/// Bytes a second, from the times at which pieces had arrived; 0 where they are too few to tell.
fn rate(arrivals: &[Instant]) -> f64 {
    let skipped = (arrivals.len() as f64 * WARM_UP) as usize;
    match &arrivals[skipped.min(arrivals.len())..] {
        [first, .., last] if last > first => {
            let pieces = arrivals.len() - skipped - 1;
            (pieces * PIECE) as f64 / (*last - *first).as_secs_f64()
        }
        _ => 0.0,
    }
}

fn known(rate: f64) -> Option<f64> {
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    #[test]
    fn one_task_of_each_host_takes_part() {
        let member = |role, index, address: &str| Member {
            task: TaskId::new(role, index),
            address: address.to_owned(),
            process: 1,
        };
        let members = [
            member(Role::Ps, 0, "10.0.0.1:7001"),
            member(Role::Worker, 0, "10.0.0.1:7000"),
            member(Role::Worker, 1, "10.0.0.2:7000"),
        ];
        let names: Vec<String> = ring(&members).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["ps/0", "worker/1"]);
    }

    #[test]
    fn the_start_of_a_transfer_does_not_count() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        // A bucket lets three pieces through at once; then ten come, one every 10 ms.
        let mut arrivals = vec![at(0); 3];
        arrivals.extend((1..=10).map(|piece| at(10 * piece)));
        let found = rate(&arrivals);
        assert!((found - PIECE as f64 * 100.0).abs() < 1.0, "{found}");
        assert_eq!(rate(&[]), 0.0);
        assert_eq!(rate(&[at(1)]), 0.0);
        assert_eq!(known(rate(&[at(1); 9])), None, "all at one moment");
    }
}
