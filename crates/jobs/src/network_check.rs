//! Round trips and bandwidth between every pair of tasks, then of all workers at once: what `paceline check` measures
//! before a run.

use paceline_cluster::session::{Session, SessionError};
use paceline_wire::{Channel, Group, Link, LinkError, Role, TaskId, Wait};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Questions asked for the round trip; the shortest counts.
const QUESTIONS: usize = 50;
/// Bytes sent at a time, and how long they are sent.
const PIECE: usize = 4 << 20;
const SENDING: Duration = Duration::from_millis(300);
/// How long a task may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a message asks for.
const ANSWER: u8 = 1;
const TAKE: u8 = 2;
const END: u8 = 3;

/// One pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasuredPair {
    /// The task that measured.
    pub from: TaskId,
    /// The task that answered.
    pub to: TaskId,
    /// Shortest round trip of a small message.
    pub round_trip_ms: f64,
    /// Of large messages, one way.
    pub mib_per_second: f64,
    /// What carried them.
    pub carrier: String,
}

/// Numbers of a small sum, still too large for a tree, and of a large one; how often each is made.
const FEW: (usize, usize) = (32 << 10, 9);
const MANY: (usize, usize) = (512 << 10, 3);
/// A sum that takes more seconds is made once only.
const SLOW: f64 = 1.0;

/// What adding up over all workers takes: a link is seldom as fast when all others talk, too, be it for a
/// switch or for the cores that move the bytes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct MeasuredSums {
    /// Workers that took part.
    pub workers: usize,
    /// Of every round.
    pub latency_ms: f64,
    /// In and out at the same time.
    pub mib_per_second: f64,
}

/// What one task found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Of pairs of tasks.
    pub pairs: Vec<MeasuredPair>,
    /// Of all workers at once.
    pub sums: Option<MeasuredSums>,
}

/// Measures all pairs of this task, and sums with all workers; the chief learns what all tasks found.
///
/// # Errors
/// When a task is lost or does not answer.
pub fn measure_network(session: &Session) -> Result<NetworkReport, SessionError> {
    let tasks: Vec<TaskId> = session.view().members.iter().map(|member| member.task).collect();
    let me = session.me();
    let mut own = Vec::new();
    // Every task goes through its pairs in the same order, so none waits in a circle.
    for (at, from) in tasks.iter().enumerate() {
        for to in &tasks[at + 1..] {
            let wait =
                Wait::within(PATIENCE, "measuring the network").unless(session.interrupted());
            if *from == me {
                own.push(ask(session.connect(*to, Channel::PairTest, &wait)?, me, &wait)?);
            } else if *to == me {
                answer(session.accept(*from, Channel::PairTest, &wait)?, &wait)?;
            }
        }
    }
    let own = NetworkReport { pairs: own, sums: sums(session, &tasks)? };
    let reports = session.finish(serde_json::to_value(&own).unwrap_or_default())?;
    if !session.is_chief() {
        return Ok(own);
    }
    let mut all = NetworkReport { sums: own.sums, ..NetworkReport::default() };
    for (_, report) in reports {
        let report = serde_json::from_value::<NetworkReport>(report).unwrap_or_default();
        all.pairs.extend(report.pairs);
        all.sums = all.sums.or(report.sums);
    }
    Ok(all)
}

/// Adds up with all workers, as training does; nothing for a server or a lone worker.
fn sums(session: &Session, tasks: &[TaskId]) -> Result<Option<MeasuredSums>, SessionError> {
    let works = |task: &&TaskId| matches!(task.role, Role::Worker | Role::Chief);
    let workers: Vec<TaskId> = tasks.iter().filter(works).copied().collect();
    let me = session.me();
    let rank = workers.iter().position(|worker| *worker == me);
    let (Some(rank), true) = (rank, workers.len() > 1) else { return Ok(None) };
    let wait = Wait::within(PATIENCE, "measuring sums").unless(session.interrupted());
    let connect = |task| session.connect(task, Channel::GroupTest, &wait);
    let accept = |task| session.accept(task, Channel::GroupTest, &wait);
    let mut group = Group::among(rank, &workers, connect, accept)?;
    let few = time(&mut group, FEW, &wait)?;
    // All must agree on how often: by the times of all.
    let mut sum = [few];
    group.all_reduce(&mut sum, &wait)?;
    let slow = sum[0] / workers.len() as f64 * (MANY.0 / FEW.0) as f64 > SLOW;
    let many = time(&mut group, (MANY.0, if slow { 1 } else { MANY.1 }), &wait)?;
    Ok(Some(MeasuredSums::of(workers.len(), few, many)))
}

