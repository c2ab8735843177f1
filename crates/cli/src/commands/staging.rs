//! Stand-ins on this machine for folders in object stores.
//!
//! Data sets are read from a store where they lie. Run folders and results are not: they grow line by
//! line, are locked, renamed and looked at while they grow, which only a file system can do. A command that
//! is given a URL for one works in a folder of this machine instead; what it writes there is put into the
//! store every few seconds and at the end, each file whole (`paceline_data::store::Mirror`), and what it is
//! to go on from is fetched before it begins.

use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::Terminal,
};
use anyhow::{Context, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use paceline_data::store::{self, Follower, Lock, Mirror, OWNER_FILE, Store, StoreError};
use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Keys that a look at runs does not need: weights, and what TensorBoard reads.
pub(super) fn without_weights(key: &str) -> bool {
    !key.split('/').any(|part| matches!(part, "checkpoints" | "tensorboard"))
}

/// The stand-ins of one command.
#[derive(Debug, Default)]
pub(super) struct Staging {
    folder: Option<PathBuf>,
    outputs: Vec<Output>,
    follower: Option<Follower>,
}

/// A folder here for one there.
#[derive(Debug)]
struct Output {
    here: PathBuf,
    there: PathBuf,
    /// What puts things there; nothing where it is only read.
    mirror: Option<Mirror>,
}

impl Staging {
    /// A folder or file to read: itself where it lies here, a copy of what `wanted` wants where not.
    pub(super) fn input(
        &mut self,
        path: &Path,
        wanted: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<PathBuf> {
        if !store::is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        if store::is_file(path) {
            let (folder, name) = store::split(path)?;
            store::download_if(&*store::open(folder)?, &here, &|key| key == name)?;
            return Ok(here.join(name));
        }
        store::download_if(&*store::open(path)?, &here, wanted)?;
        Ok(here)
    }

    /// A folder to read while it changes: itself where it lies here, a copy that follows it where not.
    pub(super) fn followed(
        &mut self,
        path: &Path,
        wanted: fn(&str) -> bool,
    ) -> anyhow::Result<PathBuf> {
        if !store::is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        self.follower = Some(Follower::start(store::open(path)?, &here, wanted)?);
        Ok(here)
    }

    /// A run by its folder, its name under `out`, or (empty) the latest there; a copy where it lies in a
    /// store.
    pub(super) fn run(
        &mut self,
        out: &Path,
        name: &str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<(PathBuf, String)> {
        let Some((folder, name)) = locate_run(out, name)? else {
            return Ok((out.to_owned(), name.to_owned()));
        };
        let here = self.fetch_run(&folder, &name, wanted)?;
        self.outputs.push(Output { here: here.clone(), there: folder, mirror: None });
        Ok((here, name))
    }

    /// A folder that holds a copy of a run under its name.
    fn fetch_run(
        &mut self,
        folder: &Path,
        name: &str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<PathBuf> {
        let here = self.new_folder()?;
        store::download_if(&*store::open(folder.join(name))?, &here.join(name), wanted)?;
        Ok(here)
    }

    /// A folder to write: itself where it lies here, a stand-in that is mirrored where not.
    pub(super) fn output(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
        if !store::is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        self.mirror(&here, path, false)?;
        Ok(here)
    }

    /// A folder of results to go on with: itself where it lies here, a mirrored copy where not.
    pub(super) fn results(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
        if !store::is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        match store::download(&*store::open(path)?, &here) {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => self.mirror(&here, path, true)?,
        }
        Ok(here)
    }

    /// A file to write: itself where it lies here, one in a stand-in for its folder where not.
    pub(super) fn output_file(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
        if !store::is_remote(path) {
            return Ok(path.to_owned());
        }
        let (folder, name) = store::split(path)?;
        Ok(self.output(&folder)?.join(name))
    }

    /// Where runs go and which one is resumed: stand-ins for both where they lie in a store. A process that
    /// resumes a run by itself owns it (`owns`); of several tasks only the chief does, see [`Self::claim`].
    pub(super) fn run_to_resume(
        &mut self,
        out: &Path,
        resume: Option<&str>,
        owns: bool,
    ) -> anyhow::Result<(PathBuf, Option<String>)> {
        let Some(name) = resume else { return Ok((self.output(out)?, None)) };
        let Some((folder, name)) = locate_run(out, name)? else {
            return Ok((out.to_owned(), Some(name.to_owned())));
        };
        let key = format!("{name}/{OWNER_FILE}");
        // Before anything is fetched: what another process still writes is not to be continued from.
        let lease = if owns { Some(lease(&folder, &key)?) } else { None };
        let here = self.fetch_run(&folder, &name, &|key| key != OWNER_FILE)?;
        self.mirror(&here, &folder, true)?;
        let mirror = self.outputs.last().and_then(|output| output.mirror.as_ref());
        if let (Some(mirror), Some(lease)) = (mirror, lease) {
            mirror.hold(&key, lease);
        }
        Ok((here, Some(name)))
    }

    /// Takes the run that a folder stands in for, where that lies in a store and another process does not have it.
    pub(super) fn claim(&mut self, run: &Path) -> anyhow::Result<()> {
        for output in &self.outputs {
            if let (Ok(name), Some(mirror)) = (run.strip_prefix(&output.here), &output.mirror) {
                let key = format!("{}/{OWNER_FILE}", name.display());
                mirror.hold(&key, lease(&output.there, &key)?);
            }
        }
        Ok(())
    }

    fn mirror(&mut self, here: &Path, there: &Path, same: bool) -> anyhow::Result<()> {
        let target = store::open(there)?;
        try_out(&target)?;
        let mirror = Mirror::start(here, target, same)?;
        let (here, there) = (here.to_owned(), there.to_owned());
        self.outputs.push(Output { here, there, mirror: Some(mirror) });
        Ok(())
    }

    /// Lets messages call stand-ins by what they stand for.
    pub(super) fn tell(&self, terminal: &mut Terminal) {
        for output in &self.outputs {
            terminal.call(&output.here, &output.there);
        }
    }

    /// What a path below a stand-in stands for.
    pub(super) fn there(&self, path: &Path) -> PathBuf {
        let below = |output: &Output| {
            path.strip_prefix(&output.here).ok().map(|rest| match rest.as_os_str().is_empty() {
                true => output.there.clone(),
                false => output.there.join(rest),
            })
        };
        self.outputs.iter().find_map(below).unwrap_or_else(|| path.to_owned())
    }

    /// Puts everything where it belongs, whatever came of the command, and removes the stand-ins. Where the
    /// store did not take something, they stay, and the error says where they are.
    pub(super) fn settle<T>(
        mut self,
        outcome: anyhow::Result<T>,
        terminal: &Terminal,
    ) -> anyhow::Result<T> {
        let mut problem = None;
        for output in &mut self.outputs {
            let Some(mirror) = output.mirror.take() else { continue };
            let report = mirror.finish();
            let failed = report.failures.len();
            if let Some(first) = report.failures.into_iter().next() {
                let may_pass = first.may_pass();
                let hint =
                    format!("everything is in `{}`; copy it from there", output.here.display());
                let error = anyhow::Error::from(first).context(format!(
                    "{failed} files did not get into `{}`",
                    output.there.display()
                ));
                let exit = if may_pass { Exit::Retry } else { Exit::Failed };
                problem = Some(Err(error).hint(hint).exit(exit));
            }
        }
        let Some(problem) = problem else { return outcome }; // dropping removes the stand-ins
        self.folder = None;
        match outcome {
            Ok(_) => problem,
            Err(error) => {
                // The command's own error is the one to end with.
                if let Err(problem) = problem {
                    terminal.warn(format!("{problem:#}"));
                }
                Err(error)
            }
        }
    }

    /// A folder of this command's own, beside those it has already.
    fn new_folder(&mut self) -> anyhow::Result<PathBuf> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = match &self.folder {
            Some(root) => root.clone(),
            None => {
                // `/tmp` may be held in memory; `/var/tmp` is not.
                let parent = std::env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from);
                let parent = if parent.is_dir() { parent } else { std::env::temp_dir() };
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let root = parent.join(format!("paceline-staging-{}-{number}", process::id()));
                self.folder.insert(root).clone()
            }
        };
        let folder = root.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        Ok(folder)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.outputs.clear(); // stops what still mirrors
        self.follower = None; // and what still fetches
        if let Some(folder) = self.folder.take() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Takes the lease of a run in a store, or says who has it.
fn lease(folder: &Path, key: &str) -> anyhow::Result<Box<dyn Lock>> {
    let store = store::open(folder)?;
    match store.lock(key) {
        Err(StoreError::Locked { pid, host, .. }) => {
            let run = store.locate(key.trim_end_matches(OWNER_FILE).trim_end_matches('/'));
            let owner = match (pid, host) {
                (Some(pid), Some(host)) => format!("process {pid} on {host}"),
                (Some(pid), None) => format!("process {pid}"),
                (None, _) => "another process".to_owned(),
            };
            Err(anyhow::anyhow!("run `{run}` is in use by {owner}"))
                .hint("wait until that process has ended; one that died loses the run within a minute")
                .exit(Exit::Retry)
        }
        other => Ok(other?),
    }
}

/// The store's folder and the name of a run, if it lies in a store.
fn locate_run(out: &Path, name: &str) -> anyhow::Result<Option<(PathBuf, String)>> {
    let trimmed = Path::new(name.trim_end_matches('/'));
    if store::is_remote(trimmed) {
        return Ok(Some(store::split(trimmed)?));
    }
    if !store::is_remote(out) || Path::new(name).exists() && !name.is_empty() {
        return Ok(None);
    }
    if !name.is_empty() {
        return Ok(Some((out.to_owned(), name.to_owned())));
    }
    let folder = store::open(out)?;
    // Names begin with date and time.
    for run in folder.list("")?.folders.into_iter().rev() {
        if folder.size(&format!("{run}/plan.json"))?.is_some() {
            return Ok(Some((out.to_owned(), run)));
        }
    }
    bail!("there is no run in `{}`", out.display())
}

/// A store that takes nothing is found out before an hour of training, not after.
fn try_out(target: &Arc<dyn Store>) -> anyhow::Result<()> {
    let key = format!(".paceline-tmp-{}", process::id());
    target.write(&key, b"").and_then(|()| target.remove(&key))?;
    Ok(())
}

/// Tasks on other machines cannot see the stand-in for a folder in a store.
pub(super) fn refuse_for_tasks(out: &Path) -> anyhow::Result<()> {
    if !store::is_remote(out) {
        return Ok(());
    }
    Err(usage(
        format!("tasks of an engine cannot measure into `{}`", out.display()),
        "results go to a folder that every executor sees; the data may lie in a store",
    ))
}

/// A path of this machine, for what no store can stand in for.
pub(super) fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        match store::is_remote(&path) {
            true => Err("an object store does not serve here; name a path of this machine"),
            false => Ok(path),
        }
    })
}
