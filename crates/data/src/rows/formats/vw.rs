//! Vowpal Wabbit text: `label [importance] [base] ['tag]|namespace[:scale] name[:value] … |other …`.
//!
//! The namespace is part of a feature's hash. The hash is our own, not Vowpal Wabbit's.

use super::{Format, Parser, Refusal, Row, label, lines};
use crate::rows::{
    Hashing,
    hashing::{field, fold_bytes},
    number::{float, short_float},
    scan,
};

/// This format.
pub const ENTRY: Format = Format {
    name: "vw",
    about: "Vowpal Wabbit text: a label, then |namespace name:value …",
    extension: None,
    recognises: |line| line.contains(&b'|') && std::str::from_utf8(line).is_ok(),
    parse,
};

const KEY: u64 = field(1 << 21);

fn parse(parser: &mut Parser, text: &[u8]) {
    let hashing = parser.hashing;
    for (start, line) in lines(text) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let mut row = Row::of(&mut parser.batch);
        match read(&hashing, line, &mut row) {
            Ok(label) => row.end(label),
            Err(why) => {
                row.abandon();
                parser.refuse(start, start + line.len(), why);
            }
        }
    }
}

fn read(hashing: &Hashing, line: &[u8], row: &mut Row<'_>) -> Result<u32, Refusal> {
    let bar = scan::find(line, b'|').ok_or(Refusal::NoBar)?;
    let label = head(hashing, &line[..bar])?;
    let (mut at, mut number) = (bar, 0);
    let (mut space, mut scale) = (KEY, 1.0);
    while at < line.len() {
        if line[at] == b'|' {
            // A namespace touches its bar; a blank behind the bar means the nameless one.
            let end = word_end(line, at + 1);
            let name = named(&line[at + 1..end]).ok_or(Refusal::Feature { feature: number + 1 })?;
            (space, scale) = (fold_bytes(KEY, name.0), name.1);
            at = end;
        } else if is_blank(line[at]) {
            at += 1;
        } else {
            number += 1;
            let feature = short_feature(line, at, space);
            let (hash, value, end) = match feature {
                Some(feature) => feature,
                None => {
                    long_feature(line, at, space).ok_or(Refusal::Feature { feature: number })?
                }
            };
            row.feature(hashing.index(hash), value * scale);
            at = end;
        }
    }
    Ok(label)
}

/// The hash and value of a feature with a short name and a plain number, and the place behind it; most are.
#[inline(always)]
fn short_feature(line: &[u8], at: usize, space: u64) -> Option<(u64, f32, usize)> {
    let (length, hash) = scan::short_name(space, scan::word_at(line, at)?, *b": \t|")?;
    let end = at + length;
    if line[end] != b':' {
        return Some((hash, 1.0, end));
    }
    let (value, end) = short_float(line, end + 1)?;
    // A colon after all: the name has one.
    matches!(line.get(end), None | Some(b' ' | b'\t' | b'|')).then_some((hash, value, end))
}

/// The same for any feature.
fn long_feature(line: &[u8], at: usize, space: u64) -> Option<(u64, f32, usize)> {
    let end = word_end(line, at);
    let (name, value) = named(&line[at..end])?;
    Some((fold_bytes(space, name), value, end))
}

/// Where a word ends that begins at `at`.
fn word_end(line: &[u8], at: usize) -> usize {
    let rest = &line[at..];
    let end = rest.iter().position(|&byte| is_blank(byte) || byte == b'|');
    at + end.unwrap_or(rest.len())
}

/// What stands before the first bar.
fn head(hashing: &Hashing, text: &[u8]) -> Result<u32, Refusal> {
    let mut words = text.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return if hashing.labelled { Err(Refusal::Label) } else { Ok(0) };
    };
    if first.starts_with(b"'") && !hashing.labelled {
        return Ok(0);
    }
    let label = label(first).ok_or(Refusal::Label)?;
    // A tag begins with an apostrophe, or touches the bar.
    if let Some(second) = words.next()
        && let Some(importance) = float(second)
        && importance != 1.0
    {
        return Err(Refusal::Importance);
    }
    Ok(label)
}

