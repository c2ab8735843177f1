//! Criteo click logs: a label, 13 integers, 26 hexadecimal categories, tab-separated, empty = missing.

use super::{Format, Parser, Refusal, Row};
use crate::rows::{
    Integers,
    hashing::{field, fold},
    number::{digits8, hex, hex8, integer},
};

/// This format.
pub const ENTRY: Format = Format {
    name: "clicks",
    about: "Criteo click logs: label, 13 integers, 26 hexadecimal categories, separated by tabs",
    extension: None,
    recognises: |line| {
        let fields = line.iter().filter(|&&byte| byte == b'\t').count() + 1;
        fields == LABELLED || fields == LABELLED - 1
    },
    parse,
};

/// Columns of integers.
pub const INTEGERS: usize = 13;
/// Columns of categories.
pub const CATEGORIES: usize = 26;
/// Features of a full row.
pub const FEATURES: usize = INTEGERS + CATEGORIES;
const LABELLED: usize = 1 + FEATURES;

/// The key of every column, ready for the hash.
const KEYS: [u64; FEATURES] = {
    let mut keys = [0; FEATURES];
    let mut at = 0;
    while at < FEATURES {
        keys[at] = field(at as u64);
        at += 1;
    }
    keys
};

fn parse(parser: &mut Parser, text: &[u8]) {
    let mut delimiters = std::mem::take(&mut parser.delimiters);
    delimiters.find(text);
    let ends = delimiters.at();
    let wanted = if parser.hashing.labelled { LABELLED } else { FEATURES };
    let (mut first, mut start) = (0, 0);
    let mut row_ends = [0; LABELLED];
    for &upto in &delimiters.lines {
        let upto = upto as usize;
        let end = ends[upto - 1] as usize;
        if let Ok(row) = <&[u32; LABELLED]>::try_from(&ends[first..upto])
            && wanted == LABELLED
        {
            line(parser, text, start, row);
        } else if upto - first == wanted {
            row_ends[..wanted].copy_from_slice(&ends[first..upto]);
            line(parser, text, start, &row_ends);
        } else {
            refuse_count(parser, text, start, end, upto - first, wanted);
        }
        first = upto;
        start = end + 1;
    }
    if start < text.len() {
        // The last line of a file need not end.
        let found = ends.len() - first + 1;
        if found == wanted {
            row_ends[..wanted - 1].copy_from_slice(&ends[first..]);
            row_ends[wanted - 1] = text.len() as u32;
            line(parser, text, start, &row_ends);
        } else {
            refuse_count(parser, text, start, text.len(), found, wanted);
        }
    }
    parser.delimiters = delimiters;
}

fn refuse_count(
    parser: &mut Parser,
    text: &[u8],
    start: usize,
    end: usize,
    found: usize,
    wanted: usize,
) {
    if end > start && text[start..end] != *b"\r" {
        let (found, wanted) = (found as u32, wanted as u32);
        parser.refuse(start, end, Refusal::Fields { found, wanted });
    }
}

/// Parses one line; `ends` are the ends of its fields.
#[inline]
fn line(parser: &mut Parser, text: &[u8], start: usize, ends: &[u32; LABELLED]) {
    let hashing = parser.hashing;
    let last;
    let result = if hashing.labelled {
        let end = ends[0] as usize;
        last = ends[FEATURES];
        match text[start..end] {
            [b'0'] => Ok(0),
            [b'1'] => Ok(1),
            ref other => super::label(other).ok_or(Refusal::Label),
        }
        .and_then(|label| features(parser, text, end + 1, &ends[1..], label))
    } else {
        last = ends[FEATURES - 1];
        features(parser, text, start, &ends[..FEATURES], 0)
    };
    if let Err(why) = result {
        Row::of(&mut parser.batch).abandon();
        parser.refuse(start, last as usize, why);
    }
}

