//! The models users can name.

use crate::model::{Build, ModelError};

/// One model of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What users type.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Builds it for a data source.
    pub build: Build,
}

/// Every model, simplest first.
pub const ALL: &[&Entry] = &[
    &crate::softmax::ENTRY,
    &crate::lenet::ENTRY,
    &crate::alexnet::ENTRY,
    &crate::mobilenet_v2::ENTRY,
];

/// The model of that name.
///
/// # Errors
/// [`ModelError::Unknown`], with the nearest name if one is near.
pub fn find(name: &str) -> Result<&'static Entry, ModelError> {
    ALL.iter().copied().find(|entry| entry.name == name).ok_or_else(|| ModelError::Unknown {
        asked: name.to_owned(),
        known: ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
        nearest: nearest(name),
    })
}

/// The name with the fewest edits, if these are few enough to be a slip.
fn nearest(asked: &str) -> Option<&'static str> {
    let asked = asked.to_lowercase().replace('-', "_");
    ALL.iter()
        .map(|entry| (distance(&asked, entry.name), entry.name))
        .min()
        .filter(|(edits, name)| *edits <= 1 + name.len() / 4)
        .map(|(_, name)| name)
}

/// Insertions, deletions and replacements that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_gets_a_suggestion_and_nonsense_does_not() {
        assert_eq!(find("softmax").unwrap().name, "softmax");
        let slip = find("LeNet5").unwrap_err().to_string();
        assert!(slip.contains("did you mean `lenet`"), "{slip}");
        let nonsense = find("gpt").unwrap_err().to_string();
        assert!(!nonsense.contains("mean") && nonsense.contains("softmax"), "{nonsense}");
    }
}
