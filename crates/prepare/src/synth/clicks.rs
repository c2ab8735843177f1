//! A click log with a hidden linear truth, so that the best possible loss is known.
//!
//! Label, 13 integers and 26 hexadecimal categories, as in Criteo's logs. Cardinalities run from 3 to
//! 2 million, values within a column follow a power law, every value has a hidden weight (a hash of
//! column and value), and the label is drawn with the probability that the weights give. No
//! model can get below the loss of those probabilities.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::mpsc,
};

use super::SynthError;
use paceline_data::{
    rows::formats::clicks::{CATEGORIES, INTEGERS, write_row},
    synth::Random,
};
use paceline_stats::random::{STEP, scramble};
use paceline_store::durable::AtomicFile;

/// Values of each categorical column: a geometric sequence, shuffled once.
const CARDINALITIES: [u64; CATEGORIES] = [
    80_037, 25, 640, 1095, 2_000_000, 8, 1_169_697, 74, 16_011, 684_096, 14, 233_993, 219, 3,
    136_851, 1873, 46_809, 3202, 128, 43, 27_376, 5476, 400_092, 374, 5, 9364,
];
/// Rows drawn at a time.
const CHUNK: u64 = 4096;

/// What to draw.
#[derive(Debug, Clone)]
pub struct ClicksOptions {
    pub rows: u64,
    /// Decides every row; the hidden weights are the same for all seeds, so that files of different
    /// seeds are training and test data of one world.
    pub seed: u64,
    /// Also write the same rows in Vowpal Wabbit's format to this file.
    pub vw: Option<PathBuf>,
    /// Threads to draw on.
    pub threads: usize,
}

/// What was drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClicksWritten {
    pub rows: u64,
    /// Rows with label 1.
    pub positive: u64,
    /// Mean log loss of the true probabilities, in nats: no model can predict these labels better.
    pub best_loss: f64,
    /// Mean log loss of always predicting the mean: what knowing nothing costs.
    pub constant_loss: f64,
}

#[derive(Default)]
struct Chunk {
    text: Vec<u8>,
    vw: Vec<u8>,
    loss: f64,
    positive: u64,
    rows: u64,
}

/// Writes a click log to `path`, which appears when it is whole.
///
/// # Errors
/// A file that cannot be written.
pub fn write_clicks(
    path: &Path,
    options: &ClicksOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ClicksWritten, SynthError> {
    let mut outputs = vec![Output::create(path)?];
    if let Some(vw) = &options.vw {
        outputs.push(Output::create(vw)?);
    }
    let chunks = options.rows.div_ceil(CHUNK);
    let threads = options.threads.clamp(1, 64) as u64;
    let mut written = ClicksWritten::default();
    let mut loss = 0.0;
    std::thread::scope(|scope| {
        // Every thread draws each n-th chunk into a queue of its own; taking from the queues in turn
        // restores the order.
        let queues: Vec<mpsc::Receiver<Chunk>> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = mpsc::sync_channel(4);
                scope.spawn(move || {
                    for number in (thread..chunks).step_by(threads as usize) {
                        let rows = number * CHUNK..((number + 1) * CHUNK).min(options.rows);
                        if sender.send(draw(rows, options)).is_err() {
                            return; // the writer gave up
                        }
                    }
                });
                receiver
            })
            .collect();
        for number in 0..chunks {
            let queue = &queues[(number % threads) as usize];
            let chunk = queue.recv().expect("each thread draws all of its chunks");
            for (output, text) in outputs.iter_mut().zip([&chunk.text, &chunk.vw]) {
                output.write(text)?;
            }
            loss += chunk.loss;
            written.positive += chunk.positive;
            written.rows += chunk.rows;
            progress(written.rows);
        }
        Ok::<(), SynthError>(())
    })?;
    for output in outputs {
        output.finish()?;
    }
    let rows = written.rows.max(1) as f64;
    let share = written.positive as f64 / rows;
    written.best_loss = loss / rows;
    written.constant_loss =
        [share, 1.0 - share].iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
    Ok(written)
}

/// A file that appears when it is whole.
struct Output {
    path: PathBuf,
    file: BufWriter<AtomicFile>,
}

impl Output {
    fn create(path: &Path) -> Result<Self, SynthError> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(SynthError::write(parent))?;
        }
        let file = AtomicFile::create(path).map_err(SynthError::write(path))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 20, file) })
    }

    fn write(&mut self, text: &[u8]) -> Result<(), SynthError> {
        self.file.write_all(text).map_err(SynthError::write(&self.path))
    }

    fn finish(self) -> Result<(), SynthError> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(AtomicFile::commit).map_err(SynthError::write(&self.path))
    }
}

fn draw(rows: std::ops::Range<u64>, options: &ClicksOptions) -> Chunk {
    let mut chunk = Chunk { rows: rows.end - rows.start, ..Chunk::default() };
    for number in rows {
        draw_row(&mut Random::new(options.seed, number), options.vw.is_some(), &mut chunk);
    }
    chunk
}

/// From `low` at the first of `count` columns to `high` at the last.
fn between(low: f64, high: f64, column: usize, count: usize) -> f64 {
    low + (high - low) * column as f64 / (count - 1) as f64
}

