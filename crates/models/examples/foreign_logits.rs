//! Compares logits with those of another program on the same weights and pictures:
//! `foreign_logits FILE WIDTH SIDE CLASSES PIXELS LOGITS`, where PIXELS are bytes (red, green, blue) of pictures of SIDE x SIDE
//! and LOGITS the other program's as floats of 32 bits, both without a header. `xtask/peers/foreign_weights.py` writes all three.

#![allow(clippy::print_stdout)] // an example prints

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{ModelOptions, Score, pretrained, registry};
use std::{fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, width, side, classes, pixels, logits] = &arguments[..] else {
        return Err("usage: FILE WIDTH SIDE CLASSES PIXELS LOGITS".into());
    };
    let (path, side, classes) = (Path::new(file), side.parse()?, classes.parse::<usize>()?);
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: side, width: side, channels: 3 }),
        labels: LabelKind::Classes { names: (0..classes).map(|class| class.to_string()).collect() },
    };
    let expected = pretrained::expected_pixels(path)?;
    let options =
        ModelOptions { threads: 2, width: width.parse()?, pixels: expected, ..Default::default() };
    let mut model = (registry::find("mobilenet-v2")?.build)(&schema, &options)?;
    let mut params = vec![0.0; model.layout().len()];
    let loaded = pretrained::load("mobilenet-v2", model.layout(), path, &mut params)?;

    let values = fs::read(pixels)?;
    let wanted = fs::read(logits)?;
    let wanted: Vec<f64> =
        wanted.as_chunks::<4>().0.iter().map(|it| f64::from(f32::from_le_bytes(*it))).collect();
    let labels = vec![0; wanted.len() / classes];
    let features = Features::Pixels { values, width: 3 * side * side };
    let mut score = Score { probabilities: Some(Vec::new()), ..Score::default() };
    model.score(&params, &Batch { features, labels }, &mut score)?;
    // Scores tell probabilities: logits but for one number per picture, so the mean is taken away from both sides.
    let found: Vec<f64> =
        score.probabilities.unwrap_or_default().iter().map(|it| f64::from(*it).ln()).collect();
    let centred = |values: &[f64]| -> Vec<f64> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| value - mean).collect()
    };
    let (mut far, mut apart, mut agree) = (0.0_f64, 0.0_f64, 0);
    let pictures = found.chunks_exact(classes).zip(wanted.chunks_exact(classes));
    for (found, wanted) in pictures {
        let (found, wanted) = (centred(found), centred(wanted));
        let top = |values: &[f64]| {
            let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            values.iter().position(|value| *value == best)
        };
        agree += usize::from(top(&found) == top(&wanted));
        apart = wanted.iter().fold(apart, |apart, value| apart.max(value.abs()));
        let differences = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        far = differences.fold(far, f64::max);
    }
    println!(
        "{file}: {} tensors ({:?}, pixels {expected:?}), {} pictures, {agree} with the same first class; logits up to {apart:.3} \
         from their mean, largest difference {far:.2e}",
        loaded.tensors,
        loaded.convention,
        wanted.len() / classes,
    );
    Ok(())
}
