//! The hot loop: Huffman codes to the coefficients of sequential photos.

use super::bits::{Bits, ScanData};
use super::huffman::{BLOCK_END, Step, Table, WHOLE, extend};
use super::segments::ZIGZAG;
use crate::simd::for_each_simd;
use crate::{Defect, PhotoError};
use std::ops::Range;

/// One component of a scan, as the loop needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodingComponent<'a> {
    pub(super) dc: &'a Table,
    pub(super) ac: &'a Table,
    /// Blocks per unit, across and down.
    pub(super) h: usize,
    pub(super) v: usize,
    /// Blocks in a row of the coefficient buffer, and where this component starts in it.
    pub(super) across: usize,
    pub(super) start: usize,
    /// Which predictor.
    pub(super) index: usize,
    /// Zigzag index of the last coefficient that is looked at; those behind it are not stored.
    pub(super) reach: usize,
}

/// The decoding position in the scan's data.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    data: &'a ScanData,
    bits: Bits<'a>,
    /// Units per restart interval (0 for none), units left in it, and its number.
    interval: usize,
    left: usize,
    number: usize,
    previous: [i32; 4],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(data: &'a ScanData, interval: usize) -> Result<Self, PhotoError> {
        let bits = data.interval(0)?;
        Ok(Self { data, bits, interval, left: interval, number: 0, previous: [0; 4] })
    }

    /// Moves to the next restart interval.
    #[cold]
    fn restart(&mut self) -> Result<(), PhotoError> {
        self.check()?;
        self.number += 1;
        self.bits = self.data.interval(self.number)?;
        self.left = self.interval;
        self.previous = [0; 4];
        Ok(())
    }

    /// Whether the bits so far really were in the file.
    fn check(&self) -> Result<(), PhotoError> {
        if self.bits.overrun() { Err(self.data.short()) } else { Ok(()) }
    }
}

