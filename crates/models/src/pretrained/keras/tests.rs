//! Files as Keras writes them, and files that mean harm.

use super::*;
use safetensors::SafeTensors;

/// Made by `make_tiny.py` with Keras: one small network in each of its forms, and in the newer layout of HDF5.
const LEGACY: &[u8] = include_bytes!("tiny.h5");
const COUNTED: &[u8] = include_bytes!("tiny.weights.h5");
const ARCHIVED: &[u8] = include_bytes!("tiny.keras");
const NEWER: &[u8] = include_bytes!("tiny-new.h5");
const ALL: [&[u8]; 4] = [LEGACY, COUNTED, ARCHIVED, NEWER];

/// Shape and values of a tensor.
fn tensor(file: &SafeTensors<'_>, name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let words = tensor.data().as_chunks::<4>().0;
    (tensor.shape().to_vec(), words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[test]
fn every_form_of_keras_gives_the_same_tensors() {
    for (number, bytes) in ALL.into_iter().enumerate() {
        assert!(is_keras(bytes), "{number}");
        let made = to_safetensors(bytes).unwrap();
        let file = SafeTensors::deserialize(&made).unwrap();
        let (shape, kernel) = tensor(&file, "Conv1/kernel");
        // Of values that count up from 1 in the order height, width, input, output.
        assert_eq!(shape, [2, 2, 3, 3]);
        assert_eq!(kernel[..9], [33.0, 29.0, 25.0, 21.0, 17.0, 13.0, 9.0, 5.0, 1.0], "{number}");
        assert_eq!(kernel[9], 35.0, "the second input");
        assert_eq!(kernel[18], 34.0, "the second output");
        let depthwise = tensor(&file, "expanded_conv_depthwise/kernel");
        assert_eq!(depthwise, (vec![2, 1, 2, 1], vec![3.0, 1.0, 4.0, 2.0]), "{number}");
        let (shape, dense) = tensor(&file, "predictions/kernel");
        assert_eq!((shape, &dense[..4]), (vec![3, 4], &[1.0, 4.0, 7.0, 10.0][..]), "{number}");
        assert_eq!(tensor(&file, "predictions/bias").1, [1.0, 2.0, 3.0]);
        for weight in ["gamma", "beta", "moving_mean"] {
            assert_eq!(tensor(&file, &format!("bn_Conv1/{weight}")).1, [1.0, 2.0], "{weight}");
        }
        let variance = tensor(&file, "bn_Conv1/moving_variance").1;
        assert_eq!(variance, [1.0 + 0.00099, 2.0 + 0.00099]);
        // What training needs is left out, and so are whole numbers.
        let more = usize::from(number == 3);
        assert_eq!(file.len(), 8 + more, "{:?}", file.names());
        if more == 1 {
            assert_eq!(tensor(&file, "half/kernel"), (vec![2, 1], vec![1.5, -2.0]));
        }
    }
}

#[test]
fn a_file_cut_or_bent_anywhere_is_an_error_or_other_weights_and_nothing_worse() {
    for bytes in ALL {
        for end in (0..bytes.len()).step_by(97) {
            let _ = to_safetensors(&bytes[..end]); // any outcome but a crash
        }
        for at in (0..bytes.len()).step_by(7) {
            for flip in [0x01, 0x80, 0xff] {
                let mut bent = bytes.to_vec();
                bent[at] ^= flip;
                let _ = to_safetensors(&bent);
            }
        }
    }
    assert!(to_safetensors(&LEGACY[..LEGACY.len() / 2]).is_err());
    assert!(to_safetensors(&ARCHIVED[..ARCHIVED.len() - 30]).is_err());
}

#[test]
fn every_name_of_ours_has_one_of_keras_and_every_counted_layer_is_met() {
    use crate::model::ModelOptions;
    use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: 32, width: 32, channels: 3 }),
        labels: LabelKind::Classes { names: vec!["a".to_owned(), "b".to_owned()] },
    };
    let model = (crate::mobilenet_v2::ENTRY.build)(&schema, &ModelOptions::default()).unwrap();
    let names: Vec<String> =
        model.layout().entries().iter().map(|entry| name(&entry.name).unwrap()).collect();
    let layers: std::collections::BTreeSet<&str> =
        names.iter().map(|name| name.split_once('/').unwrap().0).collect();
    let counted = numbered();
    assert_eq!(layers, counted.values().map(String::as_str).collect());
    assert_eq!(counted["conv2d_34"], "Conv_1");
    assert_eq!(counted["depthwise_conv2d_16"], "block_16_depthwise");
    assert_eq!(counted["batch_normalization_4"], "block_1_depthwise_BN");
    for none in ["features.19.0.weight", "features.0.0.scale", "classifier.2.weight", "x"] {
        assert_eq!(name(none), None, "{none}");
    }
}

#[test]
fn what_is_wrong_with_an_archive_is_said() {
    let error = to_safetensors(b"PK\x03\x04 model.weights.h5").unwrap_err();
    assert!(error.to_string().contains("has no directory"), "{error}");
    // The first byte of how the member's entry in the directory is packed.
    let entry = ARCHIVED.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    let mut packed = ARCHIVED.to_vec();
    packed[entry + 10] = 8;
    let error = to_safetensors(&packed).unwrap_err();
    assert!(error.to_string().contains("is compressed"), "{error}");
}
