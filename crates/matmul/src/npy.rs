//! Square matrices in NumPy's `.npy` files: read block by block, written block by block.

use crate::MatmulError;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself writes 128 bytes; a longer header does not describe a plain matrix.
const LONGEST_HEADER: u64 = 1 << 16;
const NEEDED: &str = "a square matrix of little-endian `f4` or `f8`";

/// How an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Single,
    Double,
}

impl Element {
    fn bytes(self) -> u64 {
        match self {
            Self::Single => 4,
            Self::Double => 8,
        }
    }
}

/// A matrix in a file.
#[derive(Debug)]
pub(crate) struct Npy {
    path: PathBuf,
    file: File,
    element: Element,
    columns_first: bool,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
    turned: Vec<f32>,
}

impl Npy {
    pub(crate) fn open(path: &Path) -> Result<Self, MatmulError> {
        let read = |source| MatmulError::Read { path: path.to_owned(), source };
        let wrong =
            |found: String| MatmulError::Npy { path: path.to_owned(), found, needed: NEEDED };
        let mut file = File::open(path).map_err(read)?;
        let found = file.metadata().map_err(read)?.len();
        let mut opening = [0u8; 8];
        if file.read_exact(&mut opening).is_err() || !opening.starts_with(MAGIC) {
            return Err(wrong("not an `.npy` file".to_owned()));
        }
        let (width, prefix) = match opening[6] {
            1 => (2, 10u64),
            2 | 3 => (4, 12),
            version => return Err(wrong(format!("version {version} of the format"))),
        };
        let mut length = [0u8; 4];
        file.read_exact(&mut length[..width]).map_err(read)?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > LONGEST_HEADER || prefix + length > found {
            return Err(wrong(format!("a header of {length} bytes")));
        }
        let mut header = vec![0u8; usize::try_from(length).expect("below 65,537")];
        file.read_exact(&mut header).map_err(read)?;
        let header = String::from_utf8_lossy(&header);
        let element = match string(&header, "descr") {
            Some("<f4") => Element::Single,
            Some("<f8") => Element::Double,
            other => return Err(wrong(format!("elements of type `{}`", other.unwrap_or("?")))),
        };
        let columns_first = match value(&header, "fortran_order") {
            Some(text) if text.starts_with("True") => true,
            Some(text) if text.starts_with("False") => false,
            _ => return Err(wrong("a header without `fortran_order`".to_owned())),
        };
        let shape = shape(&header).ok_or_else(|| wrong("a header without `shape`".to_owned()))?;
        let &[size, columns] = &shape[..] else {
            return Err(wrong(format!("{} dimensions", shape.len())));
        };
        if size != columns {
            return Err(wrong(format!("a matrix of {size} x {columns}")));
        }
        let start = prefix + length;
        let promised = size
            .checked_mul(size)
            .and_then(|elements| elements.checked_mul(element.bytes()))
            .and_then(|bytes| bytes.checked_add(start))
            .ok_or_else(|| wrong(format!("a matrix of {size} x {columns}")))?;
        if found != promised {
            return Err(MatmulError::Length { path: path.to_owned(), found, promised });
        }
        let (bytes, turned) = (Vec::new(), Vec::new());
        Ok(Self { path: path.to_owned(), file, element, columns_first, size, start, bytes, turned })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads a block into `to`, row after row.
    pub(crate) fn read(
        &mut self,
        rows: Range<usize>,
        columns: Range<usize>,
        to: &mut [f32],
    ) -> Result<(), MatmulError> {
        if self.columns_first {
            let (height, width) = (rows.len(), columns.len());
            let mut turned = std::mem::take(&mut self.turned);
            turned.resize(height * width, 0.0);
            let result = self.lines(columns, rows, &mut turned);
            for (column, line) in turned.chunks_exact(height).enumerate() {
                for (row, value) in line.iter().enumerate() {
                    to[row * width + column] = *value;
                }
            }
            self.turned = turned;
            result
        } else {
            self.lines(rows, columns, to)
        }
    }

    /// Reads elements `across` of lines `lines` of the file.
    #[allow(clippy::cast_possible_truncation)] // doubles are rounded to singles, as announced
    fn lines(
        &mut self,
        lines: Range<usize>,
        across: Range<usize>,
        to: &mut [f32],
    ) -> Result<(), MatmulError> {
        let width = self.element.bytes();
        self.bytes.resize(across.len() * usize::try_from(width).expect("4 or 8"), 0);
        for (line, to) in lines.clone().zip(to.chunks_exact_mut(across.len())) {
            let at = self.start + (line as u64 * self.size + across.start as u64) * width;
            let bytes = &mut self.bytes;
            self.file
                .seek(SeekFrom::Start(at))
                .and_then(|_| self.file.read_exact(bytes))
                .map_err(|source| MatmulError::Read { path: self.path.clone(), source })?;
            match self.element {
                Element::Single => {
                    for (to, from) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
                        *to = f32::from_le_bytes(*from);
                    }
                }
                Element::Double => {
                    for (to, from) in to.iter_mut().zip(bytes.as_chunks::<8>().0) {
                        *to = f64::from_le_bytes(*from) as f32;
                    }
                }
            }
            if let Some(bad) = to.iter().position(|value| !value.is_finite()) {
                let (line, at) = (line as u64, (across.start + bad) as u64);
                let (row, column) = if self.columns_first { (at, line) } else { (line, at) };
                let value = f64::from(to[bad]);
                return Err(MatmulError::NotFinite { path: self.path.clone(), row, column, value });
            }
        }
        Ok(())
    }
}

