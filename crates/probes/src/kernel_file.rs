//! A small file of kernel counters that is read repeatedly.
//!
//! It stays open: opening, sizing and closing it costs more than reading, and while a model trains on all cores every
//! reading takes time from one of them.

use std::{fs::File, os::unix::fs::FileExt, path::PathBuf};

/// First guess at a file's length; all but those of large machines are shorter.
const LENGTH: usize = 4096;
/// Readings to skip before looking for a missing file again: many machines have no control groups.
const REST: u32 = 15;

/// Open from the first reading on.
#[derive(Debug, Default)]
pub(crate) struct KernelFile {
    path: PathBuf,
    file: Option<File>,
    /// Readings until it is looked for.
    rest: u32,
}

impl KernelFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: 0 }
    }

    /// Reads all of it as it is now; false, and nothing, where that is not possible. A file that is gone may come back.
    pub(crate) fn read(&mut self, text: &mut String) -> bool {
        text.clear();
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        let kept = self.file.is_some();
        if !kept {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &self.file else {
            self.rest = REST;
            return false;
        };
        let mut bytes = std::mem::take(text).into_bytes();
        let read = read_all(file, &mut bytes);
        let whole = read.then(|| String::from_utf8(bytes).ok()).flatten();
        if let Some(whole) = whole {
            *text = whole;
            return true;
        }
        self.file = None;
        // What it showed has ended, and another process may have its number by now.
        kept && self.read(text)
    }

    /// Closes the file until the next reading.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }
}

fn read_all(file: &File, bytes: &mut Vec<u8>) -> bool {
    let mut length = 0;
    loop {
        if bytes.len() < length + LENGTH / 2 {
            bytes.resize(length + LENGTH, 0);
        }
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => {
                bytes.truncate(length);
                return true;
            }
            Ok(count) => length += count,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_what_is_in_it_now_however_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        let mut file = KernelFile::new(path.clone());
        let mut text = String::from("before");
        assert!(!file.read(&mut text) && text.is_empty());
        std::fs::write(&path, "late").unwrap();
        assert!((0..=REST).any(|_| file.read(&mut text)) && text == "late");
        for content in ["a few words".to_owned(), "line\n".repeat(5000), String::new()] {
            std::fs::write(&path, &content).unwrap();
            assert!(file.read(&mut text));
            assert_eq!(text, content);
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(!file.read(&mut text) && text.is_empty());
    }

    #[test]
    fn a_process_that_ended_has_nothing_to_show() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut file = KernelFile::new(format!("/proc/{}/stat", child.id()).into());
        let mut text = String::new();
        assert!(file.read(&mut text) && text.contains("sleep"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!file.read(&mut text) && text.is_empty());
    }
}
