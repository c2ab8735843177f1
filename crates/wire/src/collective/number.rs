//! Numbers that can be sent as they lie in memory and added up.

/// `f32` or `f64`; `u32` for words that say something else.
pub trait Number: Copy + Default + Send + std::ops::AddAssign + private::Sealed + 'static {}

impl Number for f32 {}
impl Number for f64 {}
impl Number for u32 {}

mod private {
    /// Types without padding for which every pattern of bits is a value.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for u32 {}
}

// The wire is little-endian, as all machines we run on are; others would need to swap bytes here.
#[cfg(not(target_endian = "little"))]
compile_error!("numbers are sent as they lie in memory, which must be little-endian");

/// Numbers as bytes.
#[allow(unsafe_code)]
#[must_use]
pub fn bytes<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: `Number` has no padding, bytes have no alignment, and the length in bytes of a slice
    // that exists fits.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Numbers as bytes to be overwritten.
#[allow(unsafe_code)]
pub fn bytes_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes`; and any bytes written are valid numbers.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Memory as numbers of either kind.
#[cfg(feature = "mpi")]
#[allow(unsafe_code)]
pub(crate) fn numbers_in<T: Number>(memory: &mut [f64]) -> &mut [T] {
    let length = size_of_val(memory) / size_of::<T>();
    // SAFETY: `f64` is aligned at least as `f32` and `f64` are, the length covers no more than the memory, and
    // every pattern of bits is a number of either kind.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), length) }
}

/// Adds `other` to `sums`, which is as long.
#[allow(unsafe_code)]
pub(crate) fn add<T: Number>(sums: &mut [T], other: &[T]) {
    debug_assert_eq!(sums.len(), other.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { add_avx2(sums, other) };
    }
    add_plain(sums, other);
}

#[inline(always)]
fn add_plain<T: Number>(sums: &mut [T], other: &[T]) {
    for (sum, value) in sums.iter_mut().zip(other) {
        *sum += *value;
    }
}

/// The same loop for wider registers.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_avx2<T: Number>(sums: &mut [T], other: &[T]) {
    add_plain(sums, other);
}

/// Puts `a + b` into both.
#[allow(unsafe_code)]
pub(crate) fn add_both(a: &mut [f32], b: &mut [f32]) {
    debug_assert_eq!(a.len(), b.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { add_both_avx2(a, b) };
    }
    add_both_plain(a, b);
}

#[inline(always)]
fn add_both_plain(a: &mut [f32], b: &mut [f32]) {
    for (x, y) in a.iter_mut().zip(b) {
        let sum = *x + *y;
        (*x, *y) = (sum, sum);
    }
}

/// The same loop for wider registers.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_both_avx2(a: &mut [f32], b: &mut [f32]) {
    add_both_plain(a, b);
}

/// Puts `a + b` into `sums`.
#[allow(unsafe_code)]
pub(crate) fn sum_of(sums: &mut [f32], a: &[f32], b: &[f32]) {
    debug_assert!(sums.len() == a.len() && a.len() == b.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { sum_of_avx2(sums, a, b) };
    }
    sum_of_plain(sums, a, b);
}

#[inline(always)]
fn sum_of_plain(sums: &mut [f32], a: &[f32], b: &[f32]) {
    for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
        *sum = a + b;
    }
}

/// The same loop for wider registers.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_of_avx2(sums: &mut [f32], a: &[f32], b: &[f32]) {
    sum_of_plain(sums, a, b);
}
