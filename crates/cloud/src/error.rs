//! Why a plan, a check or a submission could not be made.

use std::io;
use std::path::PathBuf;

/// Why a plan, a check or a submission could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Not TOML, a key that is not known, or one that is missing.
    #[error("`{file}` is not a {what}")]
    Toml { file: String, what: &'static str, source: Box<toml::de::Error> },
    /// A value that cannot be.
    #[error("`{file}`: {key} is {found}, must be {needed}")]
    Value { file: String, key: String, found: String, needed: &'static str },
    /// A name that is not in the catalogue.
    #[error("{what} `{name}` is not in the catalogue of {provider}; it has {known}")]
    Unknown { what: &'static str, name: String, provider: String, known: String },
    /// No machine has the GPUs that were asked for.
    #[error("the catalogue of {provider} has no machine with {asked}; it has {known}")]
    NoGpu { asked: String, provider: &'static str, known: String },
    /// No shape satisfies what is required; why each kind of shape fell out.
    #[error("no shape satisfies the job: {reasons}")]
    NoShape { reasons: String },
    /// The provider's or site's own tool is not installed.
    #[error("`{tool}` is not installed or not on the PATH")]
    NoTool { tool: String },
    /// The tool failed; the last lines that it printed.
    #[error("`{command}` failed ({how}): {said}")]
    Tool { command: String, how: String, said: String },
    /// The tool did not end in time.
    #[error("`{command}` did not end within {seconds} s")]
    Silent { command: String, seconds: u64 },
    /// The tool's answer is not what it documents.
    #[error("`{command}` answered something else than {needed}")]
    Answer { command: String, needed: &'static str },
    /// The user asked to stop.
    #[error("interrupted while `{command}` was running")]
    Interrupted { command: String },
    /// A submission ended half-way: what its commands have started may be running, and its record is kept for `cloud stop`.
    #[error(
        "the submission is half done: {succeeded} of {commands} commands succeeded, and what was begun may still run and cost money"
    )]
    Unfinished { succeeded: usize, commands: usize, folder: PathBuf, source: Box<CloudError> },
    /// The target needs a value that was not given.
    #[error("{target} needs {key}")]
    Missing { target: &'static str, key: &'static str },
    /// GPUs that cannot be asked for there.
    #[error("{target} cannot be asked for a {gpu} GPU: {why}")]
    Gpu { target: &'static str, gpu: String, why: &'static str },
    /// A name that the service would refuse.
    #[error(
        "`{name}` is not a valid job name: 1 to 40 lower-case letters, digits and hyphens, a letter first"
    )]
    Name { name: String },
    /// Something that ssh would take for an option or a shell for more than a name.
    #[error(
        "`{host}` is not a host: letters, digits, dots, colons, hyphens and underscores, none of the last two first, and at most `USER@` before it"
    )]
    Host { host: String },
    /// A job of that name was submitted from here before.
    #[error("`{}` already holds a job", .folder.display())]
    Exists { folder: PathBuf },
    /// No job of that name was submitted from here.
    #[error("`{}` holds no job", .folder.display())]
    NoJob { folder: PathBuf },
}

impl CloudError {
    /// Whether the call itself was wrong, rather than something that happened.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Toml { .. }
                | Self::Value { .. }
                | Self::Unknown { .. }
                | Self::Missing { .. }
                | Self::Name { .. }
                | Self::Host { .. }
                | Self::Gpu { .. }
                | Self::NoGpu { .. }
        )
    }
}
