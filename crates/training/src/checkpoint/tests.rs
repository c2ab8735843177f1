//! Checkpoints against damage, full disks and the wrong model.

use super::*;
use crate::TrainError;
use paceline_data::order::Position;
use paceline_models::{
    Layout,
    optimizer::{self, Mask, Optimizer},
};
use paceline_store::durable::{Create, PartSink};
use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.push("conv.weight", &[2, 3, 5], true);
    layout.push("conv.running_mean", &[3], false);
    layout.push("head.weight", &[10, 7], true);
    layout
}

fn optimizer(name: &str, layout: &Layout) -> Optimizer {
    let entry = optimizer::find(name).unwrap();
    Optimizer::with_mask(entry, entry.defaults, layout, Mask::of(layout)).unwrap()
}

fn meta(step: u64, optimizer: &str) -> Meta {
    Meta {
        model: "tiny".into(),
        optimizer: optimizer.into(),
        step,
        position: Position { epoch: 3, example: 1_234 },
        examples: 99,
        seconds: 1.5,
        seed: 7,
        plan: "abc".into(),
        outstanding: Vec::new(),
        evaluation: Some(Evaluated { loss: 1.0 / step.max(1) as f64, accuracy: 0.5 }),
        train_loss: Some(0.75),
        legs: vec![paceline_runs::Leg { steps: step, ..Default::default() }],
    }
}

fn save(store: &Store, step: u64) -> Result<u64, TrainError> {
    let layout = layout();
    let optimizer = optimizer("adam", &layout);
    let params: Vec<f32> = (0..layout.len()).map(|i| i as f32 * 0.5 + step as f32).collect();
    let mut state = optimizer.state();
    for (slot, buffer) in state.buffers_mut().iter_mut().enumerate() {
        buffer.iter_mut().enumerate().for_each(|(i, value)| *value = (i + slot) as f32 * -0.25);
    }
    store.save(&meta(step, "adam"), &layout, &optimizer, &params, &state)
}

fn latest(store: &Store) -> (Option<Checkpoint>, Vec<Refused>) {
    let layout = layout();
    store.latest(&layout, &optimizer("adam", &layout)).unwrap()
}

#[test]
fn every_optimiser_comes_back_to_the_bit() {
    for entry in optimizer::ALL {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&folder.path().join("checkpoints"));
        let layout = layout();
        let optimizer = optimizer(entry.name, &layout);
        let params: Vec<f32> =
            (0..layout.len()).map(|i| f32::from_bits(0x3f00_0000 + i as u32 * 7919)).collect();
        let mut state = optimizer.state();
        for buffer in state.buffers_mut() {
            buffer.iter_mut().enumerate().for_each(|(i, value)| *value = (i as f32).sin());
        }
        store.save(&meta(12, entry.name), &layout, &optimizer, &params, &state).unwrap();
        let (loaded, refused) = store.latest(&layout, &optimizer).unwrap();
        let loaded = loaded.unwrap();
        assert_eq!(refused, []);
        assert_eq!(loaded.params, params);
        assert_eq!(loaded.state, state);
        assert_eq!(loaded.meta, meta(12, entry.name));
    }
}

/// It was called damaged and passed over, so that a run went on from an older one.
#[test]
fn a_checkpoint_of_a_newer_format_is_not_passed_over_for_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    save(&store, 10).unwrap();
    save(&store, 20).unwrap();
    let path = store.path(20).join("manifest.json");
    let good = fs::read(&path).unwrap();
    let newer = r#"{"format": 2, "program": "9.8.7", "weights": "elsewhere"}"#;
    fs::write(&path, newer).unwrap();
    let layout = layout();
    let latest = || store.latest(&layout, &optimizer("adam", &layout));
    let error = latest().unwrap_err();
    let TrainError::CheckpointNewer { path: named, found: 2, known: 1, program } = &error else {
        panic!("{error}");
    };
    assert_eq!((named, program.as_str()), (&store.path(20), "9.8.7"));
    assert!(error.to_string().contains("format 2, written by paceline 9.8.7"), "{error}");
    // It may be the best there is, and is not to be pruned among the others.
    assert!(matches!(store.best(), Err(TrainError::CheckpointNewer { .. })));
    assert!(matches!(store.kept(), Err(TrainError::CheckpointNewer { .. })));
    fs::write(&path, good).unwrap();
    assert_eq!(latest().unwrap().0.unwrap().meta.step, 20);
    // An unknown format that is not a later one is damage.
    fs::write(&path, r#"{"format": 0, "program": "0.0.1"}"#).unwrap();
    assert_eq!(latest().unwrap().0.unwrap().meta.step, 10);
}

