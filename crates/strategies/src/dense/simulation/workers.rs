//! A worker's process, as `crate::client` and `crates/training` have it: the chief sees to the servers' weights, all form again,
//! push, and the chief copies the weights now and then.

use super::{
    Mutation, STEPS,
    servers::Checkpoint,
    world::{Copied, Message, Obstacle, Purpose, World},
};
use crate::{
    StepReport,
    dense::{
        message::{GrantHead, PushHead},
        tickets::Progress,
    },
};
use paceline_models::StepLoss;
use std::{collections::VecDeque, future::poll_fn, rc::Rc, task::Poll};

/// Updates between two checkpoints.
const SAVE_EVERY: u64 = 5;
/// Examples of a batch: any number of workers shares them out.
const BATCH: u64 = 12;

/// Everything that a worker does.
pub(super) async fn work(world: Rc<World>, me: usize) {
    let mut lineage = 0;
    let mut formed = false;
    loop {
        let generation = world.adopt(me).await;
        let rank =
            world.generation(generation).workers.iter().position(|task| *task == world.task(me));
        let Some(rank) = rank else {
            world.book.borrow_mut().breaks(format!(
                "{} is in no generation it can join",
                world.schedule.task(world.task(me))
            ));
            return;
        };
        let mut worker = SimulatedWorker {
            world: &world,
            me,
            generation,
            rank,
            workers: world.generation(generation).workers.len() as u64,
            links: Vec::new(),
            versions: Vec::new(),
            least: 0,
            dealt: VecDeque::new(),
            fresh: false,
            over: false,
            saved: world.book.borrow().saved(),
        };
        let outcome = worker.live(&mut lineage, &mut formed).await;
        for link in std::mem::take(&mut worker.links) {
            world.close_link(link);
        }
        match outcome {
            Ok(()) => return world.finish(me),
            Err(Obstacle::Interrupted) => {}
            Err(Obstacle::Lost) => world.suspect(generation),
        }
    }
}

/// A worker's part in one generation.
struct SimulatedWorker<'a> {
    world: &'a Rc<World>,
    me: usize,
    generation: u32,
    rank: usize,
    workers: u64,
    /// To each server.
    links: Vec<usize>,
    /// Of the weights that each gave last.
    versions: Vec<u64>,
    /// Weights older than this are of no use.
    least: u64,
    dealt: VecDeque<u64>,
    /// Whether the weights at hand are to be used.
    fresh: bool,
    over: bool,
    saved: u64,
}

