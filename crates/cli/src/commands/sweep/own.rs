//! `paceline sweep` of a command of our own: its names, and the flags that it has.

use crate::arguments;
use crate::terminal::failure::{FailureExt, usage};
use paceline_models::names::{UnknownName, nearest};
use paceline_sweep::{Cell, Places, Recipe};
use std::ffi::OsString;

/// A command line in the names of this version.
pub(in crate::commands) fn current_names(command: &[String]) -> Vec<String> {
    let words = std::iter::once("paceline").chain(command.iter().map(String::as_str));
    let (words, _) = arguments::typed(words.map(OsString::from));
    words[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A value that a command of ours refuses would fail in its cells only, perhaps after hours; it is said before the first. What
/// depends on data shows when a cell runs.
pub(super) fn check_cells(cells: &[Cell], places: &Places) -> anyhow::Result<()> {
    let program = crate::command();
    for cell in cells.iter().filter(|cell| cell.program.is_none()) {
        let Ok(arguments) = places.arguments(cell) else { continue };
        let words = std::iter::once("paceline").chain(arguments.iter().map(String::as_str));
        // Every cell is asked for its figures so.
        let words = words.chain(["--json"]);
        let Err(error) = program.clone().try_get_matches_from(words) else { continue };
        let said = arguments::numbers_in_words(&error.to_string());
        let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        return Err(if said.contains("'--json'") {
            usage(
                "`--json` behind `--` has no effect: every cell is asked for it anyway",
                "leave it out; in front of `--` it makes the result of the sweep a JSON document",
            )
        } else {
            usage(format!("{}: {said}", cell.label()), "nothing was run; --dry-run shows all cells")
        });
    }
    Ok(())
}

/// A name that a command of ours does not know would fail in every run; it is said before the first. `flag` is what asked for it.
pub(in crate::commands) fn check_flags<'a>(
    recipe: &Recipe,
    mut names: impl Iterator<Item = &'a str>,
    flag: &str,
) -> anyhow::Result<()> {
    let mut program = crate::command();
    program.build();
    let mut swept = &program;
    for word in recipe.command.iter().take_while(|word| !word.starts_with('-')) {
        let Some(found) = swept.find_subcommand(word) else { break };
        swept = found;
    }
    if std::ptr::eq(swept, &program) {
        let known = program.get_subcommands().map(clap::Command::get_name);
        return Err(UnknownName::new("command", &recipe.command[0], known))
            .hint("a command of this program stands behind `--`, such as `-- train --model …`");
    }
    let flags = swept.get_arguments().filter(|argument| !argument.is_hide_set());
    let mut known: Vec<&str> = flags
        .flat_map(|argument| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            argument.get_long().into_iter().chain(aliases)
        })
        .collect();
    // A recipe's own names are filled in where it says so.
    known.extend(recipe.axis.iter().map(|axis| axis.name.as_str()));
    known.extend(recipe.scaled.keys().map(String::as_str));
    let Some(name) = names.find(|name| !known.contains(name)) else { return Ok(()) };
    let near = nearest(name, known.iter().copied());
    let command = recipe.command.join(" ");
    let verb = flag.trim_start_matches('-');
    Err(usage(
        format!("`paceline {command}` has no flag `--{name}` to {verb}"),
        match near {
            Some(near) => format!("did you mean `{flag} {near}=…`?"),
            None => format!("`paceline {command} --help` lists its flags"),
        },
    ))
}
