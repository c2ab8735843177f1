//! What 1x1 convolutions do with a finished tile: write it, mask it, sum it for a batch norm.

#![allow(unsafe_code)] // raw rows of the arena; each one's fields say what they need

use super::tile::{Finish, padded};
use crate::kernels::{
    activation::{Affine, load_some, relu6_mask, store_some, write},
    simd::Simd,
};

/// The two sums of a vector of columns, kept in registers along some rows.
pub(super) struct Pair<S: Simd>(S::V, S::V);

impl<S: Simd> Pair<S> {
    /// # Safety
    /// The CPU has `S`; `near` is as [`Sums::near`](super::pointwise::Sums::near) says for so many columns.
    #[inline(always)]
    unsafe fn load(near: *const f32, column: usize, columns: usize) -> Self {
        // SAFETY: within two padded rows.
        unsafe { Self(S::load(near.add(column)), S::load(near.add(padded(columns) + column))) }
    }

    /// # Safety
    /// As for [`Pair::load`].
    #[inline(always)]
    unsafe fn store(self, near: *mut f32, column: usize, columns: usize) {
        // SAFETY: within two padded rows.
        unsafe {
            S::store(near.add(column), self.0);
            S::store(near.add(padded(columns) + column), self.1);
        }
    }

    /// Adds a value to the first, and it times another to the second.
    #[inline(always)]
    fn add(&mut self, value: S::V, times: S::V) {
        self.0 = S::add(self.0, value);
        self.1 = S::fma(value, times, self.1);
    }
}

/// Writes the raw output and sums it and its square.
#[derive(Clone, Copy)]
pub(super) struct Store {
    /// Rows of all columns, of which this task alone uses its own.
    pub(super) out: *mut f32,
    /// See [`Sums::near`](super::pointwise::Sums::near).
    pub(super) near: *mut f32,
    /// Whether `out` goes past the caches; then vectors of it are aligned and whole.
    pub(super) stream: bool,
}

impl Finish for Store {
    /// The sums, and the pivot.
    type Column<S: Simd> = (Pair<S>, S::V);