impl SimulatedWorker<'_> {
    async fn live(&mut self, lineage: &mut u32, formed: &mut bool) -> Result<(), Obstacle> {
        if self.rank == 0 {
            self.supply(lineage).await?;
        }
        for server in self.world.generation(self.generation).servers {
            let link = self.world.connect(self.me, server, Purpose::Weights, self.generation)?;
            self.links.push(link);
            self.versions.push(0);
        }
        // A process that has just begun asks when it needs to.
        if std::mem::replace(formed, true) {
            self.form_again().await?;
        }
        if self.world.schedule.synchronous {
            self.send(0, Message::Sum);
            self.receive(0).await?;
            self.train_together().await?;
        } else {
            self.train_alone().await?;
        }
        if self.rank == 0 {
            self.copy().await?;
        }
        for server in 0..self.links.len() {
            self.send(server, Message::Leave);
        }
        Ok(())
    }

    /// The chief sees to it that all servers hold weights of one lineage.
    async fn supply(&self, lineage: &mut u32) -> Result<(), Obstacle> {
        let mut links = Vec::new();
        let mut same = *lineage > 0;
        for server in self.world.generation(self.generation).servers {
            let link = poll_fn(|_| {
                if self.world.is_interrupted(self.me, self.generation) {
                    return Poll::Ready(Err(Obstacle::Interrupted));
                }
                let found = self.world.accept(self.me, server, Purpose::Lineage, self.generation);
                found.map_or(Poll::Pending, |link| Poll::Ready(Ok(link)))
            })
            .await?;
            let held = self.hear(link).await?;
            same &= matches!(held, Message::Holds(held) if held == *lineage);
            links.push(link);
        }
        if self.world.mutation == Some(Mutation::KeepsAnyLineage) {
            same = *lineage > 0;
        }
        let mut book = self.world.book.borrow_mut();
        if !same {
            *lineage = self.generation;
            book.begins(self.generation);
        }
        book.supplies(self.generation, *lineage);
        let checkpoint = book.beginning();
        drop(book);
        for link in links {
            let message =
                if same { Message::Keep } else { Message::Take(*lineage, Rc::clone(&checkpoint)) };
            self.world.send(link, self.me, message);
        }
        Ok(())
    }

    fn send(&self, server: usize, message: Message) {
        self.world.send(self.links[server], self.me, message);
    }

    async fn hear(&self, link: usize) -> Result<Message, Obstacle> {
        poll_fn(|_| {
            if self.world.is_interrupted(self.me, self.generation) {
                return Poll::Ready(Err(Obstacle::Interrupted));
            }
            self.world.receive(link, self.me).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    async fn receive(&self, server: usize) -> Result<Message, Obstacle> {
        match self.hear(self.links[server]).await? {
            Message::Refused => Err(Obstacle::Lost),
            message => Ok(message),
        }
    }

    async fn grant(&self, server: usize) -> Result<(GrantHead, f32), Obstacle> {
        match self.receive(server).await? {
            Message::Grant(head, value) => Ok((head, value)),
            other => unreachable!("{other:?} instead of a grant"),
        }
    }

    fn take_tickets(&mut self, grant: &GrantHead) {
        self.dealt.extend(&grant.tickets[..usize::from(grant.count)]);
        if grant.over {
            self.over = true;
            self.fresh = false;
            self.least = grant.version;
        }
    }

    /// Asks the first server what to do.
    async fn ask(&mut self) -> Result<u64, Obstacle> {
        self.send(0, Message::Ask);
        let (grant, _) = self.grant(0).await?;
        self.take_tickets(&grant);
        if self.world.schedule.synchronous {
            self.least = grant.version;
        } else if self.world.mutation != Some(Mutation::KeepsUncountedWeights) {
            self.fresh = false;
        }
        Ok(grant.version)
    }

    async fn form_again(&mut self) -> Result<(), Obstacle> {
        let mut versions = Vec::new();
        for server in 0..self.links.len() {
            self.send(server, Message::Ask);
            let (grant, _) = self.grant(server).await?;
            if server == 0 && !self.world.schedule.synchronous {
                self.take_tickets(&grant);
            }
            versions.push(grant.version);
        }
        if self.world.schedule.synchronous {
            let common = versions.into_iter().min().unwrap_or(0);
            for server in 0..self.links.len() {
                self.send(server, Message::Settle(common));
            }
            self.ask().await?;
        } else {
            let latest = versions.into_iter().max().unwrap_or(0);
            let waits = self.over || self.world.mutation == Some(Mutation::WaitsForCutUpdates);
            self.least = if waits { latest } else { 0 };
        }
        self.fetch().await?;
        if !self.over && !self.world.schedule.synchronous {
            self.least = 0;
        }
        if self.world.schedule.synchronous {
            self.world.book.borrow_mut().continues(self.generation, self.versions[0]);
        }
        Ok(())
    }

    /// All weights.
    async fn fetch(&mut self) -> Result<(), Obstacle> {
        for server in 0..self.links.len() {
            self.send(server, Message::Fetch(self.least));
        }
        self.collect().await?;
        if self.world.schedule.synchronous {
            self.least = self.versions[0];
        }
        self.fresh = true;
        Ok(())
    }

    /// Takes the weights that all servers send.
    async fn collect(&mut self) -> Result<GrantHead, Obstacle> {
        let mut first = GrantHead::default();
        let mut values = Vec::new();
        for server in 0..self.links.len() {
            let (grant, value) = self.grant(server).await?;
            if server == 0 {
                first = grant;
            }
            self.versions[server] = grant.version;
            values.push(value);
        }
        if self.world.schedule.synchronous {
            self.world.book.borrow_mut().reads(&self.versions, &values);
        }
        Ok(first)
    }

    /// Computes and pushes the gradient of a step or batch.
    async fn push(&mut self, number: u64) -> Result<GrantHead, Obstacle> {
        let until = self.world.now() + self.world.below(3);
        poll_fn(|_| if self.world.now() >= until { Poll::Ready(()) } else { Poll::Pending }).await;
        let synchronous = self.world.schedule.synchronous;
        let task = self.world.task(self.me) as u64;
        let (value, share) = if synchronous {
            let value = 1 + (7 * number + 3 * task + u64::from(self.generation)) % 5;
            (value as f32, BATCH / self.workers)
        } else {
            ((1_u32 << number) as f32, BATCH)
        };
        let loss = StepLoss { loss_sum: 0.0, correct: 0, examples: share };
        if !synchronous {
            self.world.book.borrow_mut().sends(self.me, number);
        }
        for server in 0..self.links.len() {
            let head = PushHead {
                pulled: self.versions[server],
                rate: 1.0,
                wants_weights: true,
                global: BATCH,
                step_report: StepReport { loss, ..StepReport::default() },
                ..PushHead::default()
            };
            self.send(server, Message::Push { number, head, value });
        }
        let grant = self.collect().await?;
        self.fresh = true;
        self.world.book.borrow_mut().arrives(self.me, number);
        self.take_tickets(&grant);
        Ok(grant)
    }

    async fn train_together(&mut self) -> Result<(), Obstacle> {
        let mut version = self.ask().await?;
        while !self.over {
            if self.versions[0] != version {
                self.fetch().await?;
            }
            self.push(version).await?;
            version = self.versions[0];
            self.world.book.borrow_mut().completes(self.generation, version);
            if self.rank == 0 && version >= self.saved + SAVE_EVERY {
                self.copy().await?;
            }
        }
        Ok(())
    }

    async fn train_alone(&mut self) -> Result<(), Obstacle> {
        loop {
            while self.dealt.is_empty() && !self.over {
                self.ask().await?;
            }
            let Some(batch) = self.dealt.pop_front() else { break };
            if !self.fresh {
                self.fetch().await?;
            }
            let first = self.push(batch).await?;
            if !first.dropped {
                self.world.book.borrow_mut().completes(self.generation, batch);
            }
            if self.rank == 0 && self.versions[0] >= self.saved + SAVE_EVERY {
                self.copy().await?;
            }
        }
        Ok(())
    }

    /// The chief copies the weights and state of one version from all servers, and saves them.
    async fn copy(&mut self) -> Result<(), Obstacle> {
        self.world.book.borrow_mut().copies();
        let mut wanted = Progress::default();
        for server in 1..self.links.len() {
            self.send(server, Message::Hold);
        }
        for server in 1..self.links.len() {
            match self.receive(server).await? {
                Message::Held(progress) => wanted.add(&progress),
                other => unreachable!("{other:?} instead of how far it is"),
            }
        }
        self.send(0, Message::Cut(wanted));
        let first = self.state(0).await?;
        for server in 1..self.links.len() {
            self.send(server, Message::Cut(first.progress.clone()));
        }
        let mut parts = vec![first];
        for server in 1..self.links.len() {
            let part = self.state(server).await?;
            // Only the first server deals; all begin with what it said.
            parts.push(Copied { outstanding: parts[0].outstanding.clone(), ..part });
        }
        self.saved = parts[0].version.min(STEPS);
        self.world.book.borrow_mut().saves(Checkpoint { parts });
        Ok(())
    }

    async fn state(&self, server: usize) -> Result<Copied, Obstacle> {
        match self.receive(server).await? {
            Message::State(copied) => Ok(*copied),
            other => unreachable!("{other:?} instead of a copy"),
        }
    }
}
