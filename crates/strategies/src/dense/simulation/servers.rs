//! A server's process: weights from the chief, then a session for each worker. Where a thread would wait, a script does.

use super::{
    DenseWorld, Mutation,
    message::{Copied, Grant, Message},
    schedule::Schedule,
};
use crate::{
    Origin, Setup, StrategyOptions,
    dense::{
        DenseTable, is_led,
        ledger::Ledger,
        message::{Form, GrantHead, PushHead},
        part::ServerPart,
    },
    server::{Core, ParameterServer, Presence, parts},
    simulation::{Obstacle, Purpose, Script, poll},
};
use paceline_cluster::{JobMembership, membership::ThreadedJob};
use paceline_models::{
    Layout,
    optimizer::{self, Optimizer},
    threads::Pool,
};
use std::{
    cell::Cell,
    collections::BTreeSet,
    future::poll_fn,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Instant,
};

/// Weights of a part: a cache line of them.
const PART: usize = 16;
/// How long a session waits for other workers.
const LATE: u32 = 300;

/// What all servers of a run are made of.
pub(super) struct Materials {
    layout: Layout,
    optimizer: Optimizer,
    pool: Pool,
    membership: Arc<dyn JobMembership>,
}

/// What the chief has saved: a part of each server.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) parts: Vec<Copied>,
}

/// A server's weights, and what this simulation knows about them.
struct Weights {
    index: usize,
    lineage: u32,
    inner: ParameterServer<DenseTable>,
}

impl Materials {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let mut layout = Layout::default();
        let cast = &schedule.cast;
        layout.push("weight", &[PART * cast.servers], true);
        // Updates whose order matters where it is the same on all servers, and sums of bits where it is not.
        let entry = optimizer::find(if cast.synchronous { "momentum" } else { "sgd" });
        let entry = entry.expect("both are there");
        let optimizer = Optimizer::new(entry, entry.defaults, &layout).expect("defaults fit");
        let membership = ThreadedJob::new(1, 0).membership(cast.task(0));
        Self { layout, optimizer, pool: Pool::new(1), membership }
    }

    /// A server that holds its part of a checkpoint.
    fn server(
        &self,
        schedule: &Schedule,
        index: usize,
        part: &Copied,
    ) -> ParameterServer<DenseTable> {
        let (synchronous, servers) = (schedule.cast.synchronous, schedule.cast.servers);
        let rolls_back = synchronous && servers > 1;
        let mut state = self.optimizer.state();
        for buffer in state.buffers_mut() {
            buffer.fill(part.slot);
        }
        let options = StrategyOptions {
            max_staleness: schedule.max_staleness,
            backup_workers: schedule.backup_workers,
            ..StrategyOptions::default()
        };
        let setup = Setup {
            state: Some(&state),
            origin: Origin { version: part.version, outstanding: part.outstanding.clone() },
            steps: Some(super::STEPS),
            pools: vec![self.pool.clone()],
            options,
            ..Setup::alone(1, &self.layout, &self.optimizer)
        };
        let params = vec![part.value; PART * servers];
        let range = parts(params.len(), servers).swap_remove(index);
        let table = DenseTable {
            options,
            synchronous,
            first: index == 0,
            led: is_led(&options, synchronous, servers),
            follows: false,
            rolls_back,
            steps: Some(super::STEPS),
            length: range.len(),
        };
        let part = ServerPart::new(&setup, range, &params, rolls_back);
        let ledger = Ledger::new(&setup, synchronous, part);
        ParameterServer::new(Arc::clone(&self.membership), table, ledger)
    }
}

/// Everything that a server does.
pub(super) async fn hold_weights(world: Rc<DenseWorld>, me: usize) {
    let mut held: Option<Rc<Weights>> = None;
    loop {
        let generation = world.adopt(me).await;
        match begin(&world, me, generation, held.take()).await {
            Ok(weights) => held = Some(weights),
            Err((obstacle, weights)) => {
                held = weights;
                if obstacle == Obstacle::Lost {
                    world.suspect(generation);
                }
                continue;
            }
        }
        if let Some(weights) = &held {
            serve(&world, me, generation, weights).await;
        }
    }
}

