//! The entropy-coded data as a bit stream.
//!
//! Stuffed zero bytes are removed and restart markers recorded in a first pass at memory speed, so
//! that the hot loop loads eight bytes at a time without looking for `FF`.

use crate::{Defect, PhotoError};

/// Picture data of one scan without stuffing, and where its restart intervals lie.
#[derive(Debug, Default)]
pub(crate) struct ScanData {
    bytes: Vec<u8>,
    /// End of each restart interval in `bytes`.
    ends: Vec<usize>,
    /// Where the data ends in the file, and whether a marker stands there.
    file_end: usize,
    closed: bool,
}

/// Bytes after the last interval, so that a refill near the end stays inside.
const SLACK: usize = 16;

impl ScanData {
    /// Takes the data from `file[start..]` up to the next marker other than a restart; returns where
    /// that marker (or the end of the file) is.
    pub(crate) fn load(&mut self, file: &[u8], start: usize) -> usize {
        self.bytes.clear();
        self.ends.clear();
        self.closed = false;
        let mut at = start;
        loop {
            let stop = find_ff(file, at);
            self.bytes.extend_from_slice(&file[at..stop]);
            // Any number of FF may stand before a marker; the last one counts.
            let mut after = stop + 1;
            while file.get(after) == Some(&0xff) {
                after += 1;
            }
            match file.get(after) {
                Some(0) => self.bytes.push(0xff),
                Some(0xd0..=0xd7) => self.ends.push(self.bytes.len()),
                found => {
                    self.closed = found.is_some();
                    self.file_end = if found.is_some() { stop } else { file.len() };
                    break;
                }
            }
            at = after + 1;
        }
        self.ends.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; SLACK]);
        self.file_end
    }

    /// The bits of a restart interval.
    pub(crate) fn interval(&self, index: usize) -> Result<Bits<'_>, PhotoError> {
        let end = *self.ends.get(index).ok_or_else(|| self.short())?;
        let at = if index == 0 { 0 } else { self.ends[index - 1] };
        Ok(Bits { data: &self.bytes, at, end, bits: 0, count: 0 })
    }

    /// The error for data that ended too early.
    pub(crate) fn short(&self) -> PhotoError {
        if self.closed {
            PhotoError::Jpeg { defect: Defect::EarlyMarker, offset: self.file_end }
        } else {
            PhotoError::Truncated { offset: self.file_end }
        }
    }

    /// The error for a defect found in the data.
    pub(crate) fn damaged(&self, defect: Defect) -> PhotoError {
        PhotoError::Jpeg { defect, offset: self.file_end }
    }
}

/// Index of the next `FF` at or after `at`, or the length.
fn find_ff(file: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    while let Some(chunk) = file.get(at..at + 8) {
        let word = !u64::from_le_bytes(chunk.try_into().expect("the chunk has eight bytes"));
        // The lowest set bit marks the first byte of `word` that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return at + zeros.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < file.len() && file[at] != 0xff {
        at += 1;
    }
    at.min(file.len())
}

/// A position in the bits of one restart interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    /// Next byte to load.
    at: usize,
    /// End of the interval in `data`.
    end: usize,
    /// The next bits, from the top.
    pub(crate) bits: u64,
    /// How many of them count; bits below are a correct look ahead, or zero.
    count: u32,
}

impl Bits<'_> {
    /// Makes at least 56 bits available. Beyond the end of the scan they are zeros, which the caller
    /// notices by [`Bits::overrun`] before using what they gave.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        if let Some(chunk) = self.data.get(self.at..self.at + 8) {
            let word = u64::from_be_bytes(chunk.try_into().expect("the chunk has eight bytes"));
            self.bits |= word >> self.count;
        }
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    /// Takes `length` bits, of which there must be as many.
    #[inline(always)]
    pub(crate) fn consume(&mut self, length: u32) {
        self.bits <<= length;
        self.count = self.count.wrapping_sub(length);
    }

    /// The next `length` (0 to 16) bits as a number, taken.
    #[inline(always)]
    pub(crate) fn take(&mut self, length: u32) -> u32 {
        let value = ((self.bits >> 32) as u32).checked_shr(32 - length).unwrap_or(0);
        self.consume(length);
        value
    }

    /// Whether more bits were taken than the interval has.
    #[inline(always)]
    pub(crate) fn overrun(&self) -> bool {
        self.at * 8 > self.end * 8 + self.count as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffing_fill_and_restarts_are_told_apart() {
        let file = [1, 0xff, 0, 2, 0xff, 0xff, 0xd0, 3, 0xff, 0xd9];
        let mut data = ScanData::default();
        assert_eq!(data.load(&file, 0), 8);
        assert_eq!(data.ends, [3, 4]);
        assert_eq!(&data.bytes[..4], [1, 0xff, 2, 3]);
        let mut bits = data.interval(0).unwrap();
        bits.refill();
        assert_eq!(bits.take(16), 0x01ff);
        assert_eq!(bits.take(8), 2);
        assert!(!bits.overrun());
        bits.take(1);
        assert!(bits.overrun());
        assert!(data.interval(2).is_err());
    }

    #[test]
    fn a_file_without_end_marker_is_truncated() {
        let mut data = ScanData::default();
        for file in [&[1u8, 2, 3][..], &[0xff], &[]] {
            assert_eq!(data.load(file, 0), file.len());
            assert_eq!(data.short(), PhotoError::Truncated { offset: file.len() });
        }
    }
}
