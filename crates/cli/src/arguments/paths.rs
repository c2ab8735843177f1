//! Paths as they are typed: where an object store may stand in for a folder, and where not.

use crate::terminal::failure::usage;
use clap::builder::{OsStringValueParser, TypedValueParser};
use paceline_data::store;
use std::path::{Path, PathBuf};

/// Tasks on other machines cannot see the stand-in for a folder in a store.
pub(crate) fn refuse_for_tasks(out: &Path) -> anyhow::Result<()> {
    if !store::is_remote(out) {
        return Ok(());
    }
    Err(usage(
        format!("tasks of an engine cannot measure into `{}`", out.display()),
        "results go to a folder that every executor sees; the data may lie in a store",
    ))
}

/// A path of this machine, for what no store can stand in for.
pub(crate) fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        match store::is_remote(&path) {
            true => Err("an object store does not serve here; name a path of this machine"),
            false => Ok(path),
        }
    })
}
