//! The segments before and between the picture data: sizes, tables, colour, orientation.

use super::huffman::{Class, Spec, Table};
use crate::error::{Defect, PhotoError, Unsupported};
use crate::{Orientation, exif};

/// Zigzag order to natural order. A run may point up to 15 beyond the last coefficient before that
/// is noticed, and indices are masked to 7 bits, hence 128 entries.
pub(crate) const ZIGZAG: [u8; 128] = {
    let mut order = [63; 128];
    let (mut x, mut y, mut index) = (0i32, 0i32, 0);
    while index < 64 {
        order[index] = (y * 8 + x) as u8;
        // Up and to the right on even diagonals, down and to the left on odd ones.
        if (x + y) % 2 == 0 {
            if x == 7 {
                y += 1;
            } else if y == 0 {
                x += 1;
            } else {
                x += 1;
                y -= 1;
            }
        } else if y == 7 {
            x += 1;
        } else if x == 0 {
            y += 1;
        } else {
            x -= 1;
            y += 1;
        }
        index += 1;
    }
    order
};

/// One component of the frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Blocks per unit, across and down (1 to 4).
    pub(crate) h: usize,
    pub(crate) v: usize,
    /// Which quantisation table.
    pub(crate) quant: usize,
}

/// The frame header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) progressive: bool,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) count: usize,
    pub(crate) components: [Component; 4],
    pub(crate) h_max: usize,
    pub(crate) v_max: usize,
}

impl Frame {
    /// The components in use.
    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// Units (MCUs) across and down.
    pub(crate) fn units(&self) -> (usize, usize) {
        (
            (self.width as usize).div_ceil(8 * self.h_max),
            (self.height as usize).div_ceil(8 * self.v_max),
        )
    }

    /// Blocks in all components, those that only pad the last units included.
    pub(crate) fn blocks(&self) -> u64 {
        let (across, down) = self.units();
        let unit: usize = self.components().iter().map(|component| component.h * component.v).sum();
        across as u64 * down as u64 * unit as u64
    }
}

/// One component's part in a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanComponent {
    pub(crate) index: usize,
    pub(crate) dc: usize,
    pub(crate) ac: usize,
}

/// A scan header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) count: usize,
    pub(crate) components: [ScanComponent; 4],
    /// First and last coefficient, in zigzag order.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Successive approximation: bit position before and after this scan.
    pub(crate) high: u32,
    pub(crate) low: u32,
}

/// A Huffman table slot: what the file defined, and the table built from it when first needed. The
/// built table outlives the photo, since most photos use the same tables.
#[derive(Debug, Default)]
struct Slot {
    spec: Option<Spec>,
    table: Option<Box<Table>>,
}

/// Everything that segments have said so far.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) frame: Option<Frame>,
    /// Quantisation tables in natural order.
    pub(crate) quant: [Option<[u16; 64]>; 4],
    dc: [Slot; 4],
    ac: [Slot; 4],
    /// Units per restart interval; 0 for none.
    pub(crate) restart: usize,
    pub(crate) orientation: Orientation,
    jfif: bool,
    /// The transform byte of an Adobe segment.
    adobe: Option<u8>,
}

/// How the components make a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    Grey,
    Ycc,
    Rgb,
    /// Four inks; `inverted` as Adobe stores them (255 means none).
    Cmyk {
        inverted: bool,
    },
    /// Inks stored as luma and chroma, and black; inverted.
    Ycck,
}

/// What stopped the reading of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// A scan; its data starts at the offset.
    Scan(Scan, usize),
    /// The end marker.
    End,
    /// The end of the file without an end marker.
    FileEnd,
}

impl Segments {
    /// Forgets the photo, keeps built tables.
    pub(crate) fn reset(&mut self) {
        self.frame = None;
        self.quant = [None; 4];
        for slot in self.dc.iter_mut().chain(&mut self.ac) {
            slot.spec = None;
        }
        self.restart = 0;
        self.orientation = Orientation::Upright;
        self.jfif = false;
        self.adobe = None;
    }