fn draw_row(random: &mut Random, vw: bool, chunk: &mut Chunk) {
    let mut uniform = || (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut categories = [None; CATEGORIES];
    let mut score = 0.0;
    for (column, category) in categories.iter_mut().enumerate() {
        let spread = ((CARDINALITIES[column] + 1) as f64).ln();
        let rank = (uniform().powf(1.2) * spread).exp().floor() as u64;
        let key = scramble(rank + ((column as u64 + 1) << 40));
        if uniform() >= between(0.0, 0.4, column, CATEGORIES).powi(2) {
            *category = Some((key >> 32) as u32);
            score += 0.28 * hidden_weight(key);
        }
    }
    let mut integers = [None; INTEGERS];
    for (column, integer) in integers.iter_mut().enumerate() {
        // Box and Muller's normal; the sum of uniforms used elsewhere has no tails.
        let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), uniform());
        let normal = radius * (std::f64::consts::TAU * angle).cos();
        let value = (normal * 1.5 + between(0.0, 5.0, column, INTEGERS)).exp().floor();
        if uniform() >= between(0.0, 0.45, column, INTEGERS) {
            *integer = Some(value as i64);
            let centred = value.ln_1p() - between(0.9, 5.0, column, INTEGERS);
            score += 0.06 * centred * between(-1.0, 1.0, column, INTEGERS);
        }
    }
    let probability = 1.0 / (1.0 + (1.45 - score).exp());
    let label = uniform() < probability;
    chunk.loss -= if label { probability } else { 1.0 - probability }.ln();
    chunk.positive += u64::from(label);
    write_row(&mut chunk.text, label, &integers, &categories);
    chunk.text.push(b'\n');
    if vw {
        write_vw(&mut chunk.vw, label, &integers, &categories);
    }
}

/// The same row for Vowpal Wabbit: integers as the category of their number of binary digits.
fn write_vw(
    out: &mut Vec<u8>,
    label: bool,
    integers: &[Option<i64>; INTEGERS],
    categories: &[Option<u32>; CATEGORIES],
) {
    let mut text = String::from(if label { "1 |" } else { "-1 |" });
    for (column, value) in integers.iter().enumerate().filter_map(|(at, v)| Some((at, (*v)?))) {
        text.push_str(&format!(" i{column}={}", 64 - value.unsigned_abs().leading_zeros()));
    }
    for (column, value) in categories.iter().enumerate().filter_map(|(at, v)| Some((at, (*v)?))) {
        text.push_str(&format!(" c{column}={value:08x}"));
    }
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// A weight that follows from the value alone: mean 0, standard deviation 1, a sum of four uniforms.
fn hidden_weight(key: u64) -> f64 {
    let part = |number: u64| {
        let bits = scramble(key.wrapping_add(number.wrapping_mul(STEP)));
        (bits >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    (0..4).map(part).sum::<f64>() * 3_f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_data::rows::{Hashing, Parser, formats};

    fn options(rows: u64, seed: u64, threads: usize) -> ClicksOptions {
        ClicksOptions { rows, seed, vw: None, threads }
    }

    #[test]
    fn rows_follow_from_seed_and_number_whatever_the_threads() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, rows, seed, threads| {
            let path = folder.path().join(name);
            write_clicks(&path, &options(rows, seed, threads), &|_| ()).unwrap();
            fs::read(path).unwrap()
        };
        let one = write("a", 10_000, 1, 1);
        assert!(one == write("b", 10_000, 1, 3));
        assert!(one.starts_with(&write("c", 5_000, 1, 2)), "more rows only add to the end");
        assert!(one != write("d", 10_000, 2, 1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "no temporary file is left");
    }

    #[test]
    fn the_log_is_one_that_the_parsers_take_and_that_can_be_learned() {
        let folder = tempfile::tempdir().unwrap();
        let (path, vw) = (folder.path().join("a.tsv"), folder.path().join("a.vw"));
        let options = ClicksOptions { vw: Some(vw.clone()), ..options(20_000, 1, 2) };
        let written = write_clicks(&path, &options, &|_| ()).unwrap();
        let share = written.positive as f64 / written.rows as f64;
        assert!((0.19..0.24).contains(&share), "{share}");
        assert!((0.40..0.43).contains(&written.best_loss), "{}", written.best_loss);
        assert!(written.constant_loss > written.best_loss + 0.08, "{written:?}");
        for (path, format, features) in [
            (&path, &formats::clicks::ENTRY, 620_000..700_000),
            (&vw, &formats::vw::ENTRY, 620_000..700_000),
        ] {
            let text = fs::read(path).unwrap();
            assert_eq!(formats::detect(path, &text).unwrap().name, format.name);
            let mut parser = Parser::new(format, Hashing::default());
            parser.parse(&text);
            assert_eq!((parser.batch.len(), parser.refused.len()), (20_000, 0));
            assert_eq!(u64::from(parser.batch.labels.iter().sum::<u32>()), written.positive);
            let paceline_batch::Features::Sparse { indices, .. } = &parser.batch.features else {
                panic!()
            };
            assert!(features.contains(&indices.len()), "{}", indices.len());
        }
    }

    #[test]
    fn nothing_is_left_where_writing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_clicks(Path::new("/dev/null/x"), &options(1, 1, 1), &|_| ()).unwrap_err();
        assert!(error.to_string().contains("/dev/null"), "{error}");
        let bad = ClicksOptions { vw: Some("/dev/null/x".into()), ..options(1, 1, 1) };
        assert!(write_clicks(&folder.path().join("a"), &bad, &|_| ()).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
