//! How much memory a measured step will take, before it takes any.

use crate::error::ForecastError;
use paceline_batch::{FeatureKind, Schema};
use paceline_models::Model;

/// Share of the limit that a suggested number of examples may fill: the rest is for what is not counted.
const FILLED: f64 = 0.8;

/// Beyond this many examples the input alone is more than any machine holds, and bytes of activations may overflow.
const MOST_EXAMPLES: usize = 1 << 32;

/// Refuses steps of so many examples that the memory of this process cannot hold.
pub(super) fn check(
    model: &dyn Model,
    schema: &Schema,
    examples: usize,
) -> Result<(), ForecastError> {
    check_within(model, schema, examples, paceline_batch::memory_limit().bytes as f64)
}

/// The same where so many bytes may be used.
pub(super) fn check_within(
    model: &dyn Model,
    schema: &Schema,
    examples: usize,
    limit: f64,
) -> Result<(), ForecastError> {
    let input = match schema.features {
        FeatureKind::Image(shape) => shape.len() as f64,
        FeatureKind::Sparse { .. } => 0.0,
    };
    // Weights and gradient; plain gradient descent keeps nothing else.
    let weights = 8.0 * model.layout().len() as f64;
    let needs = |examples: usize| {
        let activations = model.batch_bytes(examples.min(MOST_EXAMPLES)) as f64;
        weights + examples as f64 * (input + 4.0) + activations
    };
    if needs(examples) <= limit {
        return Ok(());
    }
    let sizes = std::iter::successors(Some(examples / 2), |size| Some(size / 2));
    let fits = sizes.take_while(|size| *size > 0).find(|&size| needs(size) <= FILLED * limit);
    Err(ForecastError::Memory { examples, needs: needs(examples), limit, fits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stepping::Subject;
    use paceline_models::{ModelOptions, registry};

    #[test]
    fn steps_that_memory_cannot_hold_are_refused_with_a_size_that_fits() {
        let subject = Subject { model: "lenet".to_owned(), size: None, classes: None };
        let (schema, ..) = subject.schema();
        let entry = registry::find("lenet").unwrap();
        let model = (entry.build)(&schema, &ModelOptions::default()).unwrap();
        check_within(&*model, &schema, 64, 1e9).unwrap();
        let error = check_within(&*model, &schema, 1 << 22, 1e9).unwrap_err();
        let ForecastError::Memory { fits: Some(fits), .. } = error else { panic!("{error}") };
        assert!(fits.is_power_of_two() && fits < 1 << 22, "{fits}");
        check_within(&*model, &schema, fits, 1e9).unwrap();
        let error = check_within(&*model, &schema, 1, 1e3).unwrap_err();
        assert!(matches!(error, ForecastError::Memory { fits: None, .. }), "{error}");
        assert!(check(&*model, &schema, usize::MAX >> 1).is_err());
    }
}
