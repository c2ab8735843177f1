//! Fast Huffman tables: one lookup gives runs and values of up to two coefficients, and whether the
//! block ends behind them.

use crate::Defect;

/// Bits of the direct lookup. 2^11 entries of eight bytes: both AC tables of a photo fit the
/// first-level cache, and nearly all codes of a photo are shorter.
pub(crate) const LOOK: u32 = 11;

/// Which coefficients a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// DC: the difference from the previous block's mean.
    Dc,
    /// AC: runs of zeros and the value after them.
    Ac,
}

/// A table as the file gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spec {
    /// How many codes there are of each length, 1 to 16.
    pub(crate) counts: [u8; 16],
    /// The symbols in order of their codes.
    pub(crate) symbols: [u8; 256],
}

/// A table ready for decoding.
#[derive(Debug)]
pub(crate) struct Table {
    spec: Spec,
    class: Class,
    /// By the next `LOOK` bits: for DC `value << 16 | symbol << 8 | length`, for AC a [`Step`].
    ///
    /// Where the code of a DC difference and its value both fit `LOOK` bits, `length` covers both,
    /// `value` is final, and the flag [`WHOLE`] says so. Else `length` is the code's alone. A length
    /// of 0 means a code longer than `LOOK`.
    lookup: [u64; 1 << LOOK],
    /// For codes of each length: the first 16-bit aligned code beyond them (exclusive), 0 if none.
    limit: [u32; 17],
    /// Index into the symbols minus the first code, per length.
    shift: [i32; 17],
}

/// Flag in the length byte of a DC entry: the value is final.
pub(crate) const WHOLE: u32 = 0x80;

/// Added to a [`Step`]'s advance where the block ends behind it: more than any place in a block.
pub(crate) const BLOCK_END: usize = 128;

/// What the next bits of AC data mean, as far as `LOOK` bits tell: one or two coefficients (a run of
/// sixteen zeros counts as one that is zero), the end of the block, or coefficients and then the end.
///
/// By bytes from the lowest: bits to take; by how much the place in the block advances, with
/// [`BLOCK_END`]; places of the first and of the last value, seen from here; and these values, two
/// bytes each. The values of an end without coefficients are zero, and may be stored all the same.
///
/// Where the bits do not hold a value with its code, the bits to take are 0, the third byte is the
/// symbol and the fourth the length of its code, or 0 if that is longer than `LOOK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step(u64);

impl Step {
    /// One symbol of `length` bits, with its `value` behind `run` zeros.
    fn one(length: u32, run: u64, value: i16) -> Self {
        let value = u64::from(value as u16);
        Self(value << 48 | value << 32 | run << 24 | run << 16 | (run + 1) << 8 | u64::from(length))
    }

    /// This step and the `next` one, which is that of the bits behind it.
    fn and(self, next: Self) -> Self {
        let (start, advance) = (self.advance() as u64, next.advance() as u64);
        let ends = advance == BLOCK_END as u64;
        // Behind the end of a block there is only the next block.
        let last = if ends { self.0 >> 24 & 0xff } else { start + (next.0 >> 24 & 0xff) };
        let value = if ends { self.0 >> 48 } else { next.0 >> 48 };
        let first = self.0 & 0xffff_00ff_0000;
        let length = u64::from(self.length() + next.length());
        Self(value << 48 | first | last << 24 | (start + advance) << 8 | length)
    }

    /// Bits to take; 0 if these do not hold a whole coefficient.
    #[inline(always)]
    pub(crate) fn length(self) -> u32 {
        self.0 as u8 as u32
    }

    #[inline(always)]
    pub(crate) fn advance(self) -> usize {
        (self.0 >> 8) as u8 as usize
    }

    /// Place and value of the first coefficient.
    #[inline(always)]
    pub(crate) fn first(self) -> (usize, i16) {
        ((self.0 >> 16) as u8 as usize, (self.0 >> 32) as i16)
    }

    /// Place and value of the last coefficient, which may be the first.
    #[inline(always)]
    pub(crate) fn last(self) -> (usize, i16) {
        ((self.0 >> 24) as u8 as usize, (self.0 >> 48) as i16)
    }

    /// Symbol and length of a code without its value; `None` if the code is longer than `LOOK`.
    #[inline(always)]
    pub(crate) fn code(self) -> Option<(u8, u32)> {
        let length = (self.0 >> 24) as u8;
        (length != 0).then_some(((self.0 >> 16) as u8, u32::from(length)))
    }
}

/// The value that `size` extra bits stand for.
#[inline(always)]
pub(crate) fn extend(bits: u32, size: u32) -> i32 {
    let value = bits as i32;
    // Values with a leading zero bit are negative.
    if size != 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
}

