//! Sorted weight numbers in few bytes: the distance to the one before, seven bits at a time.
//!
//! A batch of clicks touches some thousand of 2^25 weights, so distances are in the thousands: two
//! bytes each instead of four, and nothing to look up.

/// The bytes are not a list of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Appends ascending `indices`, each less `first`.
pub(crate) fn encode(indices: &[u32], first: u32, bytes: &mut Vec<u8>) {
    let mut before = first;
    for &index in indices {
        let mut distance = index - before;
        before = index;
        while distance >= 0x80 {
            bytes.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        bytes.push(distance as u8);
    }
}

/// Reads `count` indices below `length` into `indices`, whose old contents go.
pub(crate) fn decode(
    bytes: &[u8],
    count: usize,
    length: usize,
    indices: &mut Vec<u32>,
) -> Result<(), Damaged> {
    // Every index takes a byte at least: a count that promises more is a lie.
    if count > bytes.len() || count > length {
        return Err(Damaged);
    }
    indices.clear();
    indices.reserve(count);
    let mut rest = bytes.iter();
    let mut before = None::<u64>;
    for _ in 0..count {
        let mut distance = 0u64;
        let mut shift = 0;
        loop {
            let byte = *rest.next().ok_or(Damaged)?;
            distance |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(Damaged);
            }
        }
        let index = match before {
            None => distance,
            Some(_) if distance == 0 => return Err(Damaged), // twice the same
            Some(before) => before + distance,
        };
        if index >= length as u64 {
            return Err(Damaged);
        }
        before = Some(index);
        indices.push(u32::try_from(index).map_err(|_| Damaged)?);
    }
    if rest.next().is_some() { Err(Damaged) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_read_back(mut list in prop::collection::vec(0u32..5_000_000, 0..200), first in 0u32..100) {
            list.sort_unstable();
            list.dedup();
            let shifted: Vec<u32> = list.iter().map(|index| index + first).collect();
            let mut bytes = Vec::new();
            encode(&shifted, first, &mut bytes);
            let mut back = Vec::new();
            decode(&bytes, list.len(), 5_000_000, &mut back).unwrap();
            prop_assert_eq!(back, list);
        }

        #[test]
        fn garbage_is_refused_or_sorted(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0usize..200) {
            let mut back = Vec::new();
            if decode(&bytes, count, 1_000, &mut back).is_ok() {
                prop_assert_eq!(back.len(), count);
                prop_assert!(back.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(back.iter().all(|index| *index < 1_000));
            }
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        let mut back = Vec::new();
        for (bytes, count) in [
            (&[1u8, 0][..], 2),     // twice the same
            (&[0x80][..], 1),       // ends in the middle
            (&[1, 1][..], 1),       // more than was said
            (&[0xff; 6][..], 1),    // longer than 32 bits
            (&[0x90, 0x4e][..], 1), // 10,000 of 1,000
            (&[1][..], usize::MAX), // a count that would fill the memory
        ] {
            assert_eq!(decode(bytes, count, 1_000, &mut back), Err(Damaged), "{bytes:?}");
        }
    }
}
