//! Round trips and bandwidth between every pair of tasks.

use paceline_cluster::{
    Link, LinkError, TaskId, Wait,
    session::{Session, SessionError},
};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The channel of these measurements.
const CHANNEL: u8 = 30;
/// Questions asked for the round trip; the shortest counts.
const QUESTIONS: usize = 50;
/// Bytes sent at a time, and how long they are sent.
const PIECE: usize = 4 << 20;
const SENDING: Duration = Duration::from_millis(300);
/// How long anybody may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a message asks for.
const ANSWER: u8 = 1;
const TAKE: u8 = 2;
const END: u8 = 3;

/// One pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Who measured.
    pub(super) from: TaskId,
    /// Against whom.
    pub(super) to: TaskId,
    /// Shortest round trip of a small message.
    pub(super) round_trip_ms: f64,
    /// Of large messages, one way.
    pub(super) mib_per_second: f64,
    /// What carried them.
    pub(super) carrier: String,
}

/// Measures all pairs of this task; the chief learns everybody's.
pub(super) fn measure(session: &Session) -> Result<Vec<Measured>, SessionError> {
    let tasks: Vec<TaskId> = session.view().members.iter().map(|member| member.task).collect();
    let me = session.me();
    let mut own = Vec::new();
    // Every task goes through its pairs in the same order, so nobody waits in a circle.
    for (at, from) in tasks.iter().enumerate() {
        for to in &tasks[at + 1..] {
            let wait =
                Wait::within(PATIENCE, "measuring the network").unless(session.interrupted());
            if *from == me {
                own.push(ask(session.connect(*to, CHANNEL, &wait)?, me, &wait)?);
            } else if *to == me {
                answer(session.accept(*from, CHANNEL, &wait)?, &wait)?;
            }
        }
    }
    let report = serde_json::to_value(&own).unwrap_or_default();
    let reports = session.finish(report)?;
    if !session.is_chief() {
        return Ok(own);
    }
    let read = |(_, report)| serde_json::from_value::<Vec<Measured>>(report).unwrap_or_default();
    Ok(reports.into_iter().flat_map(read).collect())
}

fn ask(mut link: Link, me: TaskId, wait: &Wait<'_>) -> Result<Measured, LinkError> {
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
    Ok(Measured {
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
