//! `paceline advise batch`: which batch size, at which rate.

use crate::arguments::units;
use crate::terminal::failure::{
    Exit,
    forecast::{explain, explain_steps},
};
use crate::terminal::{Table, Terminal, Unit, show_bytes, show_seconds};
use paceline_data::store::{Staging, staging::without_weights};
use paceline_forecast::batch_size::{
    BatchForecast, BatchQuestion, BatchStage, RecordedBatches, StepCurve,
};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline advise batch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise batch --model lenet --data mnist/\n  paceline advise batch --model lenet --data mnist/ --runs runs/ --lr 0.1 --batch-size 64\n  paceline advise batch runs/of-16 runs/of-64 runs/of-256"
)]
pub struct Args {
    /// Recorded runs of any program that differ in batch size, or folders of such: which size is fast, without
    /// what it takes to reach a loss
    #[arg(
        value_name = "RUN",
        conflicts_with_all = [
            "model", "data", "runs", "sizes", "batch_size", "lr", "warm_up", "gradients", "memory", "seed",
        ]
    )]
    recorded: Vec<PathBuf>,
    /// Model to advise on
    #[arg(long, required_unless_present = "recorded")]
    model: Option<String>,
    /// Training data
    #[arg(long, required_unless_present = "recorded")]
    data: Option<String>,
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

/// Measures and answers.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let (Some(model), Some(data)) = (&args.model, &args.data) else {
        return of_runs(args, &mut staging, terminal);
    };
    let runs = args.runs.as_ref().map(|folder| staging.input(folder, &without_weights));
    let question = BatchQuestion {
        model: model.clone(),
        data: data.clone(),
        runs: runs.transpose()?,
        sizes: args.sizes.clone(),
        known_batch: args.batch_size,
        rate: args.lr,
        warm_up: args.warm_up,
        gradients: args.gradients,
        memory: args.memory,
        seed: args.seed,
    };
    let stages = terminal.stages();
    let found = question.answer(&|stage, done, total| match stage {
        BatchStage::Sizes => stages.set("batch sizes", done, Some(total), Unit::Items("sizes")),
        BatchStage::Gradients => stages.set("gradients", done, Some(total), Unit::Items("steps")),
    });
    drop(stages);
    let found = found.map_err(|error| explain_steps(error, args.runs.is_some()))?;
    print(terminal, args.warm_up, &found)?;
    terminal.json(&json!({
        "model": model,
        "timings": found.timings,
        "curve": found.curve,
        "noise_scale": found.noise_scale,
        "limits": found.limits,
        "advice": found.advice,
    }))?;
    Ok(Exit::Done)
}

/// What runs of any program tell.
fn of_runs(args: &Args, staging: &mut Staging, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let paths = args.recorded.iter().map(|run| staging.input(run, &without_weights));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let found = RecordedBatches::read(&paths).map_err(explain)?;
    if !found.left_out.is_empty() {
        let names = found.left_out.join(", ");
        terminal.note(format!("left out, since they did not end or count no examples: {names}"));
    }
    print_of_runs(terminal, &found)?;
    terminal.json(&json!({
        "job": found.job,
        "sizes": found.sizes,
        "curve": found.curve,
        "ceiling": found.ceiling,
        "near_best": found.near_best,
        "noise_scale": null,
        "missing": found.missing,
    }))?;
    Ok(Exit::Done)
}

fn print_of_runs(terminal: &Terminal, found: &RecordedBatches) -> anyhow::Result<()> {
    let mut table = Table::new(["batch", "step", "examples/s", "of the best", "runs"]);
    for size in &found.sizes {
        table.row([
            format!("{:.0}", size.batch),
            show_seconds(size.step_seconds),
            format!("{:.0}", size.examples_per_second),
            format!("{:.0} %", 100.0 * size.share_of_best),
            size.runs.to_string(),
        ]);
    }
    terminal.data(table)?;
    if let Some(curve) = &found.curve {
        print_curve(terminal, curve)?;
    }
    if let Some(ceiling) = &found.ceiling {
        terminal.data(format!(
            "by that line no batch exceeds {:.0} examples/s, and {:.0} ({:.0} to {:.0}) reaches nine tenths of it{}",
            ceiling.examples_per_second,
            ceiling.batch,
            ceiling.low,
            ceiling.high,
            if ceiling.extrapolated { "; no run was as large" } else { "" }
        ))?;
    }
    for missing in &found.missing {
        terminal.data(missing)?;
    }
    let near = &found.near_best;
    terminal.data(format!(
        "smallest batch near the best rate: {:.0}, {:.0} % of the fastest that was run ({})",
        near.batch,
        100.0 * near.share_of_best,
        found.job
    ))
}

fn print_curve(terminal: &Terminal, curve: &StepCurve) -> anyhow::Result<()> {
    terminal.data(format!(
        "a step takes {} ({} to {}) and {} for every example (measurements lie {:.1} % off)",
        show_seconds(curve.fixed),
        show_seconds(curve.fixed_interval.0),
        show_seconds(curve.fixed_interval.1),
        show_seconds(curve.per_example),
        100.0 * curve.spread
    ))
}

fn print(terminal: &Terminal, warm_up: u64, found: &BatchForecast) -> anyhow::Result<()> {
    let BatchForecast { curve, noise_scale, advice, .. } = found;
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
    let scale = noise_scale.examples;
    let high = if scale.high.is_finite() { format!("{:.0}", scale.high) } else { "∞".to_owned() };
    terminal.data(format!(
        "gradient noise scale after {warm_up} steps: {:.0} examples ({:.0} to {high}, nine times in ten)",
        scale.value, scale.low
    ))?;
    print_curve(terminal, curve)?;
    let (batch, rate) = (advice.batch, advice.rate);
    terminal.data(format!(
        "recommended: batch {:.0} ({:.0} to {:.0}) with rate {:.4} ({:.4} to {:.4}); at most {:.0} fit",
        batch.value, batch.low, batch.high, rate.value, rate.low, rate.high, advice.largest
    ))
}