impl Table {
    /// Builds a table, or says why it cannot be one.
    pub(crate) fn build(spec: &Spec, class: Class) -> Result<Box<Self>, Defect> {
        let mut table = Box::new(Self {
            spec: *spec,
            class,
            lookup: [0; 1 << LOOK],
            limit: [0; 17],
            shift: [0; 17],
        });
        let (mut code, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = usize::from(spec.counts[length as usize - 1]);
            table.shift[length as usize] = index as i32 - code as i32;
            if index + count > 256 {
                return Err(Defect::HuffmanTable);
            }
            for symbol in &spec.symbols[index..index + count] {
                if code >= 1 << length || (class == Class::Dc && *symbol > 15) {
                    return Err(Defect::HuffmanTable);
                }
                if length <= LOOK {
                    table.fill(code, length, *symbol);
                }
                code += 1;
            }
            index += count;
            table.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if class == Class::Ac {
            table.join();
        }
        Ok(table)
    }

    /// Whether this table was built from the same definition, so that it need not be built again.
    pub(crate) fn is_from(&self, spec: &Spec, class: Class) -> bool {
        self.class == class && self.spec == *spec
    }

    /// Enters one code that is no longer than `LOOK`.
    fn fill(&mut self, code: u32, length: u32, symbol: u8) {
        let size = u32::from(symbol & 15);
        let free = LOOK - length;
        let start = (code << free) as usize;
        let run = u64::from(symbol >> 4);
        for (rest, entry) in self.lookup[start..start + (1 << free)].iter_mut().enumerate() {
            let value = extend(rest as u32 >> free.saturating_sub(size), size) as i16;
            *entry = match self.class {
                Class::Dc if size <= free => {
                    u64::from(value as u16) << 16 | u64::from(WHOLE | (length + size))
                }
                Class::Dc => u64::from(symbol) << 8 | u64::from(length),
                Class::Ac if size == 0 && run != 15 => (BLOCK_END as u64) << 8 | u64::from(length),
                Class::Ac if size <= free => Step::one(length + size, run, value).0,
                Class::Ac => u64::from(length) << 24 | u64::from(symbol) << 16,
            };
        }
    }

    /// Joins each step with the one behind it, where the bits hold both.
    fn join(&mut self) {
        let single = self.lookup;
        for (bits, entry) in self.lookup.iter_mut().enumerate() {
            let step = Step(*entry);
            let next = Step(single[(bits << step.length()) & ((1 << LOOK) - 1)]);
            let fits = step.length() + next.length() <= LOOK;
            if step.length() > 0 && step.advance() < BLOCK_END && next.length() > 0 && fits {
                *entry = step.and(next).0;
            }
        }
    }

    /// The entry of a DC table for the next bits, which stand at the top of `bits`.
    #[inline(always)]
    pub(crate) fn look(&self, bits: u64) -> u32 {
        self.lookup[(bits >> (64 - LOOK)) as usize] as u32
    }

    /// What an AC table says about the next bits, which stand at the top of `bits`.
    #[inline(always)]
    pub(crate) fn step(&self, bits: u64) -> Step {
        Step(self.lookup[(bits >> (64 - LOOK)) as usize])
    }

    /// Symbol and length of a code longer than `LOOK`, or `None` if the bits are not a code.
    #[cold]
    #[inline(never)]
    pub(crate) fn long_code(&self, bits: u64) -> Option<(u8, u32)> {
        let next = (bits >> 48) as u32;
        for length in LOOK + 1..=16 {
            if next < self.limit[length as usize] {
                let index = (next >> (16 - length)) as i32 + self.shift[length as usize];
                return Some((*self.spec.symbols.get(usize::try_from(index).ok()?)?, length));
            }
        }
        None
    }

    /// Symbol and length of the next code, whatever its length.
    #[inline(always)]
    pub(crate) fn symbol(&self, bits: u64) -> Option<(u8, u32)> {
        let next = (bits >> 48) as u32;
        for length in 1..=16 {
            if next < self.limit[length as usize] {
                let index = (next >> (16 - length)) as i32 + self.shift[length as usize];
                return Some((self.spec.symbols[index as usize & 255], length));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The luminance DC table of the standard's annex K.
    fn spec() -> Spec {
        let mut symbols = [0; 256];
        for (index, symbol) in symbols[..12].iter_mut().enumerate() {
            *symbol = index as u8;
        }
        Spec { counts: [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], symbols }
    }

    #[test]
    fn short_codes_carry_their_value() {
        let table = Table::build(&spec(), Class::Dc).unwrap();
        // Size 3 has code 100; extra bits 010 mean 2 - 7 = -5.
        let entry = table.look(0b100_010 << 58);
        assert_eq!((entry >> 16) as i16, -5);
        assert_eq!(entry & 0xff, WHOLE | 6);
        assert_eq!(table.symbol(0b1_1111_1110 << 55), Some((11, 9)));
    }

    #[test]
    fn two_coefficients_and_the_end_of_the_block_are_one_step() {
        // Codes 00: the end; 01: no zeros, size 1; 10: two zeros, size 2; 110: sixteen zeros.
        let mut spec = Spec { counts: [0; 16], symbols: [0; 256] };
        (spec.counts[1], spec.counts[2]) = (3, 1);
        spec.symbols[..4].copy_from_slice(&[0, 1, 0x22, 0xf0]);
        let table = Table::build(&spec, Class::Ac).unwrap();
        let step = |codes: &str| {
            let digits = codes.replace(' ', "");
            let bits = u64::from_str_radix(&digits, 2).unwrap();
            table.step(bits << (64 - digits.len()))
        };
        let two = step("01 1 10 01 1111");
        assert_eq!((two.length(), two.advance()), (7, 4));
        assert_eq!((two.first(), two.last()), ((0, 1), (3, -2)));
        let ended = step("10 11 00 11111");
        assert_eq!((ended.length(), ended.advance()), (6, 3 + BLOCK_END));
        assert_eq!((ended.first(), ended.last()), ((2, 3), (2, 3)));
        let end = step("00 011 011 011");
        assert_eq!((end.length(), end.advance()), (2, BLOCK_END));
        assert_eq!((end.first().1, end.last().1), (0, 0));
        let zeros = step("110 01 0 11111");
        assert_eq!((zeros.length(), zeros.advance(), zeros.last()), (6, 17, (16, -1)));
        assert_eq!(step("111 0000 0000").length(), 0);
    }

    #[test]
    fn too_many_codes_are_refused() {
        let mut wrong = spec();
        wrong.counts[0] = 3;
        assert!(matches!(Table::build(&wrong, Class::Dc), Err(Defect::HuffmanTable)));
    }
}
