//! Several servers at once: none has to wait until another has sent or taken its part.

#![allow(clippy::unwrap_used)]

mod job;

use job::{PATIENCE, server, worker};
use paceline_cluster::{JobMembership, membership::ThreadedJob};
use paceline_models::{
    Layout, StepLoss,
    kernels::Buffer,
    optimizer::{self, Mask, Optimizer},
};
use paceline_strategies::{Setup, StepInfo, StepReport, find, server::parts};
use paceline_wire::{Channel, Head, Link, Wait};
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::Scope,
};

/// Half of them are more than a link holds.
const WEIGHTS: usize = 1 << 20;

/// Kinds of messages, as they stand on the wire.
const ASK: u8 = 1;
const FETCH: u8 = 2;
const PUSH: u8 = 4;
const GRANT: u8 = 17;

/// A server that does as it is told.
struct Puppet {
    link: Link,
    length: usize,
}

impl Puppet {
    fn receive(&mut self, kind: u8) -> Head {
        let wait = Wait::within(PATIENCE, "testing");
        let head = self.link.receiver.receive(&wait).unwrap();
        assert_eq!(head.kind, kind);
        head
    }

    fn grant(&mut self, fixed: [u8; 80], weights: &[u8]) {
        self.link.sender.set_stall(PATIENCE);
        self.link.sender.send(GRANT, 0, &[&fixed, weights]).unwrap();
    }

    fn take_gradient(&mut self) {
        let head = self.receive(PUSH);
        assert_eq!(head.length, 56 + 4 * self.length as u64);
        self.link.receiver.read(&mut vec![0; 56 + 4 * self.length]).unwrap();
    }

    fn hand_out(&mut self) {
        let mut fixed = [0; 80];
        fixed[52] = 16; // weights follow
        self.grant(fixed, &vec![0; 4 * self.length]);
    }
}

/// Two puppets, of which `slow` does nothing before the other one has finished: each does what its role says.
fn puppets<'scope>(
    table: &std::sync::Arc<ThreadedJob>,
    scope: &'scope Scope<'scope, '_>,
    slow: u32,
    play: fn(&mut Puppet, &dyn Fn(), &dyn Fn()),
) {
    let (done, finished): (Sender<()>, Receiver<()>) = channel();
    let mut ends = [Some(finished), None];
    let mut starts = [None, Some(done)];
    for (role, index) in [slow, 1 - slow].into_iter().enumerate() {
        let (membership, before, after) =
            (table.membership(server(index)), ends[role].take(), starts[role].take());
        scope.spawn(move || {
            let wait = Wait::within(PATIENCE, "testing");
            let link = membership.accept(worker(0), Channel::ParameterServer, &wait).unwrap();
            let mut puppet = Puppet { link, length: parts(WEIGHTS, 2)[index as usize].len() };
            let wait = || {
                if let Some(before) = &before {
                    before.recv_timeout(PATIENCE).expect("the other one is held up");
                }
            };
            let tell = || {
                if let Some(after) = &after {
                    after.send(()).unwrap();
                }
            };
            if index == 0 {
                puppet.receive(ASK);
                let mut fixed = [0; 80];
                fixed[48] = 1; // batch 0
                puppet.grant(fixed, &[]);
            }
            play(&mut puppet, &wait, &tell);
        });
    }
}

fn one_step(table: &std::sync::Arc<ThreadedJob>) {
    let mut layout = Layout::default();
    layout.push("weight", &[WEIGHTS], true);
    let entry = optimizer::find("sgd").unwrap();
    let optimizer =
        Optimizer::with_mask(entry, entry.defaults, &layout, Mask::of(&layout)).unwrap();
    let mut setup = Setup::alone(1, &layout, &optimizer);
    setup.membership = Some(table.membership(worker(0)));
    setup.options.patience = PATIENCE;
    let connect = find("ps-async").unwrap().connect;
    let mut exchange = connect(&setup).unwrap().swap_remove(0);
    let (mut params, mut grad) = (vec![1.0; WEIGHTS], Buffer::zeroed(WEIGHTS));
    assert_eq!(exchange.deal(0).unwrap().unwrap().batch, 0);
    let info = StepInfo { step: 0, rate: 0.1, examples: 1 };
    exchange.pull(info, &mut params).unwrap();
    assert!(params.iter().all(|weight| *weight == 0.0), "all parts have come");
    exchange.ready(0..WEIGHTS, &mut params, &mut grad);
    let loss = StepLoss { examples: 1, ..StepLoss::default() };
    exchange.push(StepReport { loss, ..StepReport::default() }, &mut params, &mut grad).unwrap();
}

#[test]
fn a_server_that_does_not_answer_does_not_hold_up_the_weights_of_another() {
    for slow in [0, 1] {
        let table = ThreadedJob::new(1, 2);
        std::thread::scope(|scope| {
            puppets(&table, scope, slow, |puppet, wait, tell| {
                puppet.receive(FETCH);
                wait();
                puppet.hand_out(); // ends when all but what a link holds was taken
                tell();
                puppet.take_gradient();
                puppet.hand_out();
            });
            one_step(&table);
        });
    }
}

#[test]
fn a_server_that_does_not_read_does_not_hold_up_the_gradient_of_another() {
    for slow in [0, 1] {
        let table = ThreadedJob::new(1, 2);
        std::thread::scope(|scope| {
            puppets(&table, scope, slow, |puppet, wait, tell| {
                puppet.receive(FETCH);
                puppet.hand_out();
                wait();
                puppet.take_gradient();
                tell();
                puppet.hand_out();
            });
            one_step(&table);
        });
    }
}