impl MeasuredSums {
    /// From the seconds of both sums: `r` rounds of `α + m·s/β` each, with a share `s` of the bytes.
    fn of(workers: usize, few: f64, many: f64) -> Self {
        let p = workers as f64;
        // Two send each other everything at once; more go round.
        let (rounds, share) = if workers == 2 { (1.0, 1.0) } else { (2.0 * (p - 1.0), 1.0 / p) };
        let bytes = |numbers: usize| 4.0 * numbers as f64 * share;
        let more = bytes(MANY.0) - bytes(FEW.0);
        let rate = more / ((many - few) / rounds).max(1e-9);
        Self {
            workers,
            latency_ms: 1e3 * (few / rounds - bytes(FEW.0) / rate).max(0.0),
            mib_per_second: rate / f64::from(1 << 20),
        }
    }
}

/// Median seconds of one sum of so many numbers, after one to warm up.
fn time(
    group: &mut Group,
    (numbers, times): (usize, usize),
    wait: &Wait<'_>,
) -> Result<f64, LinkError> {
    let mut values = vec![0.0f32; numbers];
    group.all_reduce(&mut values, wait)?;
    let mut seconds = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        group.all_reduce(&mut values, wait)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[times / 2])
}

fn ask(mut link: Link, me: TaskId, wait: &Wait<'_>) -> Result<MeasuredPair, LinkError> {
    let mut shortest = f64::INFINITY;
    for _ in 0..QUESTIONS {
        let begun = Instant::now();
        link.sender.send(ANSWER, 0, &[&[0; 8]])?;
        link.receiver.receive(wait)?;
        shortest = shortest.min(begun.elapsed().as_secs_f64());
    }
    let piece = vec![0; PIECE];
    let begun = Instant::now();
    let mut pieces = 0;
    while begun.elapsed() < SENDING {
        link.sender.send(TAKE, 0, &[&piece])?;
        pieces += 1;
    }
    link.sender.send(END, 0, &[])?;
    link.receiver.receive(wait)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(MeasuredPair {
        from: me,
        to: link.peer,
        round_trip_ms: 1e3 * shortest,
        mib_per_second: f64::from(pieces) * PIECE as f64 / f64::from(1 << 20) / seconds,
        carrier: link.carrier.to_owned(),
    })
}

fn answer(mut link: Link, wait: &Wait<'_>) -> Result<(), LinkError> {
    let mut buffer = vec![0; PIECE];
    loop {
        let head = link.receiver.receive(wait)?;
        match head.kind {
            ANSWER => link.sender.send(ANSWER, 0, &[])?,
            TAKE => {
                let length = usize::try_from(head.length).unwrap_or(PIECE).min(PIECE);
                link.receiver.read(&mut buffer[..length])?;
            }
            _ => return link.sender.send(END, 0, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_and_rate_follow_from_two_sums() {
        for workers in [2usize, 3, 8] {
            let p = workers as f64;
            let (latency, rate) = (3e-4, 40e6);
            let seconds = |numbers: usize| {
                let bytes = 4.0 * numbers as f64;
                if workers == 2 {
                    latency + bytes / rate
                } else {
                    2.0 * (p - 1.0) * (latency + bytes / p / rate)
                }
            };
            let found = MeasuredSums::of(workers, seconds(FEW.0), seconds(MANY.0));
            assert!((found.latency_ms - 0.3).abs() < 1e-9, "{found:?}");
            assert!((found.mib_per_second * f64::from(1 << 20) / rate - 1.0).abs() < 1e-9);
        }
    }
}
