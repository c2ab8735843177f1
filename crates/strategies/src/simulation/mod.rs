//! Servers and their workers with a virtual clock and network, in one thread: what simulations of all kinds of weights have in common.
//!
//! Faults and the tasks they befall (`schedule.rs`); a session that sees deaths late and tells of them at other times to everyone,
//! and connections that keep their order, break and are slow (`world.rs`; the real session has a simulation of its own in
//! `crates/cluster`). What processes do is a [`Script`] for each: where a thread would wait, a script does. What is simulated says
//! the rest, as a [`Subject`].

mod schedule;
mod world;

pub(crate) use schedule::{Cast, Fault};
pub(crate) use world::{Obstacle, Purpose, World};

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// By then a run must have ended.
const LIMIT: u32 = 3_000;

/// What a process does.
pub(crate) type Script = Pin<Box<dyn Future<Output = ()>>>;

/// What is simulated: its messages, its processes, its promises.
pub(crate) trait Subject: Sized {
    /// What travels.
    type Message: fmt::Debug;

    /// What a process does from its start on.
    fn script(world: &Rc<World<Self>>, process: usize) -> Script;

    /// A promise that is broken by now.
    fn verdict(&self) -> Result<(), String>;

    /// When the run has ended, because its chief did its part or because it `failed`.
    fn close(&self, failed: bool) -> Result<(), String>;

    /// Whether servers take connections of any generation: a mistake.
    fn takes_any_link(&self) -> bool {
        false
    }
}

/// Polls a script once; says whether it has ended.
pub(crate) fn poll(script: &mut Script) -> bool {
    script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Lets some ticks pass.
pub(crate) async fn pass<S: Subject>(world: &World<S>, ticks: u32) {
    let until = world.now() + ticks;
    poll_fn(|_| if world.now() >= until { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Plays a run to its end; says which promise was broken.
pub(crate) fn play<S: Subject>(cast: &Cast, subject: S) -> Result<(), String> {
    let world = Rc::new(World::new(cast.clone(), subject));
    let mut scripts: Vec<Option<Script>> = Vec::new();
    loop {
        world.advance();
        for process in scripts.len()..world.processes() {
            scripts.push(Some(S::script(&world, process)));
        }
        for (process, script) in scripts.iter_mut().enumerate() {
            if !world.is_alive(process) {
                *script = None;
            } else if world.is_awake(process)
                && let Some(running) = script
                && poll(running)
            {
                *script = None;
            }
        }
        world.verdict()?;
        if world.is_over() {
            return world.close(world.has_failed());
        }
        if world.now() >= LIMIT {
            return Err(format!("the run never ends: {}", world.standing()));
        }
    }
}
