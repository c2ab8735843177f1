//! How large the features of a stream are, so that the default learning rate suits them where the rule does not see to it itself.

use crate::{
    TrainError,
    rows::{DataSpec, RowsPlace, RowsSpec, Source, Window, source::Parcel},
};
use paceline_batch::Features;
use paceline_data::rows::{Input, Next};
use paceline_models::sparse_logistic::rules;

impl RowsSpec {
    /// Sets learning rate and beta to the rule's defaults for features as large as those of the first rows. What comes as a
    /// stream cannot be looked at beforehand: its features are taken to be about 1.
    ///
    /// # Errors
    /// An unknown rule, files that cannot be read.
    pub fn suit_features(&mut self) -> Result<(), TrainError> {
        let entry = rules::find(&self.optimizer)?;
        let scale = match &self.data {
            DataSpec::Read(list) if list != "-" && entry.needs_scale() => self.feature_scale()?,
            _ => 1.0,
        };
        let settings = entry.defaults_for(scale);
        self.learning_rate = settings.rate;
        self.beta = (settings.beta != entry.defaults.beta).then_some(settings.beta);
        Ok(())
    }

    /// The mean size of the values in the first block of rows, rounded to a power of two: the same whatever a few rows
    /// say, and exactly 1 for categories.
    fn feature_scale(&self) -> Result<f32, TrainError> {
        let input: Input = self.data.input()?;
        let format = self.format.as_deref();
        let place = RowsPlace::default();
        let mut source = Source::open(input, format, self.hashing, place, 1, Window::None)?;
        let mut parcel = Parcel::default();
        if source.next(&mut parcel)? != Next::Block {
            return Ok(1.0);
        }
        parcel.parse();
        let Features::Sparse { values, .. } = &parcel.batch().features else { return Ok(1.0) };
        let (mut sum, mut count) = (0.0, 0_u64);
        for value in values.iter().filter(|value| value.is_finite() && **value != 0.0) {
            sum += f64::from(value.abs());
            count += 1;
        }
        if count == 0 {
            return Ok(1.0); // all values are 1 and not even written down
        }
        Ok((sum / count as f64).log2().round().clamp(-20.0, 20.0).exp2() as f32)
    }
}
