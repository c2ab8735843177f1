//! Stand-ins on this machine for folders in object stores.
//!
//! Data sets are read from a store where they lie. Run folders and results are not: they grow line by
//! line, are locked, renamed and looked at while they grow, which only a file system can do. A command that
//! is given a URL for one works in a folder of this machine instead; what it writes there is put into the
//! store every few seconds and at the end, each file whole ([`Mirror`]), and what it is to continue from is
//! fetched before it begins.

use crate::{
    Follower, Lock, Mirror, OWNER_FILE, Result, Store, StoreError, download, download_if, is_file,
    is_remote, open, split,
};
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
pub fn without_weights(key: &str) -> bool {
    !key.split('/').any(|part| matches!(part, "checkpoints" | "tensorboard"))
}

/// The stand-ins of one command.
#[derive(Debug, Default)]
pub struct Staging {
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
    pub fn input(&mut self, path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<PathBuf> {
        if !is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        if is_file(path) {
            let (folder, name) = split(path)?;
            download_if(&*open(folder)?, &here, &|key| key == name)?;
            return Ok(here.join(name));
        }
        download_if(&*open(path)?, &here, wanted)?;
        Ok(here)
    }

    /// A folder to read while it changes: itself where it lies here, a copy that follows it where not.
    pub fn followed(&mut self, path: &Path, wanted: fn(&str) -> bool) -> Result<PathBuf> {
        if !is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        self.follower = Some(Follower::start(open(path)?, &here, wanted)?);
        Ok(here)
    }

    /// A run by its folder, its name under `out`, or (empty) the latest there; a copy where it lies in a
    /// store.
    pub fn run(
        &mut self,
        out: &Path,
        name: &str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<(PathBuf, String)> {
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
    ) -> Result<PathBuf> {
        let here = self.new_folder()?;
        download_if(&*open(folder.join(name))?, &here.join(name), wanted)?;
        Ok(here)
    }

    /// A folder to write: itself where it lies here, a stand-in that is mirrored where not.
    pub fn output(&mut self, path: &Path) -> Result<PathBuf> {
        if !is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        self.mirror(&here, path, false)?;
        Ok(here)
    }

    /// A folder of results to continue: itself if it is local, a mirrored copy if not.
    pub fn results(&mut self, path: &Path) -> Result<PathBuf> {
        if !is_remote(path) {
            return Ok(path.to_owned());
        }
        let here = self.new_folder()?;
        match download(&*open(path)?, &here) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => self.mirror(&here, path, true)?,
        }
        Ok(here)
    }

    /// A file to write: itself where it lies here, one in a stand-in for its folder where not.
    pub fn output_file(&mut self, path: &Path) -> Result<PathBuf> {
        if !is_remote(path) {
            return Ok(path.to_owned());
        }
        let (folder, name) = split(path)?;
        Ok(self.output(&folder)?.join(name))
    }

    /// Where runs go and which one is resumed: stand-ins for both where they lie in a store. A process that
    /// resumes a run by itself owns it (`owns`); of several tasks only the chief does, see [`Self::claim`].
    pub fn run_to_resume(
        &mut self,
        out: &Path,
        resume: Option<&str>,
        owns: bool,
    ) -> Result<(PathBuf, Option<String>)> {
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
    pub fn claim(&mut self, run: &Path) -> Result<()> {
        for output in &self.outputs {
            if let (Ok(name), Some(mirror)) = (run.strip_prefix(&output.here), &output.mirror) {
                let key = format!("{}/{OWNER_FILE}", name.display());
                mirror.hold(&key, lease(&output.there, &key)?);
            }
        }
        Ok(())
    }

    fn mirror(&mut self, here: &Path, there: &Path, same: bool) -> Result<()> {
        let target = open(there)?;
        try_out(&target)?;
        let mirror = Mirror::start(here, target, same)?;
        let (here, there) = (here.to_owned(), there.to_owned());
        self.outputs.push(Output { here, there, mirror: Some(mirror) });
        Ok(())
    }

    /// Every stand-in with what it stands for, so that messages can name the latter.
    pub fn stand_ins(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.outputs.iter().map(|output| (output.here.as_path(), output.there.as_path()))
    }

    /// What a path below a stand-in stands for.
    pub fn there(&self, path: &Path) -> PathBuf {
        let below = |output: &Output| {
            path.strip_prefix(&output.here).ok().map(|rest| match rest.as_os_str().is_empty() {
                true => output.there.clone(),
                false => output.there.join(rest),
            })
        };
        self.outputs.iter().find_map(below).unwrap_or_else(|| path.to_owned())
    }

    /// Puts everything where it belongs and removes the stand-ins.
    ///
    /// # Errors
    /// Where the store did not take something: the stand-ins stay then, and the error says where they are.
    pub fn finish(mut self) -> Result<()> {
        let mut problem = None;
        for output in &mut self.outputs {
            let Some(mirror) = output.mirror.take() else { continue };
            let report = mirror.finish();
            let files = report.failures.len();
            if let Some(first) = report.failures.into_iter().next() {
                problem = Some(StoreError::NotMirrored {
                    files,
                    here: output.here.clone(),
                    there: output.there.clone(),
                    source: Box::new(first),
                });
            }
        }
        let Some(problem) = problem else { return Ok(()) }; // dropping removes the stand-ins
        self.folder = None;
        Err(problem)
    }

    /// A folder of this command's own, beside those it has already.
    fn new_folder(&mut self) -> Result<PathBuf> {
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
            .map_err(|source| StoreError::io("create", folder.display().to_string(), source))?;
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
fn lease(folder: &Path, key: &str) -> Result<Box<dyn Lock>> {
    let store = open(folder)?;
    match store.lock(key) {
        Err(StoreError::Locked { pid, host, .. }) => {
            let run = store.locate(key.trim_end_matches(OWNER_FILE).trim_end_matches('/'));
            Err(StoreError::RunInUse { run, pid, host })
        }
        other => other,
    }
}

/// The store's folder and the name of a run, if it lies in a store.
fn locate_run(out: &Path, name: &str) -> Result<Option<(PathBuf, String)>> {
    let trimmed = Path::new(name.trim_end_matches('/'));
    if is_remote(trimmed) {
        return Ok(Some(split(trimmed)?));
    }
    if !is_remote(out) || Path::new(name).exists() && !name.is_empty() {
        return Ok(None);
    }
    if !name.is_empty() {
        return Ok(Some((out.to_owned(), name.to_owned())));
    }
    let folder = open(out)?;
    // Names begin with date and time.
    for run in folder.list("")?.folders.into_iter().rev() {
        if folder.size(&format!("{run}/plan.json"))?.is_some() {
            return Ok(Some((out.to_owned(), run)));
        }
    }
    Err(StoreError::NoRun { location: out.display().to_string() })
}

/// A store that takes nothing is found out before an hour of training, not after.
fn try_out(target: &Arc<dyn Store>) -> Result<()> {
    let key = format!(".paceline-tmp-{}", process::id());
    target.write(&key, b"").and_then(|()| target.remove(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_machine_stand_for_themselves() {
        let scratch = tempfile::tempdir().unwrap();
        let mut staging = Staging::default();
        let here = scratch.path();
        assert_eq!(staging.output(here).unwrap(), here);
        assert_eq!(staging.results(here).unwrap(), here);
        assert_eq!(staging.input(here, &without_weights).unwrap(), here);
        assert_eq!(staging.output_file(&here.join("a.csv")).unwrap(), here.join("a.csv"));
        assert_eq!(staging.there(&here.join("a")), here.join("a"));
        let resumed = staging.run_to_resume(here, Some("run"), true).unwrap();
        assert_eq!(resumed, (here.to_owned(), Some("run".to_owned())));
        assert_eq!(staging.stand_ins().count(), 0);
        staging.finish().unwrap();
        assert_eq!(fs::read_dir(here).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_of_this_machine_is_mirrored_and_removed_at_the_end() {
        let scratch = tempfile::tempdir().unwrap();
        let there = scratch.path().join("store");
        let mut staging = Staging::default();
        let here = staging.new_folder().unwrap();
        staging.mirror(&here, &there, false).unwrap();
        fs::write(here.join("summary.json"), b"{}").unwrap();
        assert_eq!(staging.there(&here), there);
        assert_eq!(staging.there(&here.join("a/b")), there.join("a/b"));
        staging.finish().unwrap();
        assert_eq!(fs::read(there.join("summary.json")).unwrap(), b"{}");
        assert!(!here.exists(), "the stand-in is gone");
    }

    #[test]
    fn what_looks_at_runs_needs_no_weights() {
        assert!(without_weights("run/events-worker-0.jsonl"));
        assert!(!without_weights("run/checkpoints/0000000010/weights.safetensors"));
        assert!(!without_weights("run/tensorboard/worker-0/events"));
    }
}
