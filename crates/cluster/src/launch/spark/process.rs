//! The `spark-submit` process: started so that it ends with us, heard line by line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::SparkError;

/// Time for Spark to tell its executors and go, after which it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A running `spark-submit`.
#[derive(Debug)]
pub(super) struct Submitted {
    child: Child,
    lines: Receiver<String>,
}

impl Submitted {
    pub(super) fn start(
        submit: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self, SparkError> {
        let failed = |source| SparkError::Start { path: submit.to_owned(), source };
        let log = File::create(log)
            .map_err(|source| SparkError::Write { path: log.to_owned(), source })?;
        let mut command = Command::new(submit);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // A Spark from pip finds itself only by the Python it was installed for.
        let python = submit.with_file_name("python");
        if std::env::var_os("PYSPARK_DRIVER_PYTHON").is_none()
            && std::env::var_os("PYSPARK_PYTHON").is_none()
            && python.exists()
        {
            command.env("PYSPARK_DRIVER_PYTHON", &python);
        }
        // A group of its own: Ctrl-C in the terminal reaches us, and we end Spark in good order.
        command.process_group(0);
        die_with_parent(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().expect("standard output was piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // Bytes, because Spark prints what it likes; a broken pipe is the end like any other.
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { break };
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    pub(super) fn lines(&self) -> &Receiver<String> {
        &self.lines
    }

    /// How it ended. Its output has ended already, so this is a matter of moments.
    pub(super) fn wait(&mut self, cancel: &AtomicBool) -> String {
        let since = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Err(error) => return error.to_string(),
                Ok(None) if since.elapsed() > GRACE || cancel.load(Ordering::Relaxed) => {
                    self.end();
                }
                Ok(None) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Asks the whole group to end, and makes it where it does not.
    pub(super) fn end(&mut self) {
        self.signal(libc::SIGTERM);
        let since = Instant::now();
        while since.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }

    #[allow(unsafe_code)] // std signals one process, not its group
    fn signal(&self, signal: i32) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: takes numbers only. The group is our child's own, and the child is not yet reaped, so
            // its number cannot belong to anybody else.
            unsafe { libc::kill(-group, signal) };
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Lets the kernel end the child when this thread ends, however that happens.
#[allow(unsafe_code)] // std has no word for it
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: both calls take numbers only and are allowed between fork and exec.
        let (asked, above) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM), libc::getppid()) };
        if asked != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // The parent may have gone before the kernel was asked.
        if u32::try_from(above).ok() != Some(parent) {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

/// The line of a log that says why: the first that names an error, else the last one.
pub(super) fn reason(log: &Path) -> String {
    let Ok(bytes) = std::fs::read(log) else { return "no log".to_owned() };
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = |line: &&str| {
        let stack = line.starts_with("at ") || line.starts_with("File ");
        !stack
            && (line.contains("Exception") || line.contains("rror:") || line.contains("JAVA_HOME"))
    };
    let line = lines().find(telling).or_else(|| lines().next_back()).unwrap_or("it said nothing");
    // Java puts the class in front of the words.
    let line = line.strip_prefix("Exception in thread \"main\" ").unwrap_or(line);
    line.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_boiled_down_to_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        for (text, wanted) in [
            ("JAVA_HOME is not set\n", "JAVA_HOME is not set"),
            (
                "26/11/16 WARN x\nException in thread \"main\" org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.a.B\n",
                "org.apache.spark.SparkException: Could not parse Master URL: 'x'",
            ),
            ("one\n\nlast words\n", "last words"),
            ("", "it said nothing"),
        ] {
            std::fs::write(&log, text).unwrap();
            assert_eq!(reason(&log), wanted);
        }
        assert_eq!(reason(&dir.path().join("none")), "no log");
    }
}
