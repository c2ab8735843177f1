//! `paceline advise batch`: which batch size, at which rate.

use super::super::staging::{Staging, without_weights};
use crate::failure::{Exit, FailureExt, usage};
use crate::terminal::{Table, Terminal, Unit};
use crate::units::{self, show_bytes, show_seconds};
use paceline_batch::Batch;
use paceline_data::loader::{Loader, LoaderOptions};
use paceline_data::{OpenOptions, Source, Split, open_split};
use paceline_forecast::ForecastError;
use paceline_forecast::batch_size::{
    BatchAdvice, GradientNorms, Limits, NoiseScale, StepCurve, StepTiming, advise_batch,
};
use paceline_forecast::measure::stepping::Stepper;
use paceline_models::optimizer::{self, Optimizer, Settings};
use paceline_models::{ModelOptions, StepContext, kernels::Buffer, registry};
use paceline_runs::{Event, RunFolder};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `paceline advise batch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise batch --model lenet --data mnist/\n  paceline advise batch --model lenet --data mnist/ --runs runs/ --lr 0.1 --batch-size 64"
)]
pub struct Args {
    /// Model to advise on
    #[arg(long)]
    model: String,
    /// Training data
    #[arg(long)]
    data: String,
    /// Take step times from runs of this model in a folder, instead of measuring
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Batch sizes to judge
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "8,16,32,64,128,256,512",
        value_name = "SIZES"
    )]
    sizes: Vec<usize>,
    /// A batch size that is known to work with --lr
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// The learning rate that goes with --batch-size [default: the optimiser's]
    #[arg(long)]
    lr: Option<f32>,
    /// Steps of training before the gradients' noise is measured: it grows as training goes on
    #[arg(long, default_value_t = 200)]
    warm_up: u64,
    /// Large batches whose gradients are compared with those of their parts
    #[arg(long, default_value_t = 24)]
    gradients: usize,
    /// Memory the run may take [default: this machine's]
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    memory: Option<f64>,
    /// Seed of weights and order
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Parts of a large batch.
const PARTS: usize = 8;
/// How long each batch size is timed.
const SPAN: Duration = Duration::from_millis(600);

/// Measures and answers.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut sizes: Vec<usize> = args.sizes.iter().copied().filter(|size| *size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 || args.batch_size == 0 || args.gradients < 2 {
        return Err(usage(
            "nothing to compare",
            "give at least two --sizes, and two or more --gradients",
        ));
    }
    let model = registry::find(&args.model).hint("`paceline list models` lists the models")?.name;
    let source = open_split(&args.data, Split::Train, &OpenOptions::default())
        .hint("`paceline data info` says what a folder holds")?;
    let mut staging = Staging::default();
    let (timings, memory) = match &args.runs {
        Some(folder) => (from_runs(&staging.input(folder, &without_weights)?, model)?, None),
        None => {
            let (timings, memory) = measure(args, &source, &sizes, terminal)?;
            (timings, Some(memory))
        }
    };
    let curve = fit(&timings, args)?;
    let base_rate =
        args.lr.unwrap_or_else(|| optimizer::find("sgd").map_or(0.01, |sgd| sgd.defaults.rate));
    let (norms, parameters) = gradients(args, &source, base_rate, terminal)?;
    let noise = norms
        .noise_scale()
        .hint("give more --gradients, a larger --batch-size, or fewer steps of --warm-up")?;
    // Weights, gradients, and what the optimiser keeps; activations as measured.
    let memory = memory.unwrap_or((parameters as f64 * 8.0, 0.0));
    let limits = Limits {
        memory,
        memory_limit: args
            .memory
            .unwrap_or_else(|| paceline_runs::Machine::detect().memory_bytes as f64),
        examples: source.len() as f64,
    };
    let candidates: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
    let base = (args.batch_size as f64, f64::from(base_rate));
    let advice = advise_batch(&curve, &noise, &limits, base, &candidates);
    print(terminal, args, &curve, &noise, &advice)?;
    terminal.json(&json!({
        "model": args.model,
        "timings": timings,
        "curve": curve,
        "noise_scale": noise,
        "limits": limits,
        "advice": advice,
    }))?;
    Ok(Exit::Done)
}

/// The line through the step times; where there is none, the hint says what to measure.
fn fit(timings: &[StepTiming], args: &Args) -> anyhow::Result<StepCurve> {
    let error = match StepCurve::fit(timings) {
        Ok(curve) => return Ok(curve),
        Err(error) => error,
    };
    let hint = match (&error, &args.runs) {
        (ForecastError::StepsDisagree { .. }, Some(_)) => {
            "give --runs a folder of runs that differ in batch size only (same threads, same machine, nothing else running), or leave --runs out to measure now"
        }
        (ForecastError::NoLine { .. }, Some(_)) => {
            "train at four or more batch sizes with the same threads on an otherwise idle machine, or leave --runs out to measure now"
        }
        (ForecastError::NoLine { .. } | ForecastError::StepsDisagree { .. }, None) => {
            "measure again when nothing else runs here; if the same size stays off, judge --sizes on one side of it"
        }
        _ => "runs of two or more batch sizes are needed",
    };
    Err(error).hint(hint)
}

fn print(
    terminal: &Terminal,
    args: &Args,
    curve: &StepCurve,
    noise: &NoiseScale,
    advice: &BatchAdvice,
) -> anyhow::Result<()> {
    let mut table =
        Table::new(["batch", "step", "examples/s", "steps", "time", "examples", "rate", "memory"]);
    for choice in &advice.choices {
        let note = if choice.feasible { "" } else { " (too large)" };
        table.row([
            format!("{}{note}", choice.batch),
            show_seconds(choice.step_seconds),
            format!("{:.0}", choice.examples_per_second),
            format!("{:.2}x", choice.steps),
            format!("{:.2}x", choice.time),
            format!("{:.2}x", choice.examples),
            format!("{:.4}", choice.rate),
            show_bytes(choice.memory),
        ]);
    }
    terminal.data(table)?;
    terminal.data(
        "steps: over those of an endless batch; time: over the best batch's; examples: over the smallest's; all to the same loss",
    )?;
    let scale = noise.examples;
    let high = if scale.high.is_finite() { format!("{:.0}", scale.high) } else { "∞".to_owned() };
    terminal.data(format!(
        "gradient noise scale after {} steps: {:.0} examples ({:.0} to {high}, nine times in ten)",
        args.warm_up, scale.value, scale.low
    ))?;
    terminal.data(format!(
        "a step takes {} ({} to {}) and {} for every example (measurements lie {:.1} % off)",
        show_seconds(curve.fixed),
        show_seconds(curve.fixed_interval.0),
        show_seconds(curve.fixed_interval.1),
        show_seconds(curve.per_example),
        100.0 * curve.spread
    ))?;
    let (batch, rate) = (advice.batch, advice.rate);
    terminal.data(format!(
        "recommended: batch {:.0} ({:.0} to {:.0}) with rate {:.4} ({:.4} to {:.4}); at most {:.0} fit",
        batch.value, batch.low, batch.high, rate.value, rate.low, rate.high, advice.largest
    ))
}

/// Step times by batch size from runs that ended.
fn from_runs(folder: &Path, model: &str) -> anyhow::Result<Vec<StepTiming>> {
    let mut timings = Vec::new();
    for run in paceline_runs::list(folder)? {
        let Ok(Some(summary)) = run.summary() else { continue };
        if summary.model == model && summary.workers.len() <= 1 {
            timings.extend(steps_of(&run));
        }
    }
    if timings.is_empty() {
        return Err(anyhow::anyhow!("no run of `{model}` on one worker in `{}`", folder.display()))
            .hint("make some with `paceline train`, or leave --runs out to measure now");
    }
    Ok(timings)
}

/// One timing per run and batch size: the median of its events.
fn steps_of(run: &RunFolder) -> Vec<StepTiming> {
    let Ok((records, _)) = run.events() else { return Vec::new() };
    let mut by_batch: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
    for record in records {
        if let Some(Event::Step(step)) = record.event
            && step.steps > 0
            && step.seconds > 0.0
            && step.global_batch > 0
        {
            by_batch.entry(step.global_batch).or_default().push(step.seconds / step.steps as f64);
        }
    }
    by_batch
        .into_iter()
        .map(|(batch, mut seconds)| {
            seconds.sort_by(f64::total_cmp);
            StepTiming { batch: batch as f64, seconds: seconds[seconds.len() / 2] }
        })
        .collect()
}

/// Times every batch size on the first examples, and notes the memory each takes.
fn measure(
    args: &Args,
    source: &Arc<dyn Source>,
    sizes: &[usize],
    terminal: &Terminal,
) -> anyhow::Result<(Vec<StepTiming>, (f64, f64))> {
    let threads = paceline_batch::cores().count;
    let bar = terminal.progress("batch sizes", Some(sizes.len() as u64), Unit::Items("sizes"));
    let mut timings = Vec::new();
    let mut used: Vec<(f64, f64)> = Vec::new();
    for (done, &size) in sizes.iter().enumerate() {
        let before = resident();
        let options = LoaderOptions {
            batch_size: size as u64,
            seed: args.seed,
            threads,
            ..LoaderOptions::default()
        };
        let batch = first_batch(source, options)?;
        let mut stepper = Stepper::with(&args.model, source.schema(), batch, threads)?;
        let time = stepper.time(SPAN)?;
        used.push((size as f64, (resident() - before).max(0.0)));
        timings.push(StepTiming { batch: size as f64, seconds: time.whole });
        bar.set(done as u64 + 1);
    }
    // Memory is weights plus a part per example: a line through the smallest and the largest.
    let (first, last) = (used[0], used[used.len() - 1]);
    let each = ((last.1 - first.1) / (last.0 - first.0)).max(0.0);
    Ok((timings, ((first.1 - each * first.0).max(0.0), each)))
}

fn first_batch(source: &Arc<dyn Source>, options: LoaderOptions) -> anyhow::Result<Batch> {
    let mut loader = Loader::new(Arc::clone(source), options)?;
    let batch = loader.next_batch()?.cloned();
    batch
        .ok_or_else(|| usage("the data has no examples", "`paceline data info` says what it holds"))
}

/// Bytes of memory this process has at the moment.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

/// Trains a little, then compares gradients of large batches with those of their parts.
fn gradients(
    args: &Args,
    source: &Arc<dyn Source>,
    rate: f32,
    terminal: &Terminal,
) -> anyhow::Result<(GradientNorms, usize)> {
    let threads = paceline_batch::cores().count;
    let entry = registry::find(&args.model)?;
    let options = ModelOptions { threads, ..ModelOptions::default() };
    let mut model = (entry.build)(source.schema(), &options)?;
    let sgd = optimizer::find("sgd")?;
    let settings = Settings { rate, ..sgd.defaults };
    let optimizer = Optimizer::new(sgd, settings, model.layout())?;
    let mut state = optimizer.state();
    let (mut params, mut grad) =
        (Buffer::zeroed(model.layout().len()), Buffer::zeroed(model.layout().len()));
    model.init(args.seed, &mut params);
    let size = args.batch_size;
    let loading = LoaderOptions {
        batch_size: size as u64,
        seed: args.seed,
        threads,
        ..LoaderOptions::default()
    };
    let mut loader = Loader::new(Arc::clone(source), loading)?;
    let total = args.warm_up + (args.gradients * PARTS) as u64;
    let bar = terminal.progress("gradients", Some(total), Unit::Items("steps"));
    let trained: Vec<std::ops::Range<usize>> = model
        .layout()
        .entries()
        .iter()
        .filter(|entry| entry.trained)
        .map(paceline_models::Entry::range)
        .collect();
    let squares = |values: &[f32]| -> f64 {
        trained
            .iter()
            .flat_map(|range| &values[range.clone()])
            .map(|value| f64::from(*value) * f64::from(*value))
            .sum()
    };
    let mut sum = vec![0.0f32; params.len()];
    let (mut parts, mut small) = (0usize, 0.0);
    let mut pairs = Vec::new();
    for step in 0..total {
        let Some(batch) = loader.next_batch()? else { break };
        let context = StepContext {
            seed: args.seed,
            step,
            first_example: 0,
            scale: 1.0 / batch.len().max(1) as f32,
            keeps_gradient: true,
        };
        let whole = batch.len() == size;
        let loss =
            model.loss_and_grad(&mut params, batch, &context, &mut grad, &mut |_, _, _| ())?;
        if !loss.loss_sum.is_finite() {
            return Err(usage(
                format!("training diverged at step {step} with rate {rate}"),
                "give a smaller --lr",
            ));
        }
        bar.set(step + 1);
        if step < args.warm_up {
            let all = 0..params.len();
            optimizer.update(all, &mut params, &grad, &mut state, rate, step);
        } else if whole {
            // The end of an epoch may be a smaller batch, which is left out.
            small += squares(&grad);
            sum.iter_mut().zip(grad.iter()).for_each(|(sum, value)| *sum += value / PARTS as f32);
            parts += 1;
            if parts == PARTS {
                pairs.push((small / PARTS as f64, squares(&sum)));
                sum.fill(0.0);
                (parts, small) = (0, 0.0);
            }
        }
    }
    let large = (size * PARTS) as f64;
    Ok((GradientNorms { small: size as f64, large, pairs }, params.len()))
}
