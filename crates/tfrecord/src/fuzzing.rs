//! Properties that hold for any input: the bodies of the fuzz targets.
//!
//! They live here so that the property tests run them too, on every build and
//! without a fuzzer. Each panics if the promise is broken.

use crate::example::{Example, ListKind};
use crate::index::Index;
use crate::reader::ReaderOptions;
use crate::view::{ExampleView, FeatureKind, FeatureView};
use crate::writer::Writer;

/// Reading ends, in a record or an error, and plain records that were read
/// are exactly the bytes that writing them again produces.
pub fn reader(bytes: &[u8]) {
    // A few hundred input bytes can unpack to megabytes; that is not what is tested here.
    let opened = ReaderOptions::default().max_record(1 << 20).stream(bytes);
    let Ok(mut reader) = opened else { return };
    let plain = reader.compression() == crate::Compression::Plain;
    let mut writer = Writer::new(Vec::new());
    let mut good = true;
    loop {
        match reader.next_record() {
            Ok(Some(payload)) => {
                writer.write(payload).expect("a vector takes any bytes");
            }
            Ok(None) => break,
            Err(_) => {
                good = false;
                assert!(matches!(reader.next_record(), Ok(None)), "the reader ends after an error");
                break;
            }
        }
    }
    let (written, index) = writer.finish_with_index().expect("a vector takes any bytes");
    if plain {
        assert!(bytes.starts_with(&written), "records differ from the bytes they came from");
        assert!(!good || written.len() == bytes.len(), "bytes were passed over");
    }
    assert_eq!(Index::decode(&index.encode()).as_ref(), Some(&index));
    let _ = Index::decode(bytes);
}

/// The view neither panics nor loops, and its counts agree with its iterators.
pub fn example_view(bytes: &[u8]) {
    let view = ExampleView::new(bytes);
    for (_, feature) in view.entries().flatten() {
        let values = match feature.kind() {
            FeatureKind::Unset => 0,
            FeatureKind::Bytes => feature.bytes().count(),
            FeatureKind::Float => feature.floats().count(),
            FeatureKind::Int64 => feature.ints().count(),
        };
        assert_eq!(values, feature.len());
        if let Some(block) = feature.float_block() {
            assert_eq!(block.len(), 4 * feature.len());
        }
    }
    let _ = view.find(["", "image/encoded", "image/class/label"]);
}

/// Whatever prost decodes, the view finds, with the same values.
pub fn example_prost_agreement(bytes: &[u8]) {
    let Ok(example) = Example::from_bytes(bytes) else { return };
    let view = ExampleView::new(bytes);
    let features = example.features.clone().unwrap_or_default().feature;
    for entry in view.entries() {
        let (name, _) = entry.expect("prost decoded it");
        assert!(features.contains_key(name), "prost has no feature {name:?}");
    }
    for (name, feature) in &features {
        let found = view.feature(name).expect("prost decoded it");
        let found = found.expect("prost found it");
        assert!(same(found, feature.kind.as_ref()), "feature {name:?}: {found:?}, {feature:?}");
    }
    let again = Example::from_bytes(&example.to_bytes()).expect("our own bytes");
    assert_eq!(again.to_bytes(), example.to_bytes(), "encoding is not stable");
}

/// Compares values, floats by their bits because NaN differs from itself.
fn same(view: FeatureView<'_>, kind: Option<&ListKind>) -> bool {
    match (view.kind(), kind) {
        (FeatureKind::Unset, None) => true,
        (FeatureKind::Bytes, Some(ListKind::BytesList(list))) => view.bytes().eq(&list.value),
        (FeatureKind::Int64, Some(ListKind::Int64List(list))) => {
            view.ints().eq(list.value.iter().copied())
        }
        (FeatureKind::Float, Some(ListKind::FloatList(list))) => {
            view.floats().map(f32::to_bits).eq(list.value.iter().map(|value| value.to_bits()))
        }
        _ => false,
    }
}
