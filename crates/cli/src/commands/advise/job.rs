//! `paceline advise job`: batch, online or streaming.

use crate::arguments::units;
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, FailureExt};
use crate::terminal::show_bytes;
use paceline_cloud::{CloudError, DataFlow, ModeAdvice, ProcessingMode, words};
use paceline_runs::RunView;
use paceline_stats::words::grouped;
use std::path::PathBuf;

/// Arguments of `paceline advise job`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise job --data-size 100GB --growth 10GB --example 300B --delay 15min --rate 500000\n  paceline advise job --data-size 20GB --growth 1GB --example 12KB --delay 24h --run runs/flowers --epochs 5"
)]
pub struct Args {
    /// What is there now, such as 100GB
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    data_size: f64,
    /// What arrives in a day
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    growth: f64,
    /// Size of one example
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    example: f64,
    /// How long after an example has arrived a model must have learned from it
    #[arg(long, value_name = "TIME", value_parser = units::positive_seconds)]
    delay: f64,
    /// Examples per second of the machine that would do it
    #[arg(long, required_unless_present = "run", conflicts_with = "run")]
    rate: Option<f64>,
    /// A run on that machine, whose rate is taken
    #[arg(long)]
    run: Option<PathBuf>,
    /// Passes over the data when training from the start
    #[arg(long, default_value_t = 1.0)]
    epochs: f64,
    /// Memory of that machine
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "16GiB")]
    memory: f64,
}

/// Says which of the three, with window, memory and disk to plan.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let rate = match (&args.run, args.rate) {
        (Some(run), _) => {
            RunView::read(run)
                .hint("`paceline runs` lists run folders")?
                .summary
                .examples_per_second
        }
        (None, rate) => rate.unwrap_or_default(),
    };
    let flow = DataFlow {
        bytes: args.data_size,
        bytes_per_day: args.growth,
        bytes_per_example: args.example,
        delay: args.delay,
        examples_per_second: rate,
        passes: args.epochs,
        memory: args.memory,
    };
    let advice = match flow.advise() {
        Err(error @ CloudError::Value { .. }) => return Err(error).exit(Exit::Usage),
        other => other?,
    };
    print(terminal, &advice)?;
    terminal.json(&advice)?;
    Ok(Exit::Done)
}

fn print(terminal: &Terminal, advice: &ModeAdvice) -> anyhow::Result<()> {
    let (name, how) = match advice.mode {
        ProcessingMode::Batch => ("batch", "train on everything, on a schedule"),
        ProcessingMode::Online => (
            "online",
            "continue from the last weights with what is new, on a schedule: `train --resume`",
        ),
        ProcessingMode::Streaming => {
            ("streaming", "learn from each window as it arrives: `train --data -` with `--window`")
        }
    };
    terminal.data(format!("{name}: {how}"))?;
    terminal.data(format!("because {}", advice.reason))?;
    let memory = match (advice.mode, advice.memory_bytes > 0.0) {
        (ProcessingMode::Batch, false) => "one pass keeps no data in memory; plan".to_owned(),
        (ProcessingMode::Batch, true) => {
            let bytes = show_bytes(advice.memory_bytes);
            format!("plan {bytes} of memory, so that passes do not read again, and")
        }
        _ => format!("plan {} of memory and", show_bytes(advice.memory_bytes)),
    };
    let disk = show_bytes(advice.disk_bytes);
    if advice.window_seconds == 0.0 {
        terminal.data(format!("{memory} {disk} of disk"))?;
    } else {
        terminal.data(format!(
            "every {}: {} new examples; {memory} {disk} of disk for a month of data",
            words::time(advice.window_seconds),
            grouped(advice.window_examples, 0),
        ))?;
        terminal.data(format!(
            "a day's arrivals are {} of work, {} % of this machine",
            words::time(advice.daily_seconds),
            grouped(advice.load * 100.0, 1)
        ))?;
    }
    advice.warnings.iter().for_each(|warning| terminal.warn(warning));
    Ok(())
}
