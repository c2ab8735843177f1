//! Two commands, measured in turns: a pair is both of them in random order, so that whatever else the machine does hits either
//! side alike.

use crate::error::SweepError;
use crate::figures::rate;
use crate::process::{GRACE, fill_known, last_lines};
use crate::template::Names;
use paceline_probes::{ChildEnd, ChildLimits, ExitReason, Reach, tie};
use paceline_stats::random::Random;
use paceline_stats::sequential::{Pairs, SpeedRatio};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Last lines of a failed command that are shown.
const LINES: usize = 8;

/// One of the two commands; `{out}` in its arguments is a fresh folder each time.
#[derive(Debug, Clone)]
pub struct Side {
    /// What it is called: `A` or `B`.
    pub name: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Whether it is our own program, which ends its tasks itself.
    pub own: bool,
    /// As it was typed.
    pub typed: String,
    /// Variables that it sees beside those of this process.
    pub environment: Vec<(&'static str, String)>,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// Examples per second, from the run folder that each call leaves.
    Rate,
    /// Seconds from start to end of the process.
    Time,
}

/// What a pair gave: examples per second or seconds, of A and of B.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairResult {
    pub a: f64,
    pub b: f64,
}

/// One call of a command.
struct Call {
    seconds: f64,
    rate: Option<f64>,
}

/// A comparison under way.
#[derive(Debug)]
pub struct Comparison<'a> {
    sides: [Side; 2],
    timeout: Option<Duration>,
    cancel: &'a AtomicBool,
    random: Random,
    /// Known once the first pair has been run.
    measured_by: Option<MeasuredBy>,
    results: Vec<PairResult>,
    pairs: Pairs,
    folder: tempfile::TempDir,
}

impl<'a> Comparison<'a> {
    /// A comparison of A and B, by what they leave or, if `measured_by` says so, by that alone.
    ///
    /// # Errors
    /// No temporary folder.
    pub fn new(
        sides: [Side; 2],
        measured_by: Option<MeasuredBy>,
        timeout: Option<Duration>,
        seed: u64,
        cancel: &'a AtomicBool,
    ) -> Result<Self, SweepError> {
        let folder = tempfile::tempdir()
            .map_err(|source| SweepError::Write { path: std::env::temp_dir(), source })?;
        Ok(Self {
            sides,
            timeout,
            cancel,
            random: Random::new(seed, 0xab),
            measured_by,
            results: Vec::new(),
            pairs: Pairs::default(),
            folder,
        })
    }

    /// Runs both commands once, without counting them: caches fill, files are compiled.
    ///
    /// # Errors
    /// A command that cannot be started, fails or takes too long.
    pub fn warm_up(&mut self) -> Result<bool, SweepError> {
        Ok(self.pair()?.is_some())
    }

    /// Runs both commands once and counts them; `None` if interrupted.
    ///
    /// # Errors
    /// The same, or a command that left no run folder although others did.
    pub fn run_pair(&mut self) -> Result<Option<PairResult>, SweepError> {
        let Some(calls) = self.pair()? else { return Ok(None) };
        let [a, b] = match self.measured_by {
            Some(MeasuredBy::Rate) => {
                let rates = [0, 1].map(|side| calls[side].rate);
                let missing = rates.iter().position(Option::is_none);
                if let Some(side) = missing {
                    return Err(SweepError::NoRate { command: self.sides[side].typed.clone() });
                }
                rates.map(Option::unwrap_or_default)
            }
            _ => calls.map(|call| call.seconds),
        };
        let result = PairResult { a, b };
        let speeds = match self.measured_by {
            Some(MeasuredBy::Rate) => (a, b),
            _ => (1.0 / a, 1.0 / b),
        };
        self.pairs.add(speeds.0, speeds.1).map_err(SweepError::NoSpeed)?;
        self.results.push(result);
        Ok(Some(result))
    }

    fn pair(&mut self) -> Result<Option<[Call; 2]>, SweepError> {
        let b_first = self.random.below(2) == 1;
        let Some(one) = self.call(usize::from(b_first))? else { return Ok(None) };
        let Some(other) = self.call(usize::from(!b_first))? else { return Ok(None) };
        let calls = if b_first { [other, one] } else { [one, other] };
        if self.measured_by.is_none() {
            let rates = calls.iter().all(|call| call.rate.is_some());
            self.measured_by = Some(if rates { MeasuredBy::Rate } else { MeasuredBy::Time });
        }
        Ok(Some(calls))
    }

    fn call(&self, side: usize) -> Result<Option<Call>, SweepError> {
        let side = &self.sides[side];
        let out = self.folder.path().join("out");
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| SweepError::Write { path, source }
        };
        fs::create_dir(&out).map_err(write(&out))?;
        let called = self.call_in(side, &out);
        fs::remove_dir_all(&out).map_err(write(&out))?;
        called
    }

    fn call_in(&self, side: &Side, out: &Path) -> Result<Option<Call>, SweepError> {
        let log = self.folder.path().join("log.txt");
        let open = || {
            let file = File::create(&log)?;
            Ok::<_, std::io::Error>((file.try_clone()?, file))
        };
        let (printed, said) =
            open().map_err(|source| SweepError::Write { path: log.clone(), source })?;
        let names = Names::from([("out".to_owned(), out.display().to_string())]);
        let mut command = Command::new(&side.program);
        command.args(side.arguments.iter().map(|argument| fill_known(argument, &names)));
        command.env("NO_COLOR", "1").env("PACELINE_RUN_FOLDER", out.join("run"));
        command.envs(side.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(printed).stderr(said);
        let reach = if side.own { Reach::Process } else { Reach::Group };
        tie(&mut command, reach);
        let started = |source| SweepError::Start { program: side.program.clone(), source };
        let begin = Instant::now();
        let mut child = command.spawn().map_err(started)?;
        let limits =
            ChildLimits { reach, timeout: self.timeout, grace: GRACE, cancel: self.cancel };
        let ChildEnd { status, seconds, reason } =
            limits.wait(&mut child, begin).map_err(started)?;
        let reason = match reason {
            ExitReason::Interrupted => return Ok(None),
            ExitReason::TimedOut => format!("was stopped after {seconds:.0} s"),
            ExitReason::Exited if status.success() => {
                return Ok(Some(Call { seconds, rate: rate(out) }));
            }
            ExitReason::Exited => format!("failed ({status})"),
        };
        Err(SweepError::Side {
            side: side.name,
            command: side.typed.clone(),
            reason,
            said: last_lines(&log, LINES),
        })
    }

    /// What is compared; unknown before the first pair.
    #[must_use]
    pub fn measured_by(&self) -> Option<MeasuredBy> {
        self.measured_by
    }

    /// What was measured, in order.
    #[must_use]
    pub fn results(&self) -> &[PairResult] {
        &self.results
    }

    /// How many times as fast B is, as far as that is known.
    #[must_use]
    pub fn ratio(&self) -> Option<SpeedRatio> {
        self.pairs.ratio()
    }

    /// Whether it is certain by now that one is faster.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.pairs.differ()
    }
}