    /// Reads segments from `at` until picture data or the end.
    pub(crate) fn read(&mut self, file: &[u8], mut at: usize) -> Result<Stop, PhotoError> {
        loop {
            // Bytes other than a marker are skipped, as in every decoder; so are fill bytes.
            while file.get(at).is_some_and(|&byte| byte != 0xff) {
                at += 1;
            }
            while file.get(at) == Some(&0xff) {
                at += 1;
            }
            let Some(&marker) = file.get(at) else { return Ok(Stop::FileEnd) };
            at += 1;
            match marker {
                0x00 | 0x01 | 0xd0..=0xd8 => continue,
                0xd9 => return Ok(Stop::End),
                _ => {}
            }
            let cut = PhotoError::Truncated { offset: file.len() };
            let Some(&[high, low]) = file.get(at..at + 2) else { return Err(cut) };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let damaged = |defect| PhotoError::Jpeg { defect, offset: at };
            if length < 2 {
                return Err(damaged(Defect::SegmentLength));
            }
            let Some(body) = file.get(at + 2..at + length) else { return Err(cut) };
            match marker {
                0xc0..=0xc2 => self.frame_header(marker, body, at)?,
                0xc3 | 0xc5..=0xc7 => return Err(Unsupported::FrameType(marker).into()),
                0xc8..=0xcb | 0xcd..=0xcf => return Err(Unsupported::ArithmeticCoding.into()),
                0xc4 => self.huffman_tables(body).map_err(damaged)?,
                0xdb => self.quantisation_tables(body).map_err(damaged)?,
                0xdd => match *body {
                    [high, low, ..] => self.restart = usize::from(u16::from_be_bytes([high, low])),
                    _ => return Err(damaged(Defect::SegmentLength)),
                },
                0xda => {
                    let scan = self.scan_header(body).map_err(damaged)?;
                    return Ok(Stop::Scan(scan, at + length));
                }
                0xe0 if body.starts_with(b"JFIF\0") => self.jfif = true,
                0xe1 => {
                    if let Some(tiff) = body.strip_prefix(b"Exif\0\0") {
                        self.orientation = exif::orientation(tiff);
                    }
                }
                0xee if body.starts_with(b"Adobe") && body.len() >= 12 => {
                    self.adobe = Some(body[11]);
                }
                _ => {}
            }
            at += length;
        }
    }

