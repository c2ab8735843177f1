//! The protobuf wire format, read from a slice without allocating.
//!
//! As strict as prost, so that whatever the full decoder accepts is read here
//! with the same meaning, and every length is compared with what is left
//! before it is used.

/// Groups inside groups beyond this depth are refused; prost stops at 100 as well.
const MAX_DEPTH: u32 = 100;

/// What is wrong with the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A variable-length integer runs past the end or past 64 bits.
    #[error("variable-length integer runs past the end or past 64 bits")]
    Varint,
    /// A value is longer than the message that holds it.
    #[error("value of field {field} runs past the end of its message")]
    PastEnd { field: u32 },
    /// The field number is 0 or beyond 29 bits, or the wire type is unknown.
    #[error("field key {key:#x} is not valid")]
    Key { key: u64 },
    /// A known field has a type it cannot have.
    #[error("field {field} has another type than the schema says")]
    WireType { field: u32 },
    /// A group is not closed, closed twice, or nested too deep.
    #[error("group of field {field} is not closed properly")]
    Group { field: u32 },
    /// The length of a packed list of floats is not a multiple of 4.
    #[error("packed floats take {bytes} bytes, which is not a multiple of 4")]
    PackedFloats { bytes: usize },
    /// A feature's name is not UTF-8.
    #[error("feature name is not UTF-8")]
    Name,
}

/// Takes one variable-length integer off the front of `bytes`.
#[inline]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            // The tenth byte holds the 64th bit and nothing else.
            if i == 9 && *byte > 1 {
                return None;
            }
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends one variable-length integer.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A field's value as the wire has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Group,
    Fixed32([u8; 4]),
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
}

impl<'a> Field<'a> {
    /// The value of a field that must be length-delimited.
    #[inline]
    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed::WireType { field: self.number }),
        }
    }
}

/// The fields of a message, one after another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field; `None` at the end of the message.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let value = self.value(number, wire_type, MAX_DEPTH)?;
        Ok(Some(Field { number, value }))
    }

    /// The next length-delimited field with this number, others being passed over.
    #[inline]
    pub(crate) fn next_bytes(&mut self, number: u32) -> Result<Option<&'a [u8]>, Malformed> {
        while let Some(field) = self.next()? {
            if field.number == number {
                return field.bytes().map(Some);
            }
        }
        Ok(None)
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, u32), Malformed> {
        let key = take_varint(&mut self.rest).ok_or(Malformed::Varint)?;
        match u32::try_from(key) {
            Ok(short) if short >> 3 > 0 => Ok((short >> 3, short & 7)),
            _ => Err(Malformed::Key { key }),
        }
    }

    #[inline]
    fn value(&mut self, number: u32, wire_type: u32, depth: u32) -> Result<Value<'a>, Malformed> {
        Ok(match wire_type {
            0 => Value::Varint(take_varint(&mut self.rest).ok_or(Malformed::Varint)?),
            1 => {
                self.take(8, number)?;
                Value::Fixed64
            }
            2 => {
                let length = take_varint(&mut self.rest).ok_or(Malformed::Varint)?;
                Value::Bytes(self.take(length, number)?)
            }
            3 => {
                self.skip_group(number, depth)?;
                Value::Group
            }
            5 => {
                let bytes = self.take(4, number)?;
                Value::Fixed32([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            4 => return Err(Malformed::Group { field: number }),
            _ => return Err(Malformed::Key { key: u64::from(number << 3 | wire_type) }),
        })
    }

    #[inline]
    fn take(&mut self, length: u64, field: u32) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed::PastEnd { field })?;
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(Malformed::PastEnd { field })?;
        self.rest = rest;
        Ok(taken)
    }

    #[cold]
    fn skip_group(&mut self, group: u32, depth: u32) -> Result<(), Malformed> {
        let broken = Malformed::Group { field: group };
        let depth = depth.checked_sub(1).ok_or(broken)?;
        loop {
            if self.rest.is_empty() {
                return Err(broken);
            }
            match self.key()? {
                (number, 4) if number == group => return Ok(()),
                (number, wire_type) => {
                    self.value(number, wire_type, depth)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_all_sizes_round_trip() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let mut rest = &bytes[..];
                assert_eq!(take_varint(&mut rest), Some(value));
                assert!(rest.is_empty());
                assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn varints_beyond_64_bits_are_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 1;
        assert_eq!(take_varint(&mut &bytes[..]), Some(u64::MAX));
        bytes[9] = 2;
        assert_eq!(take_varint(&mut &bytes[..]), None);
        assert_eq!(take_varint(&mut &[0x80; 20][..]), None);
    }

    fn all(message: &[u8]) -> Result<Vec<Field<'_>>, Malformed> {
        let mut fields = Fields::new(message);
        let mut found = Vec::new();
        while let Some(field) = fields.next()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        assert_eq!(all(&[0x0a, 5, 1, 2]), Err(Malformed::PastEnd { field: 1 }));
        assert_eq!(
            all(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            Err(Malformed::PastEnd { field: 1 })
        );
        assert_eq!(all(&[0x0d, 1, 2, 3]), Err(Malformed::PastEnd { field: 1 }));
        assert_eq!(all(&[0x09, 1, 2, 3, 4, 5, 6, 7]), Err(Malformed::PastEnd { field: 1 }));
    }

    #[test]
    fn groups_must_close_and_may_not_nest_for_ever() {
        assert_eq!(all(&[0x0b, 0x10, 1, 0x0c]).map(|fields| fields.len()), Ok(1));
        assert_eq!(all(&[0x0b, 0x10, 1]), Err(Malformed::Group { field: 1 }));
        assert_eq!(all(&[0x0c]), Err(Malformed::Group { field: 1 }));
        assert_eq!(all(&[0x0b, 0x14]), Err(Malformed::Group { field: 2 }));
        assert_eq!(all(&vec![0x0b; 1 << 20]), Err(Malformed::Group { field: 1 }));
    }

    #[test]
    fn field_zero_and_unknown_wire_types_are_refused() {
        assert_eq!(all(&[0x00, 0]), Err(Malformed::Key { key: 0 }));
        assert_eq!(all(&[0x0e]), Err(Malformed::Key { key: 0x0e }));
        assert_eq!(all(&[0x88, 0x80, 0x80, 0x80, 0x10]), Err(Malformed::Key { key: 1 << 32 | 8 }));
    }
}
