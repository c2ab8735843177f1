//! The layer graph that TensorBoard's "Graphs" page shows.

use super::proto::{AttrList, AttrValue, FLOAT, GraphDef, NodeDef, TensorShape, VersionDef};
use std::collections::BTreeMap;

/// A node of the layer graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphNode {
    /// Name; `/` opens a box that can be folded.
    pub name: String,
    /// What it computes, such as `Conv2D` or `Variable`.
    pub op: String,
    /// Names of the nodes it reads.
    pub inputs: Vec<String>,
    /// Shape of what it yields, where it is fixed.
    pub shape: Option<Vec<usize>>,
}

/// A graph from parameter names alone: tensors whose dotted names share everything but the last part
/// belong to one layer, and layers follow each other in the order of their first tensor.
///
/// Branches of a network are drawn as a chain; the boxes, shapes and sizes are right.
#[must_use]
pub fn layer_chain<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> Vec<GraphNode> {
    let mut nodes = vec![GraphNode {
        name: "input".into(),
        op: "Placeholder".into(),
        inputs: Vec::new(),
        shape: None,
    }];
    // Open layer: name of its computing node, and where that node stands in `nodes`.
    let mut open: Option<(String, usize)> = None;
    let mut before = "input".to_string();
    for (name, shape) in tensors {
        // A model of one layer needs no layer names.
        let (layer, tensor) = name.rsplit_once('.').unwrap_or(("layer", name));
        let layer = layer.replace('.', "/");
        let output = format!("{layer}/output");
        let at = match &open {
            Some((name, at)) if *name == output => *at,
            _ => {
                if let Some((name, _)) = open.take() {
                    before = name;
                }
                nodes.push(GraphNode {
                    name: output.clone(),
                    op: "Layer".into(),
                    inputs: vec![before.clone()],
                    shape: None,
                });
                open = Some((output.clone(), nodes.len() - 1));
                nodes.len() - 1
            }
        };
        let variable = format!("{layer}/{tensor}");
        nodes.push(GraphNode {
            name: variable.clone(),
            op: "VariableV2".into(),
            inputs: Vec::new(),
            shape: Some(shape.to_vec()),
        });
        nodes[at].inputs.push(variable);
        nodes[at].op = operation(&nodes[at].op, tensor, shape).into();
    }
    let last = open.map_or(before, |(name, _)| name);
    nodes.push(GraphNode {
        name: "loss".into(),
        op: "SparseSoftmaxCrossEntropyWithLogits".into(),
        inputs: vec![last],
        shape: None,
    });
    nodes
}

/// What a layer computes, as far as its tensors tell.
fn operation<'a>(sofar: &'a str, tensor: &str, shape: &[usize]) -> &'a str {
    match (tensor, shape.len()) {
        ("running_mean", _) => "BatchNorm",
        ("weight", 4) => "Conv2D",
        ("weight", 2) => "MatMul",
        _ => sofar,
    }
}

/// As TensorFlow stores it.
pub(super) fn graph_def(nodes: &[GraphNode]) -> GraphDef {
    let node = nodes
        .iter()
        .map(|node| {
            let mut attr = BTreeMap::new();
            attr.insert(
                "dtype".to_string(),
                AttrValue { data_type: Some(FLOAT), ..AttrValue::default() },
            );
            if let Some(shape) = &node.shape {
                let shape = TensorShape::of(shape);
                attr.insert(
                    "shape".to_string(),
                    AttrValue { shape: Some(shape.clone()), ..AttrValue::default() },
                );
                // The page labels edges with this one.
                attr.insert(
                    "_output_shapes".to_string(),
                    AttrValue {
                        list: Some(AttrList { shape: vec![shape] }),
                        ..AttrValue::default()
                    },
                );
            }
            NodeDef {
                name: node.name.clone(),
                op: node.op.clone(),
                input: node.inputs.clone(),
                attr,
            }
        })
        .collect();
    // The producer number only has to be one that current readers accept.
    GraphDef { node, versions: Some(VersionDef { producer: 1_882 }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_gather_in_layers_in_order() {
        let tensors: [(&str, &[usize]); 4] = [
            ("features.0.weight", &[6, 1, 5, 5]),
            ("features.0.bias", &[6]),
            ("classifier.weight", &[10, 84]),
            ("classifier.bias", &[10]),
        ];
        let nodes = layer_chain(tensors.into_iter());
        let named = |name: &str| nodes.iter().find(|node| node.name == name).unwrap();
        assert_eq!(named("features/0/output").op, "Conv2D");
        assert_eq!(
            named("features/0/output").inputs,
            ["input", "features/0/weight", "features/0/bias"]
        );
        assert_eq!(named("classifier/output").inputs[0], "features/0/output");
        assert_eq!(named("loss").inputs, ["classifier/output"]);
        assert_eq!(named("classifier/weight").shape.as_deref(), Some(&[10, 84][..]));
    }

    #[test]
    fn names_without_dots_are_one_layer() {
        let tensors: [(&str, &[usize]); 2] = [("weight", &[10, 784]), ("bias", &[10])];
        let nodes = layer_chain(tensors.into_iter());
        assert_eq!((nodes[1].name.as_str(), nodes[1].op.as_str()), ("layer/output", "MatMul"));
        assert_eq!(nodes[1].inputs, ["input", "layer/weight", "layer/bias"]);
        assert_eq!(nodes.last().unwrap().inputs, ["layer/output"]);
    }
}
