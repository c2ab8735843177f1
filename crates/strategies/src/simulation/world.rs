//! The clock, the network and the session of a simulated run.

use super::{Cast, Fault, Subject};
use paceline_stats::random::Random;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    future::poll_fn,
    ops::Deref,
    task::Poll,
};

/// A process that is stopped for so long is taken for dead.
const PATIENCE: u32 = 20;
/// How long the session waits before it believes that two tasks cannot reach each other.
const DOUBT: u32 = 12;

/// Why a script cannot go on in this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A later generation begins.
    Interrupted,
    /// The other end is gone, or refuses.
    Lost,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A worker's gradients and weights.
    Weights,
    /// What concerns the whole model, between chief and server.
    Oversight,
}

struct Link<M> {
    /// Who opened it, and who is to accept it.
    ends: [usize; 2],
    purpose: Purpose,
    generation: u32,
    offered: u32,
    accepted: bool,
    broken: bool,
    /// Messages to each end.
    queues: [VecDeque<(u32, M)>; 2],
}

struct Process {
    task: usize,
    alive: bool,
    finished: bool,
    /// The session has given it up.
    given_up: bool,
    stopped_until: u32,
    /// When it hears of each generation.
    notices: Vec<(u32, u32)>,
    adopted: u32,
}

/// Who works together.
#[derive(Debug, Clone)]
pub(crate) struct Generation {
    pub(crate) workers: Vec<usize>,
    pub(crate) servers: Vec<usize>,
    complete: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Lost(usize),
    Start(usize),
    Suspected(u32),
    Expelled(usize),
}

#[derive(Default)]
struct SessionModel {
    generations: Vec<Generation>,
    /// Tasks that are waited for.
    expected: BTreeSet<usize>,
    /// Workers that are lost; asynchronous ones may come back.
    out: BTreeSet<usize>,
    occasions: Vec<(u32, Occasion)>,
    over: bool,
    failed: bool,
}

/// A run.
pub(crate) struct World<S: Subject> {
    pub(crate) cast: Cast,
    subject: S,
    tick: Cell<u32>,
    random: RefCell<Random>,
    links: RefCell<Vec<Link<S::Message>>>,
    processes: RefCell<Vec<Process>>,
    session: RefCell<SessionModel>,
    /// Until when a pair's messages are late, and by how much.
    slow: RefCell<Vec<(usize, usize, u32)>>,
}

impl<S: Subject> Deref for World<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.subject
    }
}

impl<S: Subject> World<S> {
    pub(crate) fn new(cast: Cast, subject: S) -> Self {
        let world = Self {
            tick: Cell::new(0),
            random: RefCell::new(Random::new(cast.seed, 42)),
            links: RefCell::default(),
            processes: RefCell::default(),
            session: RefCell::default(),
            slow: RefCell::default(),
            cast,
            subject,
        };
        for task in 0..world.cast.tasks() {
            world.start(task);
        }
        world.begin_generation();
        world
    }

    pub(crate) fn below(&self, bound: usize) -> u32 {
        self.random.borrow_mut().below(bound) as u32
    }

    pub(crate) fn now(&self) -> u32 {
        self.tick.get()
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes.borrow().len()
    }

    pub(crate) fn task(&self, process: usize) -> usize {
        self.processes.borrow()[process].task
    }

    pub(crate) fn is_worker(&self, process: usize) -> bool {
        self.task(process) < self.cast.workers
    }

    pub(crate) fn is_alive(&self, process: usize) -> bool {
        self.processes.borrow()[process].alive
    }

    pub(crate) fn is_awake(&self, process: usize) -> bool {
        self.now() >= self.processes.borrow()[process].stopped_until
    }

    pub(crate) fn is_over(&self) -> bool {
        self.session.borrow().over
    }

