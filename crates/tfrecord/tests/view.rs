//! The borrowed view must mean what the full decoder means, however a message was put together.

#![allow(clippy::unwrap_used)]

use paceline_tfrecord::{Example, ExampleView, Feature, FeatureKind, Malformed, fuzzing};
use proptest::prelude::*;

/// A length-delimited field.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    varint(&mut bytes, body.len() as u64);
    bytes.extend_from_slice(body);
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn entry(key: &str, feature: &[u8]) -> Vec<u8> {
    field(1, &[field(1, key.as_bytes()), field(2, feature)].concat())
}

fn ints(values: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    for value in values {
        varint(&mut packed, *value as u64);
    }
    field(3, &field(1, &packed))
}

/// What the view finds under `key`, after checking that prost agrees on everything.
fn found_ints(example: &[u8], key: &str) -> Option<Vec<i64>> {
    fuzzing::example_view(example);
    fuzzing::example_prost_agreement(example);
    assert!(Example::from_bytes(example).is_ok());
    Some(ExampleView::new(example).feature(key).unwrap()?.ints().collect())
}

#[test]
fn the_last_of_two_equal_names_wins() {
    let example = field(1, &[entry("a", &ints(&[1])), entry("a", &ints(&[2, 3]))].concat());
    assert_eq!(found_ints(&example, "a"), Some(vec![2, 3]));
    // Even when the later one is empty, and when the map itself is split in two.
    let unset = [field(1, &entry("a", &ints(&[1]))), field(1, &entry("a", &[]))].concat();
    assert_eq!(found_ints(&unset, "a"), Some(vec![]));
    assert_eq!(
        ExampleView::new(&unset).feature("a").unwrap().map(|feature| feature.kind()),
        Some(FeatureKind::Unset)
    );
}

#[test]
fn split_lists_are_joined_and_later_kinds_replace() {
    let floats = field(2, &field(1, &1f32.to_le_bytes()));
    let split = [ints(&[1, 2]), ints(&[]), ints(&[3])].concat();
    assert_eq!(found_ints(&field(1, &entry("a", &split)), "a"), Some(vec![1, 2, 3]));
    let switched = [ints(&[1]), floats.clone(), ints(&[4]), ints(&[5])].concat();
    assert_eq!(found_ints(&field(1, &entry("a", &switched)), "a"), Some(vec![4, 5]));
    let replaced = [ints(&[1]), floats].concat();
    assert_eq!(found_ints(&field(1, &entry("a", &replaced)), "a"), Some(vec![]));
    // The value of one entry may come in two parts, with the name after them.
    let parts = [field(2, &ints(&[1])), field(2, &ints(&[2])), field(1, b"a")].concat();
    assert_eq!(found_ints(&field(1, &field(1, &parts)), "a"), Some(vec![1, 2]));
}

#[test]
fn unpacked_values_are_read_like_packed_ones() {
    let mut list = Vec::new();
    for value in [0u64, 300, u64::MAX] {
        list.push(0x08);
        varint(&mut list, value);
    }
    list.extend(field(1, &[5, 6]));
    let example = field(1, &entry("a", &field(3, &list)));
    assert_eq!(found_ints(&example, "a"), Some(vec![0, 300, -1, 5, 6]));

    let mut list = vec![0x0d];
    list.extend(2.5f32.to_le_bytes());
    list.extend(field(1, &(-1f32).to_le_bytes()));
    let example = field(1, &entry("a", &field(2, &list)));
    fuzzing::example_prost_agreement(&example);
    let feature = ExampleView::new(&example).feature("a").unwrap().unwrap();
    assert_eq!(feature.floats().collect::<Vec<_>>(), [2.5, -1.0]);
    assert_eq!(feature.float_block(), None);
}

#[test]
fn a_missing_name_is_the_empty_name() {
    let example = field(1, &field(1, &field(2, &ints(&[9]))));
    assert_eq!(found_ints(&example, ""), Some(vec![9]));
    assert_eq!(found_ints(&example, "a"), None);
}

#[test]
fn unknown_fields_and_groups_are_stepped_over() {
    let unknown = [
        field(15, b"later version"),
        vec![0x7b, 0x08, 1, 0x7c],
        vec![0x71, 1, 2, 3, 4, 5, 6, 7, 8],
    ];
    let unknown = unknown.concat();
    let list = field(3, &[unknown.clone(), field(1, &[1, 2])].concat());
    let feature = [unknown.clone(), list].concat();
    let entry = [field(1, b"a"), unknown.clone(), field(2, &feature)].concat();
    let features = [unknown.clone(), field(1, &entry)].concat();
    let example = [unknown, field(1, &features)].concat();
    assert_eq!(found_ints(&example, "a"), Some(vec![1, 2]));
}

