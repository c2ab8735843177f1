//! Flags that name a model and its images.

use paceline_forecast::measure::stepping::Subject;

/// Which model, for which images.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SubjectArgs {
    /// Model to advise on; `paceline list models` lists them. With --layers it is checked against the file, and can be left out
    #[arg(long, required_unless_present = "layers")]
    pub(crate) model: Option<String>,
    /// Side of the images, in pixels [default: what the model is known for: 28, 32 or 224]
    #[arg(long, value_name = "PIXELS")]
    size: Option<usize>,
    /// Classes [default: what the model is known for: 10 or 1000]
    #[arg(long)]
    classes: Option<usize>,
}

impl SubjectArgs {
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            model: self.model.clone().unwrap_or_default(),
            size: self.size,
            classes: self.classes,
        }
    }
}
