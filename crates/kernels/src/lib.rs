//! The arithmetic under the models, close to what the machine can do.
//!
//! Models and matrix products spend their time here, and this is where almost all `unsafe` code of the
//! workspace lives; apart from the models it can be tested, measured and argued about by itself.
//! Nothing here knows what a model or a batch is.
//!
//! Activations are kept in batch, height, width, channel order. Kernels are written once against
//! [`simd::Simd`], run on the instruction set in [`isa`], and share the threads and the scratch
//! memory of one [`Compute`].
//!
//! ```
//! use paceline_kernels::{Compute, Finish, Matrix};
//!
//! let mut compute = Compute::new(2)?; // threads; the best instruction set this CPU has
//! let (a, b) = ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 0.0]);
//! let mut product = [0.0; 4];
//! compute.gemm(Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 2), &mut product, 2, &Finish::default());
//! assert_eq!(product, [2.0, 1.0, 4.0, 3.0]);
//! # Ok::<(), paceline_kernels::IsaError>(())
//! ```

pub mod activation;
pub mod adaptive;
pub mod batch_norm;
pub mod buffer;
pub mod conv;
mod conv_weights;
pub mod convert;
pub mod dense;
pub mod depthwise;
pub mod depthwise_backward;
#[cfg(test)]
mod depthwise_tests;
mod direct;
pub mod dropout;
mod few;
pub mod gemm;
pub mod isa;
pub mod lenet;
pub mod linear;
pub mod loss;
mod norm_passes;
pub mod objective;
pub mod peak;
pub mod pooling;
pub mod random;
mod reduce;
mod response;
pub mod simd;
mod tanh;
pub mod threads;
mod winograd;

pub use buffer::Buffer;
pub use conv::ConvShape;
pub use dense::DenseShape;
pub use gemm::{Finish, Matrix};
pub use isa::{Isa, IsaError, Kernel};
pub use objective::Objective;
pub use pooling::PoolShape;

use crate::threads::Pool;

/// Threads, instruction set and scratch memory for kernels; each model owns one.
///
/// Scratch grows to what the largest kernel needs in the first step and is kept.
#[derive(Debug)]
pub struct Compute {
    isa: Isa,
    pool: Pool,
    /// Operands packed for all threads, or partial sums of several tasks.
    shared: Buffer,
    /// One buffer per thread.
    scratch: Vec<Buffer>,
    /// Some rows of a product that stays nowhere.
    piece: Buffer,
    /// Convolution weights in another order.
    weights: Buffer,
    /// Tiles of 3 x 3 convolutions.
    frequencies: winograd::Frequencies,
}

impl Compute {
    /// Kernels on `threads` threads with the instruction set of this process.
    pub fn new(threads: usize) -> Result<Self, IsaError> {
        Ok(Self::with_isa(Isa::current()?, threads))
    }

    /// Kernels on a given instruction set.
    #[must_use]
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        let pool = Pool::new(threads);
        let scratch = (0..pool.threads()).map(|_| Buffer::default()).collect();
        Self {
            isa,
            pool,
            shared: Buffer::default(),
            scratch,
            piece: Buffer::default(),
            weights: Buffer::default(),
            frequencies: winograd::Frequencies::default(),
        }
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Reproducible values between -1 and 1, for tests.
#[cfg(test)]
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            #[allow(clippy::cast_precision_loss)]
            let unit = (state >> 40) as f32 / (1u64 << 24) as f32;
            unit * 2.0 - 1.0
        })
        .collect()
}
