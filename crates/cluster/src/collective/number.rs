//! Numbers that can be sent as they lie in memory and added up.

/// `f32` or `f64`.
pub trait Number: Copy + Default + Send + std::ops::AddAssign + private::Sealed + 'static {}

impl Number for f32 {}
impl Number for f64 {}

mod private {
    /// Types without padding for which every pattern of bits is a value.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

// The wire is little-endian, as all machines we run on are; others would need to swap bytes here.
#[cfg(not(target_endian = "little"))]
compile_error!("numbers are sent as they lie in memory, which must be little-endian");

/// Numbers as bytes.
#[allow(unsafe_code)]
pub(crate) fn bytes<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: `Number` has no padding, bytes have no alignment, and the length in bytes of a slice
    // that exists fits.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Numbers as bytes to be overwritten.
#[allow(unsafe_code)]
pub(crate) fn bytes_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes`; and any bytes written are valid numbers.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Adds `other` to `sums`, which is as long.
pub(crate) fn add<T: Number>(sums: &mut [T], other: &[T]) {
    debug_assert_eq!(sums.len(), other.len());
    for (sum, value) in sums.iter_mut().zip(other) {
        *sum += *value;
    }
}