#[inline]
fn features(
    parser: &mut Parser,
    text: &[u8],
    mut start: usize,
    ends: &[u32],
    label: u32,
) -> Result<(), Refusal> {
    let hashing = parser.hashing;
    let ends: &[u32; FEATURES] = ends.try_into().expect("a row has one end per feature");
    let mut row = Row::of(&mut parser.batch);
    let mut found = [0; FEATURES];
    let mut count = 0;
    for at in 0..INTEGERS {
        let end = ends[at] as usize;
        if end > start {
            let value =
                small_integer(text, start, end).ok_or(Refusal::Integer { field: 1 + at as u32 })?;
            match hashing.integers {
                Integers::Bins => {
                    found[count] = hashing.index(fold(KEYS[at], bin(value)));
                    count += 1;
                }
                Integers::Values => {
                    row.feature(hashing.index(KEYS[at]), signed_logarithm(value));
                }
            }
        }
        start = end + 1;
    }
    for at in INTEGERS..FEATURES {
        let mut end = ends[at] as usize;
        if at == FEATURES - 1 && end > start && text[end - 1] == b'\r' {
            end -= 1;
        }
        if end == start + 8 {
            let word = text[start..end].try_into().expect("eight bytes");
            let digits = hex8(word).ok_or(Refusal::Category { field: 1 + at as u32 })?;
            found[count] = hashing.index(fold(KEYS[at], digits));
            count += 1;
        } else if end > start {
            let value = hex(&text[start..end]).ok_or(Refusal::Category { field: 1 + at as u32 })?;
            // Its own part of the key space: `1f` is not `0000001f`.
            let key = KEYS[at] ^ ((end - start) as u64).rotate_right(8);
            found[count] = hashing.index(fold(key, value));
            count += 1;
        }
        start = ends[at] as usize + 1;
    }
    row.features(&found[..count]);
    row.end(label);
    Ok(())
}

#[inline]
fn small_integer(text: &[u8], start: usize, end: usize) -> Option<i64> {
    let length = end - start;
    if length <= 8
        && let Some(word) = text.get(start..start + 8)
        && let Some(value) = digits8(word.try_into().expect("eight bytes"), length)
    {
        return Some(value as i64);
    }
    integer(&text[start..end])
}

/// Integers of as many binary digits are one category; negative ones have their own.
#[inline]
fn bin(value: i64) -> u64 {
    let digits = u64::from(64 - value.unsigned_abs().leading_zeros());
    if value < 0 { digits + 64 } else { digits }
}

/// Counts spread over many powers of ten; their logarithm is what a linear model can use.
fn signed_logarithm(value: i64) -> f32 {
    let size = (value.unsigned_abs() as f32).ln_1p();
    if value < 0 { -size } else { size }
}

/// Writes a row as this format has it, without its line end.
pub fn write_row(
    out: &mut Vec<u8>,
    label: bool,
    integers: &[Option<i64>; INTEGERS],
    categories: &[Option<u32>; CATEGORIES],
) {
    out.push(if label { b'1' } else { b'0' });
    for integer in integers {
        out.push(b'\t');
        if let Some(value) = integer {
            push_integer(out, *value);
        }
    }
    for category in categories {
        out.push(b'\t');
        if let Some(value) = category {
            let digit = |at: u32| b"0123456789abcdef"[(value >> (28 - 4 * at) & 15) as usize];
            out.extend((0..8).map(digit));
        }
    }
}

