//! Which tensors a network has and of which shape, as the newest checkpoint of its run tells.

use crate::RunFolder;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Longest list of tensors that is read, in bytes; a longer one is none of ours.
const LONGEST: u64 = 4 << 20;

/// A tensor as the file describes it.
#[derive(Debug, Deserialize)]
struct Described {
    shape: Vec<usize>,
    /// Where its bytes begin and end: tensors lie in the order of the network.
    data_offsets: [u64; 2],
}

/// Names and shapes in the order of the network. Empty where no checkpoint can be read or where its tensors are not the network's
/// `parameters`, as with weights that are kept by number: only a table is missing then.
pub(crate) fn tensors(folder: &RunFolder, parameters: Option<u64>) -> Vec<(String, Vec<usize>)> {
    let Ok(kept) = fs::read_dir(folder.checkpoints_path()) else { return Vec::new() };
    let names = kept.flatten().map(|entry| entry.file_name());
    let newest = names.filter(|name| !name.to_string_lossy().starts_with('.')).max();
    let found = newest
        .and_then(|name| read(&folder.checkpoints_path().join(name).join("weights.safetensors")));
    let found = found.unwrap_or_default();
    let sizes = found.iter().map(|(_, shape)| shape.iter().product::<usize>() as u64);
    if parameters.is_some_and(|parameters| parameters == sizes.sum::<u64>()) {
        found
    } else {
        Vec::new()
    }
}

/// The head of a safetensors file: its length as eight bytes, then an object of tensors by name.
fn read(path: &Path) -> Option<Vec<(String, Vec<usize>)>> {
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST {
        return None;
    }
    let mut head = Vec::new();
    file.take(length).read_to_end(&mut head).ok()?;
    let head: Map<String, Value> = serde_json::from_slice(&head).ok()?;
    let tensors = head.into_iter().filter(|(name, _)| name != "__metadata__");
    let mut found = tensors
        .map(|(name, about)| Some((name, Described::deserialize(about).ok()?)))
        .collect::<Option<Vec<_>>>()?;
    found.sort_by_key(|(_, about)| about.data_offsets);
    Some(found.into_iter().map(|(name, about)| (name, about.shape)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(run: &RunFolder, step: &str, head: &str) {
        let folder = run.checkpoints_path().join(step);
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head.as_bytes());
        fs::write(folder.join("weights.safetensors"), bytes).unwrap();
    }

    #[test]
    fn the_newest_checkpoint_tells_the_tensors_in_the_order_of_the_network() {
        let (_root, run) = RunFolder::temporary();
        assert!(tensors(&run, Some(10)).is_empty(), "no checkpoint");
        checkpoint(&run, "0000000009", "{}");
        let head = r#"{"__metadata__": {"format": "paceline"},
            "a.bias": {"dtype": "F32", "shape": [2], "data_offsets": [32, 40]},
            "a.weight": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}"#;
        checkpoint(&run, "0000000010", head);
        let wanted = [("a.weight".to_owned(), vec![2, 4]), ("a.bias".to_owned(), vec![2])];
        assert_eq!(tensors(&run, Some(10)), wanted);
        assert!(tensors(&run, Some(11)).is_empty(), "not all of the network");
        assert!(tensors(&run, None).is_empty());
    }

    #[test]
    fn a_damaged_checkpoint_costs_only_the_table() {
        let (_root, run) = RunFolder::temporary();
        for head in ["", "[]", "{\"a\": 1}", "{\"a\": {\"shape\": [-1], \"data_offsets\": [0, 1]}}"]
        {
            checkpoint(&run, "1", head);
            assert!(tensors(&run, Some(0)).is_empty(), "{head}");
        }
        let path = run.checkpoints_path().join("1").join("weights.safetensors");
        fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
        assert!(tensors(&run, Some(0)).is_empty());
    }
}
