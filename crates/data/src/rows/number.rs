//! Numbers from text, eight bytes at a time.
//!
//! A click log is mostly short integers and eight-digit hexadecimal words; byte-by-byte loops with
//! their unpredictable ends would take most of the time of reading it.

use super::scan;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The digits of an eight-digit hexadecimal word, one per byte, in either case; nothing if one is none.
#[inline]
pub(super) fn hex8(word: [u8; 8]) -> Option<u64> {
    let text = u64::from_le_bytes(word);
    let letter = (text >> 6) & ONES;
    // Digits are 0x30–0x39; letters 0x41–0x46 and 0x61–0x66, of which the low half is 1–6.
    let digit = (text & (ONES * 15)) + letter * 9;
    let wrong = (text & HIGHS) // beyond ASCII
        | (((text >> 4) & ONES) ^ letter ^ ONES) // 0x10 is set for digits only
        | (!((text >> 6) | (text >> 5)) & ONES) // 0x20 is set for digits
        | (digit & (ONES * 16)) // `g` and on, or 0x67 and on
        | ((((digit + ONES * 6) >> 4) & ONES) ^ letter); // `:` to `?`, and `@`, which is worth 9
    (wrong == 0).then_some(digit)
}

/// The value of 1 to 16 hexadecimal digits.
pub(super) fn hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter()
        .try_fold(0, |value, &byte| Some(value << 4 | u64::from(char::from(byte).to_digit(16)?)))
}

/// The value of 1 to 8 decimal digits at the start of `word`.
#[inline]
pub(super) fn digits8(word: [u8; 8], count: usize) -> Option<u64> {
    debug_assert!((1..=8).contains(&count));
    // Moves the digits to the end, so that the bytes before them count as leading zeros.
    let shift = 64 - 8 * count as u32;
    let digits = (u64::from_le_bytes(word) ^ (ONES * 0x30)) << shift;
    // A carry out of a byte comes only from one that is refused anyway.
    if (digits | digits.wrapping_add(ONES * 0x76)) & HIGHS != 0 {
        return None;
    }
    // Neighbours are added up in pairs: tens, hundreds, ten thousands.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((quads * 10_000 + (quads >> 32)) & 0xffff_ffff)
}

/// An integer with an optional sign.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |value, &digit| value * 10 + i64::from(digit - b'0'));
    Some(if negative { -value } else { value })
}

/// A finite decimal number, the nearest float to it.
#[inline]
pub(super) fn float(text: &[u8]) -> Option<f32> {
    match short_float(text, 0) {
        Some((value, end)) if end == text.len() => Some(value),
        _ => long_float(text),
    }
}

/// `inf`, `nan`, long fractions, extreme exponents, and text that is not a number.
#[cold]
fn long_float(text: &[u8]) -> Option<f32> {
    let value: f32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
const TENS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number at `start` of `text`, and the place behind it; nothing where it takes the general parser to say, which is rare.
///
/// Digits and a power of ten that doubles hold exactly give the nearest double by one operation. Rounding it again gives the nearest float
/// unless it lies exactly between two.
#[inline]
pub(super) fn short_float(text: &[u8], start: usize) -> Option<(f32, usize)> {
    // Flags and small counts, the most frequent values of all.
    if let Some(&[digit @ b'0'..=b'9', b' ']) = text.get(start..start + 2) {
        return Some((f32::from(digit - b'0'), start + 1));
    }
    let negative = text.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let (mut value, mut at) = digits_at(text, first, 0)?;
    let mut count = at - first;
    let mut fraction = 0;
    if text.get(at) == Some(&b'.') {
        let point = at + 1;
        (value, at) = digits_at(text, point, value)?;
        fraction = at - point;
        count += fraction;
    }
    if count == 0 || count > 19 || value > 1 << 53 {
        return None;
    }
    let mut exponent = -(fraction as i32);
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = text.get(at + 1);
        let from = at + 1 + usize::from(matches!(sign, Some(b'-' | b'+')));
        let (power, end) = digits_at(text, from, 0)?;
        if end == from || end - from > 3 {
            return None;
        }
        exponent += if sign == Some(&b'-') { -(power as i32) } else { power as i32 };
        at = end;
    }
    let power = *POWERS.get(exponent.unsigned_abs() as usize)?;
    let size = if exponent < 0 { value as f64 / power } else { value as f64 * power };
    let between = size.to_bits() & 0x1fff_ffff == 0x1000_0000;
    let normal = (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&size);
    if between || !(normal || value == 0) {
        return None;
    }
    let size = size as f32;
    Some((if negative { -size } else { size }, at))
}

