//! Where the work of a command is done: in this process, or by tasks of the user's Spark.
//!
//! Commands that can leave their work to an engine flatten [`EngineArgs`] into their own arguments; what is said while
//! Spark works is in `terminal/spark_job.rs`.

use super::idle_flags::{Rule, Typed};
use super::units::{Span, span};
use crate::terminal::failure::usage;
use paceline_cluster::launch::spark::{self, Spark};
use std::path::PathBuf;

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
