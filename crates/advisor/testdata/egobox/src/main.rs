//! Writes `gp_egobox.json`: posteriors of egobox-gp's Gaussian process that ours must reproduce.
//!
//! Its Matérn 5/2 kernel is a product over dimensions and it scales inputs to unit deviation, so the lengths
//! written are those in the inputs' own units. From this folder:
//! `cargo run --release > ../gp_egobox.json` (about 120 crates, which is why it is not a development dependency).

use egobox_gp::correlation_models::Matern52Corr;
use egobox_gp::mean_models::ConstantMean;
use egobox_gp::{GaussianProcess, ThetaTuning};
use linfa::Dataset;
use linfa::traits::Fit;
use ndarray::{Array1, Array2, Axis};

/// Points that fill the unit cube and need no generator: multiples of irrational numbers.
fn points(count: usize, dimensions: usize, from: usize) -> Array2<f64> {
    let steps = [2f64.sqrt(), 3f64.sqrt(), 5f64.sqrt()];
    Array2::from_shape_fn((count, dimensions), |(row, column)| {
        ((row + from + 1) as f64 * steps[column]).fract()
    })
}

fn main() {
    let mut cases = Vec::new();
    for (count, lengths, noise) in
        [(5usize, vec![0.5], 1e-3), (12, vec![0.4, 1.2], 0.02), (30, vec![0.3, 0.9, 2.0], 0.05)]
    {
        let known = points(count, lengths.len(), 0);
        let values = Array1::from_iter(known.rows().into_iter().enumerate().map(|(at, row)| {
            7.0 + row.iter().map(|x| (3.0 * x).sin()).sum::<f64>() + 0.1 * (at as f64 * 1.7).cos()
        }));
        let asked = points(6, lengths.len(), 1000);
        let deviation = known.std_axis(Axis(0), 1.0);
        let theta = Array1::from_iter(deviation.iter().zip(&lengths).map(|(s, l)| s / l));
        let process = GaussianProcess::<f64, ConstantMean, Matern52Corr>::params(
            ConstantMean::default(),
            Matern52Corr::default(),
        )
        .theta_tuning(ThetaTuning::Fixed(theta))
        .nugget(noise)
        .fit(&Dataset::new(known.clone(), values.clone()))
        .expect("a process for well-spread points");
        let (mean, variance) = process.predict_valvar(&asked).expect("a prediction");
        let rows = |all: &Array2<f64>| -> Vec<Vec<f64>> {
            all.rows().into_iter().map(|row| row.to_vec()).collect()
        };
        cases.push(serde_json::json!({
            "lengths": lengths,
            "points": rows(&known),
            "values": values.to_vec(),
            "noise": vec![noise; count],
            "asked": rows(&asked),
            "mean": mean.to_vec(),
            // In units of the process's own scale, which ours estimates with a prior.
            "variance": (variance / process.variance()).to_vec(),
        }));
    }
    println!("{}", serde_json::Value::Array(cases));
}
