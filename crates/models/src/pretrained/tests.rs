//! Weights in and out, and files that do not fit.

use super::*;
use crate::mobilenet_v2;
use crate::model::{Model, ModelOptions};
use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use proptest::prelude::*;

fn model(classes: usize) -> Box<dyn Model> {
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: 32, width: 32, channels: 3 }),
        labels: LabelKind::Classes { names: (0..classes).map(|i| i.to_string()).collect() },
    };
    let options = ModelOptions { width: 0.35, dropout: Some(0.0), ..ModelOptions::default() };
    (mobilenet_v2::ENTRY.build)(&schema, &options).unwrap()
}

fn initial(model: &dyn Model, seed: u64) -> Vec<f32> {
    let mut params = vec![0.0; model.layout().len()];
    model.init(seed, &mut params);
    params
}

/// A file with other names: `rename` answers `None` to leave a tensor out.
fn renamed(layout: &Layout, params: &[f32], rename: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let bytes: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensors = layout.entries().iter().filter_map(|entry| {
        let data = &bytes[4 * entry.range().start..4 * entry.range().end];
        let view = TensorView::new(Dtype::F32, entry.shape.clone(), data).unwrap();
        Some((rename(&entry.name)?, view))
    });
    safetensors::serialize(tensors.collect::<Vec<_>>(), None).unwrap()
}

const MODEL: &str = "mobilenet-v2";

#[test]
fn a_round_trip_is_exact_to_the_bit() {
    let model = model(3);
    let mut written = initial(&*model, 1);
    written[7] = f32::from_bits(0x7fc0_1234); // a NaN with a payload
    let path = std::env::temp_dir().join(format!("paceline-export-{}", std::process::id()));
    export(MODEL, model.layout(), &written, &path).unwrap();
    let mut read = initial(&*model, 2);
    let loaded = load(MODEL, model.layout(), &path, &mut read).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(loaded.tensors, model.layout().entries().len());
    assert_eq!((loaded.convention, loaded.other_head), (Convention::Torchvision, None));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(bits(&read) == bits(&written));
}

#[test]
fn a_head_for_other_classes_stays_fresh() {
    let (old, new) = (model(7), model(3));
    let bytes = to_bytes(old.layout(), &initial(&*old, 1)).unwrap();
    let fresh = initial(&*new, 2);
    let mut params = fresh.clone();
    let loaded = load_bytes(MODEL, new.layout(), Path::new("f"), &bytes, &mut params).unwrap();
    assert_eq!(loaded.other_head, Some(7));
    let head = new.layout().get("classifier.1.weight").unwrap().offset;
    assert_eq!(params[head..], fresh[head..]);
    assert_eq!(params[..head], initial(&*old, 1)[..head]);
}

#[test]
fn names_of_timm_are_understood() {
    let model = model(3);
    let written = initial(&*model, 1);
    let bytes = renamed(model.layout(), &written, timm::name);
    let names: Vec<String> = {
        let file = SafeTensors::deserialize(&bytes).unwrap();
        file.names().into_iter().map(str::to_owned).collect()
    };
    for name in [
        "conv_stem.weight",
        "bn1.running_var",
        "blocks.0.0.conv_dw.weight",
        "blocks.0.0.bn2.bias",
        "blocks.1.0.conv_pw.weight",
        "blocks.5.2.conv_pwl.weight",
        "blocks.6.0.bn3.weight",
        "conv_head.weight",
        "bn2.running_mean",
        "classifier.bias",
    ] {
        assert!(names.iter().any(|found| found == name), "{name}");
    }
    let mut read = initial(&*model, 2);
    let loaded = load_bytes(MODEL, model.layout(), Path::new("f"), &bytes, &mut read).unwrap();
    assert_eq!(loaded.convention, Convention::Timm);
    assert_eq!(read, written);
}

