//! The part of HDF5 that h5py writes for Keras: groups, and arrays of floats that lie in one piece.
//!
//! Nothing is decompressed and no attribute is looked at. Files come from strangers: every address is checked against the file, an
//! object is visited once, and what is read and kept is counted against the length of the file, so that no file costs more
//! time or memory than a few times its length.

use safetensors::Dtype;
use std::collections::BTreeSet;

/// What every such file begins with.
pub(super) const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Bytes of an address and of a length, as every program on a machine of 64 bits writes them.
const WORD: u8 = 8;
/// The address of what is not there.
const NOWHERE: u64 = u64::MAX;
/// Groups inside each other, and levels of a group's tree.
const DEEPEST: usize = 32;
/// Longest name of a member, in bytes.
const LONGEST_NAME: usize = 1024;
/// HDF5's own limit.
const MOST_DIMENSIONS: usize = 32;

/// Kinds of messages in an object's header.
mod kind {
    pub(super) const DATASPACE: u16 = 0x01;
    pub(super) const LINK_INFO: u16 = 0x02;
    pub(super) const DATATYPE: u16 = 0x03;
    pub(super) const LINK: u16 = 0x06;
    pub(super) const LAYOUT: u16 = 0x08;
    pub(super) const FILTERS: u16 = 0x0b;
    pub(super) const CONTINUATION: u16 = 0x10;
    pub(super) const SYMBOL_TABLE: u16 = 0x11;
}

/// Why a file gives no arrays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hdf5Error {
    /// It ends too early, or points to where nothing of the kind is.
    #[error("its HDF5 is damaged: {0}")]
    Damaged(&'static str),
    /// Something that Keras does not write.
    #[error("its HDF5 {0}, which is not read")]
    Unread(&'static str),
    /// An array that is stored in another way.
    #[error("its array `{name}` {why}")]
    Array {
        name: String,
        /// What is different about it.
        why: &'static str,
    },
}

use Hdf5Error::{Damaged, Unread};
const SHORT: Hdf5Error = Damaged("it ends too early, or points beyond its end");

/// An array of floats.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array<'a> {
    /// Names of the groups around it and its own, with `/` between them.
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Values in the order of rows, the lowest byte first.
    pub(super) data: &'a [u8],
}

/// All arrays of floats in a file, by name; others are left out.
pub(super) fn arrays(bytes: &[u8]) -> Result<Vec<Array<'_>>, Hdf5Error> {
    if !bytes.starts_with(SIGNATURE) {
        return Err(Damaged("it does not begin as one"));
    }
    let file = Bytes(bytes);
    let version = file.byte(8)?;
    let (widths, root) = match version {
        // A table of symbols is in the superblock itself; the second version has four bytes more before it.
        0 | 1 => (13, 64 + 4 * usize::from(version)),
        2 | 3 => (9, 36),
        _ => return Err(Unread("has a newer superblock")),
    };
    if (file.byte(widths)?, file.byte(widths + 1)?) != (WORD, WORD) {
        return Err(Unread("has addresses that are not of 8 bytes"));
    }
    let mut walk = Walk {
        file,
        left: bytes.len().saturating_mul(4).saturating_add(1 << 16),
        left_data: bytes.len(),
        visited: BTreeSet::new(),
        found: Vec::new(),
    };
    walk.object(file.word(root)?, String::new(), 0)?;
    walk.found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(walk.found)
}