/// Keeps what it holds or takes other weights, as the chief says.
async fn begin(
    world: &Rc<DenseWorld>,
    me: usize,
    generation: u32,
    held: Option<Rc<Weights>>,
) -> Result<Rc<Weights>, (Obstacle, Option<Rc<Weights>>)> {
    let link = match world.connect(me, 0, Purpose::Oversight, generation) {
        Ok(link) => link,
        Err(obstacle) => return Err((obstacle, held)),
    };
    world.send(link, me, Message::Holds(held.as_ref().map_or(0, |held| held.lineage)));
    let answer = poll_fn(|_| {
        if world.is_interrupted(me, generation) {
            return Poll::Ready(Err(Obstacle::Interrupted));
        }
        world.receive(link, me).map_or(Poll::Pending, Poll::Ready)
    });
    match answer.await {
        Ok(Message::Take(lineage, checkpoint)) => {
            let index = world.task(me) - world.cast.workers;
            let part = &checkpoint.parts[index];
            let inner = world.materials.server(&world.schedule, index, part);
            world.book.borrow_mut().takes(me, lineage, part);
            Ok(Rc::new(Weights { index, lineage, inner }))
        }
        Ok(_) => match held {
            Some(held) => Ok(held),
            // Told to keep what it does not have: it begins with nothing, as a mistake would.
            None => {
                let checkpoint = world.book.borrow().beginning();
                let inner = world.materials.server(&world.schedule, 0, &checkpoint.parts[0]);
                Ok(Rc::new(Weights {
                    index: world.task(me) - world.cast.workers,
                    lineage: 0,
                    inner,
                }))
            }
        },
        Err(obstacle) => Err((obstacle, held)),
    }
}

/// One generation: ends when its workers have left, one of them is lost without which it cannot go on, or the next begins.
async fn serve(world: &Rc<DenseWorld>, me: usize, generation: u32, weights: &Rc<Weights>) {
    let workers = world.generation(generation).workers;
    let tasks = workers.iter().map(|task| world.cast.task(*task)).collect();
    weights.inner.open(tasks);
    let waiting = Rc::new(Cell::new(0));
    let mut sessions: Vec<Option<Script>> = workers
        .iter()
        .enumerate()
        .map(|(rank, task)| {
            let session = Session {
                world: Rc::clone(world),
                me,
                generation,
                weights: Rc::clone(weights),
                rank,
                task: *task,
                waiting: Rc::clone(&waiting),
            };
            Some(Box::pin(session.run()) as Script)
        })
        .collect();
    let lost = poll_fn(|_| {
        for session in &mut sessions {
            if session.as_mut().is_some_and(poll) {
                *session = None;
            }
        }
        let core = weights.inner.locked();
        let deserted = core.is_deserted(world.cast.synchronous);
        let stuck = core.lost.is_some() && waiting.get() == 0;
        let deaf = sessions.iter().all(Option::is_none);
        if world.is_interrupted(me, generation) {
            return Poll::Ready(false);
        }
        if deserted || stuck || deaf { Poll::Ready(core.lost.is_some()) } else { Poll::Pending }
    })
    .await;
    drop(sessions);
    if lost {
        world.suspect(generation);
    }
}

/// What a conversation ends with.
enum Ending {
    Closing,
    Lost,
}

/// The conversation with one worker, and with the process that takes its place.
struct Session {
    world: Rc<DenseWorld>,
    me: usize,
    generation: u32,
    weights: Rc<Weights>,
    rank: usize,
    task: usize,
    waiting: Rc<Cell<usize>>,
}

impl Session {
    fn server(&self) -> &ParameterServer<DenseTable> {
        &self.weights.inner
    }

