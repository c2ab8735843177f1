//! Scans that refine the whole picture: progressive photos.
//!
//! Coefficients of all components stay in memory until the last scan, so these photos cost more
//! memory than sequential ones; the caller limits their pixels, and the passes over them.

use super::bits::{Bits, ScanData};
use super::huffman::{Table, extend};
use super::segments::{Frame, Scan, Segments, ZIGZAG};
use super::sequential::difference;
use crate::{Defect, PhotoError};

/// Blocks of one component in the coefficient buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Area {
    /// First block, and blocks per row with padding.
    pub(super) start: usize,
    pub(super) across: usize,
    /// Blocks that show pixels, across and down.
    pub(super) shown: (usize, usize),
}

/// Where each component lies in a buffer that holds all of a frame.
pub(super) fn areas(frame: &Frame) -> [Area; 4] {
    let (units_across, units_down) = frame.units();
    let mut areas = [Area::default(); 4];
    let mut start = 0;
    for (area, component) in areas.iter_mut().zip(frame.components()) {
        let side = |pixels: u32, factor: usize, largest: usize| {
            (pixels as usize * factor).div_ceil(largest).div_ceil(8)
        };
        *area = Area {
            start,
            across: units_across * component.h,
            shown: (
                side(frame.width, component.h, frame.h_max),
                side(frame.height, component.v, frame.v_max),
            ),
        };
        start += area.across * units_down * component.v;
    }
    areas
}

/// Blocks that a scan visits, whether or not its bits change them.
pub(super) fn visits(frame: &Frame, scan: &Scan) -> u64 {
    if scan.count == 1 {
        let (across, down) = areas(frame)[scan.components[0].index].shown;
        return across as u64 * down as u64;
    }
    let (across, down) = frame.units();
    let unit = scan.components[..scan.count].iter().map(|part| {
        let component = &frame.components[part.index];
        component.h * component.v
    });
    across as u64 * down as u64 * unit.sum::<usize>() as u64
}

/// Decodes one scan into the coefficients of the whole frame.
pub(super) fn scan(
    segments: &Segments,
    frame: &Frame,
    scan: &Scan,
    data: &ScanData,
    coefficients: &mut [i16],
) -> Result<(), PhotoError> {
    let damaged = |defect| data.damaged(defect);
    let areas = areas(frame);
    let (blocks, _) = coefficients.as_chunks_mut::<64>();
    let mut state = BandState { run: 0, previous: [0; 4] };
    let mut bits = data.interval(0)?;
    let (mut number, mut left) = (0, segments.restart);
    // One component: its blocks in rows. Several: units of blocks.
    let alone = scan.count == 1;
    let (across, down) = if alone { areas[scan.components[0].index].shown } else { frame.units() };
    for y in 0..down {
        for x in 0..across {
            if segments.restart != 0 {
                if left == 0 {
                    if bits.overrun() {
                        return Err(data.short());
                    }
                    number += 1;
                    bits = data.interval(number)?;
                    state = BandState { run: 0, previous: [0; 4] };
                    left = segments.restart;
                }
                left -= 1;
            }
            for part in &scan.components[..scan.count] {
                let (component, area) = (&frame.components[part.index], &areas[part.index]);
                let (h, v) = if alone { (1, 1) } else { (component.h, component.v) };
                for row in 0..v {
                    for column in 0..h {
                        let at = area.start + (y * v + row) * area.across + x * h + column;
                        let block = &mut blocks[at];
                        let kind = ScanParameters { scan, index: part.index };
                        let done = if !frame.progressive {
                            let (dc, ac) = (
                                segments.dc(part.dc).map_err(damaged)?,
                                segments.ac(part.ac).map_err(damaged)?,
                            );
                            state.whole(&mut bits, dc, ac, &kind, block)
                        } else if scan.first == 0 {
                            let dc = if scan.high == 0 {
                                Some(segments.dc(part.dc).map_err(damaged)?)
                            } else {
                                None
                            };
                            state.mean(&mut bits, dc, &kind, block)
                        } else {
                            let ac = segments.ac(part.ac).map_err(damaged)?;
                            if scan.high == 0 {
                                state.first(&mut bits, ac, &kind, block)
                            } else {
                                state.refine(&mut bits, ac, &kind, block)
                            }
                        };
                        done.map_err(|defect| {
                            if bits.overrun() { data.short() } else { data.damaged(defect) }
                        })?;
                    }
                }
            }
        }
        if bits.overrun() {
            return Err(data.short());
        }
    }
    Ok(())
}

