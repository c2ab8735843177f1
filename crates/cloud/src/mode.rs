//! Batch, online or streaming: which of the three suits data that keep arriving.
//!
//! Three figures decide: how long one pass over everything takes at the measured rate, how fast new data arrive, and how old a
//! model may be. A batch job is simplest, so it is advised wherever it keeps the delay.

use crate::error::CloudError;
use crate::words::time;
use serde::Serialize;

/// What arrives, and how fast it can be worked on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataFlow {
    /// What is there now.
    pub bytes: f64,
    /// What arrives in a day.
    pub bytes_per_day: f64,
    pub bytes_per_example: f64,
    /// Seconds between the arrival of an example and a model that has learned from it, at most.
    pub delay: f64,
    /// As measured on the machine that would do it.
    pub examples_per_second: f64,
    pub passes: f64,
    /// Memory of that machine in bytes.
    pub memory: f64,
}

/// The three ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessingMode {
    /// Everything again from the start, on a schedule.
    Batch,
    /// Go on from the last weights with what is new, on a schedule.
    Online,
    /// Learn from each window as it arrives, without an end.
    Streaming,
}

/// The answer, and what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModeAdvice {
    pub mode: ProcessingMode,
    /// Why, in a sentence.
    pub reason: String,
    /// Seconds of one whole pass job, start to end.
    pub whole_seconds: f64,
    /// Seconds of work that a day's arrivals are.
    pub daily_seconds: f64,
    /// Share of the machine that arrivals alone keep busy.
    pub load: f64,
    /// Examples of one window, and the seconds between two of them; both zero where nothing arrives.
    pub window_examples: f64,
    pub window_seconds: f64,
    /// Bytes to plan in memory: of a window two (one fills while one is learned from), of a batch all data where several passes
    /// would else read them again, and nothing for one pass.
    pub memory_bytes: f64,
    /// Bytes of disk for a month of data at this growth.
    pub disk_bytes: f64,
    /// What does not hold, such as a machine that is too slow for what arrives.
    pub warnings: Vec<String>,
}

/// A stage that takes longer than this share of the delay leaves no room for a slow day.
const SHARE_OF_DELAY: f64 = 0.5;
/// Below this delay a schedule's own start and end are no longer small beside it.
const STREAM_BELOW: f64 = 300.0;

const DAY: f64 = 86_400.0;

