//! What the machine can do at most: the yardstick of every profile.

#![allow(unsafe_code)] // runs a kernel that touches no memory

use super::{Compute, isa::Kernel, simd::Simd};
use std::time::{Duration, Instant};

/// Independent chains of fused products: twice the latency times the ports, within the registers.
const CHAINS: usize = 12;

/// How long to look.
const LOOK: Duration = Duration::from_millis(330);

struct Chains {
    rounds: usize,
}

impl Kernel for Chains {
    /// A value that depends on all products (so that none is left out), and their number.
    type Output = (f32, f64);

    #[inline(always)]
    #[allow(clippy::cast_precision_loss)]
    unsafe fn run<S: Simd>(self) -> (f32, f64) {
        // SAFETY: the CPU has `S`; no memory is touched.
        unsafe {
            let (a, b) = (S::splat(0.999), S::splat(1e-3));
            let mut acc = [S::splat(0.5); CHAINS];
            for _ in 0..self.rounds {
                for value in &mut acc {
                    *value = S::fma(*value, a, b);
                }
            }
            let mut sum = S::zero();
            for value in acc {
                sum = S::add(sum, value);
            }
            (S::sum(sum), (2 * self.rounds * CHAINS * S::LANES) as f64)
        }
    }
}

/// Floating-point operations per second that all threads of `compute` reach on registers alone,
/// in the middle one of the short rounds of a third of a second: the first ones are slow where threads
/// that have just woken up share a core, and a few are faster than the machine can go on for.
#[must_use]
pub fn peak_flops(compute: &Compute) -> f64 {
    let threads = compute.pool().threads();
    let isa = compute.isa();
    let rounds = 400_000;
    let begun = Instant::now();
    let mut rates = Vec::new();
    loop {
        let start = Instant::now();
        let total = std::sync::Mutex::new(0.0);
        compute.pool().run(threads, &|_, _| {
            // SAFETY: the kernel touches no memory.
            let (value, count) = unsafe { isa.run(Chains { rounds }) };
            std::hint::black_box(value);
            *total.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += count;
        });
        let total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        rates.push(total / start.elapsed().as_secs_f64());
        if begun.elapsed() >= LOOK {
            rates.sort_by(f64::total_cmp);
            return rates[rates.len() / 2];
        }
    }
}