#[test]
fn any_damaged_byte_sends_us_to_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    save(&store, 10).unwrap();
    save(&store, 20).unwrap();
    for name in ["weights.safetensors", "optimizer.safetensors", "manifest.json"] {
        let path = store.path(20).join(name);
        let whole = fs::read(&path).unwrap();
        // Every byte of a small file; a prime stride through a larger one. A flipped digit inside the
        // manifest may leave it valid (an accuracy, a version), which does no harm.
        let stride = if name == "manifest.json" { usize::MAX } else { 13 };
        for at in (0..whole.len()).step_by(stride.min(whole.len())) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            let (found, refused) = latest(&store);
            assert_eq!(found.unwrap().meta.step, 10, "{name}, byte {at}");
            assert_eq!(refused[0].step, 20);
        }
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            let (found, refused) = latest(&store);
            assert_eq!(found.unwrap().meta.step, 10, "{name} cut to {length}");
            assert!(refused[0].reason.contains(name), "{refused:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(latest(&store).0.unwrap().meta.step, 10, "{name} missing");
        fs::write(&path, &whole).unwrap();
        assert_eq!(latest(&store).0.unwrap().meta.step, 20);
    }
}

#[test]
fn a_half_written_one_is_invisible_and_swept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    save(&store, 10).unwrap();
    let half = folder.path().join(".paceline-tmp-1-0123456789abcdef");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("weights.safetensors"), b"half").unwrap();
    assert_eq!(store.steps().unwrap(), [10]);
    assert_eq!(latest(&store).0.unwrap().meta.step, 10);
    store.sweep().unwrap();
    assert!(!half.exists() && store.path(10).exists());
}

/// A disk with room for so many more bytes.
struct Scarce {
    file: fs::File,
    left: Arc<AtomicI64>,
}

impl Write for Scarce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left.fetch_sub(bytes.len() as i64, Ordering::Relaxed) < bytes.len() as i64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PartSink for Scarce {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[test]
fn a_full_disk_leaves_the_old_one_and_no_rubbish() {
    let folder = tempfile::tempdir().unwrap();
    let whole = save(&Store::new(folder.path()), 10).unwrap() as i64;
    for room in (0..whole).step_by(97) {
        let left = Arc::new(AtomicI64::new(room));
        let create: Create = {
            let left = Arc::clone(&left);
            Arc::new(move |path: &Path| {
                let file = fs::File::create_new(path)?;
                Ok(Box::new(Scarce { file, left: Arc::clone(&left) }) as Box<dyn PartSink>)
            })
        };
        let store = Store::with_create(folder.path(), create);
        let error = save(&store, 20).unwrap_err();
        assert!(matches!(error, TrainError::CheckpointWrite { .. }), "{error}");
        assert_eq!(store.steps().unwrap(), [10]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "rubbish left behind");
    }
    // With room again, it continues.
    save(&Store::new(folder.path()), 20).unwrap();
    assert_eq!(latest(&Store::new(folder.path())).0.unwrap().meta.step, 20);
}

#[test]
fn another_model_or_optimiser_is_told_apart_from_damage() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    save(&store, 10).unwrap();
    let mut other = Layout::default();
    other.push("conv.weight", &[2, 3, 6], true);
    let error = store.latest(&other, &optimizer("adam", &other)).unwrap_err().to_string();
    assert!(error.contains("conv.weight") && error.contains("[2, 3, 5]"), "{error}");
    assert!(error.contains("[2, 3, 6]"), "{error}");
    let layout = layout();
    let error = store.latest(&layout, &optimizer("sgd", &layout)).unwrap_err().to_string();
    assert!(error.contains("adam") && error.contains("sgd"), "{error}");
}

#[test]
fn deleting_and_best_follow_the_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for step in [30, 10, 20] {
        save(&store, step).unwrap();
    }
    assert_eq!(store.steps().unwrap(), [10, 20, 30]);
    assert_eq!(store.best().unwrap(), Some(30));
    store.delete(30).unwrap();
    assert_eq!(store.steps().unwrap(), [10, 20]);
    assert_eq!(store.best().unwrap(), Some(20));
    assert!(store.delete(30).is_err());
}

/// The files must be plain safetensors, or no other program could read them.
#[test]
fn the_safetensors_crate_reads_our_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    save(&store, 10).unwrap();
    let bytes = fs::read(store.path(10).join("weights.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 3);
    assert_eq!(file.tensor("head.weight").unwrap().shape(), [10, 7]);
    let slots = fs::read(store.path(10).join("optimizer.safetensors")).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&slots).unwrap().len(), 6);
}

#[test]
fn a_score_that_comes_late_decides_which_is_best_and_damages_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for step in [10, 20, 30] {
        save(&store, step).unwrap();
    }
    assert_eq!(store.best().unwrap(), Some(30));
    store.rate(20, Evaluated { loss: 0.001, accuracy: 0.9 }).unwrap();
    assert_eq!(store.best().unwrap(), Some(20));
    let (found, refused) = latest(&store);
    assert_eq!((found.unwrap().meta.step, refused.len()), (30, 0));
    assert!(store.contains(20) && !store.contains(21));
    assert!(store.rate(21, Evaluated { loss: 0.0, accuracy: 1.0 }).is_err());
    let hidden = fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0, "nothing half-written stays");
}
