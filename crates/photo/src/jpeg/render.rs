//! From rows of coefficients to rows of pixels.
//!
//! Works unit row by unit row: each component keeps three rows of units in a ring, enough for the
//! chroma filter to look one sample up and down. Memory does not grow with the
//! photo's height, and everything stays in the second-level cache. Blocks outside the wanted part
//! are not transformed.

use super::colour;
use super::idct;
use super::segments::{Frame, Model};
use super::upsample::{self, Ratio};
use crate::Colour;
use crate::simd::Simd;
use std::ops::Range;

/// Which part of a photo, at which size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Samples per block and side: 8 is full size, 4 a half, 2 a quarter, 1 an eighth.
    pub(crate) side: usize,
    /// The part, in pixels of that size; the ends are exclusive.
    pub(crate) columns: (usize, usize),
    pub(crate) rows: (usize, usize),
}

impl View {
    /// Width and height of a photo at `side` samples per block.
    pub(crate) fn scaled_size(frame: &Frame, side: usize) -> (usize, usize) {
        let scale = |pixels: u32| (pixels as usize * side).div_ceil(8);
        (scale(frame.width), scale(frame.height))
    }
}

/// The coefficients of one row of units, for one component.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockRows<'a> {
    pub(super) coefficients: &'a [i16],
    /// Zigzag index of the last coefficient per block, or more.
    pub(super) ends: &'a [u8],
}

/// Rows of units that a component keeps.
const KEPT: usize = 3;

/// One component while it is rendered.
#[derive(Debug, Clone, Copy, Default)]
struct Layer {
    quant: usize,
    /// Blocks per row of coefficients, and which of them are wanted.
    across: usize,
    wanted: (usize, usize),
    /// Rows of blocks per row of units, and samples per block and side.
    v: usize,
    side: usize,
    /// Samples that exist, across and down, in the whole photo.
    width: usize,
    height: usize,
    stride: usize,
    ratio: Ratio,
}

impl Layer {
    /// Samples per row of units, downwards.
    fn rows(&self) -> usize {
        self.v * self.side
    }

    /// The samples that the ring holds across: first and end.
    fn held(&self) -> (usize, usize) {
        (self.wanted.0 * self.side, (self.wanted.1 * self.side).min(self.width))
    }

    /// A row of held samples, by its number in the photo (clamped to it).
    fn row<'a>(&self, plane: &'a [u8], y: usize) -> &'a [u8] {
        let y = y.min(self.height - 1);
        let slot = y / self.rows() % KEPT;
        let start = (slot * self.rows() + y % self.rows()) * self.stride;
        let (first, end) = self.held();
        &plane[start..start + end - first]
    }
}

/// Renders one photo at a time; buffers are kept between photos.
#[derive(Debug, Default)]
pub(super) struct Renderer {
    layers: [Layer; 4],
    count: usize,
    /// A quantisation table per component, in natural order.
    quant: Vec<[i16; 64]>,
    planes: [Vec<u8>; 4],
    lines: [Vec<u8>; 4],
    sums: Vec<i16>,
    view: Option<View>,
    model: Option<Model>,
    colour: Colour,
    /// Units across that are wanted: first and end.
    wanted: (usize, usize),
    /// Pixels per row of units, downwards, and the number of unit rows.
    unit_rows: usize,
    units_down: usize,
}

impl Renderer {
    /// Prepares for a photo. `quant` has a table for every component.
    pub(super) fn begin(
        &mut self,
        frame: &Frame,
        quant: Vec<[i16; 64]>,
        model: Model,
        view: View,
        colour: Colour,
    ) {
        self.quant = quant;
        self.view = Some(view);
        self.model = Some(model);
        self.colour = colour;
        // Luma is a component of its own, except where RGB or inks are stored.
        let grey = colour == Colour::Grey && matches!(model, Model::Grey | Model::Ycc);
        self.count = if grey { 1 } else { frame.count };
        let (units_across, units_down) = frame.units();
        self.unit_rows = frame.v_max * view.side;
        self.units_down = units_down;
        // Two pixels more on each side, for the chroma filter's neighbours.
        let unit_columns = frame.h_max * view.side;
        let first_unit = view.columns.0.saturating_sub(2) / unit_columns;
        let end_unit = (view.columns.1 + 2).div_ceil(unit_columns).min(units_across);
        self.wanted = (first_unit, end_unit);
        for (index, component) in frame.components().iter().take(self.count).enumerate() {
            // Chroma stored at half the size needs no upsampling when the photo is halved anyway.
            let (fx, fy) = (frame.h_max / component.h, frame.v_max / component.v);
            let even =
                fx == fy && fx * component.h == frame.h_max && fy * component.v == frame.v_max;
            let side = if even && view.side * fx <= 8 { view.side * fx } else { view.side };
            let size = |pixels: u32, factor: usize, largest: usize| {
                (pixels as usize * factor * side).div_ceil(largest * 8)
            };
            let wanted = (first_unit * component.h, end_unit * component.h);
            let layer = Layer {
                quant: index,
                across: units_across * component.h,
                wanted,
                v: component.v,
                side,
                width: size(frame.width, component.h, frame.h_max),
                height: size(frame.height, component.v, frame.v_max),
                // Two blocks are written at once.
                stride: ((wanted.1 - wanted.0) * side).next_multiple_of(16),
                ratio: Ratio {
                    x: (frame.h_max * view.side, component.h * side),
                    y: (frame.v_max * view.side, component.v * side),
                },
            };
            self.planes[index].resize(KEPT * layer.rows() * layer.stride, 0);
            self.layers[index] = layer;
        }
    }

