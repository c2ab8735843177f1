//! A training step allocates nothing once memory is planned: counted, for every model.

#![allow(unsafe_code)] // a global allocator that counts

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{
    ModelOptions, StepContext,
    optimizer::{self, Optimizer},
    registry,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread's allocations count: the one that runs the test harness makes some when it likes.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(usize::from(COUNTS.get()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Alone in its program: other tests would be counted too.
#[test]
fn a_step_allocates_nothing_after_the_first() {
    COUNTS.set(true);
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let (side, channels) = match entry.name {
            "alexnet" => (64, 3),
            "mobilenet-v2" => (32, 3),
            "resnet-20" => (16, 3),
            _ => (28, 1),
        };
        let schema = Schema {
            features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
            labels: LabelKind::Classes { names: vec!["a".to_owned(), "b".to_owned()] },
        };
        // One thread: with more, chance decides in which step a thread first takes part.
        let options = ModelOptions { threads: 1, ..ModelOptions::default() };
        let mut model = (entry.build)(&schema, &options).expect("the data fits the model");
        let width = side * side * channels;
        let batch = Batch {
            features: Features::Pixels { values: vec![7; 4 * width], width },
            labels: vec![0, 1, 1, 0],
        };
        let mut params = vec![0.0; model.layout().len()];
        model.init(1, &mut params);
        let mut grad = vec![0.0; params.len()];
        let rule = optimizer::find("adam").expect("adam is registered");
        let optimizer =
            Optimizer::new(rule, rule.defaults, model.layout()).expect("defaults are valid");
        let mut state = optimizer.state();
        for step in 0..4 {
            let before = COUNT.load(Ordering::Relaxed);
            let context =
                StepContext { seed: 1, step, first_example: 0, scale: 0.25, keeps_gradient: true };
            let result = model.loss_and_grad(
                &mut params,
                &batch,
                &context,
                &mut grad,
                &mut |range, params, grad| {
                    optimizer.update(range, params, grad, &mut state, 0.001, step);
                },
            );
            let allocations = COUNT.load(Ordering::Relaxed) - before;
            result.expect("the batch fits the model");
            if step == 0 {
                assert_ne!(
                    allocations, 0,
                    "{}: memory is planned in the first step, on this thread",
                    entry.name
                );
            } else {
                assert_eq!(allocations, 0, "{}, step {step}", entry.name);
            }
        }
    }
}