/// The scan's parameters that decoding a block needs.
struct ScanParameters<'a> {
    scan: &'a Scan,
    index: usize,
}

/// State carried from block to block.
struct BandState {
    /// Blocks left without coefficients in this band.
    run: u32,
    previous: [i32; 4],
}

/// The next symbol, taken; there are 40 bits left after it.
fn symbol(bits: &mut Bits<'_>, table: &Table) -> Result<u8, Defect> {
    bits.refill();
    let (symbol, length) = table.symbol(bits.bits).ok_or(Defect::HuffmanCode)?;
    bits.consume(length);
    Ok(symbol)
}

impl BandState {
    /// A sequential block, of a photo whose components come one after another.
    fn whole(
        &mut self,
        bits: &mut Bits<'_>,
        dc: &Table,
        ac: &Table,
        kind: &ScanParameters<'_>,
        block: &mut [i16; 64],
    ) -> Result<(), Defect> {
        self.mean(bits, Some(dc), kind, block)?;
        let band = Scan { first: 1, ..*kind.scan };
        // An end-of-band code with a run means nothing here; each block ends by itself.
        let result = self.first(bits, ac, &ScanParameters { scan: &band, ..*kind }, block);
        self.run = 0;
        result
    }

    fn mean(
        &mut self,
        bits: &mut Bits<'_>,
        table: Option<&Table>,
        kind: &ScanParameters<'_>,
        block: &mut [i16; 64],
    ) -> Result<(), Defect> {
        bits.refill();
        match table {
            Some(table) => {
                let previous = &mut self.previous[kind.index];
                *previous = previous.wrapping_add(difference(bits, table)?);
                block[0] = (*previous << kind.scan.low) as i16;
            }
            None => block[0] |= (bits.take(1) << kind.scan.low) as i16,
        }
        Ok(())
    }

    fn first(
        &mut self,
        bits: &mut Bits<'_>,
        table: &Table,
        kind: &ScanParameters<'_>,
        block: &mut [i16; 64],
    ) -> Result<(), Defect> {
        if self.run > 0 {
            self.run -= 1;
            return Ok(());
        }
        let mut k = kind.scan.first;
        while k <= kind.scan.last {
            let symbol = symbol(bits, table)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    self.run = (1 << run) - 1 + bits.take(run as u32);
                    break;
                }
                k += 16;
                continue;
            }
            k += run;
            if k > 63 {
                return Err(Defect::Coefficient);
            }
            block[usize::from(ZIGZAG[k])] = (extend(bits.take(size), size) << kind.scan.low) as i16;
            k += 1;
        }
        Ok(())
    }

    fn refine(
        &mut self,
        bits: &mut Bits<'_>,
        table: &Table,
        kind: &ScanParameters<'_>,
        block: &mut [i16; 64],
    ) -> Result<(), Defect> {
        let step = 1i16 << kind.scan.low;
        let mut k = kind.scan.first;
        // Known coefficients gain one bit each as they are passed.
        let improve = |bits: &mut Bits<'_>, value: &mut i16| {
            bits.refill();
            if bits.take(1) != 0 && *value & step == 0 {
                *value = value.wrapping_add(if *value > 0 { step } else { -step });
            }
        };
        if self.run == 0 {
            while k <= kind.scan.last {
                let symbol = symbol(bits, table)?;
                let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
                let mut fresh = 0;
                match size {
                    0 if run == 15 => {}
                    0 => {
                        self.run = (1 << run) + bits.take(run);
                        break;
                    }
                    1 => fresh = if bits.take(1) != 0 { step } else { -step },
                    _ => return Err(Defect::Coefficient),
                }
                while k <= kind.scan.last {
                    let value = &mut block[usize::from(ZIGZAG[k])];
                    if *value != 0 {
                        improve(bits, value);
                    } else if run == 0 {
                        *value = fresh;
                        break;
                    } else {
                        run -= 1;
                    }
                    k += 1;
                }
                k += 1;
            }
        }
        if self.run > 0 {
            while k <= kind.scan.last {
                let value = &mut block[usize::from(ZIGZAG[k])];
                if *value != 0 {
                    improve(bits, value);
                }
                k += 1;
            }
            self.run -= 1;
        }
        Ok(())
    }
}