impl DataFlow {
    /// Which of the three.
    pub fn advise(&self) -> Result<ModeAdvice, CloudError> {
        let values = [
            ("data size", self.bytes),
            ("bytes of an example", self.bytes_per_example),
            ("delay", self.delay),
            ("rate", self.examples_per_second),
            ("passes", self.passes),
            ("memory", self.memory),
        ];
        let refuse = |key: &str, value: f64, needed| CloudError::Value {
            file: "advise job".to_owned(),
            key: key.to_owned(),
            found: value.to_string(),
            needed,
        };
        if let Some((key, value)) =
            values.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
        {
            return Err(refuse(key, *value, "above zero"));
        }
        if !(self.bytes_per_day.is_finite() && self.bytes_per_day >= 0.0) {
            return Err(refuse("growth", self.bytes_per_day, "zero or above"));
        }
        let seconds_of = |bytes: f64, passes: f64| {
            bytes / self.bytes_per_example * passes / self.examples_per_second
        };
        let whole_seconds = seconds_of(self.bytes, self.passes);
        let daily_seconds = seconds_of(self.bytes_per_day, 1.0);
        let load = daily_seconds / DAY;
        let per_second = self.bytes_per_day / self.bytes_per_example / DAY;
        let room = self.delay * SHARE_OF_DELAY;
        let (mode, reason) = if self.bytes_per_day == 0.0 {
            let reason =
                format!("nothing arrives: train once, which takes {}", time(whole_seconds));
            (ProcessingMode::Batch, reason)
        } else if whole_seconds <= room {
            let reason = format!(
                "training on everything takes {}, less than half of the {} a model may be old",
                time(whole_seconds),
                time(self.delay)
            );
            (ProcessingMode::Batch, reason)
        } else if self.delay >= STREAM_BELOW {
            let reason = format!(
                "training on everything takes {}, more than half of the {} a model may be old; what arrives in that half takes {}",
                time(whole_seconds),
                time(self.delay),
                time(load * room)
            );
            (ProcessingMode::Online, reason)
        } else {
            let reason = format!(
                "a delay of {} leaves no time to start a job for each part",
                time(self.delay)
            );
            (ProcessingMode::Streaming, reason)
        };
        let arrives = self.bytes_per_day > 0.0;
        let window_seconds = match mode {
            ProcessingMode::Batch if !arrives => 0.0,
            ProcessingMode::Batch => {
                (whole_seconds / SHARE_OF_DELAY).max(self.delay).min(self.delay.max(DAY))
            }
            ProcessingMode::Online | ProcessingMode::Streaming => room,
        };
        let window_examples =
            if arrives { (per_second * window_seconds).ceil().max(1.0) } else { 0.0 };
        let memory_bytes = match mode {
            ProcessingMode::Batch if self.passes <= 1.0 => 0.0,
            ProcessingMode::Batch => self.bytes,
            _ => 2.0 * window_examples * self.bytes_per_example,
        };
        let mut warnings = Vec::new();
        if load > 1.0 {
            warnings.push(format!(
                "data arrive {load:.1} times as fast as this machine learns from them: {} such machines are needed at least",
                load.ceil()
            ));
        } else if load > 0.7 {
            warnings.push(format!("arrivals alone keep this machine {:.0} % busy", load * 100.0));
        }
        if memory_bytes > self.memory {
            warnings.push(match mode {
                ProcessingMode::Batch => {
                    "the data do not stay in memory: every pass reads them again".to_owned()
                }
                _ => {
                    "two windows do not fit into memory: choose a shorter delay or a larger machine"
                        .to_owned()
                }
            });
        }
        let disk_bytes = self.bytes + 30.0 * self.bytes_per_day;
        Ok(ModeAdvice {
            mode,
            reason,
            whole_seconds,
            daily_seconds,
            load,
            window_examples,
            window_seconds,
            memory_bytes,
            disk_bytes,
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> DataFlow {
        DataFlow {
            bytes: 100e9,
            bytes_per_day: 10e9,
            bytes_per_example: 300.0,
            delay: DAY,
            examples_per_second: 500_000.0,
            passes: 1.0,
            memory: 24e9,
        }
    }

    #[test]
    fn the_delay_decides_between_batch_online_and_streaming() {
        let with = |delay| DataFlow { delay, ..flow() }.advise().unwrap().mode;
        assert_eq!(with(DAY), ProcessingMode::Batch);
        assert_eq!(with(900.0), ProcessingMode::Online);
        assert_eq!(with(10.0), ProcessingMode::Streaming);
        let still = DataFlow { bytes_per_day: 0.0, delay: 1.0, ..flow() };
        assert_eq!(still.advise().unwrap().mode, ProcessingMode::Batch);
    }

    #[test]
    fn a_machine_that_cannot_keep_up_is_said_to_be_too_slow() {
        let slow = DataFlow { examples_per_second: 100.0, delay: 60.0, ..flow() }.advise().unwrap();
        assert!(slow.load > 3.0 && slow.warnings[0].contains("4 such machines"), "{slow:?}");
    }

    #[test]
    fn a_window_holds_what_arrives_in_half_the_delay() {
        let advice = DataFlow { delay: 60.0, ..flow() }.advise().unwrap();
        let expected = (10e9f64 / 300.0 / DAY * 30.0).ceil();
        assert_eq!((advice.window_seconds, advice.window_examples), (30.0, expected));
        assert_eq!(advice.memory_bytes, 2.0 * expected * 300.0);
    }

    #[test]
    fn where_nothing_arrives_a_window_of_one_example_was_advised() {
        let still = DataFlow { bytes_per_day: 0.0, delay: 1.0, ..flow() }.advise().unwrap();
        assert_eq!((still.window_seconds, still.window_examples), (0.0, 0.0));
        assert_eq!(still.reason, "nothing arrives: train once, which takes 11 min");
    }

    #[test]
    fn one_pass_over_the_data_was_told_to_keep_them_in_memory() {
        let once = flow().advise().unwrap();
        assert_eq!((once.memory_bytes, once.warnings.len()), (0.0, 0));
        let thrice = DataFlow { passes: 3.0, ..flow() }.advise().unwrap();
        assert_eq!(thrice.memory_bytes, 100e9);
        assert!(thrice.warnings[0].contains("every pass reads them again"), "{thrice:?}");
    }

    #[test]
    fn eleven_minutes_were_called_too_long_for_fifteen() {
        let advice = DataFlow { delay: 900.0, ..flow() }.advise().unwrap();
        let expected =
            "training on everything takes 11 min, more than half of the 15 min a model may be old";
        assert!(advice.reason.starts_with(expected), "{}", advice.reason);
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let error = DataFlow { delay: f64::NAN, ..flow() }.advise().unwrap_err();
        assert_eq!(error.to_string(), "`advise job`: delay is NaN, must be above zero");
    }
}
