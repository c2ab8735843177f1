//! Which instructions the codecs use.
//!
//! Every path gives the same bytes: prepared shards must not depend on the machine that made them.

use std::sync::OnceLock;

/// An instruction set that the codecs can be told to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Simd {
    /// Plain Rust, on any processor.
    Portable,
    /// 256-bit integer instructions (with the BMI bit instructions that come with them).
    Avx2,
}

/// The variable that forces a path: `portable` or `avx2`.
const VARIABLE: &str = "PACELINE_PHOTO_SIMD";

impl Simd {
    /// The fastest set of this machine, unless `PACELINE_PHOTO_SIMD` asks for a lesser one.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Simd> = OnceLock::new();
        *BEST.get_or_init(|| match std::env::var(VARIABLE).as_deref() {
            Ok("portable") => Self::Portable,
            _ if Self::Avx2.available() => Self::Avx2,
            _ => Self::Portable,
        })
    }

    /// Whether this machine can run it.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi1")
                    && std::arch::is_x86_feature_detected!("bmi2")
                    && std::arch::is_x86_feature_detected!("lzcnt")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
        }
    }

    /// Itself where the machine has it, else portable: the only way a codec gets a path, so that no
    /// codec ever runs instructions that do not exist.
    pub(crate) fn or_portable(self) -> Self {
        if self.available() { self } else { Self::Portable }
    }
}

/// Declares a function once and compiles it twice: for any processor, and for AVX2, where the
/// compiler may then use wide registers. The first argument of the result chooses.
macro_rules! for_each_simd {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident = $body:ident $(::<$number:literal>)?($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name(simd: $crate::simd::Simd, $($argument: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// The CPU has these features; safe to call where that is known at compile time.
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
                #[allow(clippy::too_many_arguments)]
                fn wide($($argument: $kind),*) $(-> $result)? {
                    $body $(::<$number>)? ($($argument),*)
                }
                if simd == $crate::simd::Simd::Avx2 {
                    // SAFETY: codecs hold `Avx2` only after `Simd::or_portable` found the features.
                    #[allow(unsafe_code)]
                    return unsafe { wide($($argument),*) };
                }
            }
            let _ = simd;
            $body $(::<$number>)? ($($argument),*)
        }
    };
}
pub(crate) use for_each_simd;