fn push_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{parse, rows};
    use super::*;
    use crate::rows::Hashing;

    fn row(label: &str, integers: &[&str], categories: &[&str]) -> String {
        let mut fields = vec![label.to_owned()];
        for at in 0..INTEGERS {
            fields.push(integers.get(at).copied().unwrap_or("").to_owned());
        }
        for at in 0..CATEGORIES {
            fields.push(categories.get(at).copied().unwrap_or("").to_owned());
        }
        fields.join("\t")
    }

    #[test]
    fn missing_fields_give_no_features_and_fields_are_part_of_the_hash() {
        let text = [
            row("1", &["1", "1"], &["68fd1e64", "68fd1e64"]),
            row("0", &[], &[]),
            row("0", &["", "1"], &["", "68fd1e64"]),
        ]
        .join("\n");
        let parsed = parse(&ENTRY, Hashing::default(), &text);
        let rows = rows(&parsed.batch);
        assert_eq!(rows.len(), 3, "{:?}", parsed.refused);
        let (label, features) = &rows[0];
        assert_eq!((*label, features.len()), (1, 4));
        let distinct: std::collections::HashSet<u32> =
            features.iter().map(|(index, _)| *index).collect();
        assert_eq!(distinct.len(), 4, "the same value in another column is another feature");
        assert_eq!(rows[1], (0, vec![]));
        assert_eq!(rows[2].1, [features[1], features[3]]);
    }

    #[test]
    fn integers_are_binned_by_magnitude_or_kept_as_values() {
        let bins =
            |value: &str| rows(&parse(&ENTRY, Hashing::default(), &row("1", &[value], &[])).batch);
        assert_eq!(bins("1000"), bins("900"));
        assert_ne!(bins("1000"), bins("1024"));
        assert_ne!(bins("-1"), bins("1"));
        assert_eq!(bins("123456789012"), bins("123456789013"), "long ones take the slow way");
        let values = Hashing { integers: Integers::Values, ..Hashing::default() };
        let text =
            [row("1", &["7", "", "-3"], &["0000000a"]), row("0", &[], &["0000000a"])].join("\n");
        let rows = rows(&parse(&ENTRY, values, &text).batch);
        let found: Vec<f32> = rows[0].1.iter().map(|(_, value)| *value).collect();
        assert_eq!(found, [8_f32.ln(), -(4_f32.ln()), 1.0]);
        assert_eq!(rows[1].1, rows[0].1[2..]);
    }

    #[test]
    fn malformed_lines_are_refused_with_place_and_reason() {
        let good = row("1", &["5"], &["68fd1e64"]);
        let bad = [
            (row("2", &[], &[]), Refusal::Label),
            (row("0", &["5", "x"], &[]), Refusal::Integer { field: 2 }),
            (row("0", &[], &["", "zzzzzzzz"]), Refusal::Category { field: 15 }),
            (row("0", &[], &["", "", "12g"]), Refusal::Category { field: 16 }),
            ("0\t1".to_owned(), Refusal::Fields { found: 2, wanted: 40 }),
            (format!("{good}\t"), Refusal::Fields { found: 41, wanted: 40 }),
        ];
        for (line, why) in bad {
            let text = format!("{good}\n{line}\n\n{good}");
            let parsed = parse(&ENTRY, Hashing::default(), &text);
            let (start, end) = (good.len() + 1, good.len() + 1 + line.len());
            assert_eq!(
                parsed.refused,
                [super::super::Refused { start, end, after: 1, why }],
                "{line}"
            );
            let rows = rows(&parsed.batch);
            assert_eq!(rows.len(), 2);
            assert_eq!(rows[0], rows[1], "a refused line leaves nothing behind");
        }
    }

    #[test]
    fn other_line_ends_and_cases_mean_the_same() {
        let wanted = parse(&ENTRY, Hashing::default(), &row("1", &["5"], &["68fd1e64"; 26]));
        let text = format!("{}\r\n", row("1", &["5"], &["68FD1E64"; 26]));
        let found = parse(&ENTRY, Hashing::default(), &text);
        assert_eq!(rows(&found.batch), rows(&wanted.batch));
        let bare = Hashing { labelled: false, ..Hashing::default() };
        let text = row("1", &["5"], &["68fd1e64"; 26]);
        let unlabelled = parse(&ENTRY, bare, text.strip_prefix("1\t").unwrap());
        assert_eq!(rows(&unlabelled.batch)[0].1, rows(&wanted.batch)[0].1);
    }

    #[test]
    fn written_rows_read_back() {
        let mut integers = [None; INTEGERS];
        integers[..4].copy_from_slice(&[Some(0), Some(-7), Some(1_234_567_890_123), Some(99)]);
        let mut categories = [None; CATEGORIES];
        categories[25] = Some(0xdead_beef);
        let mut text = Vec::new();
        write_row(&mut text, true, &integers, &categories);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("1\t0\t-7\t1234567890123\t99\t\t"), "{text}");
        assert!(text.ends_with("\tdeadbeef"), "{text}");
        assert_eq!(rows(&parse(&ENTRY, Hashing::default(), &text).batch)[0].1.len(), 5);
    }
}
