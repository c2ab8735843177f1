//! `paceline advise job`: batch, online or streaming.

use crate::arguments::units;
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Question, Terminal, show_bytes, show_count};
use paceline_cloud::{CloudError, DataFlow, ModeAdvice, ProcessingMode, words};
use paceline_runs::{RunView, list};
use paceline_stats::words::grouped;
use std::path::{Path, PathBuf};

/// Arguments of `paceline advise job`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "On a terminal it asks what neither flags nor a run tell, one question at a time; elsewhere, and with --json, that is an error which names the flag. A run tells its rate, its epochs, its machine's memory, and of rows how much data there are and how large a row is.\n\nExamples:\n  paceline advise job\n  paceline advise job --data-size 100GB --growth 10GB --example 300B --delay 15min --rate 500000\n  paceline advise job --data-size 20GB --growth 1GB --example 12KB --delay 24h --run runs/flowers --epochs 5"
)]
pub struct Args {
    /// What is there now, such as 100GB
    #[arg(long, value_name = "SIZE", value_parser = units::positive_bytes)]
    data_size: Option<f64>,
    /// What arrives in a day; 0B if nothing does
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    growth: Option<f64>,
    /// Size of one example
    #[arg(long, value_name = "SIZE", value_parser = units::positive_bytes)]
    example: Option<f64>,
    /// How long after an example has arrived a model must have learned from it
    #[arg(long, value_name = "TIME", value_parser = units::positive_seconds)]
    delay: Option<f64>,
    /// Examples per second of the machine that would do it
    #[arg(long, conflicts_with = "run", value_parser = units::positive_number)]
    rate: Option<f64>,
    /// A run on that machine, which tells its rate
    #[arg(long)]
    run: Option<PathBuf>,
    /// Passes over the data when training from the start [default: the run's, or 1]
    #[arg(long, value_parser = units::positive_number)]
    epochs: Option<f64>,
    /// Memory of that machine [default: the run's machine's, or 16GiB]
    #[arg(long, value_name = "SIZE", value_parser = units::positive_bytes)]
    memory: Option<f64>,
}

/// Says which of the three, with window, memory and disk to plan.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let Some(flow) = flow(args, terminal)? else { return Ok(Exit::Interrupted) };
    let advice = match flow.advise() {
        Err(error @ CloudError::Value { .. }) => return Err(error).exit(Exit::Usage),
        other => other?,
    };
    print(terminal, &advice)?;
    terminal.json(&advice)?;
    Ok(Exit::Done)
}

