//! Standard output as data, and paths as they are typed.

use anstream::AutoStream;
use paceline_probes::shell_word;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// An error of standard output itself, and of no file, link or pipe besides.
#[derive(Debug)]
struct StdoutError(io::Error);

impl fmt::Display for StdoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write to standard output")
    }
}

impl std::error::Error for StdoutError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Standard output; its errors say that they are its own.
pub(crate) struct DataStream<W>(W);

/// Standard output for many bytes, as they are.
pub(crate) fn data_stream() -> DataStream<io::StdoutLock<'static>> {
    DataStream(io::stdout().lock())
}

/// Standard output for text, without colours where no terminal shows them.
pub(super) fn text_stream() -> DataStream<AutoStream<io::StdoutLock<'static>>> {
    DataStream(AutoStream::auto(io::stdout()).lock())
}

fn of_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), StdoutError(error))
}

impl<W: Write> Write for DataStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_stdout)
    }
}

/// Whether no process reads standard output any more, as after `| head`. A link or pipe that broke elsewhere is a failure like
/// any other.
pub(super) fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|error| {
        error.kind() == io::ErrorKind::BrokenPipe
            && error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<StdoutError>)
    })
}

/// A path as it is typed in a command that people copy.
pub(crate) fn typed_path(path: &Path) -> String {
    let shown = path.display().to_string();
    let word = if shown.starts_with('-') { format!("./{shown}") } else { shown };
    shell_word(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_path_in_a_command_is_one_word() {
        let typed = |path: &str| typed_path(Path::new(path));
        assert_eq!(typed("runs/20261119-a_b"), "runs/20261119-a_b");
        assert_eq!(typed("my runs/it's"), r"'my runs/it'\''s'");
        assert_eq!(typed("-runs/a"), "./-runs/a");
    }

    #[test]
    fn standard_output_without_a_reader_is_not_a_failure() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let gone = anyhow::Error::from(of_stdout(broken()));
        assert!(is_reader_gone(&gone));
        assert!(is_reader_gone(&Err::<(), _>(gone).context("cannot predict").unwrap_err()));
        // A task whose peer is gone once ended silently, with exit code 0.
        let link = Err::<(), _>(broken()).context("lost worker/1").unwrap_err();
        assert!(!is_reader_gone(&link));
        let full = of_stdout(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_reader_gone(&anyhow::Error::from(full)));
    }
}
