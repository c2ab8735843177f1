//! A model that looks at no pixel: it learns how frequent each class is.

use paceline_batch::Batch;
use paceline_models::{
    Layout, Model, ModelError, Ready, Score, StepContext, StepLoss,
    registry::{KnownInput, ModelDefaults, ModelEntry},
};

pub static ENTRY: ModelEntry = ModelEntry {
    name: "frequencies",
    about: "how frequent each class is, whatever the pixels",
    settings: &[],
    defaults: ModelDefaults { optimizer: "sgd", rate: 0.5 },
    known_for: KnownInput::DIGITS,
    build: |schema, _| {
        let mut layout = Layout::default();
        layout.push("bias", &[schema.labels.classes()], true);
        Ok(Box::new(Frequencies { layout }))
    },
};

struct Frequencies {
    layout: Layout,
}

/// Shares of the classes, by softmax.
fn shares(params: &[f32]) -> Vec<f32> {
    let total: f32 = params.iter().map(|bias| bias.exp()).sum();
    params.iter().map(|bias| bias.exp() / total).collect()
}

impl Model for Frequencies {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _seed: u64, params: &mut [f32]) {
        params.fill(0.0);
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        let mut score = Score::default();
        self.score(params, batch, &mut score)?;
        let shares = shares(params);
        for (class, grad) in grad.iter_mut().enumerate() {
            let seen = batch.labels.iter().filter(|label| **label as usize == class).count();
            *grad = context.scale * (batch.len() as f32 * shares[class] - seen as f32);
        }
        ready(0..params.len(), params, grad);
        Ok(score.total)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let shares = shares(params);
        let most = shares.iter().copied().fold(0.0, f32::max);
        for label in &batch.labels {
            let share = shares[*label as usize];
            score.total.examples += 1;
            score.total.loss_sum -= f64::from(share.ln());
            score.total.correct += u64::from(share >= most);
        }
        Ok(())
    }
}
