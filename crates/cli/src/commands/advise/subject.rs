//! Flags that name a model and its images.

use paceline_forecast::measure::stepping::Subject;

/// Which model, for which images.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SubjectArgs {
    /// Model to advise on; `paceline list models` lists them
    #[arg(long)]
    pub(crate) model: String,
    /// Side of the images, in pixels [default: 28 for softmax and lenet, else 224]
    #[arg(long, value_name = "PIXELS")]
    size: Option<usize>,
    /// Classes [default: 10 for softmax and lenet, else 1000]
    #[arg(long)]
    classes: Option<usize>,
}

impl SubjectArgs {
    pub(crate) fn subject(&self) -> Subject {
        Subject { model: self.model.clone(), size: self.size, classes: self.classes }
    }
}