/// Bytes whose every read is checked.
#[derive(Debug, Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn slice(self, at: usize, len: usize) -> Result<&'a [u8], Hdf5Error> {
        at.checked_add(len).and_then(|end| self.0.get(at..end)).ok_or(SHORT)
    }

    /// What lies at an address that the file itself gives.
    fn at(self, address: u64, len: u64) -> Result<Bytes<'a>, Hdf5Error> {
        let (Ok(at), Ok(len)) = (usize::try_from(address), usize::try_from(len)) else {
            return Err(SHORT);
        };
        self.slice(at, len).map(Bytes)
    }

    /// The same, to the end of the file.
    fn from(self, address: u64) -> Result<Bytes<'a>, Hdf5Error> {
        let at = usize::try_from(address).map_err(|_| SHORT)?;
        self.0.get(at..).map(Bytes).ok_or(SHORT)
    }

    fn byte(self, at: usize) -> Result<u8, Hdf5Error> {
        self.0.get(at).copied().ok_or(SHORT)
    }

    /// A number of so many bytes (eight at most), the lowest first.
    fn number(self, at: usize, bytes: usize) -> Result<u64, Hdf5Error> {
        let found = self.slice(at, bytes)?;
        Ok(found.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn short(self, at: usize) -> Result<u16, Hdf5Error> {
        let found = self.slice(at, 2)?;
        Ok(u16::from_le_bytes([found[0], found[1]]))
    }

    fn word(self, at: usize) -> Result<u64, Hdf5Error> {
        self.number(at, 8)
    }

    fn len(self) -> usize {
        self.0.len()
    }
}

/// What an object's header says of it.
#[derive(Debug, Default)]
struct Header<'a> {
    /// Addresses of the tree and of the names of a group.
    symbols: Option<(u64, u64)>,
    /// Members of a group that has no tree: names and addresses.
    links: Vec<(&'a str, u64)>,
    shape: Option<Vec<u64>>,
    /// The type of the values; nothing for others than floats.
    floats: Option<Option<Dtype>>,
    layout: Option<Bytes<'a>>,
    filtered: bool,
}

/// The walk through a file.
#[derive(Debug)]
struct Walk<'a> {
    file: Bytes<'a>,
    /// Bytes that may still be looked at or kept, but for values.
    left: usize,
    /// Bytes of values that may still be taken.
    left_data: usize,
    visited: BTreeSet<u64>,
    found: Vec<Array<'a>>,
}

