//! What the tests of `prepare` share: photos, snapshots of folders, and a store that fails on demand.
#![allow(dead_code, unreachable_pub)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // test code outside of `#[test]` functions

use std::{
    collections::BTreeMap,
    io::{self, Write},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use paceline_photo::{Colour, Encoder, Encoding, Pixels};
use paceline_prepare::photos::{PhotoOptions, PrepareError, Summary, prepare};
use paceline_store::{IfExists, Listing, LocalStore, Lock, Object, Result, Store, Upload};

/// A photo that no other number gives: a tilted wave with noise, so that it neither vanishes nor takes long.
pub fn photo(number: u32, width: u32, height: u32) -> Vec<u8> {
    let mut state = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 58) as u8
    };
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let wave = ((x * (1 + number % 5) + y * (1 + number % 7)) % 200) as u8;
            data.extend([wave + noise() / 2, 255 - wave, (number % 251) as u8]);
        }
    }
    let pixels = Pixels::from_data(width, height, Colour::Rgb, data).unwrap();
    let mut bytes = Vec::new();
    let quality = 85;
    Encoder::new().encode_into(&pixels, Encoding::Jpeg { quality }, &mut bytes).unwrap();
    bytes
}

/// `count` photos in three classes; every `bad`-th is broken in one of several ways.
pub fn photos(root: &Path, count: u32, bad: u32) {
    for number in 0..count {
        let class = root.join(["daisy", "rose", "tulip"][number as usize % 3]);
        std::fs::create_dir_all(&class).unwrap();
        let mut bytes = photo(number, 48 + number % 33, 40 + number % 29);
        if bad > 0 && number % bad == bad - 1 {
            match (number / bad) % 3 {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.clear(),
                _ => bytes = b"GIF89a, or so it says".to_vec(),
            }
        }
        std::fs::write(class.join(format!("{number:04}.jpg")), bytes).unwrap();
    }
}

/// Small output, two splits.
pub fn options() -> PhotoOptions {
    let splits =
        vec![paceline_prepare::photos::SplitShare { name: "validation".into(), share: 0.2 }];
    PhotoOptions { width: 32, height: 32, shards: 5, seed: 11, splits, ..PhotoOptions::default() }
}

pub fn run(
    src: &Path,
    dst: &Path,
    options: &PhotoOptions,
) -> std::result::Result<Summary, PrepareError> {
    let (src, dst) = (LocalStore::new(src), LocalStore::new(dst));
    prepare(&src, &dst, options, &AtomicBool::new(false), &mut |_| {})
}

/// Every file below `root` with its bytes.
pub fn snapshot(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Compares without printing megabytes.
pub fn assert_same(
    left: &BTreeMap<String, Vec<u8>>,
    right: &BTreeMap<String, Vec<u8>>,
    what: &str,
) {
    let names = |side: &BTreeMap<String, Vec<u8>>| side.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right), "{what}");
    for (name, bytes) in left {
        assert!(*bytes == right[name], "{what}: `{name}` differs");
    }
}

/// How a failing store fails.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The disk is full.
    Full,
    /// The disk is broken.
    Broken,
}

impl Fault {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Full => libc::ENOSPC,
            Self::Broken => libc::EIO,
        })
    }
}

/// A local store whose `at`-th write operation (write, create or commit, from 0) and all later ones fail.
#[derive(Debug)]
pub struct FailingStore {
    inner: LocalStore,
    fault: Fault,
    left: Arc<AtomicU64>,
}

impl FailingStore {
    pub fn new(root: &Path, fault: Fault, at: u64) -> Self {
        Self { inner: LocalStore::new(root), fault, left: Arc::new(AtomicU64::new(at)) }
    }
}

fn spend(left: &AtomicU64, fault: Fault) -> io::Result<()> {
    let spent = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    spent.map(drop).map_err(|_| fault.error())
}

impl Store for FailingStore {
    fn locate(&self, key: &str) -> String {
        self.inner.locate(key)
    }
    fn size(&self, key: &str) -> Result<Option<u64>> {
        self.inner.size(key)
    }
    fn read_into(&self, key: &str, limit: u64, into: &mut Vec<u8>) -> Result<()> {
        self.inner.read_into(key, limit, into)
    }
    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.inner.read_range(key, range)
    }
    fn find(&self, key: &str) -> Result<Arc<dyn Object>> {
        self.inner.find(key)
    }
    fn list(&self, folder: &str) -> Result<Listing> {
        self.inner.list(folder)
    }
    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn Upload>> {
        spend(&self.left, self.fault).map_err(|source| io_error(self.locate(key), source))?;
        let inner = self.inner.create(key, if_exists)?;
        let (left, fault) = (Arc::clone(&self.left), self.fault);
        Ok(Box::new(FailingUpload { inner, left, fault, location: self.locate(key) }))
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.inner.remove(key)
    }
    fn remove_folder(&self, folder: &str) -> Result<()> {
        self.inner.remove_folder(folder)
    }
    fn sweep(&self, folder: &str) -> Result<usize> {
        self.inner.sweep(folder)
    }
    fn lock(&self, key: &str) -> Result<Box<dyn Lock>> {
        self.inner.lock(key)
    }
    fn free_space(&self) -> Option<u64> {
        None
    }
}

struct FailingUpload {
    inner: Box<dyn Upload>,
    left: Arc<AtomicU64>,
    fault: Fault,
    location: String,
}

impl Write for FailingUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        spend(&self.left, self.fault)?;
        self.inner.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Upload for FailingUpload {
    fn commit(self: Box<Self>) -> Result<()> {
        spend(&self.left, self.fault).map_err(|source| io_error(self.location.clone(), source))?;
        self.inner.commit()
    }
}

fn io_error(location: String, source: io::Error) -> paceline_data::store::StoreError {
    paceline_data::store::StoreError::Io { action: "write", location, source }
}
