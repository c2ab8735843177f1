//! Numbers from text, eight bytes at a time.
//!
//! A click log is mostly short integers and eight-digit hexadecimal words; byte-by-byte loops with
//! their unpredictable ends would take most of the time of reading it.

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

/// A finite decimal number. Short ones, which are nearly all, without the general parser.
#[inline]
pub(super) fn float(text: &[u8]) -> Option<f32> {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let (mut value, mut point, mut seen) = (0_u64, None, 0);
    for (at, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                value = value * 10 + u64::from(byte - b'0');
                seen += 1;
            }
            b'.' if point.is_none() => point = Some(at),
            _ => seen = 16,
        }
        if seen > 15 {
            // Exponents, `inf`, `nan` and long fractions.
            let value: f32 = std::str::from_utf8(text).ok()?.parse().ok()?;
            return value.is_finite().then_some(value);
        }
    }
    if seen == 0 {
        return None;
    }
    let fraction = point.map_or(0, |point| digits.len() - point - 1);
    // At most 15 digits and a power of ten are exact in a double, so only the division rounds.
    let value = (value as f64 / POWERS[fraction]) as f32;
    Some(if negative { -value } else { value })
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

    proptest! {
        #[test]
        fn floats_agree_with_the_library(text in "-?[0-9]{0,12}(\\.[0-9]{0,9})?(e-?[0-9]{1,2})?|[a-z.]{0,5}") {
            let wanted = text.parse::<f32>().ok().filter(|value| value.is_finite());
            match (float(text.as_bytes()), wanted) {
                // The short way rounds twice: at most the last bit differs.
                (Some(found), Some(wanted)) => {
                    let off = (found - wanted).abs();
                    prop_assert!(off <= wanted.abs() * 1.2e-7, "{text}: {found} {wanted}");
                }
                (found, wanted) => prop_assert_eq!(found, wanted, "{}", text),
            }
        }

        #[test]
        fn integers_agree_with_the_library(value in -999_999_999_999_999_999_i64..=999_999_999_999_999_999) {
            prop_assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
    }
}
