//! A log that grows, and that another process may rename, replace or truncate in the meantime.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::lines::{Got, PATIENCE, Position};

/// Follows a path through rotations.
pub(super) struct Tail {
    path: PathBuf,
    file: Option<(File, u64)>,
    /// Bytes read of the present file.
    offset: u64,
    /// Where to begin, until the first file is open.
    resume: Option<Position>,
}

impl Tail {
    pub(super) fn new(path: PathBuf, from: Position) -> Self {
        Self { path, file: None, offset: 0, resume: Some(from) }
    }

    /// The present file's number in its file system.
    pub(super) fn inode(&self) -> Option<u64> {
        self.file.as_ref().map(|(_, inode)| *inode)
    }

    /// Bytes written but not read yet.
    pub(super) fn behind(&self) -> u64 {
        let length = self.file.as_ref().and_then(|(file, _)| file.metadata().ok());
        length.map_or(0, |metadata| metadata.len().saturating_sub(self.offset))
    }

    /// Reads what is new. `End` means that the present file will not grow: another has its name.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        if self.file.is_none() && !self.open()? {
            std::thread::sleep(PATIENCE);
            return Ok(Got::Idle);
        }
        let Some((file, inode)) = &mut self.file else { return Ok(Got::Idle) };
        let count = match file.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Got::Idle),
            other => other?,
        };
        if count > 0 {
            self.offset += count as u64;
            return Ok(Got::Bytes(count));
        }
        if file.metadata()?.len() < self.offset {
            // Emptied in place, as `copytruncate` does: its next byte is the first.
            file.seek(SeekFrom::Start(0))?;
            self.offset = 0;
            return Ok(Got::End);
        }
        match fs::metadata(&self.path) {
            Ok(now) if now.ino() == *inode => {}
            // Another file has the name. The writer may still have been writing to the old one when
            // we read its end, so once more before it is left.
            Ok(_) => {
                let last = file.read(into)?;
                self.offset += last as u64;
                if last > 0 {
                    return Ok(Got::Bytes(last));
                }
                self.file = None;
                self.resume = None;
                self.open()?;
                return Ok(Got::End);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(PATIENCE);
        Ok(Got::Idle)
    }

    /// Opens the path, or the file it meant when the position was taken.
    fn open(&mut self) -> io::Result<bool> {
        let mut path = self.path.clone();
        let mut offset = 0;
        if let Some(Position { inode: Some(inode), offset: at, .. }) = self.resume
            && let Some(old) = find(&self.path, inode)
        {
            (path, offset) = (old, at);
        } else if let Some(Position { inode: None, offset: at, .. }) = self.resume {
            offset = at;
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if metadata.len() < offset {
            offset = 0; // emptied since
        }
        file.seek(SeekFrom::Start(offset))?;
        self.offset = offset;
        self.file = Some((file, metadata.ino()));
        self.resume = None;
        Ok(true)
    }
}

/// The file of that number among those whose name begins with the path's: `x.log`, `x.log.1`.
fn find(path: &Path, inode: u64) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&name))
        .find(|entry| entry.metadata().is_ok_and(|metadata| metadata.ino() == inode))
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::super::lines::{Block, Lines, Next};
    use super::*;
    use crate::rows::Input;
    use std::io::Write;

    /// Reads until nothing has come for a while.
    fn now(lines: &mut Lines) -> (String, Option<Position>) {
        let (mut text, mut end, mut idle) = (String::new(), None, 0);
        let mut block = Block::default();
        while idle < 3 {
            match lines.next(&mut block).unwrap() {
                Next::Block => {
                    text.push_str(std::str::from_utf8(&block.text).unwrap());
                    end = Some(block.end);
                    idle = 0;
                }
                Next::Idle => idle += 1,
                Next::End => panic!("a log that is followed does not end"),
            }
        }
        (text, end)
    }

    fn append(path: &Path, text: &str) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn growth_half_lines_rotation_and_truncation_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let mut lines = Lines::new(Input::Follow(path.clone()), Position::default());
        assert_eq!(now(&mut lines).0, "", "the file may come later");
        append(&path, "one\ntw");
        assert_eq!(now(&mut lines).0, "one\n");
        append(&path, "o\n");
        assert_eq!(now(&mut lines).0, "two\n");
        append(&path, "three\n");
        fs::rename(&path, folder.path().join("x.log.1")).unwrap();
        append(&folder.path().join("x.log.1"), "late\n");
        append(&path, "four\n");
        assert_eq!(now(&mut lines).0, "three\nlate\nfour\n");
        fs::write(&path, "5\n").unwrap(); // truncated and rewritten, shorter than before
        assert_eq!(now(&mut lines).0, "5\n");
        assert_eq!(lines.behind(), Some(0));
        append(&path, "half");
        assert_eq!(now(&mut lines).0, "");
        assert_eq!(lines.behind(), Some(4));
    }

    #[test]
    fn a_place_survives_the_rotation_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        append(&path, "one\ntwo\n");
        let mut lines = Lines::new(Input::Follow(path.clone()), Position::default());
        let (_, end) = now(&mut lines);
        drop(lines);
        append(&path, "three\n");
        fs::rename(&path, folder.path().join("x.log.1")).unwrap();
        append(&path, "four\n");
        let mut lines = Lines::new(Input::Follow(path.clone()), end.unwrap());
        assert_eq!(now(&mut lines).0, "three\nfour\n");
    }
}