    #[inline(always)]
    fn soon<S: Simd>(&self, at: usize) {
        if !self.stream {
            S::prefetch(self.out.wrapping_add(at));
        }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(
        &self,
        column: usize,
        _left: usize,
        columns: usize,
    ) -> Self::Column<S> {
        // SAFETY: sums are padded to whole vectors.
        unsafe {
            let pivot = S::load(self.near.add(2 * padded(columns) + column));
            (Pair::load(self.near, column, columns), pivot)
        }
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(
        &self,
        (sums, pivot): &mut Self::Column<S>,
        value: S::V,
        at: usize,
        left: usize,
    ) {
        let centred = S::sub(value, *pivot);
        sums.add(centred, centred);
        // SAFETY: `left` columns from `at` on of the output.
        unsafe { write::<S>(self.out.add(at), value, left, self.stream) };
    }

    #[inline(always)]
    unsafe fn end<S: Simd>(&self, (sums, _): Self::Column<S>, column: usize, columns: usize) {
        // SAFETY: as in `begin`.
        unsafe { sums.store(self.near, column, columns) };
    }
}

/// Writes the gradient.
#[derive(Clone, Copy)]
pub(super) struct Write {
    /// All rows, of which this task alone uses its own.
    pub(super) out: *mut f32,
}

impl Finish for Write {
    type Column<S: Simd> = ();

    #[inline(always)]
    fn soon<S: Simd>(&self, at: usize) {
        S::prefetch(self.out.wrapping_add(at));
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, _column: usize, _left: usize, _columns: usize) {}

    #[inline(always)]
    unsafe fn value<S: Simd>(&self, _kept: &mut (), value: S::V, at: usize, left: usize) {
        // SAFETY: `left` columns from `at` on of the output.
        unsafe { store_some::<S>(self.out.add(at), value, left) };
    }

    #[inline(always)]
    unsafe fn end<S: Simd>(&self, _kept: (), _column: usize, _columns: usize) {}
}

/// Writes the gradient masked by a relu6 and sums it, alone and times the centred raw output.
#[derive(Clone, Copy)]
pub(super) struct Mask {
    /// See [`Behind::Relu6`](super::pointwise::Behind::Relu6); all rows and channels, of which this task alone uses its rows of `out`.
    pub(super) raw: *const f32,
    pub(super) affine: Affine,
    pub(super) mean: *const f32,
    pub(super) out: *mut f32,
    /// See [`Sums::near`](super::pointwise::Sums::near).
    pub(super) near: *mut f32,
    /// Whether `out` goes past the caches; then vectors of it are aligned and whole.
    pub(super) stream: bool,
}

impl Finish for Mask {
    /// The sums, factor and summand of the batch norm, and the mean.
    type Column<S: Simd> = (Pair<S>, (S::V, S::V), S::V);

    #[inline(always)]
    fn soon<S: Simd>(&self, at: usize) {
        S::prefetch(self.raw.wrapping_add(at));
        if !self.stream {
            S::prefetch(self.out.wrapping_add(at));
        }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, column: usize, left: usize, columns: usize) -> Self::Column<S> {
        // SAFETY: sums are padded to whole vectors, and `left` channels are there.
        unsafe {
            let mean = load_some::<S>(self.mean.add(column), left);
            let affine = self.affine.load::<S>(column, left);
            (Pair::load(self.near, column, columns), affine, mean)
        }
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(
        &self,
        (sums, (scale, shift), mean): &mut Self::Column<S>,
        value: S::V,
        at: usize,
        left: usize,
    ) {
        // SAFETY: `left` columns from `at` on of both.
        unsafe {
            let raw = load_some::<S>(self.raw.add(at), left);
            let gradient = relu6_mask::<S>(S::fma(raw, *scale, *shift), value);
            sums.add(gradient, S::sub(raw, *mean));
            write::<S>(self.out.add(at), gradient, left, self.stream);
        }
    }

    #[inline(always)]
    unsafe fn end<S: Simd>(&self, (sums, ..): Self::Column<S>, column: usize, columns: usize) {
        // SAFETY: as in `begin`.
        unsafe { sums.store(self.near, column, columns) };
    }
}

/// Writes the gradient, with that of a residual if there is one, and sums it as [`Mask`] does.
#[derive(Clone, Copy)]
pub(super) struct Add<const RESIDUAL: bool> {
    /// See [`Behind::Linear`](super::pointwise::Behind::Linear); all rows and channels, of which this task alone uses its rows of `out`.
    pub(super) raw: *const f32,
    pub(super) mean: *const f32,
    pub(super) residual: *const f32,
    pub(super) out: *mut f32,
    /// See [`Sums::near`](super::pointwise::Sums::near).
    pub(super) near: *mut f32,
}

impl<const RESIDUAL: bool> Finish for Add<RESIDUAL> {
    /// The sums, and the mean.
    type Column<S: Simd> = (Pair<S>, S::V);

    #[inline(always)]
    fn soon<S: Simd>(&self, at: usize) {
        S::prefetch(self.raw.wrapping_add(at));
        S::prefetch(self.out.wrapping_add(at));
        if RESIDUAL {
            S::prefetch(self.residual.wrapping_add(at));
        }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, column: usize, left: usize, columns: usize) -> Self::Column<S> {
        // SAFETY: sums are padded to whole vectors, and `left` channels are there.
        unsafe {
            let mean = load_some::<S>(self.mean.add(column), left);
            (Pair::load(self.near, column, columns), mean)
        }
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(
        &self,
        (sums, mean): &mut Self::Column<S>,
        mut value: S::V,
        at: usize,
        left: usize,
    ) {
        // SAFETY: `left` columns from `at` on of all.
        unsafe {
            let raw = load_some::<S>(self.raw.add(at), left);
            if RESIDUAL {
                value = S::add(value, load_some::<S>(self.residual.add(at), left));
            }
            sums.add(value, S::sub(raw, *mean));
            store_some::<S>(self.out.add(at), value, left);
        }
    }

    #[inline(always)]
    unsafe fn end<S: Simd>(&self, (sums, _): Self::Column<S>, column: usize, columns: usize) {
        // SAFETY: as in `begin`.
        unsafe { sums.store(self.near, column, columns) };
    }
}
