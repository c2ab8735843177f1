//! What AVX2 and AVX-512 do alike, under different names.

/// Makes an instruction set of x86: what is one instruction in each follows from the names of the
/// intrinsics; what differs is written as the methods that it is.
macro_rules! x86_backend {
    (
        $(#[$about:meta])*
        $set:ident needs($($feature:tt)*);
        $(#[$about_vector:meta])*
        $vector:ident($register:ty), lanes $lanes:literal, tile_rows $tile_rows:literal;
        splat $splat:ident, load $load:ident, store $store:ident, stream $stream:ident;
        lanewise { $($operation:ident($($operand:ident),*) is $intrinsic:ident;)* }
        impl Simd for $implementor:ident { $($own:tt)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy)]
        pub struct $set;

        $(#[$about_vector])*
        #[derive(Debug, Clone, Copy)]
        #[repr(transparent)]
        pub struct $vector($register);

        impl $set {
            /// Whether this CPU has all that [`Simd::outline`] lets the compiler use.
            pub(crate) fn is_available() -> bool {
                $(is_x86_feature_detected!($feature))&&*
            }
        }

        // SAFETY: only the unsafe functions that ask for the CPU make a vector; loads and stores touch the
        // lanes of one register at most.
        unsafe impl Simd for $implementor {
            type V = $vector;
            const LANES: usize = $lanes;
            const TILE_ROWS: usize = $tile_rows;

            #[inline(never)]
            $(#[target_feature(enable = $feature)])*
            unsafe fn outline<K: Kernel>(kernel: K) -> K::Output {
                // SAFETY: what the kernel asks for is what is asked for here.
                unsafe { kernel.run::<Self>() }
            }

            #[inline(always)]
            unsafe fn splat(value: f32) -> $vector {
                // SAFETY: the CPU has the instruction, as the caller promises.
                unsafe { $vector($splat(value)) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> $vector {
                // SAFETY: the CPU has the instruction and the lanes can be read, as the caller promises.
                unsafe { $vector($load(from)) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut f32, value: $vector) {
                // SAFETY: there is a vector, so the CPU has the instruction; the lanes can be written, as the
                // caller promises.
                unsafe { $store(to, value.0) }
            }
            #[inline(always)]
            unsafe fn stream(to: *mut f32, value: $vector) {
                // SAFETY: as in `store`; the address is aligned, as the caller promises.
                unsafe { $stream(to, value.0) }
            }
            #[inline(always)]
            fn end_streams() {
                // SAFETY: part of every x86-64; it waits and touches nothing.
                unsafe { _mm_sfence() }
            }
            #[inline(always)]
            fn prefetch(from: *const f32) {
                // SAFETY: part of every x86-64; it takes any address and reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }
            #[inline(always)]
            fn prefetch_later(from: *const f32) {
                // SAFETY: as above.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
            }
            $(
                #[inline(always)]
                fn $operation($($operand: $vector),*) -> $vector {
                    // SAFETY: there is a vector, so the CPU has the instruction.
                    unsafe { $vector($intrinsic($($operand.0),*)) }
                }
            )*
            $($own)*
        }
    };
}
pub(super) use x86_backend;

/// Transposes the 4 x 4 blocks that lie side by side in every four registers, in place; the
/// intrinsics are those of the registers' width.
macro_rules! transpose_quarters {
    ($rows:ident, $low:ident, $high:ident, $shuffle:ident) => {
        for at in (0..$rows.len()).step_by(4) {
            let (a, b) = ($low($rows[at], $rows[at + 1]), $high($rows[at], $rows[at + 1]));
            let (c, d) = ($low($rows[at + 2], $rows[at + 3]), $high($rows[at + 2], $rows[at + 3]));
            $rows[at] = $shuffle::<0x44>(a, c);
            $rows[at + 1] = $shuffle::<0xee>(a, c);
            $rows[at + 2] = $shuffle::<0x44>(b, d);
            $rows[at + 3] = $shuffle::<0xee>(b, d);
        }
    };
}
pub(super) use transpose_quarters;
