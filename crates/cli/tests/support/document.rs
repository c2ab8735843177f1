//! The commands of a document, run in order as they stand, in an empty folder.
//!
//! A `console` block holds commands after `$ ` and what they print; numbers and names of runs may differ, and `…` stands
//! for what was left out. A comment right above a block says what it is instead: `<!-- file: NAME -->`, a file to save
//! before the next command, or `<!-- not run: REASON -->`, commands that need what a test cannot have. Those are still
//! read by the program's own parser.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // only tests are in here

use super::support::program;
use paceline_testing::emulators::Emulator;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// One command of a document and what the document says it prints.
#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// What a document asks to do next.
#[derive(Debug, PartialEq)]
enum Item {
    Run(Step),
    Save { name: String, contents: String },
}

/// What a comment above a block says about it.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Mark {
    None,
    File(String),
    NotRun(String),
}

/// A fenced block.
pub(crate) struct Block<'a> {
    pub(crate) label: String,
    /// Line of the document at which it begins.
    pub(crate) first: usize,
    pub(crate) lines: Vec<&'a str>,
    pub(crate) mark: Mark,
}

/// Every fenced block of a document, in order.
pub(crate) fn blocks(document: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    let mut above = "";
    for (number, line) in document.lines().enumerate() {
        if let Some(label) = line.strip_prefix("```") {
            open = !open;
            if open {
                let (label, first) = (label.to_owned(), number + 1);
                found.push(Block { label, first, lines: Vec::new(), mark: mark(above, first) });
            }
        } else if open {
            found.last_mut().unwrap().lines.push(line);
        }
        above = line;
    }
    assert!(!open, "a block is never closed");
    found
}

/// What the line above a block says.
fn mark(above: &str, line: usize) -> Mark {
    let comment = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
    let Some(comment) = comment else { return Mark::None };
    match comment.split_once(": ") {
        Some(("file", name)) => Mark::File(name.to_owned()),
        Some(("not run", reason)) if reason.split_whitespace().count() >= 3 => {
            Mark::NotRun(reason.to_owned())
        }
        _ => panic!("line {line}: `{above}` is neither a file nor a reason in words"),
    }
}

/// What the blocks ask for.
fn items(document: &str) -> Vec<Item> {
    let mut items = Vec::new();
    for block in blocks(document) {
        match &block.mark {
            Mark::File(name) => {
                let contents = format!("{}\n", block.lines.join("\n"));
                items.push(Item::Save { name: name.clone(), contents });
            }
            Mark::None if block.label == "console" => {
                items.extend(steps(&block).into_iter().map(Item::Run));
            }
            _ => {}
        }
    }
    items
}

/// The commands of a block: lines after `$ `, continued while they end in a backslash.
fn steps(block: &Block<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continued = false;
    for (line, number) in block.lines.iter().zip(block.first + 1..) {
        if continued {
            let command = &mut steps.last_mut().unwrap().command;
            command.push_str(&format!("\n{line}"));
        } else if let Some(command) = line.strip_prefix("$ ") {
            let (command, shown) = (command.to_owned(), Vec::new());
            steps.push(Step { line: number, command, shown });
        } else {
            let last = steps.last_mut().expect("output follows a command");
            last.shown.push((*line).to_owned());
        }
        continued = line.ends_with('\\') && (continued || line.starts_with("$ "));
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

/// Runs a document of the workspace from its first block to its last.
pub(crate) fn run_document(name: &str) {
    let document = fs::read_to_string(paceline_testing::workspace().join(name)).unwrap();
    let Some(surroundings) = Surroundings::of(&document) else { return };
    let mut beside: Vec<(Step, Child)> = Vec::new();
    for item in items(&document) {
        match item {
            Item::Save { name, contents } => {
                fs::write(surroundings.folder.path().join(name), contents).unwrap();
            }
            Item::Run(step) => {
                eprintln!("{name}, line {}: {}", step.line, step.command);
                match step.command.strip_suffix('&') {
                    Some(command) => {
                        let child = surroundings.begin(command);
                        beside.push((step, child));
                    }
                    None => surroundings.run(&step),
                }
            }
        }
    }
    for (step, mut child) in beside {
        let status = child.wait().unwrap();
        assert!(status.success(), "{name}, line {}: `{}`: {status}", step.line, step.command);
    }
}

/// Command lines of this program in blocks that are marked as not run.
pub(crate) fn commands_not_run(document: &str) -> Vec<String> {
    let not_run =
        blocks(document).into_iter().filter(|block| matches!(block.mark, Mark::NotRun(_)));
    let mut commands = Vec::new();
    for block in not_run {
        let text = block.lines.join("\n").replace("\\\n", " ");
        for line in text.lines() {
            let line = line.trim_start_matches("$ ").trim();
            if line.starts_with("paceline ") {
                commands.push(line.split(" #").next().unwrap_or(line).trim().to_owned());
            }
        }
    }
    commands
}

#[test]
fn numbers_and_names_of_runs_may_differ_and_words_may_not() {
    let document = "text\n```console\n$ echo a \\\n  b\na b\n$ two\n```\n```sh\n$ no\n```\n\
        <!-- file: a.txt -->\n```text\nthe text\n```\n\
        <!-- not run: needs three hosts -->\n```console\n$ paceline node \\\n --task a/1  # there\n```\n";
    let items = items(document);
    let commands: Vec<&str> = items
        .iter()
        .map(|item| match item {
            Item::Run(step) => step.command.as_str(),
            Item::Save { contents, .. } => contents.as_str(),
        })
        .collect();
    assert_eq!(commands, ["echo a \\\n  b", "two", "the text\n"]);
    assert!(matches!(&items[0], Item::Run(step) if step.shown == ["a b"]));
    assert_eq!(commands_not_run(document), ["paceline node   --task a/1"]);
    let run = "run   runs/20261115-225041-lenet-one-device-ar6r";
    assert_eq!(outline(run), outline("run runs/20270101-000000-lenet-one-device-0000"));
    assert_eq!(outline("time  1.01 s, 40115 examples/s"), outline("time 0.9 s, 1,234 examples/s"));
    assert_ne!(outline("test loss 0.1"), outline("train loss 0.1"));
}
