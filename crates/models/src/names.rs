//! Names that users type for models, optimisers and strategies: how they are spelled, and what a slip may have meant.

/// A name that none of its kind has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown {kind} `{asked}`{}; known: {known}",
    .nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
)]
pub struct UnknownName {
    /// What was looked for, such as `model`.
    pub kind: &'static str,
    /// What was typed.
    pub asked: String,
    pub known: String,
    /// The name that looks most like it, if one is near enough.
    pub nearest: Option<String>,
}

impl UnknownName {
    /// A name that is not among the known ones.
    pub fn new<'a>(
        kind: &'static str,
        asked: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        Self {
            kind,
            asked: asked.to_owned(),
            nearest: nearest(asked, known.iter().copied()).map(str::to_owned),
            known: known.join(", "),
        }
    }
}

/// A name as it is spelled now: with hyphens. Runs of older versions and old habits say `mobilenet_v2`.
#[must_use]
pub fn spelling(name: &str) -> String {
    name.replace('_', "-")
}

/// The name with the fewest edits, if these are few enough to be a slip.
pub fn nearest<'a>(asked: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let asked = spelling(asked).to_lowercase();
    names
        .into_iter()
        .map(|name| (distance(&asked, name), name))
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
        let names = ["batch-size", "epochs"];
        assert_eq!(nearest("batchsize", names), Some("batch-size"));
        assert_eq!(nearest("Batch_Size", names), Some("batch-size"));
        assert_eq!(nearest("tomatoes", names), None);
        let error = UnknownName::new("flag", "epoch", names).to_string();
        assert_eq!(
            error,
            "unknown flag `epoch` (did you mean `epochs`?); known: batch-size, epochs"
        );
        let error = UnknownName::new("flag", "tomatoes", names).to_string();
        assert_eq!(error, "unknown flag `tomatoes`; known: batch-size, epochs");
    }
}
