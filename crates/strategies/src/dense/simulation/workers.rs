//! A worker's process, as `crate::client` and `crates/training` have it: the chief sees to the servers' weights, all form again,
//! push, and the chief copies the weights now and then.

use super::{
    DenseWorld, Mutation, STEPS,
    message::{Copied, Grant, Message},
    servers::Checkpoint,
};
use crate::{
    StepReport, StrategyOptions,
    dense::{
        is_led,
        message::{GrantHead, PushHead},
        tickets::Progress,
    },
    simulation::{Obstacle, Purpose, pass},
};
use paceline_models::StepLoss;
use std::{collections::VecDeque, future::poll_fn, ops::Range, rc::Rc, task::Poll};

/// Updates between two checkpoints.
const SAVE_EVERY: u64 = 5;
/// Examples of a batch: any number of workers shares them out.
const BATCH: u64 = 12;

/// Everything that a worker does.
pub(super) async fn work(world: Rc<DenseWorld>, me: usize) {
    let mut lineage = 0;
    let mut formed = false;
    loop {
        let generation = world.adopt(me).await;
        let rank =
            world.generation(generation).workers.iter().position(|task| *task == world.task(me));
        let Some(rank) = rank else {
            world.book.borrow_mut().breaks(format!(
                "{} is in no generation it can join",
                world.cast.task(world.task(me))
            ));
            return;
        };
        let mut worker = SimulatedWorker {
            world: &world,
            me,
            generation,
            rank,
            workers: world.generation(generation).workers.len() as u64,
            led: is_led_by_first(&world),
            links: Vec::new(),
            versions: Vec::new(),
            values: Vec::new(),
            grants: Vec::new(),
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

/// Whether the first server decides for the others.
fn is_led_by_first(world: &DenseWorld) -> bool {
    let options = StrategyOptions {
        max_staleness: world.schedule.max_staleness,
        backup_workers: world.schedule.backup_workers,
        ..StrategyOptions::default()
    };
    is_led(&options, world.cast.synchronous, world.cast.servers)
}

/// A worker's part in one generation.
struct SimulatedWorker<'a> {
    world: &'a Rc<DenseWorld>,
    me: usize,
    generation: u32,
    rank: usize,
    workers: u64,
    led: bool,
    /// To each server.
    links: Vec<usize>,
    /// The weights that each gave last, and their versions.
    values: Vec<f32>,
    versions: Vec<u64>,
    /// What each answered last.
    grants: Vec<GrantHead>,
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
            self.values.push(0.0);
            self.grants.push(GrantHead::default());
        }
        // A process that has just begun asks when it needs to.
        if std::mem::replace(formed, true) {
            self.form_again().await?;
        }
        if self.world.cast.synchronous {
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
                let found = self.world.accept(self.me, server, Purpose::Oversight, self.generation);
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

    async fn grant(&self, server: usize) -> Result<Grant, Obstacle> {
        match self.receive(server).await? {
            Message::Grant(grant) => Ok(grant),
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
        let grant = self.grant(0).await?.head;
        self.take_tickets(&grant);
        if self.world.cast.synchronous {
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
            let grant = self.grant(server).await?.head;
            if server == 0 && !self.world.cast.synchronous {
                self.take_tickets(&grant);
            }
            versions.push(grant.version);
        }
        if self.world.cast.synchronous {
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
        if !self.over && !self.world.cast.synchronous {
            self.least = 0;
        }
        if self.world.cast.synchronous {
            self.world.book.borrow_mut().continues(self.generation, self.versions[0]);
        }
        Ok(())
    }

    /// All weights: where the first server leads, its own before the others'.
    async fn fetch(&mut self) -> Result<(), Obstacle> {
        let all = self.links.len();
        let together = !self.led || self.world.mutation == Some(Mutation::FetchesAllAtOnce);
        let first = if together { all } else { 1 };
        for servers in [0..first, first..all] {
            self.fetch_from(servers).await?;
            if self.world.cast.synchronous {
                self.least = self.versions[0];
            }
        }
        self.read();
        self.fresh = true;
        Ok(())
    }

    async fn fetch_from(&mut self, servers: Range<usize>) -> Result<(), Obstacle> {
        for server in servers.clone() {
            self.send(server, Message::Fetch(self.least));
        }
        self.collect(servers).await.map(drop)
    }

    /// Takes the answers that these servers send; says whose gradients are in the update of the last.
    async fn collect(&mut self, servers: Range<usize>) -> Result<Vec<usize>, Obstacle> {
        let mut taken = Vec::new();
        for server in servers {
            let grant = self.grant(server).await?;
            self.grants[server] = grant.head;
            taken = grant.taken;
            if grant.head.weights {
                (self.versions[server], self.values[server]) = (grant.head.version, grant.value);
            }
        }
        Ok(taken)
    }

    /// The weights at hand are used.
    fn read(&self) {
        if self.world.cast.synchronous {
            self.world.book.borrow_mut().reads(&self.versions, &self.values);
        }
    }

    /// Computes and pushes the gradient of a step or batch.
    async fn push(&mut self, number: u64) -> Result<GrantHead, Obstacle> {
        pass(self.world, self.world.below(3)).await;
        self.send_gradient(number);
        if self.led {
            self.follow_first(number).await?;
        } else {
            self.collect(0..self.links.len()).await?;
        }
        let first = self.grants[0];
        if self.led && !self.world.cast.synchronous {
            self.fetch().await?;
        } else {
            self.read();
        }
        self.fresh = true;
        self.world.book.borrow_mut().arrives(self.me, number);
        self.take_tickets(&first);
        Ok(first)
    }

    fn send_gradient(&self, number: u64) {
        let synchronous = self.world.cast.synchronous;
        let task = self.world.task(self.me) as u64;
        let (value, share) = if synchronous {
            let value = 1 + (7 * number + 3 * task + u64::from(self.generation)) % 5;
            (value as f32, BATCH / self.workers)
        } else {
            ((1_u32 << number) as f32, BATCH)
        };
        let loss = StepLoss { loss_sum: 0.0, correct: 0, examples: share };
        let mut book = self.world.book.borrow_mut();
        if synchronous {
            book.pushes(self.generation, (number, self.rank), &self.versions);
        } else {
            book.sends((self.me, self.world.task(self.me)), number, &self.values);
        }
        for server in 0..self.links.len() {
            let head = PushHead {
                pulled: self.versions[server],
                rate: 1.0,
                wants_weights: synchronous || !self.led,
                kept: self.led && server > 0,
                global: BATCH,
                step_report: StepReport { loss, ..StepReport::default() },
                ..PushHead::default()
            };
            self.send(server, Message::Push { number, head, value });
        }
    }

    /// Takes the first server's answer, and has the others do the same with the gradient as it did.
    async fn follow_first(&mut self, number: u64) -> Result<(), Obstacle> {
        let ranks = self.collect(0..1).await?;
        let first = self.grants[0];
        let synchronous = self.world.cast.synchronous;
        if synchronous {
            self.least = first.version;
        }
        let others = 1..self.links.len();
        if first.dropped {
            return if synchronous { self.fetch_from(others).await } else { Ok(()) };
        }
        let hasty = self.world.mutation == Some(Mutation::LandsAtOnce);
        if hasty && !synchronous {
            self.send(0, Message::Landed);
        }
        for server in others.clone() {
            let ranks = ranks.clone();
            self.send(server, Message::Apply { number, least: first.version, ranks });
        }
        self.collect(others).await?;
        if !synchronous && !hasty {
            self.send(0, Message::Landed);
        }
        Ok(())
    }

    async fn train_together(&mut self) -> Result<(), Obstacle> {
        let mut version = self.ask().await?;
        while !self.over {
            if self.versions[0] != version {
                self.fetch().await?;
            }
            version = self.push(version).await?.version;
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
