//! What adding up gradients costs between tasks of this machine, measured with the production code.
//!
//! Ranks on threads of this process, linked over shared memory as processes would be. Inside a machine the
//! cost is work of its cores, which no data sheet tells.

use super::stepping;
use crate::error::ForecastError;
use crate::oracle::Link;
use paceline_wire::{
    Channel, ClusterKey, Endpoint, Group, Identity, Purpose, Role, Security, TaskId, Wait,
};
use std::time::{Duration, Instant};

/// The smaller sum, in numbers: a page.
const FEW: usize = 1024;
/// The largest sum that is measured, in numbers: 64 MiB. Beyond it the time grows with the bytes.
const MOST: usize = 16 << 20;
/// The smallest second sum: the time of a byte needs more than noise.
const LEAST: usize = 64 << 10;

/// Latency and bandwidth of messages such that a ring all-reduce of two ranks, `2(α + mβ/2)`, takes
/// what the real one takes for a gradient of `numbers` values.
pub fn measure(numbers: usize, span: Duration) -> Result<Link, ForecastError> {
    let many = numbers.clamp(LEAST, MOST);
    let mut groups = ranks(2)?;
    let times = stepping::at_once(&mut groups, |group| {
        Ok((time(group, FEW, span)?, time(group, many, span)?))
    })?;
    let (few_seconds, many_seconds) = times[0];
    let bytes = 4.0 * (many - FEW) as f64;
    let bandwidth = bytes / (many_seconds - few_seconds).max(1e-9);
    let latency = (few_seconds - 4.0 * FEW as f64 / bandwidth).max(0.0) / 2.0;
    Ok(Link { latency, bandwidth })
}

/// So many ranks of one group, all in this process, each to be used by a thread of its own.
pub(super) fn ranks(count: usize) -> Result<Vec<Group>, ForecastError> {
    let key = ClusterKey::generate()?;
    let doors: Vec<Endpoint> = (0..count)
        .map(|at| endpoint(at as u32, key.clone()))
        .collect::<Result<_, ForecastError>>()?;
    let mut links: Vec<Vec<Option<paceline_wire::Link>>> =
        (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    for low in 0..count {
        for high in low + 1..count {
            let address = doors[low].address().to_string();
            let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
            let (dialled, accepted) = std::thread::scope(|scope| {
                let dialling = scope
                    .spawn(|| doors[high].dial(worker(low as u32), &address, purpose, &wait()));
                let accepted = doors[low].accept(&wait());
                (dialling.join(), accepted)
            });
            let Ok(dialled) = dialled else { return Err(ForecastError::ThreadPanicked) };
            links[high][low] = Some(dialled?);
            links[low][high] = Some(accepted?.1);
        }
    }
    Ok(links.into_iter().enumerate().map(|(rank, links)| Group::new(rank, links)).collect())
}

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

/// How long anything here may take.
pub(super) fn wait<'a>() -> Wait<'a> {
    Wait::within(Duration::from_secs(30), "measuring sums of this machine")
}

fn endpoint(index: u32, key: ClusterKey) -> Result<Endpoint, ForecastError> {
    let identity = Identity {
        me: worker(index),
        run: String::from("advice"),
        version: String::from(env!("CARGO_PKG_VERSION")),
        plan: [0; 32],
        key,
        security: Security::Plain,
        shared_memory: true,
    };
    Ok(Endpoint::bind(identity, "127.0.0.1:0")?)
}

/// Median seconds of one sum over about `span`; both ranks agree on when to end.
fn time(group: &mut Group, numbers: usize, span: Duration) -> Result<f64, ForecastError> {
    let mut values = vec![0.0f32; numbers];
    group.all_reduce(&mut values, &wait())?;
    let begun = Instant::now();
    let mut times = Vec::new();
    loop {
        let from = Instant::now();
        // Large gradients go in parts as the backward pass completes them, small ones at the end.
        if numbers < 256 << 10 {
            group.all_reduce(&mut values, &wait())?;
        } else {
            group.begin(0..numbers, &values);
            group.finish(&mut [], &wait(), |range, sums| values[range].copy_from_slice(sums))?;
        }
        times.push(from.elapsed().as_secs_f64());
        let mut over = [f64::from(u8::from(begun.elapsed() > span && times.len() >= 5))];
        group.all_reduce(&mut over, &wait())?;
        if over[0] > 0.0 {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_process_add_up() {
        let mut groups = ranks(3).unwrap();
        let sums = stepping::at_once(&mut groups, |group| {
            let mut own = [group.rank() as f64 + 1.0];
            group.all_reduce(&mut own, &wait())?;
            Ok(own[0])
        });
        assert_eq!(sums.unwrap(), [6.0; 3]);
    }

    #[test]
    fn two_ranks_of_this_process_meet_and_give_a_sound_link() {
        let link = measure(100_000, Duration::from_millis(5)).unwrap();
        assert!(link.latency >= 0.0 && link.latency < 1.0, "{link:?}");
        assert!(link.bandwidth > 1e6 && link.bandwidth.is_finite(), "{link:?}");
    }
}
