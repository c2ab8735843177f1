//! Where the time of a run went, in words, with the evidence beside it.
//!
//! The rules are few and stated: the phase that holds the steps up is the largest one that is not
//! compute, once it takes a quarter of the time; otherwise compute is the limit, and the question
//! becomes whether the cores were really busy. What removing a phase would save is an upper bound
//! (the rest would still take its time), and it is said to be one.

use serde::Serialize;

/// A phase that takes at least this share of the steps is what holds them up.
const HOLDS_UP: f64 = 0.25;
/// Below this share of the threads' time the cores were not really computing.
const BUSY: f64 = 0.6;
/// Fewer steps than this say little.
const FEW_STEPS: u64 = 20;
/// Less time than this, in seconds, says little.
const SHORT_SECONDS: f64 = 0.2;
/// Steps shorter than this, in seconds, are dominated by fixed costs on any machine.
const TINY_STEP_SECONDS: f64 = 100e-6;

/// What is known about a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    /// Steps measured.
    pub steps: u64,
    /// Seconds spent in them.
    pub seconds: f64,
    /// Share of the time spent waiting for the next batch.
    pub input: f64,
    /// Share spent in forward pass, backward pass and update.
    pub compute: f64,
    /// Share spent moving gradients and weights.
    pub exchange: f64,
    /// Share spent waiting for other workers.
    pub wait: f64,
    /// Threads the kernels could use.
    pub threads: usize,
    /// Cores the process kept busy on average, where it was measured.
    pub busy_cores: Option<f64>,
}

/// What limits a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Batches do not arrive in time.
    Input,
    /// The cores are busy with the model: nothing stands in their way.
    Compute,
    /// Steps are so short that fixed costs dominate.
    SmallSteps,
    /// The model does not keep its threads busy.
    IdleCores,
    /// Gradients and weights take longer to move than to make.
    Exchange,
    /// Workers wait for each other.
    Synchronisation,
    /// Nothing was measured.
    Unknown,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What limits the run.
    pub limit: Limit,
    /// One or two sentences.
    pub words: String,
    /// Share of the time that removing the limit would save at most.
    pub saving: f64,
    /// Whether there is too little evidence to lean on.
    pub thin: bool,
}

/// Says what limits a run.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    if evidence.steps == 0 || evidence.seconds <= 0.0 {
        return Verdict {
            limit: Limit::Unknown,
            words: "no step was measured, so nothing can be said".to_owned(),
            saving: 0.0,
            thin: true,
        };
    }
    let (limit, share) = limit(evidence);
    let percent = |share: f64| (100.0 * share).round();
    let core = match limit {
        Limit::Input => format!(
            "input-bound: {} % of the time the model waited for data; more loader threads, a cache or smaller images would save at most that much",
            percent(share)
        ),
        Limit::Exchange => format!(
            "exchange-bound: moving gradients and weights took {} % of the time; removing the exchange would save at most that much, a larger batch makes it rarer",
            percent(share)
        ),
        Limit::Synchronisation => format!(
            "synchronisation-bound: workers waited for each other {} % of the time; equal shares or backup workers would save at most that much",
            percent(share)
        ),
        Limit::IdleCores => format!(
            "compute-bound, yet only {:.1} of {} threads were busy: this model and batch size do not use more; a larger batch or fewer threads would serve better",
            evidence.busy_cores.unwrap_or(0.0),
            evidence.threads
        ),
        Limit::SmallSteps => format!(
            "bound by small steps: {:.0} µs each, so fixed costs weigh; a larger batch would do more work per step",
            1e6 * evidence.seconds / evidence.steps as f64
        ),
        Limit::Compute => format!(
            "compute-bound: {} % of the time went into the model itself; nothing else stands in the way, so only faster or more cores would help",
            percent(evidence.compute)
        ),
        Limit::Unknown => String::new(),
    };
    let thin = evidence.steps < FEW_STEPS || evidence.seconds < SHORT_SECONDS;
    let words = if thin {
        format!("{core} (thin evidence: {} steps in {:.2} s)", evidence.steps, evidence.seconds)
    } else {
        core
    };
    Verdict { limit, words, saving: share, thin }
}

fn limit(evidence: &Evidence) -> (Limit, f64) {
    let candidates = [
        (Limit::Input, evidence.input),
        (Limit::Exchange, evidence.exchange),
        (Limit::Synchronisation, evidence.wait),
    ];
    let largest = candidates
        .into_iter()
        .fold((Limit::Compute, 0.0), |best, next| if next.1 > best.1 { next } else { best });
    if largest.1 >= HOLDS_UP {
        return largest;
    }
    let idle = evidence
        .busy_cores
        .is_some_and(|busy| evidence.threads > 1 && busy < BUSY * evidence.threads as f64);
    let step = evidence.seconds / evidence.steps as f64;
    if step < TINY_STEP_SECONDS {
        (Limit::SmallSteps, 0.0)
    } else if idle {
        (Limit::IdleCores, 0.0)
    } else {
        (Limit::Compute, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Evidence {
        Evidence {
            steps: 1000,
            seconds: 10.0,
            input: 0.05,
            compute: 0.9,
            exchange: 0.03,
            wait: 0.02,
            threads: 2,
            busy_cores: Some(1.9),
        }
    }

    #[test]
    fn the_phase_that_holds_the_steps_up_is_named() {
        assert_eq!(judge(&run()).limit, Limit::Compute);
        let input = judge(&Evidence { input: 0.5, compute: 0.45, ..run() });
        assert_eq!((input.limit, input.saving), (Limit::Input, 0.5));
        assert!(input.words.contains("50 %"), "{}", input.words);
        let exchange = Evidence { exchange: 0.4, wait: 0.3, compute: 0.3, input: 0.0, ..run() };
        assert_eq!(judge(&exchange).limit, Limit::Exchange);
        let wait = Evidence { exchange: 0.1, wait: 0.3, compute: 0.6, input: 0.0, ..run() };
        assert_eq!(judge(&wait).limit, Limit::Synchronisation);
    }

    #[test]
    fn idle_threads_and_tiny_steps_are_not_called_healthy() {
        assert_eq!(judge(&Evidence { busy_cores: Some(1.0), ..run() }).limit, Limit::IdleCores);
        assert_eq!(judge(&Evidence { busy_cores: None, ..run() }).limit, Limit::Compute);
        assert_eq!(judge(&Evidence { steps: 1_000_000, ..run() }).limit, Limit::SmallSteps);
    }

    #[test]
    fn thin_evidence_is_said_to_be_thin() {
        let verdict = judge(&Evidence { steps: 5, ..run() });
        assert!(verdict.thin && verdict.words.contains("thin evidence: 5 steps"));
        assert_eq!(judge(&Evidence::default()).limit, Limit::Unknown);
    }
}
