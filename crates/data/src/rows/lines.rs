//! Blocks of whole lines, front to back, with bounded memory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use paceline_tfrecord::{Reader, ReaderOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::{
    Input,
    formats::{by_name, records},
    tail::Tail,
};
use crate::{
    DataError,
    gunzip::Members,
    store::{self, Stream},
};

/// Bytes of a block: large enough that handing it to another thread costs nothing, small enough for
/// text, delimiters and rows to stay in a core's cache.
const BLOCK: usize = 256 << 10;
/// A longer line is malformed: a row of this size would have a hundred thousand features.
pub(super) const LONGEST_LINE: usize = 4 << 20;
/// What some programs put in front of text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How long a live input is waited for before the caller may look around.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// A place in a stream of rows, between two lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the file, from 0.
    pub file: usize,
    /// Bytes of (unpacked) text before it in that file; records, where it consists of those.
    pub offset: u64,
    /// Which file it is, where a path may come to mean another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

/// Some lines.
#[derive(Debug)]
pub struct Block {
    /// The text; ends with a line's end, except perhaps at the end of a file.
    pub text: Vec<u8>,
    pub start: Position,
    /// Where the next block starts.
    pub end: Position,
    /// Where a line began that was too long to be kept, just before this block.
    pub too_long: Option<u64>,
    /// When its last byte was read.
    pub arrived: Instant,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            text: Vec::new(),
            start: Position::default(),
            end: Position::default(),
            too_long: None,
            arrived: Instant::now(),
        }
    }
}

/// What came of asking for the next block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There it is.
    Block,
    /// Nothing new yet; ask again.
    Idle,
    /// The input has ended.
    End,
}

/// Reads lines in blocks.
pub struct Lines {
    input: Input,
    open: Open,
    /// Where `rest` begins.
    at: Position,
    /// The beginning of a line whose end has not been read yet.
    rest: Vec<u8>,
    /// Where the present line began, if its beginning was dropped for being too long.
    dropping: Option<u64>,
}

enum Open {
    Nothing,
    File(Box<dyn Read + Send>),
    /// Records instead of lines: their number takes the place of the offset.
    Records(Box<Reader<Box<dyn Read + Send>>>),
    Standard,
    Tail(Tail),
    Ended,
}

pub(super) enum Got {
    Bytes(usize),
    /// Nothing for now.
    Idle,
    /// This file, or all there is, has ended.
    End,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("input", &self.input).field("at", &self.at).finish()
    }
}

impl Lines {
    /// Reads `input` from `position` on.
    #[must_use]
    pub fn new(input: Input, position: Position) -> Self {
        Self { input, open: Open::Nothing, at: position, rest: Vec::new(), dropping: None }
    }

    /// Where the lines come from.
    #[must_use]
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Bytes that wait in a growing file; nothing for other inputs.
    #[must_use]
    pub fn behind(&self) -> Option<u64> {
        match &self.open {
            Open::Tail(tail) => Some(tail.behind() + self.rest.len() as u64),
            _ => None,
        }
    }