/// Everything the advice rests on, from flags, a run and answers, in this order; `None` after Ctrl-C.
fn flow(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Option<DataFlow>> {
    let told = match &args.run {
        Some(run) => {
            let view = RunView::read(run).hint("`paceline runs` lists run folders")?;
            let told = Told::by(&view);
            terminal.note(told.words(args));
            told
        }
        None => Told::default(),
    };
    let mut known = [
        args.data_size.or(told.bytes),
        args.growth,
        args.example.or(told.example),
        args.delay,
        args.rate.or(told.rate),
    ];
    let missing: Vec<usize> = (0..known.len()).filter(|at| known[*at].is_none()).collect();
    if !missing.is_empty() && !terminal.can_ask() {
        let flags: Vec<&str> = missing.iter().map(|at| QUESTIONS[*at].flag).collect();
        let are = if flags.len() == 1 { "is" } else { "are" };
        return Err(usage(
            format!("`{}` {are} not given, and there is no terminal to ask on", flags.join("`, `")),
            "give what is missing; `paceline advise job --help` has examples",
        ));
    }
    for at in missing {
        let JobQuestion { what, default, flag, read } = QUESTIONS[at];
        let default = if flag == RATE {
            usual_rate().unwrap_or(default.to_owned())
        } else {
            default.to_owned()
        };
        let answer = terminal.ask(&Question { what, default, flag }, read)?;
        let Some(answer) = answer else { return Ok(None) };
        known[at] = Some(answer);
    }
    let [bytes, bytes_per_day, bytes_per_example, delay, rate] =
        known.map(Option::unwrap_or_default);
    Ok(Some(DataFlow {
        bytes,
        bytes_per_day,
        bytes_per_example,
        delay,
        examples_per_second: rate,
        passes: args.epochs.or(told.epochs).unwrap_or(1.0),
        memory: args.memory.or(told.memory).unwrap_or(16.0 * f64::from(1u32 << 30)),
    }))
}

const RATE: &str = "--rate NUMBER";

/// One thing to know.
#[derive(Clone, Copy)]
struct JobQuestion {
    what: &'static str,
    default: &'static str,
    flag: &'static str,
    read: fn(&str) -> Result<f64, String>,
}

/// In the order in which they are asked.
const QUESTIONS: [JobQuestion; 5] = [
    JobQuestion {
        what: "How much data is there now?",
        default: "10GB",
        flag: "--data-size SIZE",
        read: units::positive_bytes,
    },
    JobQuestion {
        what: "How much arrives in a day (0B if nothing does)?",
        default: "0B",
        flag: "--growth SIZE",
        read: units::bytes,
    },
    JobQuestion {
        what: "How large is one example?",
        default: "1KB",
        flag: "--example SIZE",
        read: units::positive_bytes,
    },
    JobQuestion {
        what: "How long after an example has arrived must a model have learned from it?",
        default: "24h",
        flag: "--delay TIME",
        read: units::positive_seconds,
    },
    JobQuestion {
        what: "From how many examples a second does the machine learn?",
        default: "1000",
        flag: RATE,
        read: units::positive_number,
    },
];

/// The rate of the newest run in `runs/`, which is the best guess there is.
fn usual_rate() -> Option<String> {
    let runs = list(Path::new("runs")).ok()?;
    let rates = runs.iter().rev().filter_map(|run| RunView::read(run.path()).ok());
    let mut rates = rates.map(|view| view.summary.examples_per_second);
    rates.find(|rate| *rate >= 1.0).map(|rate| format!("{rate:.0}"))
}

/// What a run tells of the job it would be again.
#[derive(Debug, Default)]
struct Told {
    rate: Option<f64>,
    bytes: Option<f64>,
    example: Option<f64>,
    epochs: Option<f64>,
    memory: Option<f64>,
}

impl Told {
    fn by(view: &RunView) -> Self {
        let number = |path: &str| view.plan.whole.pointer(path).and_then(serde_json::Value::as_f64);
        let above = |value: &f64| value.is_finite() && *value > 0.0;
        // Of rows the plan has the bytes of all passes, and a run that has ended learned from as many rows.
        let rows = (view.plan.whole["kind"] == "stream" && view.state == "done")
            .then_some(view.summary.examples as f64);
        let passes = number("/spec/epochs").filter(above).unwrap_or(1.0);
        let all = number("/bytes").filter(above);
        let memory = view.machine.as_ref().map(|machine| {
            machine
                .cgroup_memory_max
                .map_or(machine.memory_bytes, |most| most.min(machine.memory_bytes))
                as f64
        });
        Self {
            rate: Some(view.summary.examples_per_second),
            bytes: all.map(|bytes| bytes / passes),
            example: all.zip(rows.filter(above)).map(|(bytes, rows)| bytes / rows),
            epochs: number("/spec/stop/epochs").or(number("/spec/epochs")).filter(above),
            memory: memory.filter(above),
        }
    }

    /// What of it is used.
    fn words(&self, args: &Args) -> String {
        let mut words = vec![format!("{:.0} examples/s", self.rate.unwrap_or_default())];
        let used = |flag: Option<f64>, told: Option<f64>| told.filter(|_| flag.is_none());
        words.extend(
            used(args.data_size, self.bytes).map(|bytes| format!("{} of data", show_bytes(bytes))),
        );
        words.extend(
            used(args.example, self.example).map(|bytes| format!("{bytes:.0} B an example")),
        );
        words.extend(used(args.epochs, self.epochs).map(|epochs| show_count(epochs, "epoch")));
        words.extend(
            used(args.memory, self.memory).map(|bytes| format!("{} of memory", show_bytes(bytes))),
        );
        format!("the run tells: {}", words.join(", "))
    }
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
