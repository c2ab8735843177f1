//! The photos that comparisons work on.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A set of real photos copied `times` times into `work`, made once.
pub fn copies(root: &Path, work: &Path, name: &str, times: usize) -> anyhow::Result<PathBuf> {
    let out = work.join(format!("{name}-{times}"));
    if out.join(".complete").exists() {
        return Ok(out);
    }
    let data = std::env::var_os("PACELINE_DATA")
        .map_or_else(|| root.join("../shared/data"), PathBuf::from);
    let source = data.join(name);
    if !source.is_dir() {
        bail!("no photos at {}; set PACELINE_DATA", source.display());
    }
    for class in fs::read_dir(&source)? {
        let class = class?.path();
        if !class.is_dir() {
            continue;
        }
        let target = out.join(class.file_name().context("a class folder has a name")?);
        fs::create_dir_all(&target)?;
        for photo in fs::read_dir(&class)? {
            let photo = photo?.path();
            let name = photo.file_name().context("a photo has a name")?.to_string_lossy();
            for copy in 0..times {
                fs::copy(&photo, target.join(format!("{copy}-{name}")))?;
            }
        }
    }
    fs::write(out.join(".complete"), "")?;
    Ok(out)
}

/// Photos in the class folders of `folder`.
pub fn count(folder: &Path) -> anyhow::Result<u64> {
    let mut count = 0;
    for class in fs::read_dir(folder)? {
        let class = class?.path();
        if class.is_dir() {
            count += fs::read_dir(class)?.count() as u64;
        }
    }
    Ok(count)
}
