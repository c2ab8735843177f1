//! Floats as the bytes that travel, without a copy.

#[cfg(not(target_endian = "little"))]
compile_error!(
    "weights travel in little-endian order; a big-endian machine would have to swap them"
);

/// The bytes of `values`.
#[allow(unsafe_code)]
pub(crate) fn of(values: &[f32]) -> &[u8] {
    // SAFETY: every float is four bytes without padding, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of `values`, to receive into.
#[allow(unsafe_code)]
pub(crate) fn of_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above; and every pattern of four bytes is a float.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// A number that a fixed field holds.
///
/// # Panics
/// If the field leaves the bytes; fields are constants of messages whose length was checked.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// As [`u64_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_survive_the_trip() {
        let values = [1.5f32, -0.0, f32::MAX, f32::MIN_POSITIVE];
        let mut back = [0.0f32; 4];
        of_mut(&mut back).copy_from_slice(of(&values));
        assert_eq!(back.map(f32::to_bits), values.map(f32::to_bits));
        assert_eq!(u64_at(&[0, 1, 0, 0, 0, 0, 0, 0, 0], 1), 1);
        assert_eq!(u32_at(&[7, 0, 1, 0], 0), 65_543);
    }
}