#[test]
fn mismatches_name_both_sides_and_change_nothing() {
    let model = model(3);
    let layout = model.layout();
    let written = initial(&*model, 1);
    let mut params = initial(&*model, 2);
    let before = params.clone();
    let mut message = |bytes: &[u8]| {
        let error = load_bytes(MODEL, layout, Path::new("w.st"), bytes, &mut params).unwrap_err();
        assert_eq!(params, before);
        error.to_string()
    };
    let bytes = renamed(layout, &written, |name| {
        Some(name.replace("features.3.conv.0.0.weight", "module.weight"))
    });
    let text = message(&bytes);
    assert!(
        text.contains("features.3.conv.0.0.weight") && text.contains("module.weight"),
        "{text}"
    );
    assert!(text.contains("w.st") && text.contains("mobilenet-v2"), "{text}");

    let mut other = Layout::default();
    for entry in layout.entries() {
        let mut shape = entry.shape.clone();
        if entry.name == "features.0.0.weight" {
            shape.swap(0, 1);
        }
        other.push(entry.name.clone(), &shape, true);
    }
    let text = message(&to_bytes(&other, &written).unwrap());
    assert!(text.contains("[3, 16, 3, 3]") && text.contains("[16, 3, 3, 3]"), "{text}");
    assert!(message(b"garbage").contains("neither a safetensors file nor a .pth file"));
    assert!(load(MODEL, layout, Path::new("/nonexistent"), &mut params).is_err());
    let error = head("softmax").unwrap_err().to_string();
    assert!(error.contains("softmax") && error.contains("alexnet"), "{error}");
}

#[test]
fn files_of_others_expect_imagenet_pixels_and_our_own_say_what_they_expect() {
    let path = std::env::temp_dir().join(format!("paceline-input-{}", std::process::id()));
    let expects = |metadata: Option<&[(&str, &str)]>| {
        let view = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
        let pairs = metadata.map(|pairs| {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        });
        fs::write(&path, safetensors::serialize([("a", view)], pairs).unwrap()).unwrap();
        expected_pixels(&path).unwrap()
    };
    assert_eq!(expects(None), PixelScale::Imagenet);
    assert_eq!(expects(Some(&[("format", "pt")])), PixelScale::Imagenet);
    for pixels in [PixelScale::Unit, PixelScale::Imagenet, PixelScale::Keras] {
        let mut about = vec![(FORMAT_KEY, OWN_FORMAT)];
        about.extend(input_of(pixels).map(|input| (INPUT_KEY, input)));
        assert_eq!(expects(Some(&about)), pixels);
    }
    fs::write(&path, b"garbage").unwrap();
    assert!(expected_pixels(&path).is_err());
    fs::remove_file(&path).unwrap();
    assert!(expected_pixels(&path).is_err());
}

#[test]
fn half_precision_is_widened_exactly() {
    for (bits, wanted) in
        [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f32.powi(-24)), (0x7bff, 65504.0), (0x8000, -0.0)]
    {
        assert_eq!(from_f16(bits).to_bits(), wanted.to_bits(), "{bits:#x}");
    }
    assert!(from_f16(0x7e00).is_nan());
    assert_eq!(from_f16(0xfc00), f32::NEG_INFINITY);
    assert_eq!(from_bf16(0x3fc0), 1.5);
}

proptest! {
    #[test]
    fn damaged_files_are_refused_without_panic(cut in 0usize..4000, flip in 0usize..4000, to in any::<u8>()) {
        let mut layout = Layout::default();
        layout.push("classifier.1.weight", &[3, 4], true);
        layout.push("features.0", &[64], true);
        let mut bytes = to_bytes(&layout, &[1.0; 76]).unwrap();
        let flip = flip % bytes.len();
        bytes[flip] = to;
        bytes.truncate(cut.max(1));
        let mut params = vec![0.0; 76];
        let _ = load_bytes(MODEL, &layout, Path::new("f"), &bytes, &mut params);
    }
}
