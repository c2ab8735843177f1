//! JPEG files: baseline, the standard's tables, chroma at half resolution (4:2:0).
//!
//! Coefficients and tables are those of libjpeg at the same quality, so files are as large and as good
//! as those of most programs.

mod entropy;
mod forward;
#[cfg(target_arch = "x86_64")]
mod forward_avx2;
mod planes;
#[cfg(target_arch = "x86_64")]
mod planes_avx2;
mod tables;

use crate::simd::Simd;
use crate::{Colour, Pixels};
use entropy::{BitWriter, CodeTable};
use forward::Divisors;

/// Tables for one quality.
#[derive(Debug)]
struct QualityTables {
    quality: u8,
    quant: [[u8; 64]; 2],
    /// For luma and for chroma.
    divisors: [Divisors; 2],
}

/// Encodes photos one after another, keeping tables and buffers.
#[derive(Debug)]
pub(crate) struct JpegEncoder {
    simd: Simd,
    prepared: Option<QualityTables>,
    /// DC and AC codes, for luma and for chroma.
    codes: [[CodeTable; 2]; 2],
    /// Sixteen lines of luma; two of each chroma plane; eight of each chroma plane, halved.
    luma: Vec<u8>,
    colour: [Vec<u8>; 2],
    halved: [Vec<u8>; 2],
}

/// State carried from block to block.
struct Stream<'a> {
    simd: Simd,
    codes: &'a [[CodeTable; 2]; 2],
    writer: BitWriter,
    previous: [i16; 3],
    out: &'a mut Vec<u8>,
}

impl Stream<'_> {
    fn block(&mut self, component: usize, coefficients: &[i16; 64]) {
        let [dc, ac] = &self.codes[usize::from(component > 0)];
        let previous = &mut self.previous[component];
        *previous =
            entropy::block(self.simd, coefficients, *previous, dc, ac, &mut self.writer, self.out);
    }
}

impl JpegEncoder {
    pub(crate) fn new(simd: Simd) -> Self {
        Self {
            simd,
            prepared: None,
            codes: tables::CODES.each_ref().map(|pair| pair.each_ref().map(CodeTable::new)),
            luma: Vec::new(),
            colour: Default::default(),
            halved: Default::default(),
        }
    }

    /// Appends the picture, which has pixels and fits the format, to `out`.
    pub(crate) fn encode(
        &mut self,
        pixels: &Pixels,
        (width, height): (u16, u16),
        quality: u8,
        out: &mut Vec<u8>,
    ) {
        if self.prepared.as_ref().is_none_or(|prepared| prepared.quality != quality) {
            let quant = tables::quantisation(quality);
            let divisors = quant.each_ref().map(Divisors::new);
            self.prepared = Some(QualityTables { quality, quant, divisors });
        }
        let Some(prepared) = &self.prepared else { return };
        let components = if pixels.colour() == Colour::Grey { 1 } else { 3 };
        tables::write_head(out, width, height, components, &prepared.quant);
        let mut stream = Stream {
            simd: self.simd,
            codes: &self.codes,
            writer: BitWriter::new(),
            previous: [0; 3],
            out,
        };
        let lines = pixels.data().chunks_exact(usize::from(width) * pixels.colour().channels());
        let lines: Lines<'_> = (lines, usize::from(width), usize::from(height));
        match pixels.colour() {
            Colour::Grey => grey(lines, &prepared.divisors[0], &mut self.luma, &mut stream),
            Colour::Rgb => {
                let (colour, halved) = (&mut self.colour, &mut self.halved);
                rgb(lines, &prepared.divisors, &mut self.luma, colour, halved, &mut stream);
            }
        }
        stream.writer.finish(stream.out);
        stream.out.extend([0xff, 0xd9]);
    }
}

/// The lines of a picture, its width and its height.
type Lines<'a> = (std::slice::ChunksExact<'a, u8>, usize, usize);

/// Eight lines at a time, two blocks at a time.
fn grey(
    (mut lines, width, height): Lines<'_>,
    divisors: &Divisors,
    luma: &mut Vec<u8>,
    stream: &mut Stream<'_>,
) {
    let stride = width.next_multiple_of(16);
    luma.resize(8 * stride, 0);
    let mut pair = [[0; 64]; 2];
    for _ in 0..height.div_ceil(8) {
        for row in 0..8 {
            let to = row * stride;
            match lines.next() {
                Some(line) => {
                    luma[to..to + width].copy_from_slice(line);
                    luma[to + width..to + stride].fill(line[width - 1]);
                }
                // Below the picture its last line is repeated.
                None => luma.copy_within(to - stride..to, to),
            }
        }
        let blocks = width.div_ceil(8);
        for block in (0..blocks).step_by(2) {
            let at = block * 8;
            forward::two(stream.simd, &luma[at..], &luma[at + 8..], stride, divisors, &mut pair);
            for coefficients in &pair[..(blocks - block).min(2)] {
                stream.block(0, coefficients);
            }
        }
    }
}

/// Sixteen lines at a time: four blocks of luma, then one of each chroma plane.
fn rgb(
    (mut lines, width, height): Lines<'_>,
    divisors: &[Divisors; 2],
    luma: &mut Vec<u8>,
    colour: &mut [Vec<u8>; 2],
    halved: &mut [Vec<u8>; 2],
    stream: &mut Stream<'_>,
) {
    let simd = stream.simd;
    let stride = width.next_multiple_of(16);
    let half = stride / 2;
    luma.resize(16 * stride, 0);
    for plane in colour.iter_mut() {
        plane.resize(2 * stride, 0);
    }
    for plane in halved.iter_mut() {
        plane.resize(8 * half, 0);
    }
    let [blue, red] = colour;
    let mut pair = [[0; 64]; 2];
    for _ in 0..height.div_ceil(16) {
        for row in 0..16 {
            let (to, place) = (row * stride, row % 2 * stride);
            let (y, cb, cr) = (
                &mut luma[to..to + stride],
                &mut blue[place..place + stride],
                &mut red[place..place + stride],
            );
            if let Some(line) = lines.next() {
                planes::ycc_line(simd, line, y, cb, cr);
            } else {
                // Below the picture its last line is repeated.
                luma.copy_within(to - stride..to, to);
                let other = stride - place;
                blue.copy_within(other..other + stride, place);
                red.copy_within(other..other + stride, place);
            }
            if row % 2 == 1 {
                for (from, to) in [&*blue, &*red].into_iter().zip(halved.iter_mut()) {
                    let (upper, lower) = from.split_at(stride);
                    planes::halve(
                        simd,
                        upper,
                        lower,
                        &mut to[row / 2 * half..row / 2 * half + half],
                    );
                }
            }
        }
        for unit in 0..stride / 16 {
            for row in [0, 8] {
                let at = row * stride + unit * 16;
                forward::two(simd, &luma[at..], &luma[at + 8..], stride, &divisors[0], &mut pair);
                stream.block(0, &pair[0]);
                stream.block(0, &pair[1]);
            }
            let at = unit * 8;
            forward::two(simd, &halved[0][at..], &halved[1][at..], half, &divisors[1], &mut pair);
            stream.block(1, &pair[0]);
            stream.block(2, &pair[1]);
        }
    }
}
