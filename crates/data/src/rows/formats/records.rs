//! Rows as `tf.train.Example` records: `indices`, `label`, and `values` where not all of them are 1.
//!
//! Written by `paceline prepare`; hashed already, so that reading them is little more than a copy. The
//! "text" of such a file is its payloads, each behind its length in four bytes.

use paceline_tfrecord::{Example, ExampleView, Feature};

use super::{Format, Parser, Refusal, Row};

/// This format.
pub const ENTRY: Format = Format {
    name: "records",
    about: "rows prepared before: TFRecord shards of indices, values and label",
    extension: Some("tfrecord"),
    recognises: |_| false, // by the name of the file
    parse,
};

const INDICES: &str = "indices";
const LABEL: &str = "label";
const VALUES: &str = "values";

/// Encodes one row.
pub fn encode(label: u32, indices: &[u32], values: &[f32]) -> Vec<u8> {
    let mut example = Example::new()
        .with(INDICES, Feature::ints(indices.iter().map(|&index| i64::from(index))))
        .with(LABEL, Feature::ints([i64::from(label)]));
    if !values.is_empty() {
        example.set(VALUES, Feature::floats(values.iter().copied()));
    }
    example.to_bytes()
}

/// Appends a payload to the "text" of a block.
pub(in crate::rows) fn append(text: &mut Vec<u8>, payload: &[u8]) {
    text.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    text.extend_from_slice(payload);
}

fn parse(parser: &mut Parser, text: &[u8]) {
    let width = parser.hashing.width();
    let mut at = 0;
    while let Some(length) = text[at..].first_chunk::<4>() {
        let start = at + 4;
        let end = (start + u32::from_le_bytes(*length) as usize).min(text.len());
        let payload = &text[start..end];
        let mut row = Row::of(&mut parser.batch);
        let read = match quick(payload, width, &mut row) {
            Some(label) => Ok(label),
            None => {
                row.restart();
                thorough(payload, width, &mut row)
            }
        };
        match read {
            Ok(label) => row.end(label),
            Err(why) => {
                row.abandon();
                parser.refuse(start, end, why);
            }
        }
        at = end;
    }
}

/// Reads a record of the very layout that [`encode`] makes of rows whose values are all 1; anything else
/// is left to the general reader.
#[inline]
fn quick(payload: &[u8], width: u64, row: &mut Row<'_>) -> Option<u32> {
    let mut rest = payload;
    // features { feature { key: "indices" value { int64_list { value: […] } } } …
    let mut features = message(&mut rest, 0x0a)?;
    let mut entry = message(&mut features, 0x0a)?;
    (message(&mut entry, 0x0a)? == INDICES.as_bytes()).then_some(())?;
    let mut value = message(&mut entry, 0x12)?;
    let mut list = message(&mut value, 0x1a)?;
    let mut packed = message(&mut list, 0x0a)?;
    while !packed.is_empty() {
        let index = varint(&mut packed)?;
        (index < width).then_some(())?;
        row.feature(index as u32, 1.0);
    }
    // … feature { key: "label" value { int64_list { value: [0 or 1] } } } }
    let mut entry = message(&mut features, 0x0a)?;
    (message(&mut entry, 0x0a)? == LABEL.as_bytes()).then_some(())?;
    let mut value = message(&mut entry, 0x12)?;
    let mut list = message(&mut value, 0x1a)?;
    let label = match message(&mut list, 0x0a)? {
        [0] => 0,
        [1] => 1,
        _ => return None,
    };
    (features.is_empty() && rest.is_empty()).then_some(label)
}

/// The contents of a field with this key.
#[inline]
fn message<'a>(bytes: &mut &'a [u8], key: u8) -> Option<&'a [u8]> {
    let (first, mut rest) = bytes.split_first()?;
    (*first == key).then_some(())?;
    let length = usize::try_from(varint(&mut rest)?).ok()?;
    let (inside, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(inside)
}

/// A number of up to five bytes of seven bits each.
#[inline]
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..5 {
        let byte = *bytes.get(at)?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

fn thorough(payload: &[u8], width: u64, row: &mut Row<'_>) -> Result<u32, Refusal> {
    let found = ExampleView::new(payload).find([INDICES, LABEL, VALUES]);
    let [indices, label, values] = found.map_err(|_| Refusal::Record)?;
    let label = label.and_then(|label| label.first_int());
    let label = label.and_then(|label| u32::try_from(label).ok().filter(|label| *label <= 1));
    let label = label.ok_or(Refusal::Label)?;
    let Some(indices) = indices else { return Ok(label) };
    if values.as_ref().is_some_and(|values| values.len() != indices.len()) {
        return Err(Refusal::Record);
    }
    let mut values = values.map(|values| values.floats());
    for (number, index) in (1..).zip(indices.ints()) {
        let value = values.as_mut().map_or(Some(1.0), Iterator::next);
        let feature = u32::try_from(index).ok().filter(|index| u64::from(*index) < width);
        match (feature, value) {
            (Some(index), Some(value)) if value.is_finite() => row.feature(index, value),
            _ => return Err(Refusal::Feature { feature: number }),
        }
    }
    Ok(label)
}

#[cfg(test)]
mod tests {
    use super::super::testing::rows;
    use super::*;
    use crate::rows::Hashing;

    fn parsed(payloads: &[Vec<u8>]) -> Parser {
        let mut text = Vec::new();
        for payload in payloads {
            append(&mut text, payload);
        }
        let mut parser = Parser::new(&ENTRY, Hashing::default());
        parser.parse(&text);
        parser
    }

    #[test]
    fn rows_come_back_as_they_were_written() {
        let payloads = [
            encode(1, &[0, 127, 128, 33_554_431], &[]),
            encode(0, &[], &[]),
            encode(1, &[5, 6], &[0.5, -2.0]),
            encode(0, &[7], &[]),
        ];
        let parser = parsed(&payloads);
        assert_eq!(parser.refused, []);
        let ones = |indices: &[u32]| indices.iter().map(|&index| (index, 1.0)).collect::<Vec<_>>();
        let wanted = vec![
            (1, ones(&[0, 127, 128, 33_554_431])),
            (0, vec![]),
            (1, vec![(5, 0.5), (6, -2.0)]),
            (0, ones(&[7])),
        ];
        assert_eq!(rows(&parser.batch), wanted);
    }

    #[test]
    fn damaged_records_are_refused_one_by_one() {
        let good = encode(1, &[3], &[]);
        let bad = [
            b"no protobuf".to_vec(),
            Example::new().to_bytes(),
            encode(2, &[3], &[]),
            encode(1, &[u32::MAX], &[]),
            Example::new()
                .with(INDICES, Feature::ints([1, 2]))
                .with(LABEL, Feature::ints([1]))
                .with(VALUES, Feature::floats([1.0]))
                .to_bytes(),
            encode(1, &[3], &[f32::NAN]),
        ];
        for payload in bad {
            let parser = parsed(&[good.clone(), payload.clone(), good.clone()]);
            assert_eq!(parser.refused.len(), 1, "{payload:?}");
            assert_eq!(rows(&parser.batch), [(1, vec![(3, 1.0)]), (1, vec![(3, 1.0)])]);
        }
    }
}
