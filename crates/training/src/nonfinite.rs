//! Finds out where NaN or infinity came from.

use paceline_models::{Layout, LayoutEntry};

/// Names the first tensor with a value that is not finite: weights first, since they were there
/// before the gradient; then the gradient.
pub(crate) fn cause(layout: &Layout, params: &[f32], grad: &[f32]) -> String {
    if let Some((entry, value)) = first_bad(layout, params) {
        return format!("weights of `{}` hold {value}", entry.name);
    }
    // Weights are fine, so the activations overflowed: the largest weights are the likely reason.
    let largest = largest(layout, params)
        .map(|(entry, value)| format!("; the largest weight is {value:e} in `{}`", entry.name))
        .unwrap_or_default();
    match first_bad(layout, grad) {
        Some((entry, value)) => {
            format!(
                "all weights are finite, the gradient of `{}` holds {value}{largest}",
                entry.name
            )
        }
        None => format!("weights and gradients are finite, the loss alone is not{largest}"),
    }
}

/// The first tensor with a value that is not finite, and the value.
pub(crate) fn first_bad<'a>(layout: &'a Layout, values: &[f32]) -> Option<(&'a LayoutEntry, f32)> {
    layout.entries().iter().find_map(|entry| {
        let value = values[entry.range()].iter().find(|value| !value.is_finite())?;
        Some((entry, *value))
    })
}

fn largest<'a>(layout: &'a Layout, values: &[f32]) -> Option<(&'a LayoutEntry, f32)> {
    layout
        .entries()
        .iter()
        .filter(|entry| entry.trained && !entry.is_empty())
        .map(|entry| {
            let most =
                values[entry.range()].iter().fold(0.0f32, |most, value| most.max(value.abs()));
            (entry, most)
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_blamed_before_gradients() {
        let mut layout = Layout::default();
        layout.push("a.weight", &[4], true);
        layout.push("b.weight", &[4], true);
        let fine = [1.0f32, 2.0, 3.0, 4.0, 5.0, 60.0, 7.0, 8.0];
        let mut bad = fine;
        bad[6] = f32::INFINITY;
        assert!(cause(&layout, &bad, &bad).contains("weights of `b.weight` hold inf"));
        let text = cause(&layout, &fine, &bad);
        assert!(
            text.contains("gradient of `b.weight`") && text.contains("6e1 in `b.weight`"),
            "{text}"
        );
        assert!(cause(&layout, &fine, &fine).contains("loss alone"));
    }
}
