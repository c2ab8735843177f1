//! JPEG: sequential and progressive Huffman photos of 8 bits, in any sampling.
//!
//! Segments are read first, so that sizes are known before anything is allocated; then sequential
//! photos stream row by row from bits to pixels, while photos in several scans collect all
//! coefficients before the first pixel.

mod bits;
mod colour;
#[cfg(target_arch = "x86_64")]
mod colour_avx2;
mod encode;
mod huffman;
mod idct;
#[cfg(target_arch = "x86_64")]
mod idct_avx2;
mod progressive;
mod render;
mod segments;
mod sequential;
mod upsample;

use crate::header::{Format, Header, Limits};
use crate::simd::Simd;
use crate::{Colour, Defect, PhotoError};
use bits::ScanData;
pub(crate) use encode::JpegEncoder;
pub(crate) use render::View;
use render::{BlockRows, Renderer};
use segments::{Frame, Scan, Segments, Stop};
use sequential::{Cursor, DecodingComponent};

/// More scans than any real photo has; a file of thousands would be an attack on our time.
const MAX_SCANS: usize = 100;

/// Decodes photos one after another, keeping tables and buffers.
#[derive(Debug)]
pub(crate) struct JpegDecoder {
    simd: Simd,
    segments: Segments,
    data: ScanData,
    coefficients: Vec<i16>,
    ends: Vec<u8>,
    renderer: Renderer,
}

/// A photo whose segments were read up to its first scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) header: Header,
    pub(crate) frame: Frame,
    scan: Scan,
    at: usize,
}

impl Opened {
    /// Whether each row of pixels follows from the bits of that row.
    fn streams(&self) -> bool {
        !self.frame.progressive && self.scan.count == self.frame.count
    }

    /// Bytes of the coefficients that must be held until the last scan.
    pub(crate) fn held_bytes(&self) -> u64 {
        if self.streams() { 0 } else { self.frame.blocks() * 128 }
    }
}

/// Reads the header only.
pub(crate) fn probe(bytes: &[u8]) -> Result<Header, PhotoError> {
    JpegDecoder::new(Simd::Portable).open(bytes).map(|opened| opened.header)
}

impl JpegDecoder {
    pub(crate) fn new(simd: Simd) -> Self {
        Self {
            simd,
            segments: Segments::default(),
            data: ScanData::default(),
            coefficients: Vec::new(),
            ends: Vec::new(),
            renderer: Renderer::default(),
        }
    }