/// Appends the digits from `at` on to `value`: what they make, and the place behind them. Nothing beyond 24 digits, which leave any
/// number of use; the caller counts them.
#[inline(always)]
fn digits_at(text: &[u8], mut at: usize, mut value: u64) -> Option<(u64, usize)> {
    let most = at + 16;
    while let Some(word) = scan::word_at(text, at) {
        let count = scan::digits(word);
        if count == 0 {
            return Some((value, at));
        }
        value = value.wrapping_mul(TENS[count]).wrapping_add(digits8(word.to_le_bytes(), count)?);
        at += count;
        if count < 8 {
            return Some((value, at));
        }
        if at > most {
            return None;
        }
    }
    while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    Some((value, at))
}

/// Up to seven digits at the start of `text` from `at` on that `end` follows: what they make, and the place behind `end`.
#[inline(always)]
pub(super) fn short_integer(text: &[u8], at: usize, end: u8) -> Option<(u64, usize)> {
    let word = scan::word_at(text, at)?;
    let count = scan::digits(word);
    if count == 0 || count > 7 || (word >> (8 * count)) as u8 != end {
        return None;
    }
    Some((digits8(word.to_le_bytes(), count)?, at + count + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_a_hexadecimal_digit_or_refused() {
        for byte in 0..=255_u8 {
            for at in 0..8 {
                let mut word = *b"09afAF5c";
                word[at] = byte;
                let wanted = byte.is_ascii_hexdigit();
                assert_eq!(hex8(word).is_some(), wanted, "{byte:#04x} at {at}");
            }
        }
        assert_eq!(hex8(*b"ABCDEF09"), hex8(*b"abcdef09"));
        assert_eq!(hex8(*b"12345678"), Some(0x0807_0605_0403_0201));
    }

    /// The values of real sets take the short way.
    #[test]
    fn usual_numbers_need_no_general_parser() {
        for text in [
            "6.2699720e-02",
            "0.25",
            "1",
            "-3",
            "1e-3",
            "0",
            "123456.789012",
            "1.25E+9",
            "5.",
            ".5",
        ] {
            let found = short_float(text.as_bytes(), 0);
            assert_eq!(found, Some((text.parse().unwrap(), text.len())), "{text}");
        }
        assert_eq!(short_integer(b"123:4567 8", 0, b':'), Some((123, 4)));
        assert_eq!(short_integer(b"12345678:", 0, b':'), None);
        assert_eq!(short_integer(b":1234567", 0, b':'), None);
        assert_eq!(short_integer(b"12 345678", 0, b':'), None);
    }

    #[test]
    fn every_byte_is_a_decimal_digit_or_refused() {
        for byte in 0..=255_u8 {
            for at in 0..8 {
                let mut word = *b"01234567";
                word[at] = byte;
                for count in 1..=8 {
                    let text = &word[..count];
                    let wanted = text
                        .iter()
                        .all(u8::is_ascii_digit)
                        .then(|| std::str::from_utf8(text).unwrap().parse::<u64>().unwrap());
                    assert_eq!(digits8(word, count), wanted, "{word:?} {count}");
                }
            }
        }
    }

    /// To the last bit, alone and in front of other text.
    fn agrees(text: &str) -> Result<(), TestCaseError> {
        let wanted = text.parse::<f32>().ok().filter(|value| value.is_finite());
        let same = |found: Option<f32>| found.map(f32::to_bits) == wanted.map(f32::to_bits);
        prop_assert!(
            same(float(text.as_bytes())),
            "{text}: {:?}, not {wanted:?}",
            float(text.as_bytes())
        );
        let longer = format!("x{text} 12345678");
        if let Some((value, end)) = short_float(longer.as_bytes(), 1)
            && end == text.len() + 1
        {
            prop_assert!(same(Some(value)), "{text}: {value}, not {wanted:?}");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn floats_agree_with_the_library(text in "[-+]?[0-9]{0,12}(\\.[0-9]{0,12})?([eE][-+]?[0-9]{0,3})?|[a-z.]{0,5}|[0-9.]{15,40}") {
            agrees(&text)?;
        }

        #[test]
        fn floats_near_the_middle_of_two_are_the_nearest(bits in 0_u32..0x7f80_0000, digits in 6_usize..18, off in -3_i64..=3) {
            let (low, high) = (f32::from_bits(bits), f32::from_bits((bits + 1).min(0x7f7f_ffff)));
            let middle = (f64::from(low) + f64::from(high)) / 2.0;
            let near = f64::from_bits((middle.to_bits() as i64 + off) as u64);
            for text in [format!("{near:.digits$e}"), format!("-{near:e}"), near.to_string()] {
                agrees(&text)?;
            }
        }

        #[test]
        fn integers_agree_with_the_library(value in -999_999_999_999_999_999_i64..=999_999_999_999_999_999) {
            prop_assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
    }
}
