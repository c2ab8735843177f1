//! The same seed gives the same bits, on every instruction set: a change of the kernels that moves a single rounding
//! shows here, where comparisons with a tolerance pass.
//!
//! A figure that changes on purpose is replaced by what the failing test prints, and the change explained.

#[path = "../examples/drawn/mod.rs"]
mod drawn;

use drawn::{Drawn, drawn};
use paceline_models::{ModelOptions, StepContext, kernels::Isa};
use std::process::Command;

/// Models with the side and channels of their images, examples and steps.
const RUNS: &[(&str, usize, usize, usize, u64)] = &[
    ("softmax", 28, 1, 37, 5),
    ("lenet", 28, 1, 19, 5),
    ("alexnet", 224, 3, 3, 2),
    ("mobilenet-v2", 96, 3, 5, 3),
];

/// What they end at, on each instruction set.
const STORED: &[(&str, [&str; 4])] = &[
    ("portable", ["30f3ede1cf6e7353", "efb9165686d38cf3", "5f5fd316c4027ee8", "fab161020d14a38a"]),
    ("avx2", ["7f1dd1380e236db7", "01304604124051e3", "4319a77f9a9d0e11", "8c259b69f354b39b"]),
    ("avx512", ["d0ce6a59ecfdd87a", "6aaaafed7b2e3389", "8227ce274058aa6d", "a42a7f3bd5d497fd"]),
];

/// Set in a process that computes on one instruction set: that of `PACELINE_ISA`.
const CHILD: &str = "CHECKSUMS_CHILD";

/// A hash of the bits of all weights after a few steps of plain SGD, and of the last gradient.
fn checksum(name: &str, side: usize, channels: usize, examples: usize, steps: u64) -> u64 {
    let options = ModelOptions { threads: 2, lrn: true, ..ModelOptions::default() };
    let Drawn { mut model, batch, mut params, mut grad } =
        drawn(name, (side, channels, 7), examples, &options);
    for step in 0..steps {
        let scale = 1.0 / examples as f32;
        // Both ways gradients are handed out; the last step keeps them for the sum.
        let keeps_gradient = step % 2 == (steps - 1) % 2;
        let context = StepContext { seed: 1, step, first_example: 0, scale, keeps_gradient };
        model
            .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut |_, params, grad| {
                params.iter_mut().zip(grad).for_each(|(p, g)| *p -= 0.01 * *g);
            })
            .expect("the batch fits");
    }
    // FNV-1a over words.
    params.iter().chain(grad.iter()).fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| {
        (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn training_steps_end_at_the_stored_bits_on_every_instruction_set() {
    if std::env::var_os(CHILD).is_some() {
        for &(name, side, channels, examples, steps) in RUNS {
            // On lines of their own: the harness writes before the first.
            println!("\nchecksum {:016x}", checksum(name, side, channels, examples, steps));
        }
        return;
    }
    for isa in Isa::available() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "training_steps_end_at_the_stored_bits_on_every_instruction_set"])
            .arg("--nocapture")
            .env("PACELINE_ISA", isa.name())
            .env(CHILD, "yes")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&child.stdout);
        let found: Vec<&str> =
            printed.lines().filter_map(|line| line.strip_prefix("checksum ")).collect();
        let (_, stored) = STORED.iter().find(|(name, _)| *name == isa.name()).unwrap();
        assert_eq!(found, stored, "{} of {RUNS:?}: {printed}", isa.name());
    }
}
