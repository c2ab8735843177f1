//! libsvm and svmlight: `label index:value index:value … # comment`.
//!
//! Indices are feature numbers already: those below the number of weights are kept, so that small
//! sets have no collisions; larger ones are hashed.

use super::{Format, Parser, Refusal, Row, label, lines};
use crate::rows::{
    Hashing,
    hashing::{field, fold},
    number::{float, integer, short_float, short_integer},
};

/// This format.
pub const ENTRY: Format = Format {
    name: "libsvm",
    about: "libsvm and svmlight: a label, then index:value pairs",
    extension: None,
    recognises: |line| {
        let mut tokens = tokens(line);
        tokens.next().is_some_and(|first| label(first).is_some())
            && tokens.all(|token| token.starts_with(b"qid:") || pair(token).is_some())
    },
    parse,
};

const KEY: u64 = field(1 << 20);

fn parse(parser: &mut Parser, text: &[u8]) {
    let hashing = parser.hashing;
    for (start, line) in lines(text) {
        let first = skip_blanks(line, 0);
        if is_over(line, first) {
            continue; // nothing but a comment
        }
        let mut row = Row::of(&mut parser.batch);
        match read(&hashing, line, first, &mut row) {
            Ok(label) => row.end(label),
            Err(why) => {
                row.abandon();
                parser.refuse(start, start + line.len(), why);
            }
        }
    }
}

fn read(hashing: &Hashing, line: &[u8], mut at: usize, row: &mut Row<'_>) -> Result<u32, Refusal> {
    let mut label = 0;
    if hashing.labelled {
        let end = word_end(line, at);
        label = super::label(&line[at..end]).ok_or(Refusal::Label)?;
        at = end;
    }
    let mut number = 0;
    loop {
        at = skip_blanks(line, at);
        if is_over(line, at) {
            return Ok(label);
        }
        number += 1;
        let (index, value, end) = match short_pair(line, at) {
            Some(found) => found,
            None => {
                let end = word_end(line, at);
                let word = &line[at..end];
                if word.starts_with(b"qid:") {
                    at = end; // the query of a ranking: nothing a classifier uses
                    continue;
                }
                let (index, value) = pair(word).ok_or(Refusal::Feature { feature: number })?;
                (index, value, end)
            }
        };
        let index = match u32::try_from(index) {
            Ok(index) if u64::from(index) < hashing.width() => index,
            _ => hashing.index(fold(KEY, index)),
        };
        row.feature(index, value);
        at = end;
    }
}

/// A pair of a short index and a plain number, and the place behind it; most are.
#[inline(always)]
fn short_pair(line: &[u8], at: usize) -> Option<(u64, f32, usize)> {
    let (index, at) = short_integer(line, at, b':')?;
    let (value, end) = short_float(line, at)?;
    line.get(end).is_none_or(|byte| ends_word(*byte)).then_some((index, value, end))
}

#[inline(always)]
fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    at
}

/// Whether nothing follows, or a comment.
fn is_over(line: &[u8], at: usize) -> bool {
    line.get(at).is_none_or(|byte| *byte == b'#')
}

fn word_end(line: &[u8], at: usize) -> usize {
    let rest = &line[at..];
    at + rest.iter().position(|byte| ends_word(*byte)).unwrap_or(rest.len())
}

#[inline(always)]
fn ends_word(byte: u8) -> bool {
    is_blank(byte) || byte == b'#'
}

#[inline(always)]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t' || byte == b'\r'
}

/// Words up to a comment.
fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let code = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    code.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty())
}

fn pair(token: &[u8]) -> Option<(u64, f32)> {
    let colon = token.iter().position(|&byte| byte == b':')?;
    let index = u64::try_from(integer(&token[..colon])?).ok()?;
    Some((index, float(&token[colon + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{parse, rows};
    use super::*;

    #[test]
    fn numbers_comments_and_queries_are_understood() {
        let text = "+1 3:1 5:0.25 # note\n-1 qid:4 3:1e-3\n# only a comment\n0\n1 3:1\n";
        let parsed = parse(&ENTRY, Hashing::default(), text);
        assert_eq!(parsed.refused, []);
        let wanted = vec![
            (1, vec![(3, 1.0), (5, 0.25)]),
            (0, vec![(3, 1e-3)]),
            (0, vec![]),
            (1, vec![(3, 1.0)]),
        ];
        assert_eq!(rows(&parsed.batch), wanted);
    }

    #[test]
    fn indices_beyond_the_weights_are_hashed() {
        let hashing = Hashing { bits: 4, ..Hashing::default() };
        let found = rows(&parse(&ENTRY, hashing, "1 15:1 16:1 99999999999:2\n").batch);
        assert_eq!(found[0].1[0], (15, 1.0));
        assert!(found[0].1.iter().all(|(index, _)| *index < 16));
    }

    #[test]
    fn short_and_long_pairs_are_read_alike() {
        use proptest::prelude::*;
        proptest!(|(text in "[01]( {0,2}[0-9]{1,9}:-?[0-9]{0,3}(\\.[0-9]{0,9})?(e-?[0-9]{1,2})?| qid:[0-9]{1,9}|\t){0,9}(#[a ]{0,5})?")| {
            let found = rows(&parse(&ENTRY, Hashing::default(), &text).batch).pop();
            let mut words = tokens(text.as_bytes());
            let label = label(words.next().unwrap());
            let pairs = words.filter(|word| !word.starts_with(b"qid:")).map(pair);
            let wanted = label.zip(pairs.collect::<Option<Vec<_>>>()).map(|(label, pairs)| {
                let index = |index: u64| match index {
                    0..0x200_0000 => index as u32,
                    _ => Hashing::default().index(fold(KEY, index)),
                };
                (label, pairs.into_iter().map(|(at, value)| (index(at), value)).collect())
            });
            prop_assert_eq!(found, wanted, "{:?}", text);
        });
    }

    #[test]
    fn malformed_lines_are_refused() {
        for (line, why) in [
            ("3 1:1", Refusal::Label),
            ("1 2", Refusal::Feature { feature: 1 }),
            ("1 2:3 x:1", Refusal::Feature { feature: 2 }),
            ("1 2:nan", Refusal::Feature { feature: 1 }),
            ("1 -2:1", Refusal::Feature { feature: 1 }),
        ] {
            let parsed = parse(&ENTRY, Hashing::default(), &format!("1 7:2\n{line}\n1 7:2\n"));
            assert_eq!(parsed.refused.len(), 1, "{line}");
            assert_eq!(parsed.refused[0].why, why, "{line}");
            assert_eq!(rows(&parsed.batch), [(1, vec![(7, 2.0)]), (1, vec![(7, 2.0)])]);
        }
    }

    #[test]
    fn a_real_set_is_read_whole() {
        let Some(folder) = paceline_testing::real_data("libsvm") else { return };
        let file = std::fs::File::open(folder.join("a9a.gz")).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
        let parsed = parse(&ENTRY, Hashing::default(), &text);
        assert_eq!((parsed.batch.len(), parsed.refused.len()), (32_561, 0));
        assert_eq!(parsed.batch.labels.iter().sum::<u32>(), 7_841);
    }
}
