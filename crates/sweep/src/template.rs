//! Placeholders in recipes: `{data}`, `{cell}`, `{repeat}`, the recipe's own scaled numbers, and products of them, such as
//! `{100*workers}`.

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
        match names.get(name).cloned().or_else(|| product(name, names)) {
            Some(value) => out.push_str(&value),
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

/// `A*B` of whole numbers and names that stand for some.
fn product(text: &str, names: &Names) -> Option<String> {
    let (first, second) = text.split_once('*')?;
    let value =
        |part: &str| -> Option<u64> { names.get(part).map_or(part, String::as_str).parse().ok() };
    Some(value(first)?.checked_mul(value(second)?)?.to_string())
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
        let names = Names::from([("workers".to_owned(), "3".to_owned())]);
        assert_eq!(fill("{100*workers} {workers*workers}", &names, &[]).unwrap(), "300 9");
        assert!(fill("{100*missing}", &names, &[]).is_err());
        let error = filled("{epoch}").unwrap_err().to_string();
        assert_eq!(error, "`{epoch}` uses the placeholder `{epoch}`, which is not defined");
    }
}
