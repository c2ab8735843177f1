//! Fast Huffman tables: one lookup gives run, value and length of most coefficients.

use crate::Defect;

/// Bits of the direct lookup. 2^11 entries of four bytes: both AC tables of a photo fit the
/// first-level cache beside the blocks, and nearly all codes of a photo are shorter.
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
    /// By the next `LOOK` bits: `value << 16 | symbol or run << 8 | length`.
    ///
    /// Where code and value both fit `LOOK` bits, `length` covers both and `value` is final (never 0
    /// for AC; for DC the flag [`WHOLE`] says so). Else `length` is the code's alone and the second
    /// byte its symbol. A length of 0 means a code longer than `LOOK`.
    lookup: [u32; 1 << LOOK],
    /// For codes of each length: the first 16-bit aligned code beyond them (exclusive), 0 if none.
    limit: [u32; 17],
    /// Index into the symbols minus the first code, per length.
    shift: [i32; 17],
}

/// Flag in the length byte of a DC entry: the value is final.
pub(crate) const WHOLE: u32 = 0x80;

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
        for (rest, entry) in self.lookup[start..start + (1 << free)].iter_mut().enumerate() {
            let whole = size <= free && (self.class == Class::Dc || size > 0);
            *entry = if whole {
                let value = extend(rest as u32 >> (free - size), size);
                let (run, flag) =
                    if self.class == Class::Dc { (0, WHOLE) } else { (u32::from(symbol >> 4), 0) };
                (value as u32) << 16 | run << 8 | flag | (length + size)
            } else {
                u32::from(symbol) << 8 | length
            };
        }
    }

    /// The entry for the next bits, which stand at the top of `bits`.
    #[inline(always)]
    pub(crate) fn look(&self, bits: u64) -> u32 {
        self.lookup[(bits >> (64 - LOOK)) as usize]
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
    fn too_many_codes_are_refused() {
        let mut wrong = spec();
        wrong.counts[0] = 3;
        assert!(matches!(Table::build(&wrong, Class::Dc), Err(Defect::HuffmanTable)));
    }
}
