//! What the store shows while a folder grows, fails and vanishes.

use super::*;
use crate::LocalStore;

fn folders() -> (tempfile::TempDir, PathBuf, MirroredFolder) {
    let root = tempfile::tempdir().unwrap();
    let here = root.path().join("here");
    fs::create_dir_all(here.join("checkpoints/0000000010")).unwrap();
    let store = Arc::new(LocalStore::new(root.path().join("there")));
    let state = MirroredFolder::new(&here, store);
    (root, here, state)
}

#[test]
fn text_goes_up_to_its_last_whole_line() {
    let (_root, here, mut state) = folders();
    fs::write(here.join("events-worker-0.jsonl"), "{\"a\":1}\n{\"b\":").unwrap();
    fs::write(here.join("plan.json"), "{}").unwrap();
    fs::write(here.join(".hidden"), "x").unwrap();
    assert!(state.pass(false).is_empty());
    assert_eq!(state.store.read("events-worker-0.jsonl", 99).unwrap(), b"{\"a\":1}\n");
    assert_eq!(state.store.read("plan.json", 99).unwrap(), b"{}");
    assert_eq!(state.store.size(".hidden").unwrap(), None);
    let before = state.report.files;
    assert!(state.pass(false).is_empty());
    assert_eq!(state.report.files, before, "nothing changed, nothing sent");
}

#[test]
fn an_owner_here_holds_a_lease_there_and_a_folder_that_another_has_is_left_alone() {
    let (_root, here, mut state) = folders();
    fs::create_dir_all(here.join("run")).unwrap();
    fs::write(here.join("run").join(OWNER_FILE), "{}").unwrap();
    fs::write(here.join("run/plan.json"), "{}").unwrap();
    assert!(state.pass(false).is_empty());
    assert!(matches!(state.store.lock("run/owner.json"), Err(StoreError::Locked { .. })));
    assert_eq!(state.store.read("run/plan.json", 99).unwrap(), b"{}");
    // Another process has the other folder there.
    let other = state.store.lock("other/owner.json").unwrap();
    fs::create_dir_all(here.join("other")).unwrap();
    fs::write(here.join("other").join(OWNER_FILE), "{}").unwrap();
    fs::write(here.join("other/plan.json"), "mine").unwrap();
    let failures = state.pass(true);
    assert!(matches!(failures[..], [StoreError::Locked { .. }]), "{failures:?}");
    assert_eq!(state.store.size("other/plan.json").unwrap(), None);
    drop(other);
    assert!(state.pass(true).is_empty(), "free again");
    assert_eq!(state.store.read("other/plan.json", 99).unwrap(), b"mine");
    let store = Arc::clone(&state.store);
    drop(state);
    drop(store.lock("run/owner.json").unwrap());
}

/// Refuses everything with a certain ending.
#[derive(Debug)]
struct Refusing(LocalStore, &'static str);

impl Store for Refusing {
    fn locate(&self, key: &str) -> String {
        self.0.locate(key)
    }
    fn size(&self, key: &str) -> Result<Option<u64>> {
        self.0.size(key)
    }
    fn read_into(&self, key: &str, limit: u64, into: &mut Vec<u8>) -> Result<()> {
        self.0.read_into(key, limit, into)
    }
    fn read_range(&self, key: &str, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        self.0.read_range(key, range)
    }
    fn find(&self, key: &str) -> Result<Arc<dyn crate::Object>> {
        self.0.find(key)
    }
    fn list(&self, folder: &str) -> Result<crate::Listing> {
        self.0.list(folder)
    }
    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn crate::Upload>> {
        if key.ends_with(self.1) {
            let source = io::ErrorKind::TimedOut.into();
            return Err(StoreError::io("write", self.locate(key), source));
        }
        self.0.create(key, if_exists)
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.0.remove(key)
    }
    fn remove_folder(&self, folder: &str) -> Result<()> {
        self.0.remove_folder(folder)
    }
    fn sweep(&self, folder: &str) -> Result<usize> {
        self.0.sweep(folder)
    }
    fn lock(&self, key: &str) -> Result<Box<dyn Lock>> {
        self.0.lock(key)
    }
    fn free_space(&self) -> Option<u64> {
        None
    }
}

#[test]
fn no_manifest_goes_before_the_files_it_promises() {
    let (root, here, mut state) = folders();
    let checkpoint = here.join("checkpoints/0000000010");
    fs::write(checkpoint.join("weights.safetensors"), "w").unwrap();
    fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
    let there = LocalStore::new(root.path().join("there"));
    state.store = Arc::new(Refusing(there, "weights.safetensors"));
    assert_eq!(state.pass(true).len(), 1);
    let manifest = "checkpoints/0000000010/manifest.json";
    assert_eq!(state.store.size(manifest).unwrap(), None);
    state.store = Arc::new(LocalStore::new(root.path().join("there")));
    assert!(state.pass(true).is_empty());
    assert_eq!(state.store.size(manifest).unwrap(), Some(2));
    // Pruned here, so pruned there.
    fs::remove_dir_all(&checkpoint).unwrap();
    assert!(state.pass(true).is_empty());
    assert_eq!(state.store.size(manifest).unwrap(), None);
}

#[test]
fn a_run_is_not_called_done_while_a_checkpoint_is_missing() {
    let (root, here, mut state) = folders();
    fs::write(here.join("checkpoints/0000000010/weights.safetensors"), "w").unwrap();
    fs::write(here.join("summary.json"), "{}").unwrap();
    let there = LocalStore::new(root.path().join("there"));
    state.store = Arc::new(Refusing(there, "weights.safetensors"));
    assert_eq!(state.pass(true).len(), 1);
    assert_eq!(state.store.size("summary.json").unwrap(), None);
}

#[test]
fn weights_that_change_take_their_manifest_away_first() {
    let (root, here, mut state) = folders();
    let checkpoint = here.join("checkpoints/0000000010");
    fs::write(checkpoint.join("weights.safetensors"), "old").unwrap();
    fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
    assert!(state.pass(false).is_empty());
    fs::write(checkpoint.join("weights.safetensors"), "newer").unwrap();
    let there = LocalStore::new(root.path().join("there"));
    state.store = Arc::new(Refusing(there, "weights.safetensors"));
    assert_eq!(state.pass(true).len(), 1);
    let manifest = "checkpoints/0000000010/manifest.json";
    assert_eq!(state.store.size(manifest).unwrap(), None, "it would promise the old weights");
    state.store = Arc::new(LocalStore::new(root.path().join("there")));
    assert!(state.pass(true).is_empty());
    assert_eq!(state.store.size(manifest).unwrap(), Some(2));
}

#[test]
fn a_folder_that_was_cleaned_away_removes_nothing_there() {
    let (_root, here, mut state) = folders();
    fs::write(here.join("plan.json"), "{}").unwrap();
    assert!(state.pass(false).is_empty());
    fs::remove_dir_all(&here).unwrap();
    assert!(state.pass(true).is_empty());
    assert_eq!(state.store.size("plan.json").unwrap(), Some(2));
}

#[test]
fn the_last_line_of_a_log_is_there_in_the_end() {
    let (_root, here, mut state) = folders();
    fs::write(here.join("worker-0.log"), "one\ntwo").unwrap();
    assert!(state.pass(false).is_empty());
    assert_eq!(state.store.read("worker-0.log", 99).unwrap(), b"one\n");
    state.finish();
    assert_eq!(state.store.read("worker-0.log", 99).unwrap(), b"one\ntwo");
}
