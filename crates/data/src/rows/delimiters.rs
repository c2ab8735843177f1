//! Where fields and lines end: found 64 bytes at a time, before anything is parsed.
//!
//! Searching for the next tab field by field mispredicts at nearly every one of them. One pass of
//! comparisons that yields the positions of all delimiters costs less than a byte per cycle.

/// Delimiters of some text. Reused from block to block.
#[derive(Debug, Default)]
pub(super) struct Delimiters {
    /// Positions of all tabs and line ends; what lies beyond `count` is left over from before.
    at: Vec<u32>,
    count: usize,
    /// For each line, how many delimiters there are up to and including its end.
    pub(super) lines: Vec<u32>,
}

impl Delimiters {
    /// Finds all tabs and line ends of `text`, at most 4 GiB.
    pub(super) fn find(&mut self, text: &[u8]) {
        self.count = 0;
        self.lines.clear();
        let (blocks, rest) = text.as_chunks::<64>();
        for (number, block) in blocks.iter().enumerate() {
            self.note(block, number as u32 * 64);
        }
        if !rest.is_empty() {
            let mut block = [0; 64];
            block[..rest.len()].copy_from_slice(rest);
            self.note(&block, blocks.len() as u32 * 64);
        }
    }

    /// Positions of all tabs and line ends.
    pub(super) fn at(&self) -> &[u32] {
        &self.at[..self.count]
    }

    #[inline]
    fn note(&mut self, block: &[u8; 64], start: u32) {
        let (tabs, ends) = masks(block);
        let mut all = tabs | ends;
        let mut line_ends = ends;
        while line_ends != 0 {
            let upto = line_ends ^ (line_ends - 1);
            self.lines.push(self.count as u32 + (all & upto).count_ones());
            line_ends &= line_ends - 1;
        }
        // Room for the worst case, so that a single check serves the whole block.
        if self.at.len() < self.count + 64 {
            self.at.resize(2 * self.at.len() + 4096, 0);
        }
        let slots = &mut self.at[self.count..self.count + 64];
        let found = all.count_ones() as usize;
        for slot in &mut slots[..found] {
            *slot = start + all.trailing_zeros();
            all &= all.wrapping_sub(1);
        }
        self.count += found;
    }
}

/// One bit per byte that is a tab, and one per byte that ends a line.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // vector comparisons have no stable safe interface
#[inline]
fn masks(block: &[u8; 64]) -> (u64, u64) {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    let (quarters, _) = block.as_chunks::<16>();
    let (mut tabs, mut ends) = (0, 0);
    for (number, quarter) in quarters.iter().enumerate() {
        // SAFETY: SSE2 belongs to every x86-64, and a quarter has the sixteen bytes that are loaded.
        let (tab, end) = unsafe {
            let bytes = _mm_loadu_si128(quarter.as_ptr().cast::<__m128i>());
            let find = |byte: u8| {
                _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u16
            };
            (find(b'\t'), find(b'\n'))
        };
        tabs |= u64::from(tab) << (16 * number);
        ends |= u64::from(end) << (16 * number);
    }
    (tabs, ends)
}

/// One bit per byte that is a tab, and one per byte that ends a line.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn masks(block: &[u8; 64]) -> (u64, u64) {
    block.iter().enumerate().fold((0, 0), |(tabs, ends), (at, &byte)| {
        (tabs | u64::from(byte == b'\t') << at, ends | u64::from(byte == b'\n') << at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delimiters_are_those_a_plain_search_finds(
            text in proptest::collection::vec(proptest::sample::select(b"ab\t\n\r\x00\x89\x0b".to_vec()), 0..300)
        ) {
            let mut found = Delimiters::default();
            found.find(&text);
            let is_end = |byte: u8| byte == b'\t' || byte == b'\n';
            let wanted: Vec<u32> =
                (0..text.len()).filter(|&at| is_end(text[at])).map(|at| at as u32).collect();
            let lines: Vec<u32> = (0..wanted.len())
                .filter(|&n| text[wanted[n] as usize] == b'\n')
                .map(|n| n as u32 + 1)
                .collect();
            prop_assert_eq!(found.at(), wanted);
            prop_assert_eq!(found.lines, lines);
        }
    }
}
