//! Placeholders in recipes: `{data}`, `{cell}`, `{repeat}`, and the recipe's own scaled numbers.

use crate::error::SweepError;
use std::collections::BTreeMap;

/// Names and what they stand for.
pub(crate) type Names = BTreeMap<String, String>;

/// Fills the placeholders of a text. What is known only later (`keep`) stays as it is.
pub(crate) fn fill(text: &str, names: &Names, keep: &[&str]) -> Result<String, SweepError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, inside) = rest.split_at(open);
        out.push_str(before);
        let Some(close) = inside.find('}') else {
            rest = inside;
            break;
        };
        let name = &inside[1..close];
        match names.get(name) {
            Some(value) => out.push_str(value),
            None if keep.contains(&name) => out.push_str(&inside[..=close]),
            None => {
                return Err(SweepError::Placeholder {
                    text: text.to_owned(),
                    name: name.to_owned(),
                });
            }
        }
        rest = &inside[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_kept_or_refused() {
        let names = Names::from([("data".to_owned(), "d/mnist".to_owned())]);
        let filled = |text| fill(text, &names, &["cell"]);
        assert_eq!(filled("{data}/x{cell}").unwrap(), "d/mnist/x{cell}");
        assert_eq!(filled("no braces, {open").unwrap(), "no braces, {open");
        let error = filled("{epoch}").unwrap_err().to_string();
        assert_eq!(error, "`{epoch}` wants `{epoch}`, which nothing fills");
    }
}
