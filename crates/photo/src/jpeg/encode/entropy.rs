//! Coefficients to Huffman codes.

use super::tables::Codes;
use crate::jpeg::segments::ZIGZAG;
use crate::simd::for_each_simd;

/// Code and length per symbol: `code << 8 | length`.
#[derive(Debug, Clone)]
pub(super) struct CodeTable([u32; 256]);

impl CodeTable {
    pub(super) fn new(codes: &Codes) -> Self {
        let mut table = [0; 256];
        let (mut code, mut symbols) = (0u32, codes.symbols.iter());
        for (length, &count) in (1u32..).zip(&codes.counts) {
            for &symbol in symbols.by_ref().take(usize::from(count)) {
                table[usize::from(symbol)] = code << 8 | length;
                code += 1;
            }
            code <<= 1;
        }
        Self(table)
    }
}

/// Collects bits, from the top of a word.
#[derive(Debug)]
pub(super) struct BitWriter {
    word: u64,
    /// Bits still free in the word.
    free: u32,
}

impl BitWriter {
    pub(super) fn new() -> Self {
        Self { word: 0, free: 64 }
    }

    /// Appends the lowest `length` (at most 32) bits of `bits`, which has none above them.
    #[inline(always)]
    fn put(&mut self, bits: u32, length: u32, out: &mut Vec<u8>) {
        let bits = u64::from(bits);
        if length <= self.free {
            // Shifting by 64 happens only when nothing is in the word.
            self.word = self.word.wrapping_shl(length) | bits;
            self.free -= length;
        } else {
            let over = length - self.free;
            flush(self.word.wrapping_shl(self.free) | bits >> over, out);
            // Bits above `over` were written; they leave the word at the top later.
            self.word = bits;
            self.free = 64 - over;
        }
    }

    /// Fills the last byte with ones and writes everything.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let pad = self.free % 8;
        self.put((1 << pad) - 1, pad, out);
        let bytes = (64 - self.free) as usize / 8;
        for &byte in &self.word.to_be_bytes()[8 - bytes..] {
            out.push(byte);
            if byte == 0xff {
                out.push(0);
            }
        }
        *self = Self::new();
    }
}

/// Writes eight bytes, with a zero after each `FF`.
#[inline(always)]
fn flush(word: u64, out: &mut Vec<u8>) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let inverse = !word;
    let bytes = word.to_be_bytes();
    // A zero byte in the inverse is an FF.
    if inverse.wrapping_sub(ONES) & !inverse & (ONES << 7) == 0 {
        out.extend_from_slice(&bytes);
    } else {
        for byte in bytes {
            out.push(byte);
            if byte == 0xff {
                out.push(0);
            }
        }
    }
}

for_each_simd! {
    /// Appends one block; returns its DC coefficient, for the next block's difference.
    pub(super) fn block = block_body(
        coefficients: &[i16; 64],
        previous: i16,
        dc: &CodeTable,
        ac: &CodeTable,
        writer: &mut BitWriter,
        out: &mut Vec<u8>,
    ) -> i16
}

#[inline(always)]
fn block_body(
    coefficients: &[i16; 64],
    previous: i16,
    dc: &CodeTable,
    ac: &CodeTable,
    writer: &mut BitWriter,
    out: &mut Vec<u8>,
) -> i16 {
    let mean = coefficients[0];
    coded(i32::from(mean) - i32::from(previous), 0, dc, writer, out);
    let mut order = [0i16; 64];
    for (place, &from) in order.iter_mut().zip(&ZIGZAG[..64]) {
        *place = coefficients[usize::from(from) & 63];
    }
    // One bit per AC coefficient that is not zero.
    let mut left = 0u64;
    for (group, values) in order.as_chunks::<16>().0.iter().enumerate() {
        let mut bits = 0u64;
        for (place, &value) in values.iter().enumerate() {
            bits |= u64::from(value != 0) << place;
        }
        left |= bits << (16 * group);
    }
    left &= !1;
    let mut done = 0u32;
    while left != 0 {
        let at = left.trailing_zeros();
        left &= left - 1;
        let mut run = at - done - 1;
        while run > 15 {
            let zeros = ac.0[0xf0];
            writer.put(zeros >> 8, zeros & 0xff, out);
            run -= 16;
        }
        coded(i32::from(order[at as usize & 63]), run << 4, ac, writer, out);
        done = at;
    }
    if done < 63 {
        let end = ac.0[0];
        writer.put(end >> 8, end & 0xff, out);
    }
    mean
}

/// Appends a value after its code, which names its size and the zeros before it.
#[inline(always)]
fn coded(value: i32, run: u32, table: &CodeTable, writer: &mut BitWriter, out: &mut Vec<u8>) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let entry = table.0[(run | size) as usize & 255];
    // Negative values are written as one less, in the bits below their size.
    let bits = (value + (value >> 31)) as u32 & ((1 << size) - 1);
    writer.put((entry >> 8) << size | bits, (entry & 0xff) + size, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_cross_words_and_stuff() {
        let (mut writer, mut out) = (BitWriter::new(), Vec::new());
        for _ in 0..9 {
            writer.put(0xff, 8, &mut out);
        }
        writer.put(0b101, 3, &mut out);
        writer.finish(&mut out);
        assert_eq!(
            out,
            [[0xff, 0]; 9].concat().into_iter().chain([0b1011_1111]).collect::<Vec<_>>()
        );
    }
}
