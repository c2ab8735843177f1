//! Our event files against TensorFlow's own, and against the real TensorBoard.

#![allow(clippy::unwrap_used)] // a helper outside of #[test] functions

use paceline_runs::tensorboard::{
    EntryValue, EventValue, EventWriter, Histogram, Scalar, layer_chain, read,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn write_sample(folder: &Path) -> PathBuf {
    let mut writer = EventWriter::create(folder).unwrap();
    let layers: [(&str, &[usize]); 4] = [
        ("conv1.weight", &[6, 1, 5, 5]),
        ("conv1.bias", &[6]),
        ("head.weight", &[10, 84]),
        ("head.bias", &[10]),
    ];
    writer.graph(1.0, &layer_chain(layers.into_iter())).unwrap();
    for step in 1..=100u64 {
        let scalars = [
            Scalar::new("train/loss", 2.5 / step as f64),
            Scalar::new("train/accuracy", 1.0 - 1.0 / step as f64),
        ];
        writer.scalars(1000.0 + step as f64, step, &scalars).unwrap();
    }
    let weights: Vec<f32> = (0..840).map(|i| (i as f32 * 0.1).sin()).collect();
    for step in [50, 100] {
        let histograms = vec![("head.weight".to_string(), Histogram::of(&weights))];
        writer.histograms(1000.0 + step as f64, step, &histograms).unwrap();
    }
    writer.flush().unwrap();
    writer.path().to_path_buf()
}

fn scalars(entries: &[EventValue], tag: &str) -> Vec<(i64, f64)> {
    entries
        .iter()
        .filter(|entry| entry.tag == tag)
        .filter_map(|entry| match entry.value {
            EntryValue::Scalar(value) => Some((entry.step, value)),
            _ => None,
        })
        .collect()
}

#[test]
fn our_files_come_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_sample(folder.path());
    let name = path.file_name().unwrap().to_str().unwrap();
    let parts: Vec<&str> = name.split('.').collect();
    assert_eq!(&parts[..3], ["events", "out", "tfevents"], "{name}");
    assert_eq!(parts[3].len(), 10, "{name}");
    assert_eq!(parts.last(), Some(&"v2"), "{name}");

    let entries = read(&path).unwrap();
    assert_eq!(entries[0].value, EntryValue::Version("brain.Event:2".into()));
    let loss = scalars(&entries, "train/loss");
    assert_eq!(loss.len(), 100);
    assert_eq!(loss[3], (4, 0.625));
    let EntryValue::Graph(nodes) = &entries[1].value else { panic!("no graph") };
    assert!(nodes.iter().any(|(name, op, _)| name == "conv1/output" && op == "Conv2D"));
    let histograms: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.value {
            EntryValue::Histogram(buckets) => Some(buckets),
            _ => None,
        })
        .collect();
    assert_eq!(histograms.len(), 2);
    assert_eq!(histograms[0].iter().map(|bucket| bucket[2]).sum::<f64>(), 840.0);
}

#[test]
fn a_torn_file_gives_what_came_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_sample(folder.path());
    let whole = read(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let torn = read(&path).unwrap();
    assert_eq!(torn[..], whole[..torn.len()]);
    assert_eq!(torn.len(), whole.len() - 1);
    // A flipped byte in the middle is damage, not an unfinished write.
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    fs::write(&path, damaged).unwrap();
    assert!(read(&path).is_err());
}

#[test]
fn two_writers_in_one_second_do_not_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..5).map(|_| EventWriter::create(folder.path()).unwrap().path().to_path_buf()).collect();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "{paths:?}");
}

#[test]
fn files_of_tensorflow_are_understood() {
    let Some(root) = paceline_testing::real_data("tfevents") else { return };
    let read_folder = |name: &str| -> Vec<EventValue> {
        let file = fs::read_dir(root.join(name)).unwrap().next().unwrap().unwrap().path();
        read(&file).unwrap()
    };
    for name in ["tf2_summaries", "v1_filewriter", "keras_mnist/train", "keras_mnist/validation"] {
        let entries = read_folder(name);
        assert_eq!(entries[0].value, EntryValue::Version("brain.Event:2".into()), "{name}");
        let numbers =
            entries.iter().filter(|entry| matches!(entry.value, EntryValue::Scalar(_))).count();
        assert!(numbers > 0, "{name} has no scalars");
    }
    let train = read_folder("keras_mnist/train");
    let accuracy = scalars(&train, "epoch_accuracy");
    assert!((accuracy[0].1 - 0.2245).abs() < 1e-3, "{accuracy:?}");
    let kernel = train
        .iter()
        .find_map(|entry| match &entry.value {
            EntryValue::Histogram(buckets) if entry.tag.contains("kernel") => Some(buckets),
            _ => None,
        })
        .unwrap();
    assert_eq!(kernel.len(), 30);
    assert!(
        read_folder("v1_filewriter")
            .iter()
            .any(|entry| matches!(&entry.value, EntryValue::Graph(nodes) if !nodes.is_empty()))
    );
}

/// The real reader must agree with ours about our own file.
#[test]
fn tensorboard_itself_reads_our_files() {
    let Some(python) = paceline_testing::python("tensorboard") else { return };
    let folder = tempfile::tempdir().unwrap();
    write_sample(folder.path());
    let script = paceline_testing::workspace().join("xtask/peers/check_tensorboard.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(seen["scalars"]["train/loss"]["count"], 100, "{text}");
    assert_eq!(seen["scalars"]["train/loss"]["last"][1], f64::from(0.025f32), "{text}");
    assert_eq!(seen["histograms"]["head.weight"]["count"], 2, "{text}");
    assert_eq!(seen["histograms"]["head.weight"]["values"], 840.0, "{text}");
    assert_eq!(seen["graph_nodes"], 8, "{text}");
    assert_eq!(seen["plugins"], serde_json::json!(["histograms", "scalars"]), "{text}");
}