    /// Whether that is because the run failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.session.borrow().failed
    }

    /// Where all processes are.
    pub(crate) fn standing(&self) -> String {
        let tell = |one: &Process| {
            let task = self.cast.task(one.task);
            let state = if one.finished { " finished" } else { "" };
            format!("{task} in generation {}{state}", one.adopted)
        };
        let all = self.processes.borrow();
        let living: Vec<String> = all.iter().filter(|one| one.alive).map(tell).collect();
        living.join(", ")
    }

    /// One tick: faults, then what the session finds out.
    pub(crate) fn advance(&self) {
        self.tick.set(self.now() + 1);
        for fault in self.cast.faults.at(self.now() - 1) {
            self.befall(fault);
        }
        let due: Vec<Occasion> = {
            let occasions = &mut self.session.borrow_mut().occasions;
            let now = self.now();
            let due = occasions.iter().filter(|(tick, _)| *tick <= now).map(|(_, one)| *one);
            let due = due.collect();
            occasions.retain(|(tick, _)| *tick > now);
            due
        };
        for occasion in due {
            self.meet(occasion);
        }
    }

    /// The latest process of a task.
    fn latest(&self, task: usize) -> Option<usize> {
        self.processes.borrow().iter().rposition(|one| one.task == task)
    }

    fn befall(&self, fault: Fault) {
        let living = |task| self.latest(task).filter(|process| self.is_alive(*process));
        match fault {
            Fault::Kill(task) => {
                if let Some(process) = living(task) {
                    self.die(process);
                    let later = 2 + self.below(8);
                    self.expect(later, Occasion::Lost(process));
                }
            }
            Fault::Stop(task, ticks) => {
                if let Some(process) = living(task) {
                    let until = self.now() + ticks;
                    {
                        let one = &mut self.processes.borrow_mut()[process];
                        one.stopped_until = one.stopped_until.max(until);
                    }
                    if ticks > PATIENCE {
                        self.expect(PATIENCE, Occasion::Lost(process));
                    }
                }
            }
            Fault::Slow(one, other, ticks) => {
                self.slow.borrow_mut().push((one, other, self.now() + ticks));
            }
            Fault::Break(one, other) => {
                if let (Some(one), Some(other)) = (living(one), living(other)) {
                    self.hang_up(|link| link.ends == [one, other]);
                }
            }
        }
    }

    fn die(&self, process: usize) {
        self.processes.borrow_mut()[process].alive = false;
        self.hang_up(|link| link.ends.contains(&process));
    }

    /// Breaks connections: what is on its way arrives in part.
    fn hang_up(&self, which: impl Fn(&Link<S::Message>) -> bool) {
        for link in self.links.borrow_mut().iter_mut().filter(|link| !link.broken && which(link)) {
            link.broken = true;
            for queue in &mut link.queues {
                let arrive = self.random.borrow_mut().below(queue.len() + 1);
                queue.truncate(arrive);
            }
        }
    }

    fn expect(&self, after: u32, occasion: Occasion) {
        self.session.borrow_mut().occasions.push((self.now() + after, occasion));
    }

    fn meet(&self, occasion: Occasion) {
        if self.is_over() {
            return;
        }
        match occasion {
            Occasion::Lost(process) => self.lose(process),
            Occasion::Start(task) => {
                self.start(task);
                let mut session = self.session.borrow_mut();
                session.expected.remove(&task);
                session.out.remove(&task);
                let circle = session.generations.last();
                let in_it = circle.is_some_and(|one| one.workers.contains(&task));
                drop(session);
                if self.cast.synchronous || task >= self.cast.workers || !in_it {
                    self.begin_generation();
                }
            }
            Occasion::Suspected(generation) => {
                if self.session.borrow().generations.len() as u32 == generation {
                    self.begin_generation();
                }
            }
            Occasion::Expelled(process) => self.die(process),
        }
    }

    fn lose(&self, process: usize) {
        let task = self.task(process);
        {
            let one = &mut self.processes.borrow_mut()[process];
            if one.given_up || one.finished {
                return;
            }
            one.given_up = true;
        }
        // It may live, and do this and that until it is told.
        let later = self.below(6);
        self.expect(PATIENCE + later, Occasion::Expelled(process));
        self.hang_up(|link| link.ends.contains(&process));
        if task == 0 {
            return self.fail();
        }
        let back = 1 + self.below(30);
        if task >= self.cast.workers || self.cast.synchronous && self.cast.restart {
            self.session.borrow_mut().expected.insert(task);
            self.expect(back, Occasion::Start(task));
            self.begin_generation();
        } else {
            self.session.borrow_mut().out.insert(task);
            if self.cast.synchronous {
                self.begin_generation();
            } else if self.cast.restart {
                self.expect(back, Occasion::Start(task));
            }
        }
    }

    fn start(&self, task: usize) {
        let session = self.session.borrow();
        let latest = session.generations.len() as u32;
        // One that is not part of the latest generation hears of the next, which begins for it.
        let joins = session
            .generations
            .last()
            .is_some_and(|one| one.workers.contains(&task) || one.servers.contains(&task));
        drop(session);
        self.processes.borrow_mut().push(Process {
            task,
            alive: true,
            finished: false,
            given_up: false,
            stopped_until: 0,
            notices: if joins { vec![(self.now(), latest)] } else { Vec::new() },
            adopted: 0,
        });
    }

    fn begin_generation(&self) {
        let out = |task: usize| {
            let done = self.latest(task).is_some_and(|at| self.processes.borrow()[at].finished);
            self.session.borrow().out.contains(&task) || done
        };
        let workers = (0..self.cast.workers).filter(|task| !out(*task)).collect();
        let servers = (self.cast.workers..self.cast.tasks()).collect();
        let number = {
            let mut session = self.session.borrow_mut();
            let complete = session.expected.is_empty();
            session.generations.push(Generation { workers, servers, complete });
            session.generations.len() as u32
        };
        for one in self.processes.borrow_mut().iter_mut().filter(|one| !one.given_up) {
            let heard = self.tick.get() + 1 + self.random.borrow_mut().below(5) as u32;
            let last = one.notices.last().map_or(0, |(tick, _)| *tick);
            one.notices.push((heard.max(last), number));
        }
    }

    pub(crate) fn generation(&self, number: u32) -> Generation {
        self.session.borrow().generations[number as usize - 1].clone()
    }

    fn heard_of(&self, process: usize) -> u32 {
        let now = self.now();
        let processes = self.processes.borrow();
        let heard = processes[process].notices.iter().filter(|(tick, _)| *tick <= now);
        heard.map(|(_, number)| *number).max().unwrap_or(0)
    }

    /// Waits for the next generation that a process can be part of.
    pub(crate) async fn adopt(&self, process: usize) -> u32 {
        poll_fn(|_| {
            let latest = self.heard_of(process);
            let newer = latest > self.processes.borrow()[process].adopted;
            if !newer || !self.generation(latest).complete {
                return Poll::Pending;
            }
            self.hang_up(|link| link.generation < latest && link.ends.contains(&process));
            self.processes.borrow_mut()[process].adopted = latest;
            Poll::Ready(latest)
        })
        .await
    }

    pub(crate) fn is_interrupted(&self, process: usize, generation: u32) -> bool {
        self.heard_of(process) > generation
    }

    /// A task cannot reach another one.
    pub(crate) fn suspect(&self, generation: u32) {
        self.expect(DOUBT, Occasion::Suspected(generation));
    }

    /// A worker has done its part; the chief's end is the run's.
    pub(crate) fn finish(&self, process: usize) {
        self.processes.borrow_mut()[process].finished = true;
        if self.task(process) == 0 {
            self.session.borrow_mut().over = true;
        }
    }

    /// The chief gives the run up.
    pub(crate) fn fail(&self) {
        let mut session = self.session.borrow_mut();
        (session.over, session.failed) = (true, true);
    }

    /// Whether a worker is known to be lost.
    pub(crate) fn is_lost(&self, task: usize) -> bool {
        let session = self.session.borrow();
        session.out.contains(&task) || session.expected.contains(&task)
    }

    /// Opens a connection to a task.
    pub(crate) fn connect(
        &self,
        from: usize,
        to: usize,
        purpose: Purpose,
        generation: u32,
    ) -> Result<usize, Obstacle> {
        let found = self.latest(to).filter(|process| self.is_alive(*process));
        let process = found.ok_or(Obstacle::Lost)?;
        let offered = self.now() + self.below(3);
        let mut links = self.links.borrow_mut();
        links.push(Link {
            ends: [from, process],
            purpose,
            generation,
            offered,
            accepted: false,
            broken: false,
            queues: [VecDeque::new(), VecDeque::new()],
        });
        Ok(links.len() - 1)
    }

    /// The next connection from a task, if there is one.
    pub(crate) fn accept(
        &self,
        me: usize,
        from: usize,
        purpose: Purpose,
        generation: u32,
    ) -> Option<usize> {
        let any = self.subject.takes_any_link();
        let now = self.now();
        let processes = self.processes.borrow();
        let mut links = self.links.borrow_mut();
        let at = links.iter().position(|link| {
            link.ends[1] == me
                && processes[link.ends[0]].task == from
                && link.purpose == purpose
                && !link.accepted
                && link.offered <= now
                && (link.generation == generation || any)
        })?;
        links[at].accepted = true;
        Some(at)
    }

    /// Sends to the other end of a connection; one that is broken loses it.
    pub(crate) fn send(&self, link: usize, from: usize, message: S::Message) {
        let pair = self.links.borrow()[link].ends.map(|process| self.task(process));
        let slow = self.slow.borrow();
        let late = slow.iter().filter(|(one, other, _)| pair == [*one, *other]);
        let late = late.map(|(.., until)| *until).max().unwrap_or(0);
        let due = (self.now() + self.below(3)).max(late);
        let link = &mut self.links.borrow_mut()[link];
        if !link.broken {
            let queue = &mut link.queues[usize::from(link.ends[0] == from)];
            let due = queue.back().map_or(due, |(last, _)| due.max(*last));
            queue.push_back((due, message));
        }
    }

    /// What has come over a connection; nothing yet, or that it is broken.
    pub(crate) fn receive(&self, link: usize, me: usize) -> Option<Result<S::Message, Obstacle>> {
        let link = &mut self.links.borrow_mut()[link];
        let queue = &mut link.queues[usize::from(link.ends[1] == me)];
        match queue.front() {
            Some((due, _)) if *due <= self.now() => queue.pop_front().map(|(_, one)| Ok(one)),
            Some(_) => None,
            None => link.broken.then_some(Err(Obstacle::Lost)),
        }
    }

    /// Closes a connection from one end.
    pub(crate) fn close_link(&self, link: usize) {
        let link = &mut self.links.borrow_mut()[link];
        link.broken = true;
    }
}
