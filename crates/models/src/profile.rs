//! Where a model's time goes, layer by layer; off unless enabled.

use std::time::Instant;

/// One of the passes through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Outputs from inputs.
    Forward,
    /// Gradients of inputs.
    BackwardInput,
    /// Gradients of weights, with their use by the callee.
    BackwardWeights,
    /// Both gradients at once, in layers that read their memory only once.
    Backward,
}

impl Pass {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::BackwardInput => "backward input",
            Self::BackwardWeights => "backward weights",
            Self::Backward => "backward",
        }
    }
}

/// Time spent in one pass through one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerTime {
    /// The layer, as its parameters are named; `relu`, bias and the like belong to it.
    pub layer: String,
    pub pass: Pass,
    /// Seconds, over all calls.
    pub seconds: f64,
    /// Multiplications and additions by the definition of the layer, over all calls. Fast algorithms
    /// do fewer, so that the share of the peak may exceed 1.
    pub flops: f64,
    pub calls: u64,
}

/// Collects layer times while it is on.
#[derive(Debug, Default)]
pub struct Profile {
    on: bool,
    layers: Vec<LayerTime>,
}

impl Profile {
    /// Starts or stops to collect; starting forgets what was there.
    pub fn set(&mut self, on: bool) {
        if on {
            self.layers.clear();
        }
        self.on = on;
    }

    /// What was collected, in the order in which layers were first run.
    #[must_use]
    pub fn layers(&self) -> &[LayerTime] {
        &self.layers
    }

    /// Runs a piece of a layer and counts its time.
    pub(crate) fn time<T>(
        &mut self,
        layer: &str,
        pass: Pass,
        flops: f64,
        work: impl FnOnce() -> T,
    ) -> T {
        if !self.on {
            return work();
        }
        let start = Instant::now();
        let result = work();
        let seconds = start.elapsed().as_secs_f64();
        let known = self.layers.iter_mut().find(|time| time.layer == layer && time.pass == pass);
        match known {
            Some(time) => {
                time.seconds += seconds;
                time.flops += flops;
                time.calls += 1;
            }
            None => {
                let layer = layer.to_owned();
                self.layers.push(LayerTime { layer, pass, seconds, flops, calls: 1 });
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_collected_unless_asked_for() {
        let mut profile = Profile::default();
        assert_eq!(profile.time("fc", Pass::Forward, 2.0, || 5), 5);
        assert!(profile.layers().is_empty());
        profile.set(true);
        profile.time("fc", Pass::Forward, 2.0, || ());
        profile.time("fc", Pass::Forward, 2.0, || ());
        profile.time("fc", Pass::BackwardInput, 2.0, || ());
        let calls: Vec<u64> = profile.layers().iter().map(|time| time.calls).collect();
        assert_eq!((calls, profile.layers()[0].flops), (vec![2, 1], 4.0));
    }
}