/// A name and the number behind its colon; 1 without.
#[inline]
fn named(word: &[u8]) -> Option<(&[u8], f32)> {
    match word.iter().rposition(|&byte| byte == b':') {
        Some(colon) => Some((&word[..colon], float(&word[colon + 1..])?)),
        None => Some((word, 1.0)),
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::super::testing::{parse, rows};
    use super::*;

    #[test]
    fn namespaces_scales_values_and_tags_are_understood() {
        let text = "1 |a x y:2 |b:0.5 x\n-1 1 'tag|a x\n1 |a x |a y\n0 |\n";
        let parsed = parse(&ENTRY, Hashing::default(), text);
        assert_eq!(parsed.refused, []);
        let rows = rows(&parsed.batch);
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 0, 1, 0]);
        let [ax, ay, bx] = rows[0].1[..] else { panic!("{rows:?}") };
        assert_eq!((ax.1, ay.1, bx.1), (1.0, 2.0, 0.5));
        assert_ne!(ax.0, bx.0, "the namespace is part of the hash");
        assert_eq!(rows[1].1, [ax]);
        assert_eq!(rows[2].1, [ax, (ay.0, 1.0)], "a namespace may come twice");
        assert_eq!(rows[3].1, []);
    }

    /// The general way alone, whichever way each feature takes.
    #[test]
    fn short_and_long_features_are_read_alike() {
        use proptest::prelude::*;
        proptest!(|(text in "1 \\|(n|)( [a-c]{0,9}(:[0-9]{0,3}(\\.[0-9]{1,9})?(e-?[0-9]{1,2})?){0,2}[ \t|]{0,2}){0,9}")| {
            let hashing = Hashing { bits: 20, ..Hashing::default() };
            let parsed = parse(&ENTRY, hashing, &text);
            let bar = text.find('|').unwrap();
            let mut wanted = Some(Vec::new());
            for part in text[bar + 1..].split('|') {
                let mut words = part.split([' ', '\t']);
                let Some((space, scale)) = named(words.next().unwrap().as_bytes()) else {
                    wanted = None;
                    break;
                };
                for word in words.filter(|word| !word.is_empty()) {
                    let feature = named(word.as_bytes()).map(|(name, value)| {
                        (hashing.index(fold_bytes(fold_bytes(KEY, space), name)), value * scale)
                    });
                    match (&mut wanted, feature) {
                        (Some(features), Some(feature)) => features.push(feature),
                        _ => wanted = None,
                    }
                }
            }
            let found = rows(&parsed.batch).pop().map(|row| row.1);
            prop_assert_eq!(found, wanted, "{:?}", text);
        });
    }

    #[test]
    fn malformed_lines_are_refused() {
        for (line, why) in [
            ("1 a b", Refusal::NoBar),
            ("|a b", Refusal::Label),
            ("7 |a b", Refusal::Label),
            ("1 2.5 |a b", Refusal::Importance),
            ("1 |a b c:x", Refusal::Feature { feature: 2 }),
            ("1 |a:x b", Refusal::Feature { feature: 1 }),
        ] {
            let parsed = parse(&ENTRY, Hashing::default(), &format!("1 |a b\n{line}\n1 |a b\n"));
            assert_eq!(parsed.refused.len(), 1, "{line}");
            assert_eq!(parsed.refused[0].why, why, "{line}");
            assert_eq!(parsed.batch.len(), 2);
        }
    }

    #[test]
    fn a_real_set_is_read_whole() {
        let Some(folder) = paceline_testing::real_data("rcv1-vw") else { return };
        let text = std::fs::read_to_string(folder.join("rcv1_small.dat")).unwrap();
        let lines = text.lines().count();
        let parsed = parse(&ENTRY, Hashing::default(), &text);
        assert!(lines >= 1_000);
        assert_eq!((parsed.batch.len(), parsed.refused.len()), (lines, 0));
    }
}
