//! libsvm and svmlight: `label index:value index:value … # comment`.
//!
//! Indices are feature numbers already: those below the number of weights are kept, so that small
//! sets have no collisions; larger ones are hashed.

use super::{Format, Parser, Refusal, Row, label, lines};
use crate::rows::{
    Hashing,
    hashing::{field, fold},
    number::{float, integer},
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
        let mut tokens = tokens(line);
        if tokens.clone().next().is_none() {
            continue; // nothing but a comment
        }
        let mut row = Row::of(&mut parser.batch);
        let result = read(&hashing, &mut tokens, &mut row);
        match result {
            Ok(label) => row.end(label),
            Err(why) => {
                row.abandon();
                parser.refuse(start, start + line.len(), why);
            }
        }
    }
}

fn read<'a>(
    hashing: &Hashing,
    tokens: &mut impl Iterator<Item = &'a [u8]>,
    row: &mut Row<'_>,
) -> Result<u32, Refusal> {
    let label =
        if hashing.labelled { tokens.next().and_then(label).ok_or(Refusal::Label)? } else { 0 };
    for (number, token) in tokens.enumerate() {
        if token.starts_with(b"qid:") {
            continue; // the query of a ranking: nothing a classifier uses
        }
        let (index, value) = pair(token).ok_or(Refusal::Feature { feature: number as u32 + 1 })?;
        let index = match u32::try_from(index) {
            Ok(index) if u64::from(index) < hashing.width() => index,
            _ => hashing.index(fold(KEY, index)),
        };
        row.feature(index, value);
    }
    Ok(label)
}

/// Words up to a comment.
fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let code = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    code.split(|&byte| byte == b' ' || byte == b'\t' || byte == b'\r')
        .filter(|word| !word.is_empty())
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