#[test]
fn hostile_messages_are_refused_by_both_decoders() {
    let past_end = [&[0x0a, 100][..], &entry("a", &ints(&[1]))].concat();
    let long_varint = field(1, &entry("a", &field(3, &field(1, &[0xff; 11]))));
    let cut_varint = field(1, &entry("a", &field(3, &field(1, &[0x80]))));
    let odd_floats = field(1, &entry("a", &field(2, &field(1, &[1, 2, 3]))));
    let wrong_type = field(1, &entry("a", &[0x18, 1]));
    let wrong_list = field(1, &entry("a", &field(1, &[0x08, 1])));
    for (bytes, wanted) in [
        (past_end, Malformed::PastEnd { field: 1 }),
        (long_varint, Malformed::Varint),
        (cut_varint, Malformed::Varint),
        (odd_floats, Malformed::PackedFloats { bytes: 3 }),
        (wrong_type, Malformed::WireType { field: 3 }),
        (wrong_list, Malformed::WireType { field: 1 }),
    ] {
        assert_eq!(ExampleView::new(&bytes).feature("a").unwrap_err(), wanted);
        assert!(Example::from_bytes(&bytes).is_err(), "prost accepts what means {wanted}");
        fuzzing::example_view(&bytes);
    }
}

/// Found by fuzzing: prost's derived maps take an entry of any wire type, here an "end of group".
#[test]
fn map_entries_of_another_wire_type_are_refused_by_both_decoders() {
    let bytes = [0x0a, 4, 0x0a, 0, 0x0c, 0, 0x0a, 0];
    assert!(Example::from_bytes(&bytes).is_err());
    assert!(ExampleView::new(&bytes).feature("").is_err());
}

fn any_feature() -> impl Strategy<Value = Feature> {
    prop_oneof![
        Just(Feature { kind: None }),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5)
            .prop_map(Feature::bytes),
        prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..8)
            .prop_map(Feature::floats),
        prop::collection::vec(any::<i64>(), 0..8).prop_map(Feature::ints),
    ]
}

fn any_example() -> impl Strategy<Value = Example> {
    prop::collection::btree_map("[a-c]{0,2}|\\PC{0,6}", any_feature(), 0..6).prop_map(|features| {
        features
            .into_iter()
            .fold(Example::new(), |example, (name, feature)| example.with(name, feature))
    })
}

/// Messages that are valid but that no ordinary encoder writes: fields
/// repeated, split, unpacked, out of order, with unknown ones between.
fn odd_example() -> impl Strategy<Value = Vec<u8>> {
    let unknown = prop_oneof![
        Just(Vec::new()),
        Just(field(9, b"?")),
        Just(vec![0x50, 0x80, 0x01]),
        Just(vec![0x7b, 0x0d, 1, 2, 3, 4, 0x7c]),
    ];
    let value = prop_oneof![
        // One value of each kind of list, packed or not; the list's kind is chosen below.
        (Just(0u8), prop::collection::vec(any::<u8>(), 0..6)),
        (Just(1u8), prop::collection::vec(any::<u8>(), 0..3)),
    ];
    let list = (1u8..=3, prop::collection::vec((value, unknown.clone()), 0..3)).prop_map(
        |(kind, values)| {
            let mut body = Vec::new();
            for ((form, raw), unknown) in values {
                body.extend(unknown);
                match (kind, form) {
                    (1, _) => body.extend(field(1, &raw)),
                    (2, 0) => body.extend(field(1, &raw.repeat(4))),
                    (2, _) => body.extend([0x0d, 1, 2, raw.len() as u8, 0x7f]),
                    (_, 0) => {
                        body.extend(field(1, &raw.iter().map(|b| b & 0x7f).collect::<Vec<_>>()));
                    }
                    _ => body.extend([0x08, 0xff, raw.len() as u8]),
                }
            }
            field(kind, &body)
        },
    );
    let feature = prop::collection::vec(prop_oneof![3 => list, 1 => unknown.clone()], 0..4)
        .prop_map(|parts| parts.concat());
    let part = prop_oneof![
        2 => "[ab]?".prop_map(|key| field(1, key.as_bytes())),
        3 => feature.prop_map(|feature| field(2, &feature)),
        1 => unknown.clone().prop_map(|bytes| bytes),
    ];
    let entry = prop::collection::vec(part, 0..4).prop_map(|parts| field(1, &parts.concat()));
    let features = prop::collection::vec(prop_oneof![4 => entry, 1 => unknown], 0..5)
        .prop_map(|parts| field(1, &parts.concat()));
    prop::collection::vec(features, 0..3).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_view_agrees_with_prost_on_ordinary_messages(example in any_example()) {
        let bytes = example.to_bytes();
        fuzzing::example_view(&bytes);
        fuzzing::example_prost_agreement(&bytes);
        prop_assert_eq!(Example::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn the_view_agrees_with_prost_on_merged_messages(one in any_example(), two in any_example()) {
        // Concatenation is protobuf's own way to merge.
        fuzzing::example_prost_agreement(&[one.to_bytes(), two.to_bytes()].concat());
    }

    #[test]
    fn the_view_agrees_with_prost_on_odd_messages(bytes in odd_example()) {
        prop_assert!(Example::from_bytes(&bytes).is_ok(), "the generator makes valid messages");
        fuzzing::example_view(&bytes);
        fuzzing::example_prost_agreement(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic_in_the_view(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        fuzzing::example_view(&bytes);
        fuzzing::example_prost_agreement(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic_in_the_view(
        mut bytes in odd_example(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzzing::example_view(&bytes);
        fuzzing::example_prost_agreement(&bytes);
    }
}