for_each_simd! {
    /// Decodes one row of `units` units into `coefficients`, as far as they are within the units
    /// `shown` and within reach, and the zigzag index of each block's last coefficient into `ends`.
    /// What is not shown has any coefficients.
    pub(super) fn row = row_body(
        cursor: &mut Cursor<'_>,
        parts: &[DecodingComponent<'_>],
        units: usize,
        shown: &Range<usize>,
        coefficients: &mut [i16],
        ends: &mut [u8],
    ) -> Result<(), PhotoError>
}

#[inline(always)]
fn row_body(
    cursor: &mut Cursor<'_>,
    parts: &[DecodingComponent<'_>],
    units: usize,
    shown: &Range<usize>,
    coefficients: &mut [i16],
    ends: &mut [u8],
) -> Result<(), PhotoError> {
    let (blocks, _) = coefficients.as_chunks_mut::<64>();
    for unit in 0..units {
        if cursor.interval != 0 {
            if cursor.left == 0 {
                cursor.restart()?;
            }
            cursor.left -= 1;
        }
        for part in parts {
            let previous = &mut cursor.previous[part.index & 3];
            let reach = if shown.contains(&unit) { part.reach } else { 0 };
            for down in 0..part.v {
                let first = part.start + down * part.across + unit * part.h;
                let places = blocks[first..first + part.h].iter_mut();
                for (block, end) in places.zip(&mut ends[first..first + part.h]) {
                    match one_block(&mut cursor.bits, part, reach, previous, block) {
                        Ok(last) => *end = last,
                        Err(defect) => {
                            // Beyond the end of the data, wrong codes are only a consequence.
                            cursor.check()?;
                            return Err(cursor.data.damaged(defect));
                        }
                    }
                }
            }
        }
    }
    cursor.check()
}

/// Decodes a block; returns the zigzag index of its last coefficient.
#[inline(always)]
fn one_block(
    bits: &mut Bits<'_>,
    part: &DecodingComponent<'_>,
    reach: usize,
    previous: &mut i32,
    block: &mut [i16; 64],
) -> Result<u8, Defect> {
    // A local copy stays in registers.
    let mut local = *bits;
    local.refill();
    *previous = previous.wrapping_add(difference(&mut local, part.dc)?);
    if reach > 0 {
        // Here rather than for a whole row before: the block is in the first-level cache after it.
        *block = [0; 64];
    }
    block[0] = *previous as i16;
    let result = rest(&mut local, part.ac, reach, block);
    *bits = local;
    result
}

/// The DC difference from the previous block; needs 31 bits.
#[inline(always)]
pub(super) fn difference(bits: &mut Bits<'_>, table: &Table) -> Result<i32, Defect> {
    let entry = table.look(bits.bits);
    if entry & WHOLE != 0 {
        bits.consume(entry & 0x7f);
        return Ok(i32::from((entry >> 16) as i16));
    }
    let (symbol, length) = if entry & 0xff != 0 {
        ((entry >> 8) as u8, entry & 0xff)
    } else {
        table.long_code(bits.bits).ok_or(Defect::HuffmanCode)?
    };
    bits.consume(length);
    let size = u32::from(symbol);
    Ok(extend(bits.take(size), size))
}

/// The 63 AC coefficients, stored up to `reach` and beyond it by chance.
#[inline(always)]
fn rest(
    bits: &mut Bits<'_>,
    table: &Table,
    reach: usize,
    block: &mut [i16; 64],
) -> Result<u8, Defect> {
    let mut k = 1usize;
    while k <= reach {
        bits.refill();
        // 56 bits are enough for five steps of 11 bits each.
        for _ in 0..5 {
            let step = table.step(bits.bits);
            if step.length() == 0 {
                if !slow(bits, table, step, &mut k, block)? {
                    return Ok((k - 1) as u8);
                }
                break;
            }
            // The first value comes later, because the last one may be the same or, where the block
            // ends between them, another block's.
            let (place, value) = step.last();
            block[usize::from(ZIGZAG[(k + place) & 127]) & 63] = value;
            let (place, value) = step.first();
            block[usize::from(ZIGZAG[(k + place) & 127]) & 63] = value;
            let next = k + step.advance();
            if next > 63 {
                return end(bits, table, step, k, block);
            }
            bits.consume(step.length());
            k = next;
            if k > reach {
                break;
            }
        }
    }
    // From here on only the block's end is looked for.
    loop {
        bits.refill();
        for _ in 0..5 {
            let step = table.step(bits.bits);
            if step.length() == 0 {
                if !slow(bits, table, step, &mut k, block)? {
                    return Ok((k - 1) as u8);
                }
                break;
            }
            let next = k + step.advance();
            if next > 63 {
                return end(bits, table, step, k, block);
            }
            bits.consume(step.length());
            k = next;
        }
    }
}

/// The last step of a block, which began at `k`; its bits are not taken yet.
#[inline(always)]
fn end(
    bits: &mut Bits<'_>,
    table: &Table,
    step: Step,
    k: usize,
    block: &mut [i16; 64],
) -> Result<u8, Defect> {
    let next = k + step.advance();
    if (BLOCK_END..BLOCK_END + 64).contains(&next) {
        bits.consume(step.length());
        return Ok((next - BLOCK_END - 1) as u8);
    }
    // The block is full, so a part of the step's bits may be the next block's.
    let (after, last) = one_by_one(*bits, table, k, block)?;
    *bits = after;
    Ok(last)
}

/// The coefficients from `k` to a block's end, one at a time. Bits come and go by value: with a
/// reference to them in a call, the loops above would keep them in memory.
#[cold]
#[inline(never)]
fn one_by_one<'a>(
    mut bits: Bits<'a>,
    table: &Table,
    mut k: usize,
    block: &mut [i16; 64],
) -> Result<(Bits<'a>, u8), Defect> {
    loop {
        bits.refill();
        let (symbol, length) = table.symbol(bits.bits).ok_or(Defect::HuffmanCode)?;
        bits.consume(length);
        if !place(&mut bits, symbol, &mut k, block)? {
            return Ok((bits, (k - 1) as u8));
        }
    }
}

/// A code without its value in the table; `false` at the end of the block.
#[inline(always)]
fn slow(
    bits: &mut Bits<'_>,
    table: &Table,
    step: Step,
    k: &mut usize,
    block: &mut [i16; 64],
) -> Result<bool, Defect> {
    let (symbol, length) = match step.code() {
        Some(code) => code,
        None => {
            bits.refill();
            table.long_code(bits.bits).ok_or(Defect::HuffmanCode)?
        }
    };
    bits.consume(length);
    place(bits, symbol, k, block)
}

/// Does what a symbol says whose code was taken; `false` at the end of the block.
#[inline(always)]
fn place(
    bits: &mut Bits<'_>,
    symbol: u8,
    k: &mut usize,
    block: &mut [i16; 64],
) -> Result<bool, Defect> {
    let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
    if size == 0 {
        if run != 15 {
            return Ok(false);
        }
        // Sixteen zeros.
        *k += 16;
    } else {
        bits.refill();
        *k += run;
        block[usize::from(ZIGZAG[*k & 127]) & 63] = extend(bits.take(size), size) as i16;
        *k += 1;
    }
    if *k > 64 {
        return Err(Defect::Coefficient);
    }
    Ok(*k < 64)
}
