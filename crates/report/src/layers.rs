//! The layers of a trained network: what each is, its tensors with their shapes, and where the parameters are.

use crate::number::grouped;
use crate::table::{Column, Table};
use crate::training::RunView;
use paceline_runs::tensorboard::layer_chain;
use std::collections::HashMap;

/// The layers of the first of some runs that kept them; nothing where none did. A run whose network differs is not in the table:
/// its settings say in what.
pub(crate) fn table(runs: &[&RunView]) -> Option<Table> {
    let tensors = &runs.iter().find(|run| !run.layers.is_empty())?.layers;
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    let all: usize = tensors.iter().map(|(_, shape)| size(shape)).sum();
    let nodes = layer_chain(tensors.iter().map(|(name, shape)| (&**name, &**shape)));
    let shapes: HashMap<&str, &[usize]> =
        nodes.iter().filter_map(|node| Some((&*node.name, node.shape.as_deref()?))).collect();
    let mut table = Table::new([
        Column::words("layer"),
        Column::words("kind"),
        Column::words("tensors"),
        Column::numbers("parameters"),
        Column::numbers("share").unit("%"),
    ]);
    for node in &nodes {
        let own = node.inputs.iter().filter_map(|name| Some((name, *shapes.get(&**name)?)));
        let own: Vec<(&str, &[usize])> = own
            .map(|(name, shape)| (name.rsplit_once('/').map_or(&**name, |(_, it)| it), shape))
            .collect();
        if own.is_empty() {
            continue;
        }
        let words = own.iter().map(|(name, shape)| {
            let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("{name} {}", sides.join(" \u{d7} "))
        });
        let parameters: usize = own.iter().map(|(_, shape)| size(shape)).sum();
        table.row([
            node.name.rsplit_once('/').map_or(&*node.name, |(layer, _)| layer).replace('/', "."),
            kind(&node.op).to_owned(),
            words.collect::<Vec<_>>().join(", "),
            grouped(parameters as f64, 0),
            format!("{:.1}", 100.0 * parameters as f64 / all.max(1) as f64),
        ]);
    }
    Some(table.captioned(format!("{} parameters in all.", grouped(all as f64, 0))))
}

/// What a layer is, in a reader's words.
fn kind(op: &str) -> &'static str {
    match op {
        "Conv2D" => "convolution",
        "MatMul" => "dense",
        "BatchNorm" => "batch norm",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_their_tensors_shapes_and_share_of_the_parameters() {
        let tensor = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec());
        let layers = vec![
            tensor("features.0.weight", &[2, 3, 5, 5]),
            tensor("features.0.bias", &[2]),
            tensor("norm.running_mean", &[48]),
            tensor("fc<1>.weight", &[10, 80]),
        ];
        let run = RunView { layers, ..RunView::default() };
        let table = table(&[&RunView::default(), &run]).unwrap();
        let wanted = [
            [
                "features.0",
                "convolution",
                "weight 2 \u{d7} 3 \u{d7} 5 \u{d7} 5, bias 2",
                "152",
                "15.2",
            ],
            ["norm", "batch norm", "running_mean 48", "48", "4.8"],
            ["fc<1>", "dense", "weight 10 \u{d7} 80", "800", "80.0"],
        ];
        assert_eq!(table.rows, wanted.map(|row| row.map(str::to_owned).to_vec()));
        assert!(table.caption.starts_with("1,000 parameters"));
        assert!(super::table(&[&RunView::default()]).is_none());
    }
}
