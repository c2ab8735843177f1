//! Finding the ends of words in text, eight bytes at a time.
//!
//! Rows with real values are short words, about one number in twelve bytes. Looking at every byte for the end of the line, of the word,
//! of the name and of the number in turn takes longer than learning from them.

use super::hashing::{fold, name_seed};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Eight bytes from `at` on, if there are as many.
#[inline(always)]
pub(super) fn word_at(text: &[u8], at: usize) -> Option<u64> {
    let bytes = text.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// The highest bit of the first byte of `word` that is `byte`; bits of later bytes mean nothing.
#[inline(always)]
fn first(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & HIGHS
}

/// Where `byte` comes first in `text`.
#[inline]
pub(super) fn find(text: &[u8], byte: u8) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word_at(text, at) {
        let found = first(word, byte);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    text[at..].iter().position(|&other| other == byte).map(|place| at + place)
}

/// A name of up to seven bytes at the start of `word`, which one of `ends` follows: its length, and its hash within a field.
#[inline(always)]
pub(super) fn short_name<const N: usize>(
    field: u64,
    word: u64,
    ends: [u8; N],
) -> Option<(usize, u64)> {
    let found = ends.iter().fold(0, |found, &end| found | lowest(first(word, end)));
    if found == 0 {
        return None;
    }
    let length = found.trailing_zeros() as usize / 8;
    let name = word & ((1 << (8 * length)) - 1);
    Some((length, fold(name_seed(field, length), name)))
}

/// The lowest bit alone: those above it may be wrong.
#[inline(always)]
fn lowest(bits: u64) -> u64 {
    bits & bits.wrapping_neg()
}

/// How many bytes at the start of `word` are decimal digits.
#[inline(always)]
pub(super) fn digits(word: u64) -> usize {
    let digits = word ^ (ONES * 0x30);
    // A carry out of a byte comes only from one that is not a digit, and changes later ones alone.
    let others = (digits | digits.wrapping_add(ONES * 0x76)) & HIGHS;
    others.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::hashing::fold_bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_found_where_they_are(
            text in proptest::collection::vec(proptest::sample::select(b"\x00\x01|:; \xff\x80a".to_vec()), 0..40),
            byte in proptest::sample::select(b"\x00\x01|: \xff\x80b".to_vec()),
        ) {
            prop_assert_eq!(find(&text, byte), text.iter().position(|other| *other == byte));
        }

        #[test]
        fn short_names_hash_as_all_names_do(
            text in proptest::collection::vec(proptest::sample::select(b"ab:; |{\x00\x01\xfa".to_vec()), 8..9),
        ) {
            let word = word_at(&text, 0).unwrap();
            let wanted = text.iter().position(|byte| b": |".contains(byte));
            let wanted = wanted.map(|length| (length, fold_bytes(77, &text[..length])));
            prop_assert_eq!(short_name(77, word, *b": |"), wanted);
        }

        #[test]
        fn digits_are_counted(text in "[0-9a./:-]{8}") {
            let wanted = text.bytes().take_while(u8::is_ascii_digit).count();
            prop_assert_eq!(digits(word_at(text.as_bytes(), 0).unwrap()), wanted);
        }
    }

    #[test]
    fn every_byte_ends_digits_or_is_one() {
        for byte in 0..=255_u8 {
            for at in 0..8 {
                let mut text = *b"09182736";
                text[at] = byte;
                let wanted = if byte.is_ascii_digit() { 8 } else { at };
                assert_eq!(digits(u64::from_le_bytes(text)), wanted, "{byte:#04x} at {at}");
            }
        }
    }
}