    /// Zigzag index of the last coefficient that a component's blocks are transformed from.
    pub(super) fn reach(&self, index: usize) -> usize {
        if index < self.count { idct::reach(self.layers[index].side) } else { 0 }
    }

    /// Whether pixels of the view follow from unit row `unit`.
    fn shows(&self, unit: usize) -> bool {
        let start = unit * self.unit_rows;
        self.view
            .is_some_and(|view| start + self.unit_rows + 2 > view.rows.0 && start < view.rows.1 + 2)
    }

    /// The units of unit row `unit` whose coefficients are looked at.
    pub(super) fn shown_units(&self, unit: usize) -> Range<usize> {
        if self.shows(unit) { self.wanted.0..self.wanted.1 } else { 0..0 }
    }

    /// Takes the coefficients of unit row `unit`, and writes the pixels of the row before it (and,
    /// after the last, of itself) to `out`, which holds the view.
    pub(super) fn row(
        &mut self,
        simd: Simd,
        unit: usize,
        rows: &[BlockRows<'_>; 4],
        out: &mut [u8],
    ) {
        let Some(view) = self.view else { return };
        if self.shows(unit) {
            for (index, &from) in rows.iter().enumerate().take(self.count) {
                self.transform(simd, index, unit, from);
            }
        }
        if unit > 0 {
            self.emit(simd, view, unit - 1, out);
        }
        if unit + 1 == self.units_down {
            self.emit(simd, view, unit, out);
        }
    }

    fn transform(&mut self, simd: Simd, index: usize, unit: usize, from: BlockRows<'_>) {
        let layer = &self.layers[index];
        let quant = &self.quant[layer.quant];
        let slot = unit % KEPT * layer.rows();
        for down in 0..layer.v {
            let first = down * layer.across;
            let (a, b) = (first + layer.wanted.0, first + layer.wanted.1);
            let top = (slot + down * layer.side) * layer.stride;
            let bottom = top + layer.side * layer.stride;
            idct::blocks(
                simd,
                &from.coefficients[a * 64..b * 64],
                &from.ends[a..b],
                quant,
                layer.side,
                &mut self.planes[index][top..bottom],
                layer.stride,
            );
        }
    }

    /// Writes the pixels of one row of units, as far as they are wanted.
    fn emit(&mut self, simd: Simd, view: View, unit: usize, out: &mut [u8]) {
        let start = (unit * self.unit_rows).max(view.rows.0);
        let end = ((unit + 1) * self.unit_rows).min(view.rows.1);
        let width = view.columns.1 - view.columns.0;
        let length = width * self.colour.channels();
        let Some(model) = self.model else { return };
        for y in start..end {
            for index in 0..self.count {
                let layer = &self.layers[index];
                if !layer.ratio.is_one() {
                    let plane = &self.planes[index];
                    let (near, far) = layer.ratio.rows(y, layer.height);
                    upsample::line(
                        simd,
                        layer.ratio,
                        y,
                        layer.row(plane, near),
                        layer.row(plane, far),
                        layer.held().0,
                        layer.width,
                        view.columns,
                        &mut self.sums,
                        &mut self.lines[index],
                    );
                }
            }
            let lines: [&[u8]; 4] = std::array::from_fn(|index| {
                if index >= self.count {
                    return &[][..];
                }
                let layer = &self.layers[index];
                if layer.ratio.is_one() {
                    let skipped = view.columns.0 - layer.held().0;
                    &layer.row(&self.planes[index], y)[skipped..skipped + width]
                } else {
                    &self.lines[index][..width]
                }
            });
            let to = (y - view.rows.0) * length;
            colour::line(simd, model, self.colour, lines, &mut out[to..to + length]);
        }
    }
}