    /// Reads the next block into `block`, whose memory is reused.
    ///
    /// # Errors
    /// Says which file could not be read.
    pub fn next(&mut self, block: &mut Block) -> Result<Next, DataError> {
        loop {
            if !self.is_open()? {
                return Ok(Next::End);
            }
            block.too_long = None;
            block.text.clear();
            if matches!(self.open, Open::Records(_)) {
                if self.next_records(block)? {
                    return Ok(Next::Block);
                }
                continue;
            }
            block.text.append(&mut self.rest);
            let ended = match self.fill(&mut block.text)? {
                Got::Idle => {
                    self.rest.append(&mut block.text);
                    return Ok(Next::Idle);
                }
                Got::Bytes(_) => false,
                Got::End => true,
            };
            block.arrived = Instant::now();
            let text = &mut block.text;
            let last = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            if !ended {
                self.rest.extend_from_slice(&text[last..]);
                text.truncate(last);
            }
            if let Some(start) = self.dropping.take() {
                // What is left of the line whose beginning was dropped.
                let end =
                    text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |at| at + 1);
                text.drain(..end);
                self.at.offset += end as u64;
                block.too_long = Some(start);
            }
            if self.at.offset == 0 && text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len());
                self.at.offset += BYTE_ORDER_MARK.len() as u64;
            }
            block.start = self.at;
            self.at.offset += block.text.len() as u64;
            if ended {
                self.leave();
            }
            block.end = self.at;
            if !block.text.is_empty() || block.too_long.is_some() {
                return Ok(Next::Block);
            }
        }
    }

    /// Reads records until the block is full; whether there were any before the end of the file.
    fn next_records(&mut self, block: &mut Block) -> Result<bool, DataError> {
        let Open::Records(reader) = &mut self.open else { return Ok(false) };
        block.start = self.at;
        while block.text.len() < BLOCK
            && let Some(payload) = reader.next_record()?
        {
            records::append(&mut block.text, payload);
            self.at.offset += 1;
        }
        block.arrived = Instant::now();
        block.end = self.at;
        if block.text.is_empty() {
            self.leave();
        }
        Ok(!block.text.is_empty())
    }

    /// Reads a whole line at least (a full block if the input is not live), or up to the end.
    fn fill(&mut self, text: &mut Vec<u8>) -> Result<Got, DataError> {
        let mut searched = text.len();
        loop {
            let had = text.len();
            text.resize(BLOCK.max(had + (64 << 10)), 0);
            let got = self.read(&mut text[had..]);
            let count = if let Ok(Got::Bytes(count)) = &got { *count } else { 0 };
            text.truncate(had + count);
            let path = || self.input.name(self.at.file);
            let got = got.map_err(|error| DataError::read(path())(error))?;
            if count == 0 {
                return Ok(got);
            }
            if !self.input.is_live() && text.len() < BLOCK {
                continue;
            }
            if text[searched..].contains(&b'\n') {
                return Ok(got);
            }
            searched = text.len();
            if text.len() > LONGEST_LINE {
                self.dropping.get_or_insert(self.at.offset);
                self.at.offset += text.len() as u64;
                text.clear();
                searched = 0;
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        match &mut self.open {
            Open::File(file) => loop {
                match file.read(into) {
                    Ok(0) => return Ok(Got::End),
                    Ok(count) => return Ok(Got::Bytes(count)),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
            Open::Standard => read_standard(into),
            Open::Tail(tail) => {
                let got = tail.read(into)?;
                self.at.inode = tail.inode();
                Ok(got)
            }
            Open::Records(_) | Open::Nothing | Open::Ended => Ok(Got::End),
        }
    }

    /// Opens the next file, if none is open; whether there is something to read.
    fn is_open(&mut self) -> Result<bool, DataError> {
        if !matches!(self.open, Open::Nothing) {
            return Ok(!matches!(self.open, Open::Ended));
        }
        self.open = match &self.input {
            Input::Files(files) => match files.get(self.at.file) {
                Some(path) if by_name(path).is_some() => {
                    let file = open_bytes(path).map_err(DataError::read(path.clone()))?;
                    let mut reader = ReaderOptions::default().name(path).stream(file)?;
                    for _ in 0..self.at.offset {
                        if reader.next_record()?.is_none() {
                            let error = io::ErrorKind::UnexpectedEof.into();
                            return Err(DataError::read(path.clone())(error));
                        }
                    }
                    Open::Records(Box::new(reader))
                }
                Some(path) => Open::File(
                    open_file(path, self.at.offset).map_err(DataError::read(path.clone()))?,
                ),
                None => Open::Ended,
            },
            Input::Standard => Open::Standard,
            Input::Follow(path) => Open::Tail(Tail::new(path.clone(), self.at)),
        };
        Ok(!matches!(self.open, Open::Ended))
    }

    /// The present file, or part of a rotated log, has ended.
    fn leave(&mut self) {
        match &self.open {
            Open::Tail(tail) => {
                self.at = Position { file: 0, offset: 0, inode: tail.inode() };
            }
            Open::Standard => self.open = Open::Ended,
            _ => {
                self.open = Open::Nothing;
                self.at = Position { file: self.at.file + 1, ..Position::default() };
            }
        }
    }
}

/// The bytes of a file or object.
fn open_bytes(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if store::is_remote(path) {
        let (folder, key) = store::open_file(path)?;
        return Ok(Box::new(Stream::new(folder.find(&key)?, 0)));
    }
    Ok(Box::new(File::open(path)?))
}

/// An object of a store from `offset` of its text on, unpacked where it is gzip.
fn open_object(path: &Path, offset: u64) -> io::Result<Box<dyn Read + Send>> {
    let (folder, key) = store::open_file(path)?;
    let object = folder.find(&key)?;
    let start = object.read(0..object.size().min(2))?;
    if start == [0x1f, 0x8b] {
        let packed = BufReader::with_capacity(64 << 10, Stream::new(object, 0));
        return skip(Members::new(packed), offset);
    }
    if object.size() < offset {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Box::new(Stream::new(object, offset)))
}

/// Leaves out the first `offset` bytes.
fn skip(mut unpacked: impl Read + Send + 'static, offset: u64) -> io::Result<Box<dyn Read + Send>> {
    let skipped = io::copy(&mut unpacked.by_ref().take(offset), &mut io::sink())?;
    if skipped < offset {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Box::new(unpacked))
}

/// A file from `offset` of its text on, unpacked where it is gzip.
fn open_file(path: &Path, offset: u64) -> io::Result<Box<dyn Read + Send>> {
    if store::is_remote(path) {
        return open_object(path, offset);
    }
    let mut file = File::open(path)?;
    let mut magic = BufReader::with_capacity(64 << 10, file.try_clone()?);
    let packed = magic.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    if !file.metadata()?.is_file() {
        // A pipe does not give again what was looked at.
        return if packed { skip(Members::new(magic), offset) } else { skip(magic, offset) };
    }
    io::Seek::rewind(&mut file)?;
    if packed {
        return skip(Members::new(BufReader::with_capacity(64 << 10, file)), offset);
    }
    if file.metadata()?.len() < offset {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
    Ok(Box::new(file))
}

/// Standard input without the library's buffer, which would hide from `poll` what it holds.
fn read_standard(into: &mut [u8]) -> io::Result<Got> {
    let input = io::stdin();
    let wait = Timespec { tv_sec: 0, tv_nsec: PATIENCE.as_nanos() as i64 };
    let mut interest = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut interest, Some(&wait)) {
        Ok(0) => return Ok(Got::Idle),
        Err(rustix::io::Errno::INTR) => return Ok(Got::Idle),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    match rustix::io::read(input.as_fd(), into) {
        Ok(0) => Ok(Got::End),
        Ok(count) => Ok(Got::Bytes(count)),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Got::Idle),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{fs, io::Write, path::PathBuf};

    /// Its first bytes were looked at, and could not be read again: "Illegal seek".
    #[test]
    fn a_pipe_is_read_as_a_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let text = b"1\ta\n0\tb\n".to_vec();
        let (there, written) = (path.clone(), text.clone());
        let writer = std::thread::spawn(move || fs::write(there, written).unwrap());
        let mut lines = Lines::new(Input::Files(vec![path]), Position::default());
        assert_eq!(drain(&mut lines).0, text);
        writer.join().unwrap();
    }

    fn drain(lines: &mut Lines) -> (Vec<u8>, Vec<Position>, Vec<u64>) {
        let (mut text, mut ends, mut long) = (Vec::new(), Vec::new(), Vec::new());
        let mut block = Block::default();
        while lines.next(&mut block).unwrap() == Next::Block {
            text.extend_from_slice(&block.text);
            ends.push(block.end);
            long.extend(block.too_long);
        }
        (text, ends, long)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn files(folder: &Path, texts: &[Vec<u8>]) -> Vec<PathBuf> {
        let write = |(at, text): (usize, &Vec<u8>)| {
            let path = folder.join(at.to_string());
            fs::write(&path, text).unwrap();
            path
        };
        texts.iter().enumerate().map(write).collect()
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bom.txt");
        fs::write(&path, b"\xef\xbb\xbf1 2:1\n0 3:1\n").unwrap();
        let mut lines = Lines::new(Input::Files(vec![path.clone()]), Position::default());
        let mut block = Block::default();
        assert_eq!(lines.next(&mut block).unwrap(), Next::Block);
        assert_eq!(block.text, b"1 2:1\n0 3:1\n");
        assert_eq!(
            (block.start.offset, lines.next(&mut Block::default()).unwrap()),
            (3, Next::End)
        );
        // Continuing behind the first row works as without one.
        let behind = Position { offset: 9, ..Position::default() };
        let mut rest = Lines::new(Input::Files(vec![path]), behind);
        assert_eq!(rest.next(&mut block).unwrap(), Next::Block);
        assert_eq!(block.text, b"0 3:1\n");
    }

    #[test]
    fn files_come_whole_in_order_and_any_place_can_be_gone_on_from() {
        let folder = tempfile::tempdir().unwrap();
        let line = |n: usize| format!("line {n} {}\n", "x".repeat(n % 977)).into_bytes();
        let first: Vec<u8> = (0..3000).flat_map(line).collect();
        let mut last: Vec<u8> = (3000..4000).flat_map(line).collect();
        last.pop(); // no line end at the end
        // Two gzip streams in one file, as `cat a.gz b.gz` makes it.
        let mut packed = gzip(&first);
        packed.extend(gzip(&first));
        let paths = files(folder.path(), &[first.clone(), packed, Vec::new(), last.clone()]);
        let input = Input::Files(paths);
        let (text, ends, _) = drain(&mut Lines::new(input.clone(), Position::default()));
        let wanted = [first.clone(), first.clone(), first, last].concat();
        assert!(text == wanted);
        for position in ends {
            let (rest, _, _) = drain(&mut Lines::new(input.clone(), position));
            assert!(wanted.ends_with(&rest), "{position:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_dropped_and_what_follows_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = b"first\n".to_vec();
        text.extend(vec![b'a'; LONGEST_LINE * 2]);
        text.extend(b"\nlast\n");
        let input = Input::Files(files(folder.path(), &[text]));
        let mut lines = Lines::new(input, Position::default());
        let (kept, _, long) = drain(&mut lines);
        assert_eq!(kept, b"first\nlast\n");
        assert_eq!(long, [6]);
    }

    #[test]
    fn damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut packed = gzip(&[b'a'; 100_000]);
        packed.truncate(packed.len() / 2);
        let paths = files(folder.path(), &[packed]);
        let mut lines = Lines::new(Input::Files(paths.clone()), Position::default());
        let error = lines.next(&mut Block::default()).unwrap_err().to_string();
        assert!(error.contains(paths[0].to_str().unwrap()), "{error}");
        let beyond = Position { offset: 1 << 40, ..Position::default() };
        let paths = files(folder.path(), &[b"a\n".to_vec()]);
        assert!(Lines::new(Input::Files(paths), beyond).next(&mut Block::default()).is_err());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_whatever_the_lines(lengths in proptest::collection::vec(0_usize..200_000, 0..12)) {
            let folder = tempfile::tempdir().unwrap();
            let text: Vec<u8> =
                lengths.iter().flat_map(|&n| [vec![b'y'; n], vec![b'\n']].concat()).collect();
            let input = Input::Files(files(folder.path(), std::slice::from_ref(&text)));
            let mut lines = Lines::new(input, Position::default());
            let mut block = Block::default();
            let mut found = Vec::new();
            while lines.next(&mut block).unwrap() == Next::Block {
                prop_assert_eq!(block.start.offset, found.len() as u64);
                prop_assert!(block.text.ends_with(b"\n"));
                found.extend_from_slice(&block.text);
            }
            prop_assert!(found == text);
        }
    }
}
