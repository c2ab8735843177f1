//! The linear classifier: few outputs, many inputs, read as bytes where they are bytes.
//!
//! Ten classes fill ten of sixteen lanes when vectors run along the classes, so here they run along
//! the inputs, in both directions: twenty accumulators stay in registers, bytes are widened in
//! passing, and each input is read once per pass.

#![allow(unsafe_code)] // kernels on raw memory
#![allow(clippy::needless_range_loop)] // indices of register tiles, unrolled

use super::{isa::Kernel, simd::Simd};

/// Where inputs come from.
pub trait Source: Copy + Send + Sync {
    /// A vector from element `at` on.
    ///
    /// # Safety
    /// The CPU has `S`; there are `S::LANES` elements from there on.
    unsafe fn load<S: Simd>(self, at: usize) -> S::V;
    /// One element.
    ///
    /// # Safety
    /// There is such an element.
    unsafe fn get(self, at: usize) -> f32;
    /// Asks for the cache line of an element, which need not exist.
    fn prefetch<S: Simd>(self, at: usize);
}

/// Bytes, not yet divided by 255.
#[derive(Clone, Copy)]
pub struct Bytes(pub *const u8);
/// Floats.
#[derive(Clone, Copy)]
pub struct Floats(pub *const f32);

// SAFETY: only read, while the batch is borrowed.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}
// SAFETY: as above.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Source for Bytes {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, at: usize) -> S::V {
        // SAFETY: the lanes are there, as the caller promises.
        unsafe { S::load_bytes(self.0.add(at)) }
    }
    #[inline(always)]
    unsafe fn get(self, at: usize) -> f32 {
        // SAFETY: the element is there, as the caller promises.
        unsafe { f32::from(*self.0.add(at)) }
    }
    #[inline(always)]
    fn prefetch<S: Simd>(self, at: usize) {
        S::prefetch(self.0.wrapping_add(at).cast());
    }
}

impl Source for Floats {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, at: usize) -> S::V {
        // SAFETY: the lanes are there, as the caller promises.
        unsafe { S::load(self.0.add(at)) }
    }
    #[inline(always)]
    unsafe fn get(self, at: usize) -> f32 {
        // SAFETY: the element is there, as the caller promises.
        unsafe { *self.0.add(at) }
    }
    #[inline(always)]
    fn prefetch<S: Simd>(self, at: usize) {
        S::prefetch(self.0.wrapping_add(at));
    }
}

/// Rows fetched ahead: another core has just gathered the batch, and from its cache a line takes as long
/// as a few rows do.
const AHEAD: usize = 8;

/// Inputs at a time: the weights of a block of classes then stay in the first-level cache.
const INPUT_BLOCK: usize = 1024;

/// `logits[row][class] = unit * input[row] . weights[class] + bias[class]` for rows `first..last`.
pub struct Logits<I> {
    /// At least `last * width` elements.
    pub input: I,
    /// Factor of every input.
    pub unit: f32,
    /// Inputs of a row.
    pub width: usize,
    /// First row of this task.
    pub first: usize,
    /// Row behind the last of this task.
    pub last: usize,
    /// `classes * width` floats.
    pub weights: *const f32,
    /// `classes` floats.
    pub bias: *const f32,
    /// Outputs of a row.
    pub classes: usize,
    /// `last * classes` floats, of which rows `first..last` are written and belong to this task alone.
    pub logits: *mut f32,
}

impl<I: Source> Kernel for Logits<I> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: rows before `last`, classes and inputs below their numbers.
        unsafe {
            for row in self.first..self.last {
                for class in 0..self.classes {
                    *self.logits.add(row * self.classes + class) = *self.bias.add(class);
                }
            }
            for from in (0..self.width).step_by(INPUT_BLOCK) {
                let to = (from + INPUT_BLOCK).min(self.width);
                let mut class = 0;
                // Two rows by ten classes where 32 registers hold them, by five where there are 16.
                while S::LANES == 16 && class + 10 <= self.classes {
                    self.columns::<S, 10>(class, from, to);
                    class += 10;
                }
                while class + 5 <= self.classes {
                    self.columns::<S, 5>(class, from, to);
                    class += 5;
                }
                while class < self.classes {
                    self.columns::<S, 1>(class, from, to);
                    class += 1;
                }
            }
        }
    }
}

impl<I: Source> Logits<I> {
    /// Some classes of all rows of the task, from the inputs `from..to`.
    ///
    /// # Safety
    /// As for the kernel; `class + CLASSES <= classes`, `to <= width`.
    #[inline(always)]
    unsafe fn columns<S: Simd, const CLASSES: usize>(&self, class: usize, from: usize, to: usize) {
        // SAFETY: rows before `last`.
        unsafe {
            let mut row = self.first;
            while row + 2 <= self.last {
                self.tile::<S, 2, CLASSES>(row, class, from, to);
                row += 2;
            }
            if row < self.last {
                self.tile::<S, 1, CLASSES>(row, class, from, to);
            }
        }
    }

