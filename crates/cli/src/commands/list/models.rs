//! `paceline list models --profile`: where a training step's time goes; and how large each model is.

use crate::{
    arguments::units::task_count,
    terminal::failure::{Exit, FailureExt, training, usage},
    terminal::{Table, Terminal, show_count},
};
use paceline_data::rows::Hashing;
use paceline_forecast::measure::stepping::{Stepper, Subject};
use paceline_models::{
    ModelOptions,
    kernels::{Compute, peak::peak_flops},
    profile::LayerTime,
    registry, sparse_logistic,
};
use paceline_training::memory::{self, MemoryPlan};
use serde_json::{Value, json};

/// Flags of `paceline list models --profile`.
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    /// With `models`: time a training step of this model, layer by layer, against the peak of this machine
    #[arg(long, value_name = "MODEL")]
    pub(super) profile: Option<String>,
    /// Examples in the profiled batch
    #[arg(long, default_value_t = 32, requires = "profile")]
    batch_size: usize,
    /// Side of the images, in pixels [default: what the model is known for: 28, 32 or 224]
    #[arg(long, value_name = "PIXELS", requires = "profile")]
    size: Option<usize>,
    /// Classes [default: what the model is known for: 10 or 1000]
    #[arg(long, requires = "profile")]
    classes: Option<usize>,
    /// Steps to time, after one to warm up
    #[arg(long, default_value_t = 3, requires = "profile")]
    steps: u32,
    /// Threads of the kernels [default: all cores this process may use]
    #[arg(long, requires = "profile", value_parser = task_count)]
    threads: Option<usize>,
}

/// How many parameters a model has, and what it reads, for the images and classes that it is known for.
pub(super) fn shape(name: &str) -> anyhow::Result<(u64, Value)> {
    // Learns from streams of rows and not from batches of a set, so it is in no registry of models.
    if name == sparse_logistic::NAME {
        return Ok(((1_u64 << Hashing::default().bits) + 1, json!("rows")));
    }
    let subject = Subject { model: name.to_owned(), size: None, classes: None };
    let schema = subject.schema().0;
    let model = (registry::find(name)?.build)(&schema, &ModelOptions::default())?;
    Ok((model.layout().len() as u64, serde_json::to_value(schema.features)?))
}

/// Pixels of a side; the products of larger ones are beyond counting.
const LARGEST_SIDE: usize = 1 << 17;

impl ProfileArgs {
    /// Refuses what cannot be timed.
    fn check(&self) -> anyhow::Result<()> {
        if self.batch_size == 0 || self.steps == 0 {
            return Err(usage("nothing to time", "give at least one example and one step"));
        }
        match self.size.filter(|size| !(1..=LARGEST_SIDE).contains(size)) {
            None => Ok(()),
            Some(size) => Err(usage(
                format!("--size {size} is not the side of an image"),
                format!("use 1 to {LARGEST_SIDE} pixels"),
            )),
        }
    }
}

/// Times one model.
pub(super) fn profile(name: &str, args: &ProfileArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    args.check()?;
    let entry = registry::find(name).hint("`paceline list models` lists the models")?;
    let threads = args.threads.unwrap_or_else(|| paceline_batch::cores().count);
    let subject = Subject { model: name.to_owned(), size: args.size, classes: args.classes };
    let model = (entry.build)(&subject.schema().0, &ModelOptions::default())?;
    let batch = args.batch_size as u64;
    MemoryPlan::new(&*model, 1, 0, batch)
        .check(batch, memory::limit())
        .map_err(training::explain)?;
    let mut stepper = Stepper::new(&subject, args.batch_size, threads)?;
    let peak = peak_flops(&Compute::new(threads)?);
    let Some((seconds, layers)) = stepper.profile(args.steps)? else {
        return Err(usage(
            format!("model `{name}` does not time its layers"),
            "try another model: `paceline list models` lists them",
        ));
    };
    let steps = f64::from(args.steps);
    let rate = args.batch_size as f64 / seconds;
    terminal.note(format!(
        "{name}, batch {}, {}: {:.2} ms a step, {rate:.1} examples/s; this machine's peak is {:.0} GFLOP/s",
        args.batch_size,
        show_count(threads, "thread"),
        1e3 * seconds,
        peak / 1e9
    ));
    let mut table = Table::new(["layer", "pass", "ms", "% of step", "GFLOP/s", "of peak"]);
    let mut rows = Vec::new();
    for layer in &layers {
        let each = layer.seconds / steps;
        let flops = layer.flops / layer.seconds.max(1e-12);
        table.row([
            layer.layer.clone(),
            layer.pass.name().to_string(),
            format!("{:.3}", 1e3 * each),
            format!("{:.1}", 100.0 * each / seconds),
            format!("{:.0}", flops / 1e9),
            format!("{:.2}", flops / peak),
        ]);
        rows.push(row(layer, each, flops, peak));
    }
    terminal.data(table)?;
    terminal.json(&json!({
        "model": name,
        "batch_size": args.batch_size,
        "threads": threads,
        "step_seconds": seconds,
        "examples_per_second": rate,
        "peak_flops": peak,
        "layers": rows,
    }))?;
    Ok(Exit::Done)
}

fn row(layer: &LayerTime, seconds: f64, flops: f64, peak: f64) -> Value {
    json!({
        "layer": layer.layer,
        "pass": layer.pass.name(),
        "seconds": seconds,
        "flops_per_second": flops,
        "share_of_peak": flops / peak,
    })
}
