//! How maps of features are written.
//!
//! prost leaves out an entry's empty name or unset value, which protobuf
//! allows. The parser inside TensorFlow's `parse_example` does not: it wants
//! the name and then the value in every entry, as TensorFlow writes them. So
//! the two messages that hold a map say themselves how they are encoded.

use std::collections::BTreeMap;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::example::{FeatureLists, Features};

/// The map's field number in both messages.
const MAP: u32 = 1;
/// The name's and the value's field number in each entry.
const NAME: u32 = 1;
const VALUE: u32 = 2;

fn entry_len<V: Message>(name: &String, value: &V) -> usize {
    encoding::string::encoded_len(NAME, name) + encoding::message::encoded_len(VALUE, value)
}

fn encode<V: Message>(map: &BTreeMap<String, V>, buffer: &mut impl BufMut) {
    for (name, value) in map {
        encoding::encode_key(MAP, WireType::LengthDelimited, buffer);
        encoding::encode_varint(entry_len(name, value) as u64, buffer);
        encoding::string::encode(NAME, name, buffer);
        encoding::message::encode(VALUE, value, buffer);
    }
}

fn encoded_len<V: Message>(map: &BTreeMap<String, V>) -> usize {
    map.iter()
        .map(|(name, value)| {
            let entry = entry_len(name, value);
            encoding::key_len(MAP) + encoding::encoded_len_varint(entry as u64) + entry
        })
        .sum()
}

macro_rules! message_of_one_map {
    ($message:ident, $map:ident) => {
        impl Message for $message {
            fn encode_raw(&self, buffer: &mut impl BufMut) {
                encode(&self.$map, buffer);
            }

            fn merge_field(
                &mut self,
                field: u32,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                if field != MAP {
                    return encoding::skip_field(wire_type, field, buffer, context);
                }
                // prost's derived maps do not check this and would read an entry of any type.
                encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
                encoding::btree_map::merge(
                    encoding::string::merge,
                    encoding::message::merge,
                    &mut self.$map,
                    buffer,
                    context,
                )
            }

            fn encoded_len(&self) -> usize {
                encoded_len(&self.$map)
            }

            fn clear(&mut self) {
                self.$map.clear();
            }
        }
    };
}

message_of_one_map!(Features, feature);
message_of_one_map!(FeatureLists, feature_list);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{Example, Feature};

    /// Found by TensorFlow's `parse_single_example`, which refused such examples.
    #[test]
    fn empty_names_and_unset_values_are_written_out() {
        let example = Example::new().with("", Feature { kind: None });
        let bytes = example.to_bytes();
        assert_eq!(bytes, [0x0a, 6, 0x0a, 4, 0x0a, 0, 0x12, 0]);
        assert_eq!(Example::from_bytes(&bytes).unwrap(), example);
    }

    #[test]
    fn entries_of_another_type_are_refused() {
        assert!(Features::decode(&[0x08, 1][..]).is_err());
        assert!(Features::decode(&[0x0a, 9, 0][..]).is_err());
        assert_eq!(Features::decode(&[0x10, 1][..]), Ok(Features::default()));
    }
}