    /// Some classes of some rows, from the inputs `from..to`.
    ///
    /// # Safety
    /// As for [`Self::columns`]; `row + ROWS <= last`, and `CLASSES` is at most 16.
    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize, const CLASSES: usize>(
        &self,
        row: usize,
        class: usize,
        from: usize,
        to: usize,
    ) {
        // SAFETY: whole vectors up to `to`, the rest one by one; `sums` has room for 16 classes.
        unsafe {
            let mut acc = [[S::zero(); CLASSES]; ROWS];
            let weights = self.weights.add(class * self.width);
            let mut at = from;
            while at + S::LANES <= to {
                let mut x = [S::zero(); ROWS];
                for (r, x) in x.iter_mut().enumerate() {
                    *x = self.input.load::<S>((row + r) * self.width + at);
                    self.input.prefetch::<S>((row + AHEAD + r) * self.width + at);
                }
                for c in 0..CLASSES {
                    let w = S::load(weights.add(c * self.width + at));
                    for r in 0..ROWS {
                        acc[r][c] = S::fma(x[r], w, acc[r][c]);
                    }
                }
                at += S::LANES;
            }
            for r in 0..ROWS {
                let mut sums = [0f32; 16];
                S::sums(&acc[r], sums.as_mut_ptr());
                for c in 0..CLASSES {
                    for rest in at..to {
                        sums[c] += self.input.get((row + r) * self.width + rest)
                            * *weights.add(c * self.width + rest);
                    }
                }
                let logits = self.logits.add((row + r) * self.classes + class);
                for c in 0..CLASSES {
                    *logits.add(c) += self.unit * sums[c];
                }
            }
        }
    }
}

/// `d_weights[class] = unit * Σ d_logits[row][class] * input[row]` for inputs `first..last`.
pub struct WeightGrad<I> {
    /// `rows * width` elements.
    pub input: I,
    /// Factor of every input.
    pub unit: f32,
    /// Inputs of a row.
    pub width: usize,
    /// First input of this task.
    pub first: usize,
    /// Input behind the last of this task, at most `width`.
    pub last: usize,
    /// Examples.
    pub rows: usize,
    /// `rows * classes` floats.
    pub d_logits: *const f32,
    /// Outputs of a row.
    pub classes: usize,
    /// `classes * width` floats, of which columns `first..last` are written and belong to this task alone.
    pub d_weights: *mut f32,
}

impl<I: Source> Kernel for WeightGrad<I> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: whole vectors before `last`, the rest one by one.
        unsafe {
            let mut at = self.first;
            while at + 2 * S::LANES <= self.last {
                self.columns::<S, 2>(at);
                at += 2 * S::LANES;
            }
            while at + S::LANES <= self.last {
                self.columns::<S, 1>(at);
                at += S::LANES;
            }
            for at in at..self.last {
                for class in 0..self.classes {
                    let mut sum = 0.0;
                    for row in 0..self.rows {
                        sum += self.input.get(row * self.width + at)
                            * *self.d_logits.add(row * self.classes + class);
                    }
                    *self.d_weights.add(class * self.width + at) = self.unit * sum;
                }
            }
        }
    }
}

impl<I: Source> WeightGrad<I> {
    /// The weights of `NV` vectors of inputs, all classes.
    ///
    /// # Safety
    /// As for the kernel; there are so many inputs from `at` on before `last`.
    #[inline(always)]
    unsafe fn columns<S: Simd, const NV: usize>(&self, at: usize) {
        // SAFETY: classes below their number.
        unsafe {
            let mut class = 0;
            while S::LANES == 16 && class + 10 <= self.classes {
                self.tile::<S, NV, 10>(at, class);
                class += 10;
            }
            while class + 5 <= self.classes {
                self.tile::<S, NV, 5>(at, class);
                class += 5;
            }
            while class < self.classes {
                self.tile::<S, NV, 1>(at, class);
                class += 1;
            }
        }
    }

    /// The weights of `NV` vectors of inputs, some classes.
    ///
    /// # Safety
    /// As for [`Self::columns`]; `class + CLASSES <= classes`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const NV: usize, const CLASSES: usize>(&self, at: usize, class: usize) {
        // SAFETY: these inputs of all rows, these classes' gradients and weights.
        unsafe {
            let mut acc = [[S::zero(); NV]; CLASSES];
            let mut d_logits = self.d_logits.add(class);
            for row in 0..self.rows {
                let mut x = [S::zero(); NV];
                for (j, x) in x.iter_mut().enumerate() {
                    *x = self.input.load::<S>(row * self.width + at + j * S::LANES);
                }
                for (c, acc) in acc.iter_mut().enumerate() {
                    let d = S::splat(*d_logits.add(c));
                    for j in 0..NV {
                        acc[j] = S::fma(x[j], d, acc[j]);
                    }
                }
                d_logits = d_logits.add(self.classes);
            }
            let unit = S::splat(self.unit);
            for (c, acc) in acc.iter().enumerate() {
                for (j, &value) in acc.iter().enumerate() {
                    let to = self.d_weights.add((class + c) * self.width + at + j * S::LANES);
                    S::store(to, S::mul(value, unit));
                }
            }
        }
    }
}
