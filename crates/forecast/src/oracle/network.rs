//! A network as the formulas see it: per layer its sizes and its measured times.

use serde::{Deserialize, Serialize};

/// One layer with parameters. Times are those of one worker alone on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// Height, width, channels going in.
    pub input: [usize; 3],
    /// Height, width, channels coming out.
    pub output: [usize; 3],
    /// Side of its kernel; 1 for dense layers.
    pub kernel: usize,
    /// Trained values.
    pub parameters: f64,
    /// Seconds of the forward pass, per example.
    pub forward: f64,
    /// Seconds of the backward pass, per example.
    pub backward: f64,
    /// Seconds of both passes that a step takes whatever its batch: waking threads, packing weights.
    pub fixed: f64,
    /// Seconds of the update, per step.
    pub update: f64,
}

impl Layer {
    /// Values going in, per example.
    #[must_use]
    pub fn inputs(&self) -> f64 {
        self.input.iter().product::<usize>() as f64
    }

    /// Values coming out, per example.
    #[must_use]
    pub fn outputs(&self) -> f64 {
        self.output.iter().product::<usize>() as f64
    }

    /// Channels going in.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.input[2]
    }

    /// Channels coming out: the filters.
    #[must_use]
    pub fn filters(&self) -> usize {
        self.output[2]
    }

    /// Whether it looks at a neighbourhood of pixels.
    #[must_use]
    pub fn is_spatial(&self) -> bool {
        self.kernel > 1 && self.input[0] * self.input[1] > 1
    }

    /// Values that a strip of an image needs from its two neighbours: rows of half a kernel.
    pub(crate) fn halo(&self, side: [usize; 3]) -> f64 {
        if self.is_spatial() { (2 * (self.kernel / 2) * side[1] * side[2]) as f64 } else { 0.0 }
    }

    pub(crate) fn times(&self) -> [(&'static str, f64); 4] {
        [
            ("forward", self.forward),
            ("backward", self.backward),
            ("fixed", self.fixed),
            ("update", self.update),
        ]
    }
}

/// A chain of layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// What it is called.
    pub name: String,
    pub layers: Vec<Layer>,
}

impl Network {
    /// Sum of something over all layers.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&Layer) -> f64) -> f64 {
        self.layers.iter().map(of).sum()
    }

    /// Trained values.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        self.sum(|layer| layer.parameters)
    }

    /// Values kept per example: inputs and outputs of all layers.
    #[must_use]
    pub fn activations(&self) -> f64 {
        self.sum(|layer| layer.inputs() + layer.outputs())
    }

    /// Seconds of both passes per example.
    #[must_use]
    pub fn per_example(&self) -> f64 {
        self.sum(|layer| layer.forward + layer.backward)
    }

    /// Seconds of both passes per step, whatever the batch.
    #[must_use]
    pub fn fixed(&self) -> f64 {
        self.sum(|layer| layer.fixed)
    }

    /// Seconds of the update per step.
    #[must_use]
    pub fn update(&self) -> f64 {
        self.sum(|layer| layer.update)
    }

    /// Consecutive groups of layers, as even in time as can be: where each begins. Cuts are chosen so
    /// that the slowest group is as fast as possible.
    pub(crate) fn groups(&self, count: usize) -> Vec<std::ops::Range<usize>> {
        let times: Vec<f64> =
            self.layers.iter().map(|layer| layer.forward + layer.backward).collect();
        let layers = times.len();
        let mut sums = vec![0.0];
        for time in &times {
            sums.push(sums[sums.len() - 1] + time);
        }
        // best[g][l]: the slowest of g groups over the first l layers, and where the last one begins.
        let mut best = vec![vec![(f64::INFINITY, 0); layers + 1]; count + 1];
        best[0][0] = (0.0, 0);
        for groups in 1..=count {
            for end in groups..=layers {
                for begin in groups - 1..end {
                    let slowest = best[groups - 1][begin].0.max(sums[end] - sums[begin]);
                    if slowest < best[groups][end].0 {
                        best[groups][end] = (slowest, begin);
                    }
                }
            }
        }
        let mut ranges = Vec::with_capacity(count);
        let mut end = layers;
        for groups in (1..=count).rev() {
            let begin = best[groups][end].1;
            ranges.push(begin..end);
            end = begin;
        }
        ranges.reverse();
        ranges
    }
}
