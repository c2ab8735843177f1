//! One plain loop, compiled for each instruction set.

/// Makes `$name` call `$body`, an `#[inline(always)]` loop, compiled for the best instruction set
/// this machine has. The loops use no fused operations, so that all variants give the same bits.
macro_rules! for_each_isa {
    ($name:ident, $body:path, ($($arg:ident: $kind:ty),* $(,)?)) => {
        #[allow(unsafe_code)] // calling a function compiled for more than the baseline
        fn $name($($arg: $kind),*) {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// The CPU has AVX-512 F and VL.
                #[target_feature(enable = "avx512f,avx512vl")]
                fn avx512($($arg: $kind),*) {
                    $body($($arg),*);
                }
                /// # Safety
                /// The CPU has AVX2.
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $kind),*) {
                    $body($($arg),*);
                }
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                    // SAFETY: the processor has these features, as just asked.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has this feature, as just asked.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $body($($arg),*);
        }
    };
}
pub(super) use for_each_isa;