    fn frame_header(&mut self, marker: u8, body: &[u8], offset: usize) -> Result<(), PhotoError> {
        let damaged = |defect| PhotoError::Jpeg { defect, offset };
        if self.frame.is_some() {
            return Err(damaged(Defect::SecondFrame));
        }
        let [precision, h1, h0, w1, w0, count, rest @ ..] = body else {
            return Err(damaged(Defect::SegmentLength));
        };
        if *precision != 8 {
            return Err(Unsupported::Precision(*precision).into());
        }
        let height = u32::from(u16::from_be_bytes([*h1, *h0]));
        let width = u32::from(u16::from_be_bytes([*w1, *w0]));
        if height == 0 && width != 0 {
            return Err(Unsupported::LateHeight.into());
        }
        if width == 0 {
            return Err(damaged(Defect::ZeroSize));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(Unsupported::Components(*count).into());
        }
        let count = usize::from(*count);
        if rest.len() < count * 3 {
            return Err(damaged(Defect::SegmentLength));
        }
        let mut frame = Frame {
            progressive: marker == 0xc2,
            width,
            height,
            count,
            components: [Component::default(); 4],
            h_max: 1,
            v_max: 1,
        };
        for (index, part) in rest.chunks_exact(3).take(count).enumerate() {
            let (h, v) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
                return Err(damaged(Defect::Sampling));
            }
            if part[2] > 3 {
                return Err(damaged(Defect::MissingTable));
            }
            if frame.components[..index].iter().any(|earlier| earlier.id == part[0]) {
                return Err(damaged(Defect::Component));
            }
            // A lone component's factors mean nothing: its blocks simply follow each other.
            let (h, v) = if count == 1 { (1, 1) } else { (h, v) };
            frame.components[index] = Component { id: part[0], h, v, quant: usize::from(part[2]) };
            frame.h_max = frame.h_max.max(h);
            frame.v_max = frame.v_max.max(v);
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn huffman_tables(&mut self, mut body: &[u8]) -> Result<(), Defect> {
        while let [head, rest @ ..] = body {
            let counts: [u8; 16] = rest
                .get(..16)
                .and_then(|part| part.try_into().ok())
                .ok_or(Defect::SegmentLength)?;
            let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let listed = rest.get(16..16 + total).ok_or(Defect::SegmentLength)?;
            if total > 256 || *head & 15 > 3 || *head >> 4 > 1 {
                return Err(Defect::HuffmanTable);
            }
            let mut symbols = [0; 256];
            symbols[..total].copy_from_slice(listed);
            let slots = if head >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            slots[usize::from(head & 15)].spec = Some(Spec { counts, symbols });
            body = &rest[16 + total..];
        }
        Ok(())
    }

    fn quantisation_tables(&mut self, mut body: &[u8]) -> Result<(), Defect> {
        while let [head, rest @ ..] = body {
            let bytes = match head >> 4 {
                0 => 64,
                1 => 128,
                _ => return Err(Defect::QuantisationTable),
            };
            let slot =
                self.quant.get_mut(usize::from(head & 15)).ok_or(Defect::QuantisationTable)?;
            let values = rest.get(..bytes).ok_or(Defect::SegmentLength)?;
            let mut table = [0; 64];
            for (index, &to) in ZIGZAG[..64].iter().enumerate() {
                table[usize::from(to)] = if bytes == 64 {
                    u16::from(values[index])
                } else {
                    u16::from_be_bytes([values[2 * index], values[2 * index + 1]])
                };
            }
            *slot = Some(table);
            body = &rest[bytes..];
        }
        Ok(())
    }

    fn scan_header(&self, body: &[u8]) -> Result<Scan, Defect> {
        let frame = self.frame.as_ref().ok_or(Defect::MissingFrame)?;
        let [count, rest @ ..] = body else { return Err(Defect::SegmentLength) };
        let count = usize::from(*count);
        if count == 0 || count > frame.count {
            return Err(Defect::Component);
        }
        if rest.len() < 2 * count + 3 {
            return Err(Defect::SegmentLength);
        }
        let mut components = [ScanComponent::default(); 4];
        for (place, part) in rest.chunks_exact(2).take(count).enumerate() {
            let index = frame
                .components()
                .iter()
                .position(|component| component.id == part[0])
                .ok_or(Defect::Component)?;
            if components[..place].iter().any(|earlier| earlier.index == index) {
                return Err(Defect::Component);
            }
            let (dc, ac) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            if dc > 3 || ac > 3 {
                return Err(Defect::MissingTable);
            }
            components[place] = ScanComponent { index, dc, ac };
        }
        let tail = &rest[2 * count..];
        let (mut first, mut last) = (usize::from(tail[0]), usize::from(tail[1]));
        let (mut high, mut low) = (u32::from(tail[2] >> 4), u32::from(tail[2] & 15));
        if frame.progressive {
            let fits = if first == 0 { last == 0 } else { last >= first && count == 1 };
            if !fits || last > 63 || low > 13 || (high != 0 && high != low + 1) {
                return Err(Defect::ScanParameters);
            }
        } else {
            // Some programs write nonsense here for sequential photos; it has only one meaning.
            (first, last, high, low) = (0, 63, 0, 0);
        }
        Ok(Scan { count, components, first, last, high, low })
    }

    /// Builds the tables that a scan needs and does not find from an earlier photo.
    pub(crate) fn prepare_tables(&mut self, scan: &Scan) -> Result<(), Defect> {
        for component in &scan.components[..scan.count] {
            if scan.first == 0 && scan.high == 0 {
                self.dc[component.dc].prepare(Class::Dc)?;
            }
            if scan.last > 0 {
                self.ac[component.ac].prepare(Class::Ac)?;
            }
        }
        Ok(())
    }

    /// A DC table that [`Segments::prepare_tables`] made ready.
    pub(crate) fn dc(&self, index: usize) -> Result<&Table, Defect> {
        self.dc[index].table.as_deref().ok_or(Defect::MissingTable)
    }

    /// An AC table that [`Segments::prepare_tables`] made ready.
    pub(crate) fn ac(&self, index: usize) -> Result<&Table, Defect> {
        self.ac[index].table.as_deref().ok_or(Defect::MissingTable)
    }

    /// How the components make a colour, by the rules that libjpeg made customary.
    pub(crate) fn model(&self) -> Model {
        let Some(frame) = &self.frame else { return Model::Grey };
        let ids = [0, 1, 2].map(|index: usize| frame.components[index].id);
        match (frame.count, self.adobe) {
            (3, Some(0)) if !self.jfif => Model::Rgb,
            (3, None) if !self.jfif && ids == *b"RGB" => Model::Rgb,
            (3, _) => Model::Ycc,
            (4, Some(2)) => Model::Ycck,
            (4, adobe) => Model::Cmyk { inverted: adobe.is_some() },
            _ => Model::Grey,
        }
    }
}

impl Slot {
    fn prepare(&mut self, class: Class) -> Result<(), Defect> {
        let spec = self.spec.as_ref().ok_or(Defect::MissingTable)?;
        if !self.table.as_ref().is_some_and(|table| table.is_from(spec, class)) {
            self.table = Some(Table::build(spec, class)?);
        }
        Ok(())
    }
}