/// The text behind a key of the header, which is a Python dictionary.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let at = header.find(&format!("'{key}'"))?;
    header[at + key.len() + 2..].trim_start().strip_prefix(':').map(str::trim_start)
}

fn string<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    value(header, key)?.strip_prefix('\'')?.split('\'').next()
}

fn shape(header: &str) -> Option<Vec<u64>> {
    let inside = value(header, "shape")?.strip_prefix('(')?.split(')').next()?;
    inside
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect()
}

/// A result that is written block by block, under a temporary name until it is complete.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    size: u64,
    start: u64,
}

impl Writer {
    /// Opens the file, making it with its full length if it is not there. Returns whether it was.
    pub(crate) fn open(path: &Path, size: u64) -> Result<(Self, bool), MatmulError> {
        let write = |source| MatmulError::Write { path: path.to_owned(), source };
        let mut header =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({size}, {size}), }}");
        // Data starts at a multiple of 64, as NumPy has it; the header ends in a line feed.
        let filled = (10 + header.len() + 1).next_multiple_of(64) - 11;
        header = format!("{header:filled$}\n");
        let start = 10 + header.len() as u64;
        let length = start + size * size * 4;
        let there = path.metadata().is_ok_and(|metadata| metadata.len() == length);
        let mut file =
            File::options().write(true).create(true).truncate(false).open(path).map_err(write)?;
        if !there {
            let short = u16::try_from(header.len()).expect("a header is 118 bytes or so");
            file.set_len(0)
                .and_then(|()| file.set_len(length))
                .and_then(|()| file.write_all(MAGIC))
                .and_then(|()| file.write_all(&[1, 0]))
                .and_then(|()| file.write_all(&short.to_le_bytes()))
                .and_then(|()| file.write_all(header.as_bytes()))
                .map_err(write)?;
        }
        Ok((Self { path: path.to_owned(), file, size, start }, there))
    }

    /// Writes a block whose first element is at (`row`, `column`).
    pub(crate) fn write(
        &mut self,
        row: usize,
        column: usize,
        columns: usize,
        block: &[f32],
    ) -> Result<(), MatmulError> {
        let mut bytes = vec![0u8; columns * 4];
        for (number, line) in block.chunks_exact(columns).enumerate() {
            for (to, value) in bytes.chunks_exact_mut(4).zip(line) {
                to.copy_from_slice(&value.to_le_bytes());
            }
            let at = self.start + ((row + number) as u64 * self.size + column as u64) * 4;
            self.file
                .seek(SeekFrom::Start(at))
                .and_then(|_| self.file.write_all(&bytes))
                .map_err(|source| MatmulError::Write { path: self.path.clone(), source })?;
        }
        Ok(())
    }

    /// Flushes the file to disk.
    pub(crate) fn sync(&self) -> Result<(), MatmulError> {
        self.file
            .sync_data()
            .map_err(|source| MatmulError::Write { path: self.path.clone(), source })
    }
}