impl<'a> Walk<'a> {
    fn spend(&mut self, bytes: usize) -> Result<(), Hdf5Error> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(Damaged("its parts refer to each other in circles"))?;
        Ok(())
    }

    /// A group and all in it, or an array.
    fn object(&mut self, address: u64, name: String, depth: usize) -> Result<(), Hdf5Error> {
        if depth > DEEPEST {
            return Err(Unread("has groups in groups without end"));
        }
        if !self.visited.insert(address) {
            return Err(Damaged("it has one object under two names"));
        }
        self.spend(name.len() + 16)?;
        let header = self.header(address)?;
        let inside = |member: &str| {
            if name.is_empty() { member.to_owned() } else { format!("{name}/{member}") }
        };
        if let Some((tree, names)) = header.symbols {
            for (member, address) in self.members(tree, names)? {
                self.object(address, inside(member), depth + 1)?;
            }
        }
        for &(member, address) in &header.links {
            self.object(address, inside(member), depth + 1)?;
        }
        self.array(&header, name)
    }

    /// Takes the array of a header that has one, of floats.
    fn array(&mut self, header: &Header<'a>, name: String) -> Result<(), Hdf5Error> {
        let (Some(shape), Some(Some(dtype)), Some(layout)) =
            (&header.shape, header.floats, header.layout)
        else {
            return Ok(());
        };
        let unread = |why| Hdf5Error::Array { name: name.clone(), why };
        if header.filtered {
            return Err(unread("is compressed, which Keras's are not"));
        }
        let length = shape
            .iter()
            .try_fold((dtype.bitsize() / 8) as u64, |length, &side| length.checked_mul(side))
            .ok_or_else(|| unread("is larger than any file"))?;
        if !matches!(layout.byte(0)?, 3 | 4) {
            return Err(unread("is stored as HDF5 did before 2005"));
        }
        let data = match layout.byte(1)? {
            0 => layout.slice(4, usize::from(layout.short(2)?))?,
            1 => match layout.word(2)? {
                NOWHERE => &[],
                address => self.file.at(address, layout.word(10)?)?.0,
            },
            _ => return Err(unread("is stored in pieces, which Keras's are not")),
        };
        if data.len() as u64 != length {
            return Err(unread("has another number of values than its shape says"));
        }
        self.left_data = self
            .left_data
            .checked_sub(data.len())
            .ok_or_else(|| unread("lies where others do, so that they are larger than the file"))?;
        // Every side fits: their product does, and where a side is 0 none is larger than memory could be.
        let shape: Result<Vec<usize>, _> =
            shape.iter().map(|&side| usize::try_from(side)).collect();
        let shape = shape.map_err(|_| unread("is larger than any file"))?;
        self.found.push(Array { name, dtype, shape, data });
        Ok(())
    }

    fn header(&mut self, address: u64) -> Result<Header<'a>, Hdf5Error> {
        let start = self.file.from(address)?;
        let mut header = Header::default();
        // Blocks of messages that are still to be read.
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        let second = start.0.starts_with(b"OHDR");
        let mut flags = 0;
        if second {
            flags = start.byte(5)?;
            let times = if flags & 0x20 == 0 { 0 } else { 16 };
            let limits = if flags & 0x10 == 0 { 0 } else { 4 };
            let (at, wide) = (6 + times + limits, 1 << (flags & 3));
            let first = address.checked_add((at + wide) as u64).ok_or(SHORT)?;
            blocks.push((first, start.number(at, wide)?));
        } else {
            if start.byte(0)? != 1 {
                return Err(Damaged("an object's header does not begin as one"));
            }
            blocks.push((address.checked_add(16).ok_or(SHORT)?, start.number(8, 4)?));
        }
        while let Some((at, len)) = blocks.pop() {
            let block = self.file.at(at, len)?;
            self.spend(16)?;
            self.messages(block, second.then_some(flags), &mut header, &mut blocks)?;
        }
        Ok(header)
    }

    /// The messages of one block; `flags` are those of a header of the second kind.
    fn messages(
        &mut self,
        block: Bytes<'a>,
        flags: Option<u8>,
        header: &mut Header<'a>,
        blocks: &mut Vec<(u64, u64)>,
    ) -> Result<(), Hdf5Error> {
        let ahead = match flags {
            None => 8,
            Some(flags) => 4 + if flags & 0x04 == 0 { 0 } else { 2 },
        };
        let mut at = 0;
        while at + ahead <= block.len() {
            let (kind, size, marks) = match flags {
                None => (block.short(at)?, block.short(at + 2)?, block.byte(at + 4)?),
                Some(_) => (u16::from(block.byte(at)?), block.short(at + 1)?, block.byte(at + 3)?),
            };
            let size = usize::from(size);
            let body = Bytes(block.slice(at + ahead, size)?);
            at += ahead + size;
            self.spend(ahead + size)?;
            if kind == kind::CONTINUATION {
                let (address, len) = (body.word(0)?, body.word(8)?);
                // Those of the second kind begin with their name and end with a checksum.
                blocks.push(match flags {
                    None => (address, len),
                    Some(_) => (
                        address.checked_add(4).ok_or(SHORT)?,
                        len.checked_sub(8).ok_or(Damaged("a block of a header is too short"))?,
                    ),
                });
            } else {
                message(kind, body, marks & 2 != 0, header)?;
            }
        }
        Ok(())
    }

    /// Names and addresses of a group's members.
    fn members(&mut self, tree: u64, names: u64) -> Result<Vec<(&'a str, u64)>, Hdf5Error> {
        let heap = self.file.at(names, 32)?;
        if !heap.0.starts_with(b"HEAP") {
            return Err(Damaged("a group has no names"));
        }
        let names = self.file.at(heap.word(24)?, heap.word(8)?)?;
        let mut members = Vec::new();
        let mut nodes = vec![(tree, 0)];
        while let Some((address, depth)) = nodes.pop() {
            let node = self.file.from(address)?;
            if node.0.starts_with(b"TREE") && depth < DEEPEST {
                let count = usize::from(node.short(6)?);
                self.spend(24 + 16 * count)?;
                for child in 0..count {
                    nodes.push((node.word(32 + 16 * child)?, depth + 1));
                }
            } else if node.0.starts_with(b"SNOD") {
                let count = usize::from(node.short(6)?);
                self.spend(8 + 40 * count)?;
                for entry in 0..count {
                    let entry = Bytes(node.slice(8 + 40 * entry, 40)?);
                    let name = text(names, entry.word(0)?)?;
                    self.spend(name.len())?;
                    match entry.number(16, 4)? {
                        2 => {} // a link to another name, which Keras does not write
                        _ => members.push((name, entry.word(8)?)),
                    }
                }
            } else {
                return Err(Damaged("a group's tree does not begin as one"));
            }
        }
        Ok(members)
    }
}