    /// Reads the segments before the picture data.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> Result<Opened, PhotoError> {
        self.segments.reset();
        let damaged = |defect| PhotoError::Jpeg { defect, offset: bytes.len() };
        match self.segments.read(bytes, 2)? {
            Stop::Scan(scan, at) => {
                let frame = self.segments.frame.ok_or(damaged(Defect::MissingFrame))?;
                let header = Header {
                    format: Format::Jpeg,
                    width: frame.width,
                    height: frame.height,
                    components: frame.count as u8,
                    orientation: self.segments.orientation,
                };
                Ok(Opened { header, frame, scan, at })
            }
            Stop::End if self.segments.frame.is_some() => Err(damaged(Defect::MissingScan)),
            Stop::End => Err(damaged(Defect::MissingFrame)),
            Stop::FileEnd => Err(PhotoError::Truncated { offset: bytes.len() }),
        }
    }

    /// Decodes the `view` of an opened photo into `out`, which holds exactly that.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        opened: &Opened,
        limits: &Limits,
        view: View,
        colour: Colour,
        out: &mut [u8],
    ) -> Result<(), PhotoError> {
        let frame = &opened.frame;
        let damaged = |defect| PhotoError::Jpeg { defect, offset: opened.at };
        let streams = opened.streams();
        if !streams {
            self.collect(bytes, opened, limits)?;
        }
        let mut quant = Vec::with_capacity(frame.count);
        for component in frame.components() {
            let values =
                self.segments.quant[component.quant].ok_or(damaged(Defect::MissingTable))?;
            quant.push(values.map(|value| value as i16));
        }
        self.renderer.begin(frame, quant, self.segments.model(), view, colour);
        if streams { self.stream(bytes, opened, out) } else { self.show(frame, out) }
    }

    /// Bits to pixels, row by row.
    fn stream(&mut self, bytes: &[u8], opened: &Opened, out: &mut [u8]) -> Result<(), PhotoError> {
        let frame = &opened.frame;
        let damaged = |defect| PhotoError::Jpeg { defect, offset: opened.at };
        self.segments.prepare_tables(&opened.scan).map_err(damaged)?;
        self.data.load(bytes, opened.at);
        let (across, down) = frame.units();
        let mut starts = [0; 5];
        for (index, component) in frame.components().iter().enumerate() {
            starts[index + 1] = starts[index] + across * component.h * component.v;
        }
        let total = starts[frame.count];
        self.coefficients.resize(total * 64, 0);
        self.ends.resize(total, 0);
        let mut parts = Vec::with_capacity(4);
        for part in &opened.scan.components[..opened.scan.count] {
            let component = &frame.components[part.index];
            parts.push(DecodingComponent {
                dc: self.segments.dc(part.dc).map_err(damaged)?,
                ac: self.segments.ac(part.ac).map_err(damaged)?,
                h: component.h,
                v: component.v,
                across: across * component.h,
                start: starts[part.index],
                index: part.index,
                reach: self.renderer.reach(part.index),
            });
        }
        let mut cursor = Cursor::new(&self.data, self.segments.restart)?;
        for unit in 0..down {
            let shown = self.renderer.shown_units(unit);
            let (coefficients, ends) =
                (&mut self.coefficients[..total * 64], &mut self.ends[..total]);
            sequential::row(self.simd, &mut cursor, &parts, across, &shown, coefficients, ends)?;
            let rows = std::array::from_fn(|index| BlockRows {
                coefficients: &self.coefficients
                    [starts[index] * 64..starts[index + 1].max(starts[index]) * 64],
                ends: &self.ends[starts[index]..starts[index + 1].max(starts[index])],
            });
            self.renderer.row(self.simd, unit, &rows, out);
        }
        Ok(())
    }

    /// All scans to coefficients.
    fn collect(
        &mut self,
        bytes: &[u8],
        opened: &Opened,
        limits: &Limits,
    ) -> Result<(), PhotoError> {
        let frame = &opened.frame;
        let total = frame.blocks() * 64;
        self.coefficients.clear();
        let no_memory = PhotoError::NoMemory { bytes: opened.held_bytes() };
        self.coefficients.try_reserve_exact(total as usize).map_err(|_| no_memory)?;
        self.coefficients.resize(total as usize, 0);
        let (mut scan, mut at) = (opened.scan, opened.at);
        let (mut visited, max_blocks) = (0, limits.max_blocks());
        let mut seen = [false; 4];
        for _ in 0..MAX_SCANS {
            let damaged = |defect| PhotoError::Jpeg { defect, offset: at };
            visited += progressive::visits(frame, &scan);
            if visited > max_blocks {
                return Err(PhotoError::TooManyScans { max_blocks });
            }
            self.segments.prepare_tables(&scan).map_err(damaged)?;
            let next = self.data.load(bytes, at);
            progressive::scan(&self.segments, frame, &scan, &self.data, &mut self.coefficients)?;
            for part in &scan.components[..scan.count] {
                seen[part.index] |= scan.first == 0;
            }
            let complete = seen[..frame.count].iter().all(|&seen| seen);
            match self.segments.read(bytes, next)? {
                Stop::Scan(following, start) => (scan, at) = (following, start),
                Stop::End if complete => return Ok(()),
                // A sequential photo is whole once each component came; a progressive one may lack
                // refinements that were cut off.
                Stop::FileEnd if complete && !frame.progressive => return Ok(()),
                Stop::End => return Err(damaged(Defect::MissingScan)),
                Stop::FileEnd => return Err(PhotoError::Truncated { offset: bytes.len() }),
            }
        }
        Err(PhotoError::Jpeg { defect: Defect::TooManyScans, offset: at })
    }

    /// Coefficients to pixels.
    fn show(&mut self, frame: &Frame, out: &mut [u8]) -> Result<(), PhotoError> {
        let areas = progressive::areas(frame);
        let (_, down) = frame.units();
        let longest =
            (0..frame.count).map(|index| areas[index].across * frame.components[index].v).max();
        // Where coefficients end is not tracked over scans.
        self.ends.clear();
        self.ends.resize(longest.unwrap_or(0), 63);
        for unit in 0..down {
            let rows = std::array::from_fn(|index| {
                let count = areas[index].across * frame.components[index].v;
                let start = (areas[index].start + unit * count) * 64;
                BlockRows {
                    coefficients: &self.coefficients[start..start + count * 64],
                    ends: &self.ends[..count],
                }
            });
            self.renderer.row(self.simd, unit, &rows, out);
        }
        Ok(())
    }

    /// Refuses files too short for the blocks they promise, before anything is allocated.
    pub(crate) fn check_length(bytes: &[u8], opened: &Opened) -> Result<(), PhotoError> {
        // Every block takes at least one bit, for its DC coefficient.
        let bits = (bytes.len() - opened.at) as u64 * 8;
        if bits < opened.frame.blocks() {
            return Err(PhotoError::Truncated { offset: bytes.len() });
        }
        Ok(())
    }
}