    async fn run(self) {
        loop {
            let link = poll_fn(|_| {
                let found =
                    self.world.accept(self.me, self.task, Purpose::Weights, self.generation);
                if found.is_none() && self.world.is_lost(self.task) {
                    self.server().note(self.rank, Presence::Gone(Instant::now()));
                }
                found.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            self.server().note(self.rank, Presence::Here);
            let ending = self.converse(link).await;
            match ending {
                Ok(()) => return self.server().note(self.rank, Presence::Left),
                Err(Ending::Lost) => {
                    self.server().note(self.rank, Presence::Gone(Instant::now()));
                    self.world.close_link(link);
                }
                Err(Ending::Closing) => {
                    self.world.send(link, self.me, Message::Refused);
                    self.world.close_link(link);
                    return;
                }
            }
        }
    }

    /// Waits while `reason` holds, as threads do.
    async fn wait_while(&self, reason: impl Fn(&Core<DenseTable>) -> bool) -> Result<(), Ending> {
        self.waiting.set(self.waiting.get() + 1);
        let late = self.world.now() + LATE;
        let result = poll_fn(|_| {
            let core = self.server().locked();
            if !reason(&core) {
                Poll::Ready(Ok(()))
            } else if core.lost.is_some() || self.world.now() >= late {
                Poll::Ready(Err(Ending::Closing))
            } else {
                Poll::Pending
            }
        })
        .await;
        self.waiting.set(self.waiting.get() - 1);
        result
    }

    async fn converse(&self, link: usize) -> Result<(), Ending> {
        loop {
            let message =
                poll_fn(|_| self.world.receive(link, self.me).map_or(Poll::Pending, Poll::Ready));
            let Ok(message) = message.await else { return Err(Ending::Lost) };
            let answer = match message {
                Message::Ask => self.ask().await?,
                Message::Fetch(least) => self.fetch(least).await?,
                Message::Push { number, head, value } => {
                    self.receive_gradient(head, value);
                    if head.kept {
                        self.server().locked().ledger.given[self.rank] = Some(number);
                        continue;
                    }
                    self.push(number, head).await?
                }
                Message::Apply { number, least, ranks } => {
                    self.apply(number, least, &ranks).await?
                }
                Message::Landed => {
                    self.server().locked().ledger.pulls.landed(self.rank);
                    continue;
                }
                Message::Sum => self.sum().await?,
                Message::Hold => {
                    let Ok(progress) = self.server().hold(Some(self.rank)) else {
                        return Err(Ending::Closing);
                    };
                    if self.world.mutation == Some(Mutation::CopiesWithoutHold) {
                        self.server().release();
                    }
                    Message::Held(progress)
                }
                Message::Cut(target) => self.cut(&target).await?,
                Message::Settle(version) => {
                    if self.world.mutation != Some(Mutation::KeepsTornUpdates) {
                        self.server().settle(version);
                    }
                    continue;
                }
                Message::Leave => return Ok(()),
                _ => return Err(Ending::Lost),
            };
            self.world.send(link, self.me, answer);
        }
    }

    async fn ask(&self) -> Result<Message, Ending> {
        let table = &self.server().table;
        let mut head = GrantHead::default();
        if table.first && !table.synchronous {
            loop {
                let outstanding = {
                    let mut core = self.server().locked();
                    (head.tickets, head.count) = core.top_up(self.rank);
                    head.over = core.ledger.tickets.is_over();
                    if head.count > 0 || head.over {
                        break;
                    }
                    core.ledger.tickets.outstanding().len()
                };
                self.wait_while(|core| {
                    core.ledger.tickets.outstanding().len() == outstanding
                        && !core.ledger.tickets.has_returned()
                        && !core.ledger.tickets.is_over()
                })
                .await?;
            }
        }
        let core = self.server().locked();
        if table.synchronous {
            head.over = table.is_finished(&core);
        }
        head.version = core.ledger.version;
        Ok(Message::Grant(Grant { head, ..Grant::default() }))
    }

    async fn fetch(&self, least: u64) -> Result<Message, Ending> {
        let rank = self.rank;
        let synchronous = self.server().table.synchronous;
        self.server().locked().ledger.resting[rank] = least > 0;
        self.wait_while(|core| core.ledger.version < least && (synchronous || core.may_grow(rank)))
            .await?;
        let mut grant = Grant::default();
        self.give_weights(&mut grant).await?;
        Ok(Message::Grant(grant))
    }

    /// The weights, as soon as the worker may have them.
    async fn give_weights(&self, grant: &mut Grant) -> Result<(), Ending> {
        let rank = self.rank;
        let works = {
            let core = &mut *self.server().locked();
            let works = !self.server().table.first || core.ledger.tickets.held(rank) > 0;
            if works {
                core.ledger.pulls.ask(rank);
            }
            works
        };
        if works {
            self.wait_while(|core| !core.ledger.pulls.may_pull(rank)).await?;
        }
        let mut core = self.server().locked();
        let version = core.ledger.version;
        if works {
            core.ledger.pulls.pulled(rank, version);
        }
        (grant.head.version, grant.head.weights) = (version, true);
        grant.value = core.ledger.part.params[0];
        Ok(())
    }

    fn receive_gradient(&self, push: PushHead, value: f32) {
        let inboxes = Arc::clone(&self.server().locked().inboxes);
        let mut inbox = inboxes[self.rank].write().unwrap_or_else(PoisonError::into_inner);
        inbox.head = PushHead { form: Form::Dense, ..push };
        inbox.dense.reserve(PART);
        inbox.dense.fill(value);
    }

    async fn push(&self, number: u64, push: PushHead) -> Result<Message, Ending> {
        let mut grant = GrantHead::default();
        if self.server().table.synchronous {
            self.join_step(&push, number, &mut grant).await?;
        } else {
            self.update_at_once(&push, number, &mut grant).await?;
        }
        self.conclude(&push, grant).await
    }

    /// The first server has taken a gradient that lies here: so does this one, together with the same others'.
    async fn apply(&self, number: u64, least: u64, ranks: &[usize]) -> Result<Message, Ending> {
        let push = {
            let inboxes = Arc::clone(&self.server().locked().inboxes);
            let inbox = inboxes[self.rank].read().unwrap_or_else(PoisonError::into_inner);
            inbox.head
        };
        let mut grant = GrantHead::default();
        if self.server().table.synchronous {
            self.follow_step(number, ranks, least).await?;
        } else if self.server().locked().ledger.given[self.rank].take() == Some(number) {
            self.update_at_once(&push, number, &mut grant).await?;
        } else {
            let promise = format!("batch {number} is decided about, and is not here");
            self.world.book.borrow_mut().breaks(promise);
            return Err(Ending::Lost);
        }
        self.conclude(&push, grant).await
    }

    /// Answers a push.
    async fn conclude(&self, push: &PushHead, head: GrantHead) -> Result<Message, Ending> {
        let mut grant = Grant { head, ..Grant::default() };
        if push.wants_weights {
            self.give_weights(&mut grant).await?;
        }
        let mut core = self.server().locked();
        if !grant.head.weights {
            grant.head.version = core.ledger.version;
        }
        let taken = core.ledger.taken[self.rank].take();
        grant.taken = taken.as_deref().unwrap_or_default().to_vec();
        Ok(Message::Grant(grant))
    }

    async fn join_step(
        &self,
        push: &PushHead,
        step: u64,
        grant: &mut GrantHead,
    ) -> Result<(), Ending> {
        let (server, rank) = (self.server(), self.rank);
        let complete = {
            let mut core = server.locked();
            if core.lost.is_some() {
                return Err(Ending::Closing);
            }
            if !core.give(rank, push.pulled, step) {
                grant.dropped = true;
                core.drop_vote(&push.step_report);
                grant.over = server.table.is_finished(&core);
                return Ok(());
            }
            core.given(step) == core.tasks.len() - self.world.schedule.backup_workers
        };
        if complete {
            self.wait_while(|core| core.is_step_held(step)).await?;
            let mut core = server.locked();
            let given = core.ledger.given.iter().enumerate();
            let given: Vec<usize> =
                given.filter(|(_, given)| **given == Some(step)).map(|(rank, _)| rank).collect();
            let before = core.ledger.version;
            server.table.complete_step(&mut core, step);
            self.note_step(&core, before, &given);
        } else {
            self.wait_while(|core| core.ledger.version == step).await?;
        }
        grant.over = server.table.is_finished(&server.locked());
        Ok(())
    }

    /// Synchronous, where the first server decides: makes the update of the gradients that it took.
    async fn follow_step(&self, step: u64, ranks: &[usize], least: u64) -> Result<(), Ending> {
        let own_choice = self.world.mutation == Some(Mutation::TakesOwnChoice);
        let missing = |core: &Core<DenseTable>| {
            let is_here = |rank: &usize| core.ledger.given[*rank] == Some(step);
            !core.may_update(step) || !own_choice && !ranks.iter().all(is_here)
        };
        self.wait_while(|core| core.ledger.version == step && missing(core)).await?;
        {
            let mut core = self.server().locked();
            if core.ledger.version == step {
                let mut ranks = ranks.to_vec();
                if own_choice {
                    ranks = (0..core.tasks.len()).collect();
                    ranks.retain(|rank| core.ledger.given[*rank] == Some(step));
                }
                self.server().table.finish_step(&mut core, &ranks);
                self.note_step(&core, step, &ranks);
            }
        }
        self.wait_while(|core| core.ledger.version < least).await
    }

    /// Notes a step in the book, if this server has made one since it had `before`.
    fn note_step(&self, core: &Core<DenseTable>, before: u64, ranks: &[usize]) {
        if core.ledger.version == before {
            return;
        }
        let mut book = self.world.book.borrow_mut();
        let made = (self.generation, self.weights.lineage, core.ledger.version);
        book.makes(self.weights.index, made, core.ledger.part.params[0]);
        ranks.iter().for_each(|rank| book.counts(self.generation, (before, *rank)));
    }

    async fn update_at_once(
        &self,
        push: &PushHead,
        batch: u64,
        grant: &mut GrantHead,
    ) -> Result<(), Ending> {
        let (server, rank) = (self.server(), self.rank);
        {
            let mut core = server.locked();
            core.ledger.resting[rank] = false;
            core.ledger.comes(rank, batch);
        }
        self.wait_while(|core| server.table.is_early(core, rank, batch)).await?;
        let mut core = server.locked();
        let before = core.ledger.part.params[0];
        let used = server.table.update(&mut core, (rank, batch), push, None, grant);
        let mut book = self.world.book.borrow_mut();
        if used {
            book.updates(
                (self.me, self.weights.index),
                (self.generation, self.weights.lineage),
                (self.task, batch),
                (before, grant.staleness),
            );
        }
        book.holds(self.me, &core.ledger.done, core.ledger.part.params[0]);
        Ok(())
    }

    async fn sum(&self) -> Result<Message, Ending> {
        let round = {
            let mut core = self.server().locked();
            let round = core.ledger.meeting.round;
            core.ledger.meeting.brought[self.rank] = Some(vec![1.0]);
            core.close_meeting();
            round
        };
        self.wait_while(|core| core.ledger.meeting.round == round).await?;
        Ok(Message::Sums)
    }

    async fn cut(&self, target: &crate::dense::tickets::Progress) -> Result<Message, Ending> {
        let server = self.server();
        let since = Instant::now();
        server.aim(&mut server.locked(), target);
        self.wait_while(|core| crate::server::Table::lags(&server.table, core, target, since))
            .await?;
        let mut core = server.locked();
        crate::server::Table::go_without(&server.table, &mut core, target);
        let value = core.ledger.part.params[0];
        let slot = core.ledger.part.slots().next().map_or(0.0, |slot| slot[0]);
        let (version, progress) = (core.ledger.version, core.ledger.progress());
        let synchronous = server.table.synchronous;
        let outstanding = if synchronous { Vec::new() } else { core.ledger.tickets.outstanding() };
        let lacks = if synchronous {
            BTreeSet::new()
        } else {
            self.world.book.borrow_mut().holds(self.me, &core.ledger.done, value)
        };
        server.release_locked(&mut core);
        let copied = Copied { version, progress, outstanding, value, slot, lacks };
        Ok(Message::State(Box::new(copied)))
    }
}
