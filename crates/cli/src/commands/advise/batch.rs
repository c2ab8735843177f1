//! `paceline advise batch`: which batch size, at which rate.

use crate::arguments::units;
use crate::terminal::failure::{Exit, forecast::explain_steps};
use crate::terminal::{Table, Terminal, Unit, show_bytes, show_seconds};
use paceline_data::store::{Staging, staging::without_weights};
use paceline_forecast::batch_size::{BatchForecast, BatchQuestion, BatchStage};
use serde_json::json;
use std::path::PathBuf;

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

/// Measures and answers.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let runs = args.runs.as_ref().map(|folder| staging.input(folder, &without_weights));
    let question = BatchQuestion {
        model: args.model.clone(),
        data: args.data.clone(),
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
        "model": args.model,
        "timings": found.timings,
        "curve": found.curve,
        "noise_scale": found.noise_scale,
        "limits": found.limits,
        "advice": found.advice,
    }))?;
    Ok(Exit::Done)
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
