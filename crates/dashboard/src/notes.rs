//! `notes.json`: what people write beside a run. It lies in the run's folder, so it moves and is copied with the run.

use crate::plain_file::read_plain;
use paceline_runs::{RunsError, write_atomically};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
pub(crate) const FILE: &str = "notes.json";
/// Most bytes of the file.
const MOST_BYTES: u64 = 64 << 10;
/// Longest note and longest tag, in characters, and most tags.
const LONGEST_NOTE: usize = 10_000;
const LONGEST_TAG: usize = 40;
const MOST_TAGS: usize = 20;

/// Tags, a note, and whether the run is out of the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    pub(crate) tags: Vec<String>,
    pub(crate) note: String,
    /// The list leaves it out unless asked.
    pub(crate) archived: bool,
}

impl Notes {
    /// What is noted of a run; nothing where the file is missing, damaged or a link.
    pub(crate) fn read(run: &Path) -> Notes {
        let bytes = read_plain(&run.join(FILE), MOST_BYTES).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, run: &Path) -> Result<(), RunsError> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        write_atomically(&run.join(FILE), &bytes)
    }

    /// Why these cannot be kept.
    pub(crate) fn wrong(&self) -> Option<String> {
        let wrong_tag = |tag: &&String| {
            tag.is_empty()
                || tag.chars().count() > LONGEST_TAG
                || tag.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',')
        };
        if let Some(tag) = self.tags.iter().find(wrong_tag) {
            return Some(format!(
                "the tag {tag:?} is not one word of at most {LONGEST_TAG} characters"
            ));
        }
        if self.tags.len() > MOST_TAGS {
            return Some(format!("more than {MOST_TAGS} tags"));
        }
        (self.note.chars().count() > LONGEST_NOTE)
            .then(|| format!("the note has more than {LONGEST_NOTE} characters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_damage_is_not_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Notes::read(folder.path()), Notes::default());
        let notes =
            Notes { tags: vec!["best".to_owned()], note: "a\nb".to_owned(), archived: true };
        notes.write(folder.path()).unwrap();
        assert_eq!(Notes::read(folder.path()), notes);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Notes::read(folder.path()), Notes::default());
        let long = Notes { tags: vec!["two words".to_owned()], ..Notes::default() };
        assert!(long.wrong().is_some() && notes.wrong().is_none());
    }
}
