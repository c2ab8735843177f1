//! Files of weights as Keras lays them out, for tests: a writer of the little of HDF5 that they need.

use serde_json::Value;
use std::collections::BTreeMap;

/// A member of an HDF5 file.
#[derive(Debug)]
pub enum Hdf5Node {
    /// Other members by their names.
    Group(BTreeMap<String, Hdf5Node>),
    /// Shape and values of an array.
    Floats(Vec<usize>, Vec<f32>),
}

impl Hdf5Node {
    /// A group without members.
    #[must_use]
    pub fn root() -> Self {
        Self::Group(BTreeMap::new())
    }

    /// Puts an array under a path, with the groups that lead there.
    ///
    /// # Panics
    /// Where something is already there.
    pub fn put(&mut self, path: &str, array: Self) {
        let Self::Group(members) = self else { panic!("{path} leads through an array") };
        match path.split_once('/') {
            None => assert!(members.insert(path.to_owned(), array).is_none(), "{path} twice"),
            Some((group, rest)) => members
                .entry(group.to_owned())
                .or_insert_with(|| Self::Group(BTreeMap::new()))
                .put(rest, array),
        }
    }

    /// Appends this member to a file in the newer layout of HDF5 and returns its address.
    fn write(&self, file: &mut Vec<u8>) -> u64 {
        let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
        match self {
            Self::Group(members) => {
                for (name, member) in members {
                    let address = member.write(file);
                    let mut link = vec![1, 0, name.len() as u8];
                    link.extend(name.bytes().chain(address.to_le_bytes()));
                    messages.push((6, link));
                }
            }
            Self::Floats(shape, values) => {
                let address = file.len() as u64;
                file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                let space = [2, shape.len() as u8, 0, 1].into_iter();
                let sides = shape.iter().flat_map(|&side| (side as u64).to_le_bytes());
                messages.push((1, space.chain(sides).collect()));
                let float =
                    [0x11, 0x20, 0x1f, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];
                messages.push((3, float.to_vec()));
                let place = [address, 4 * values.len() as u64];
                let place = place.iter().flat_map(|word| word.to_le_bytes());
                messages.push((8, [3, 1].into_iter().chain(place).collect()));
            }
        }
        let address = file.len() as u64;
        let length: usize = messages.iter().map(|(_, body)| 4 + body.len()).sum();
        file.extend(b"OHDR\x02\x02");
        file.extend((length as u32).to_le_bytes());
        for (kind, body) in messages {
            file.push(kind);
            file.extend((body.len() as u16).to_le_bytes());
            file.push(0);
            file.extend(body);
        }
        file.extend([0; 4]); // the checksum, which nothing compares
        address
    }

    /// The file whose root this is.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let mut file = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
        file.resize(48, 0);
        let root = self.write(&mut file);
        file[36..44].copy_from_slice(&root.to_le_bytes());
        file
    }
}

/// The file that Keras would write of its MobileNet-v2: by the names of layers (`model.save("m.h5")`) or `counted` by their kind
/// (`m.weights.h5` and `m.keras`), with or without a `head`. `stored` lists the weights, as
/// `crates/models/tests/reference/keras.json` does; `values` gives those of each name and shape.
///
/// # Panics
/// Where the list is of another form.
#[must_use]
pub fn keras_weights(
    stored: &Value,
    values: &dyn Fn(&str, &[usize]) -> Vec<f32>,
    counted: bool,
    head: bool,
) -> Vec<u8> {
    let mut root = Hdf5Node::root();
    // Layers seen so far, by their kind, and the next weight of the last one.
    let (mut seen, mut number) = (BTreeMap::<String, Vec<String>>::new(), 0);
    for weight in stored["weights"].as_array().expect("a list of weights") {
        let text = |at: usize| weight[at].as_str().expect("a name").to_owned();
        let (name, kind) = (text(0), text(1));
        let (layer, part) = name.split_once('/').expect("layer and weight");
        if layer == "predictions" && !head {
            continue;
        }
        let layers = seen.entry(kind.clone()).or_default();
        if layers.last().is_none_or(|last| last != layer) {
            layers.push(layer.to_owned());
            number = 0;
        }
        let counter = match layers.len() {
            1 => kind,
            more => format!("{kind}_{}", more - 1),
        };
        let path = if counted {
            format!("layers/{counter}/vars/{number}")
        } else {
            format!("model_weights/{layer}/{layer}/{part}")
        };
        number += 1;
        let sides = weight[2].as_array().expect("a shape").iter();
        let shape: Vec<usize> = sides.map(|side| side.as_u64().expect("a side") as usize).collect();
        let values = values(&name, &shape);
        root.put(&path, Hdf5Node::Floats(shape, values));
    }
    root.put("optimizer/vars/0", Hdf5Node::Floats(vec![1], vec![3.0]));
    root.file()
}