/// The text at a place of a group's names, to its zero.
fn text(names: Bytes<'_>, at: u64) -> Result<&str, Hdf5Error> {
    let name = names.from(at)?.0;
    let end = name.iter().take(LONGEST_NAME).position(|&byte| byte == 0);
    let name = &name[..end.ok_or(Damaged("a name has no end"))?];
    std::str::from_utf8(name).map_err(|_| Damaged("a name is not text"))
}

/// Notes what a message says; kinds that say nothing of groups or values are passed over.
fn message<'a>(
    kind: u16,
    body: Bytes<'a>,
    shared: bool,
    header: &mut Header<'a>,
) -> Result<(), Hdf5Error> {
    match kind {
        kind::DATASPACE | kind::DATATYPE | kind::LAYOUT if shared => {
            return Err(Unread("keeps the type of an array elsewhere"));
        }
        kind::SYMBOL_TABLE => header.symbols = Some((body.word(0)?, body.word(8)?)),
        kind::LINK_INFO => {
            let ahead = if body.byte(1)? & 1 == 0 { 2 } else { 10 };
            if body.word(ahead)? != NOWHERE {
                return Err(Unread("lists many members of a group as newer versions do"));
            }
        }
        kind::LINK => header.links.extend(link(body)?),
        kind::DATASPACE => header.shape = shape(body)?,
        kind::DATATYPE => header.floats = Some(float(body)?),
        kind::LAYOUT => header.layout = Some(body),
        kind::FILTERS => header.filtered = body.byte(1)? > 0,
        _ => {}
    }
    Ok(())
}

/// A member of a group, unless it is only a reference to another name.
fn link(body: Bytes<'_>) -> Result<Option<(&str, u64)>, Hdf5Error> {
    let flags = body.byte(1)?;
    let mut at = 2;
    if flags & 0x08 != 0 {
        if body.byte(at)? != 0 {
            return Ok(None);
        }
        at += 1;
    }
    at += if flags & 0x04 == 0 { 0 } else { 8 };
    at += usize::from(flags & 0x10 != 0);
    let wide = 1 << (flags & 3);
    let length = usize::try_from(body.number(at, wide)?).map_err(|_| SHORT)?;
    if length > LONGEST_NAME {
        return Err(Damaged("a name has no end"));
    }
    let name = body.slice(at + wide, length)?;
    let name = std::str::from_utf8(name).map_err(|_| Damaged("a name is not text"))?;
    Ok(Some((name, body.word(at + wide + length)?)))
}

/// The sides of an array; nothing for one without values.
fn shape(body: Bytes<'_>) -> Result<Option<Vec<u64>>, Hdf5Error> {
    let rank = usize::from(body.byte(1)?);
    if rank > MOST_DIMENSIONS {
        return Err(Damaged("an array has too many dimensions"));
    }
    let at = match body.byte(0)? {
        1 => 8,
        2 if body.byte(3)? == 2 => return Ok(None),
        2 => 4,
        _ => return Err(Unread("describes the shape of an array in a newer way")),
    };
    (0..rank).map(|side| body.word(at + 8 * side)).collect::<Result<_, _>>().map(Some)
}

/// The type of an array's values, where they are floats in the order of this machine's bytes.
fn float(body: Bytes<'_>) -> Result<Option<Dtype>, Hdf5Error> {
    if body.byte(0)? & 0x0f != 1 || body.byte(1)? & 0x41 != 0 {
        return Ok(None);
    }
    // Bytes, and bits of exponent and fraction.
    Ok(match (body.number(4, 4)?, body.byte(13)?, body.byte(15)?) {
        (2, 5, 10) => Some(Dtype::F16),
        (2, 8, 7) => Some(Dtype::BF16),
        (4, 8, 23) => Some(Dtype::F32),
        (8, 11, 52) => Some(Dtype::F64),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
