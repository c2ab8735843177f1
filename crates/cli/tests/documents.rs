//! The commands in README.md and in the guide, run in order as they stand, each document in an empty folder. What the
//! documents show must appear too; numbers and names of runs may differ, and `…` stands for what was left out.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // also in functions that tests share

mod support;

use paceline_testing::emulators::Emulator;
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use support::program;

/// One command of a document and what the document says it prints.
#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// A fenced block: its label, the line it begins at, its lines.
fn blocks(document: &str) -> Vec<(String, usize, Vec<&str>)> {
    let mut found: Vec<(String, usize, Vec<&str>)> = Vec::new();
    let mut open = false;
    for (number, line) in document.lines().enumerate() {
        if let Some(label) = line.strip_prefix("```") {
            open = !open;
            if open {
                found.push((label.to_owned(), number + 1, Vec::new()));
            }
        } else if open {
            found.last_mut().unwrap().2.push(line);
        }
    }
    assert!(!open, "a block is never closed");
    found
}

/// The commands of all `console` blocks: lines after `$ `, continued while they end in a backslash.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (label, first, lines) in blocks(document) {
        if label != "console" {
            continue;
        }
        let mut continued = false;
        for (line, number) in lines.into_iter().zip(first + 1..) {
            if continued {
                let command = &mut steps.last_mut().unwrap().command;
                command.push_str(&format!("\n{line}"));
            } else if let Some(command) = line.strip_prefix("$ ") {
                let (command, shown) = (command.to_owned(), Vec::new());
                steps.push(Step { line: number, command, shown });
            } else {
                steps.last_mut().expect("output follows a command").shown.push(line.to_owned());
            }
            continued = line.ends_with('\\') && (continued || line.starts_with("$ "));
        }
    }
    steps
}

/// A line without what differs from run to run: numbers, names of runs, the width of columns.
fn outline(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let number = rest
            .find(|c: char| !(c.is_ascii_digit() || ".,−-+e".contains(c)))
            .unwrap_or(rest.len());
        if c.is_ascii_digit() {
            // A run is called after the time it began, and ends in four random characters.
            let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let is_run = rest.len() > 16 && rest.as_bytes()[8] == b'-' && number >= 16;
            text.push('#');
            rest = &rest[if is_run { word } else { number.max(1) }..];
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether everything shown appears, in order.
fn check_shown(step: &Step, printed: &str) {
    let printed_lines: Vec<String> = printed.lines().map(outline).collect();
    let mut at = 0;
    for wanted in step.shown.iter().filter(|line| line.trim() != "…") {
        let outlined = outline(wanted);
        let fits = |line: &String| match outlined.strip_suffix('…') {
            Some(start) => line.starts_with(start.trim_end()),
            None => *line == outlined,
        };
        let found = printed_lines[at..].iter().position(fits);
        let Some(found) = found else {
            panic!(
                "line {}: `{}` does not print `{wanted}` any more, but:\n{printed}",
                step.line, step.command
            );
        };
        at += found + 1;
    }
}

/// What the commands of a document find around them.
struct Surroundings {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
    _store: Option<Emulator>,
}

impl Surroundings {
    /// `None` where something is missing that the document needs; that was said, and fails in CI.
    fn of(document: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let binary = Path::new(program());
        let mut path = vec![binary.parent().unwrap().to_path_buf()];
        let mut variables = Vec::new();
        if document.contains("--engine spark") {
            let spark: PathBuf = paceline_testing::spark()?;
            path.push(spark.join("bin"));
            let python = spark.join("bin/python").display().to_string();
            variables.push(("PYSPARK_PYTHON".to_owned(), python));
            variables.push(("SPARK_LOCAL_IP".to_owned(), "127.0.0.1".to_owned()));
        }
        let mut store = None;
        if document.contains("s3://lab") {
            let emulator = Emulator::s3("lab")?;
            let known = Emulator::s3_variables(emulator.address);
            variables.extend(known.into_iter().map(|(name, value)| (name.to_owned(), value)));
            store = Some(emulator);
        }
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let path = std::env::join_paths(path).unwrap().into_string().unwrap();
        variables.push(("PATH".to_owned(), path));
        Some(Self { folder, variables, _store: store })
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", command])
            .current_dir(self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env_remove("SPARK_HOME")
            .stdin(Stdio::null());
        shell
    }

    fn run(&self, step: &Step) {
        // Both streams in the order in which a person would see them.
        let printed = self.shell(&format!("({}) 2>&1", step.command)).output().unwrap();
        let text = String::from_utf8_lossy(&printed.stdout);
        assert!(printed.status.success(), "line {}: `{}`: {text}", step.line, step.command);
        check_shown(step, &text);
    }

    /// A task that others of the same document are to meet; it must end well when they have.
    fn begin(&self, command: &str) -> Child {
        self.shell(&format!("exec {command}")).stdout(Stdio::null()).spawn().unwrap()
    }
}

fn run_document(name: &str) {
    let document = std::fs::read_to_string(paceline_testing::workspace().join(name)).unwrap();
    let Some(surroundings) = Surroundings::of(&document) else { return };
    let mut beside: Vec<(Step, Child)> = Vec::new();
    for step in steps(&document) {
        eprintln!("{name}, line {}: {}", step.line, step.command);
        match step.command.strip_suffix('&') {
            Some(command) => {
                let child = surroundings.begin(command);
                beside.push((step, child));
            }
            None => surroundings.run(&step),
        }
    }
    for (step, mut child) in beside {
        let status = child.wait().unwrap();
        assert!(status.success(), "{name}, line {}: `{}`: {status}", step.line, step.command);
    }
}

#[test]
fn every_command_of_the_readme_does_what_it_shows() {
    run_document("README.md");
}

#[test]
fn every_command_of_the_guide_does_what_it_shows() {
    run_document("docs/guide.md");
}

/// A command that no test runs would be out of date one day.
#[test]
fn no_command_hides_in_a_block_that_is_not_run() {
    for name in ["README.md", "docs/guide.md"] {
        let document = std::fs::read_to_string(paceline_testing::workspace().join(name)).unwrap();
        for (label, first, lines) in blocks(&document) {
            let known = ["console", "sh", "toml", "text", "json"];
            assert!(known.contains(&label.as_str()), "{name}, line {first}: block `{label}`");
            let hidden = |line: &&str| {
                let line = line.trim_start_matches("$ ");
                label != "console" && line.starts_with("paceline ")
            };
            assert_eq!(lines.iter().find(|line| hidden(line)), None, "{name}, line {first}");
        }
    }
}

#[test]
fn numbers_and_names_of_runs_may_differ_and_words_may_not() {
    let steps = steps("text\n```console\n$ echo a \\\n  b\na b\n$ two\n```\n```sh\n$ no\n```\n");
    let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["echo a \\\n  b", "two"]);
    assert_eq!(steps[0].shown, ["a b"]);
    let run = "run   runs/20261115-225041-lenet-one-device-ar6r";
    assert_eq!(outline(run), outline("run runs/20270101-000000-lenet-one-device-0000"));
    assert_eq!(outline("time  1.01 s, 40115 examples/s"), outline("time 0.9 s, 1,234 examples/s"));
    assert_ne!(outline("test loss 0.1"), outline("train loss 0.1"));
}
