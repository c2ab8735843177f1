//! Which instruction set the kernels use, decided once when the process starts computing.
//!
//! A kernel is written once against [`Simd`] and compiled three times, each inside a function that
//! carries the target features, so that a plain `cargo build` runs fast everywhere. `PACELINE_ISA`
//! forces a lower path: tests cover all of them, and a result can be checked on another one.

use super::simd::{Portable, Simd};
use std::sync::OnceLock;

/// The variable that forces an instruction set.
pub const VARIABLE: &str = "PACELINE_ISA";

/// An instruction set that this CPU has; there is no other way to get one than to ask the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Why no instruction set could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// No such name.
    #[error("{VARIABLE} is `{asked}`, must be avx512, avx2 or portable")]
    Unknown {
        /// What the variable says.
        asked: String,
    },
    /// The CPU cannot do it.
    #[error("{VARIABLE} asks for {asked}, but this CPU has only {best}")]
    Missing {
        /// What the variable says.
        asked: String,
        /// The best the CPU has.
        best: &'static str,
    },
}

/// Work written once for all instruction sets.
pub trait Kernel {
    /// What it computes.
    type Output;

    /// Does the work. Implementations are `#[inline(always)]`, and so is all that they call, lest
    /// parts of them are compiled without the instruction set.
    ///
    /// # Safety
    /// The CPU must have the instruction set `S`; whatever else the kernel's fields promise.
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

impl Isa {
    /// The instruction set of this process: the best the CPU has, or what the variable asks for.
    pub fn current() -> Result<Self, IsaError> {
        static CURRENT: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        CURRENT
            .get_or_init(|| match std::env::var(VARIABLE) {
                Ok(asked) => Self::named(&asked),
                Err(_) => Ok(Self::best()),
            })
            .clone()
    }

    /// The instruction set of that name, if the CPU has it.
    pub fn named(asked: &str) -> Result<Self, IsaError> {
        if let Some(isa) = Self::available().into_iter().find(|isa| isa.name() == asked) {
            return Ok(isa);
        }
        let asked = asked.to_owned();
        match asked.as_str() {
            "avx512" | "avx2" => Err(IsaError::Missing { asked, best: Self::best().name() }),
            _ => Err(IsaError::Unknown { asked }),
        }
    }

    /// Every instruction set this CPU can run, slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        if super::simd::Avx2::is_available() {
            all.push(Self(Level::Avx2));
            if super::simd::Avx512::is_available() {
                all.push(Self(Level::Avx512));
            }
        }
        all
    }

    fn best() -> Self {
        Self::available().into_iter().max().unwrap_or(Self(Level::Portable))
    }

    /// The name the variable takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    /// Runs a kernel compiled for this instruction set.
    ///
    /// # Safety
    /// What the kernel's fields promise must hold; the instruction set is there.
    #[allow(unsafe_code)]
    pub unsafe fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: an `Isa` exists only if the CPU has it.
        unsafe {
            match self.0 {
                Level::Portable => Portable::outline(kernel),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => super::simd::Avx2::outline(kernel),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => super::simd::Avx512::outline(kernel),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_an_unknown_set_names_the_choices() {
        let error = Isa::named("sse9").unwrap_err();
        assert!(error.to_string().contains("avx512, avx2 or portable"), "{error}");
        assert_eq!(Isa::named("portable").unwrap().name(), "portable");
    }

    #[test]
    fn asking_for_more_than_the_cpu_has_is_an_error() {
        let available = Isa::available();
        for name in ["avx2", "avx512"] {
            if !available.iter().any(|isa| isa.name() == name) {
                assert!(matches!(Isa::named(name), Err(IsaError::Missing { .. })));
            }
        }
    }
}
