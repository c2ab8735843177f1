//! Writes initial weights of a pretrained model's form: `export_weights MODEL FILE`, for a look at
//! them from another program.

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use paceline_models::{ModelOptions, pretrained, registry};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, file] = &arguments[..] else { return Err("usage: MODEL FILE".into()) };
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: 224, width: 224, channels: 3 }),
        labels: LabelKind::Classes { names: (0..1000).map(|class| class.to_string()).collect() },
    };
    let model_built = (registry::find(model)?.build)(&schema, &ModelOptions::default())?;
    let mut params = vec![0.0; model_built.layout().len()];
    model_built.init(1, &mut params);
    pretrained::export(model, model_built.layout(), &params, Path::new(file))?;
    Ok(())
}
