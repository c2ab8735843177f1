//! `docs/commands.md` is written by the program itself; this test notices when it is out of date.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

/// One section per command, from the same definitions as the parser.
fn reference() -> String {
    let mut text = String::from(
        "# Commands\n\nWritten by `cargo xtask docs` from the program itself; do not edit.\n",
    );
    let mut command = paceline_cli::command().term_width(100);
    command.build();
    describe(&mut text, &mut command);
    text
}

fn describe(text: &mut String, command: &mut clap::Command) {
    let name = command.get_bin_name().unwrap_or("paceline").to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(text, "\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()).unwrap();
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        describe(text, sub);
    }
}

#[test]
fn command_reference_is_current() {
    let path = paceline_testing::workspace().join("docs/commands.md");
    let wanted = reference();
    if std::env::var_os("PACELINE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/commands.md is out of date: run `cargo xtask docs`");
}
