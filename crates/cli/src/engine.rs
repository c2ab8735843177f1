//! Where the work of a command is done: in this process, or by tasks of the user's Spark.
//!
//! Commands that can leave their work to an engine flatten [`EngineArgs`] into their own arguments; the part that
//! talks to people while Spark works is the same for all of them.

use crate::failure::{Exit, FailureExt, usage};
use crate::idle_flags::{Rule, Typed};
use crate::terminal::Terminal;
use crate::units::{Span, span};
use paceline_cluster::launch::spark::{self, Event, Outcome, Spark, SparkError, Work, WorkKind};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Flags of every command that can run on an engine.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    #[command(flatten)]
    typed: Typed,
    /// Where the work is done
    #[arg(long, default_value = "local", value_name = "ENGINE")]
    pub engine: Engine,
    /// Spark's master, such as spark://HOST:7077, yarn or local-cluster[2,1,1024] [default: Spark's own]
    #[arg(long, value_name = "URL")]
    spark_master: Option<String>,
    /// A setting for Spark, such as spark.executor.memory=2g; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_conf)]
    spark_conf: Vec<(String, String)>,
    /// The spark-submit to call [default: that of SPARK_HOME, else the one on the path]
    #[arg(long, value_name = "FILE")]
    spark_submit: Option<PathBuf>,
    /// The build of this program that is shipped to the executors [default: this one]
    #[arg(long, value_name = "FILE")]
    spark_binary: Option<PathBuf>,
    /// How long to wait for the first executor
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = span)]
    spark_wait: Span,
    /// Number of Spark tasks [default: three for each core of the executors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    partitions: Option<u32>,
}

/// Flags that only Spark reads.
const RULES: &[Rule<Engine>] = &[Rule {
    flags: &[
        "spark-master",
        "spark-conf",
        "spark-submit",
        "spark-binary",
        "spark-wait",
        "partitions",
    ],
    is_met: |engine| *engine == Engine::Spark,
    otherwise: "with engine `local`",
    instead: "add `--engine spark`",
}];

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// This process
    Local,
    /// Tasks of a Spark cluster; data must lie where every executor sees it under the same path
    Spark,
}

impl EngineArgs {
    /// The Spark that was asked for, if one was.
    pub fn spark(&self) -> anyhow::Result<Option<Spark>> {
        if self.engine == Engine::Local {
            self.typed.check(&self.engine, RULES)?;
            return Ok(None);
        }
        let home = std::env::var_os("SPARK_HOME").map(PathBuf::from);
        let binary = match &self.spark_binary {
            Some(binary) => std::path::absolute(binary)?,
            None => std::env::current_exe()?,
        };
        if !binary.is_file() {
            let message = format!("`{}` is not a file", binary.display());
            return Err(usage(message, "--spark-binary takes a build of this program"));
        }
        Ok(Some(Spark {
            submit: self
                .spark_submit
                .clone()
                .unwrap_or_else(|| spark::default_submit(home.as_deref())),
            master: self.spark_master.clone(),
            conf: self.spark_conf.clone(),
            binary,
            patience: self.spark_wait.duration(),
            partitions: self.partitions,
        }))
    }

    /// Cores that Spark gives to one task, and so the threads of our binary there.
    pub fn task_cores(&self) -> usize {
        let set = self.spark_conf.iter().rev().find(|(key, _)| key == "spark.task.cpus");
        set.and_then(|(_, value)| value.parse().ok()).unwrap_or(1)
    }
}

/// Settings of Spark for measurements: a second attempt at one that goes on would only disturb it.
pub const MEASURING: &[(&str, &str)] = &[("spark.speculation", "false")];

/// Runs work on Spark and says what is going on; `tick` is called a few times a second.
pub fn run(
    spark: &Spark,
    work: &Work,
    cancel: &Arc<AtomicBool>,
    terminal: &Terminal,
    tick: &mut dyn FnMut(),
) -> anyhow::Result<Outcome> {
    spark.run(work, cancel, &mut teller(spark, work, terminal, tick)).or_else(dress)
}

/// Says that Spark is started, and then what each of its events means; `tick` is called a few times a second.
pub fn teller<'a>(
    spark: &'a Spark,
    work: &'a Work,
    terminal: &'a Terminal,
    tick: &'a mut dyn FnMut(),
) -> impl FnMut(Option<&Event>) + 'a {
    let pieces = match &work.kind {
        WorkKind::Slices { slices, .. } => format!("{} pieces of work in", slices.len()),
        WorkKind::Cluster { .. } => "one cluster of".to_owned(),
    };
    terminal.note(format!("starting Spark by `{}`", spark.submit.display()));
    move |event| match event {
        Some(Event::Session { version, application }) => {
            terminal.note(format!("Spark {version} runs application {application}"));
        }
        Some(Event::Waiting { seconds }) => {
            terminal.note(format!("no executor yet after {seconds:.0} s"));
        }
        Some(Event::Stage { executors, cores, partitions }) => {
            let chosen = match (spark.partitions, &work.kind) {
                (Some(_), _) | (_, WorkKind::Cluster { .. }) => "",
                _ => " (chosen from the cores; --partitions sets it)",
            };
            terminal.note(format!(
                "{pieces} {partitions} tasks{chosen} on {executors} executors with {cores} cores"
            ));
        }
        Some(_) => {}
        None => tick(),
    }
}

/// Gives an error its hint and exit code.
pub fn dress<T>(error: SparkError) -> anyhow::Result<T> {
    let exit = match &error {
        SparkError::Task { exit: 2, .. } => Exit::Usage,
        SparkError::Task { exit: 75, .. }
        | SparkError::NoExecutors { .. }
        | SparkError::TooFewSlots { .. }
        | SparkError::Stage { .. } => Exit::Retry,
        SparkError::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    };
    let hint = error.hint();
    let failed = Err(error).exit(exit);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// Says where the time went, and whether part of the cluster had nothing to do.
pub fn tell_outcome(outcome: &Outcome, terminal: &Terminal) {
    let used: BTreeSet<_> = outcome.tasks.iter().map(|task| (&task.host, &task.executor)).collect();
    terminal.note(format!(
        "Spark needed {:.1} s to start, its tasks {:.1} s on {} of {} executors, which were busy for {:.0} % of that time",
        outcome.startup_seconds,
        outcome.work_seconds,
        used.len(),
        outcome.executors,
        outcome.busy_percent
    ));
    if outcome.partitions < outcome.cores {
        terminal.warn(format!(
            "{} tasks for {} cores: the other cores had nothing to do; more pieces of work and --partitions help",
            outcome.partitions, outcome.cores
        ));
    }
    let again = outcome.tasks.iter().filter(|task| task.attempt > 0).count();
    if again > 0 {
        terminal.warn(format!("{again} tasks needed more than one attempt"));
    }
}

fn parse_conf(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if key.starts_with("spark.") => Ok((key.into(), value.into())),
        _ => Err(
            "expected a name that begins with spark. and a value, such as spark.executor.memory=2g"
                .into(),
        ),
    }
}
