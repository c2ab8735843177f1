//! Drawn digits in MNIST's own file layout.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
    thread,
};

use flate2::{Compression, GzBuilder};
use paceline_data::synth::digits::{PIXELS, SIDE, draw};
use paceline_store::durable::AtomicFile;
use serde::{Deserialize, Serialize};

use super::SynthError;

/// How many digits to write, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigitsOptions {
    /// Digits for training.
    pub train: u32,
    /// Digits for testing; none of them is among the training digits.
    pub test: u32,
    /// Decides every pixel.
    pub seed: u64,
    /// Whether the files are gzipped, as MNIST's are.
    pub gzip: bool,
    /// Threads to draw on; the files do not depend on it.
    pub threads: usize,
}

impl Default for DigitsOptions {
    fn default() -> Self {
        let threads = paceline_batch::cores().count;
        Self { train: 60_000, test: 10_000, seed: 1, gzip: false, threads }
    }
}

/// Draws digits and writes MNIST's four files into `folder`; each appears whole or not at all.
///
/// `progress` hears the number of digits drawn so far.
///
/// # Errors
/// A folder or file that cannot be written.
pub fn write_digits(
    folder: &Path,
    options: &DigitsOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), SynthError> {
    fs::create_dir_all(folder).map_err(SynthError::write(folder))?;
    let mut done = 0;
    for (name, first, count) in
        [("train", 0, options.train), ("t10k", u64::from(options.train), options.test)]
    {
        let (pixels, labels) = draw_many(first, count, options, done, progress);
        done += u64::from(count);
        let side = SIDE as u32;
        let images = folder.join(format!("{name}-images-idx3-ubyte"));
        write_idx(&images, &[count, side, side], &pixels, options.gzip)?;
        let digits = folder.join(format!("{name}-labels-idx1-ubyte"));
        write_idx(&digits, &[count], &labels, options.gzip)?;
    }
    Ok(())
}

fn draw_many(
    first: u64,
    count: u32,
    options: &DigitsOptions,
    before: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> (Vec<u8>, Vec<u8>) {
    let mut pixels = vec![0; count as usize * PIXELS];
    let mut labels = vec![0; count as usize];
    let drawn = std::sync::atomic::AtomicU64::new(before);
    // Pieces small enough for a smooth progress bar; thread `t` takes every `threads`-th of them.
    let mut pieces: Vec<Vec<_>> = (0..options.threads.max(1)).map(|_| Vec::new()).collect();
    let piece = 500;
    for (number, work) in
        pixels.chunks_mut(piece * PIXELS).zip(labels.chunks_mut(piece)).enumerate()
    {
        let thread = number % pieces.len();
        pieces[thread].push((first + (number * piece) as u64, work));
    }
    thread::scope(|scope| {
        for work in pieces {
            scope.spawn(|| {
                for (start, (pixels, labels)) in work {
                    let slots = pixels.chunks_exact_mut(PIXELS).zip(labels.iter_mut());
                    for (example, (slot, label)) in (start..).zip(slots) {
                        *label = draw(options.seed, example, slot) as u8;
                    }
                    let more = labels.len() as u64;
                    let sum = drawn.fetch_add(more, std::sync::atomic::Ordering::Relaxed) + more;
                    progress(sum);
                }
            });
        }
    });
    (pixels, labels)
}

/// Writes an IDX file of bytes, whole or not at all.
fn write_idx(path: &Path, sizes: &[u32], contents: &[u8], gzip: bool) -> Result<(), SynthError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = if gzip { path.with_file_name(format!("{name}.gz")) } else { path.to_owned() };
    let write = || -> io::Result<()> {
        let file = AtomicFile::create(&path)?;
        let mut header = (0x0800 | sizes.len() as u32).to_be_bytes().to_vec();
        sizes.iter().for_each(|size| header.extend(size.to_be_bytes()));
        let file = if gzip {
            // No name and no time inside, so that equal digits make equal files.
            let mut gz = GzBuilder::new().write(BufWriter::new(file), Compression::new(6));
            gz.write_all(&header)?;
            gz.write_all(contents)?;
            gz.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?
        } else {
            let mut file = file;
            file.write_all(&header)?;
            file.write_all(contents)?;
            file
        };
        file.commit()
    };
    write().map_err(|source| SynthError::Write { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_data::{OpenOptions, Scratch, Split, open_split};

    #[test]
    fn files_do_not_depend_on_the_number_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, threads, gzip| {
            let folder = folder.path().join(name);
            let options = DigitsOptions { train: 1201, test: 77, seed: 9, gzip, threads };
            write_digits(&folder, &options, &|_| {}).unwrap();
            let mut files: Vec<_> = fs::read_dir(folder)
                .unwrap()
                .map(|file| file.unwrap().path())
                .map(|path| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap()))
                .collect();
            files.sort();
            files
        };
        let alone = read("one", 1, false);
        assert_eq!(alone.len(), 4);
        assert_eq!(alone, read("five", 5, false));
        assert_eq!(read("gzip", 2, true), read("gzip again", 3, true));
    }

    #[test]
    fn written_digits_are_the_generated_ones() {
        let folder = tempfile::tempdir().unwrap();
        let options = DigitsOptions { train: 40, test: 7, seed: 3, gzip: true, threads: 2 };
        write_digits(folder.path(), &options, &|_| {}).unwrap();
        let test = open_split(folder.path(), Split::Test, &OpenOptions::default()).unwrap();
        assert_eq!(test.len(), 7);
        let (mut stored, mut drawn) = ([0; PIXELS], [0; PIXELS]);
        for index in 0..7 {
            let label = test.read(index, &mut Scratch::default(), &mut stored).unwrap();
            assert_eq!(label, draw(3, 40 + index, &mut drawn));
            assert_eq!(stored, drawn);
        }
    }

    #[test]
    fn an_unwritable_folder_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = file.path().join("below");
        let error = write_digits(&folder, &DigitsOptions::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("below"), "{error}");
    }
}
