//! The registry of methods: one file each.

mod arrow;
mod cherrypick;
mod ernest;
mod exhaustive;
mod lhs;
mod micky;
mod paceline;
mod paris;
mod random;
mod scout;

use crate::error::AdvisorError;
use crate::search::{Advisor, Problem};
use paceline_registry::{Named, Registry};

pub use micky::{Batch, BatchChoice};
pub(crate) use paceline::Paceline;

/// Prepares a method for a question, with a seed.
pub type Build = fn(&Problem, u64) -> Result<Box<dyn Advisor>, AdvisorError>;

/// One method.
pub struct AdvisorMethod {
    /// What it is called.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Whether it learns from runs of other jobs and cannot work without.
    pub needs_history: bool,
    /// Whether runs of other jobs change what it advises.
    pub uses_history: bool,
    /// Prepares it for a question; everything that depends on the history alone happens here, once. The
    /// seed is that of forests and of the hyper-parameters averaged over.
    pub build: Build,
}

impl Named for AdvisorMethod {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Every method there is, ours first.
pub static ALL: Registry<AdvisorMethod> = Registry::new(&[
    &paceline::ENTRY,
    &cherrypick::ENTRY,
    &arrow::ENTRY,
    &scout::ENTRY,
    &paris::ENTRY,
    &ernest::ENTRY,
    &micky::ENTRY,
    &random::ENTRY,
    &lhs::ENTRY,
    &exhaustive::ENTRY,
]);

/// Finds a method by name.
pub fn find(name: &str) -> Result<&'static AdvisorMethod, AdvisorError> {
    ALL.named(name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        AdvisorError::UnknownMethod { name: name.to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/methods");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }
}
