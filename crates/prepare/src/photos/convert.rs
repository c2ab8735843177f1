//! One photo → one record, or the reason why not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use paceline_photo::{DecodeOptions, Decoder, Encoder, Encoding, PhotoError, Pixels};
use paceline_tfrecord::{Example, Feature};

use super::{PhotoOptions, memory::Budget};
use paceline_data::{
    catalogue::Catalogue,
    rejects::{Reject, is_failure_of, read_reason},
};
use paceline_store::{Store, StoreError};

/// Scratch memory beyond this is given back after the photo that needed it. Bytes.
const KEEP: u64 = 16 << 20;

/// A photo after conversion.
#[derive(Debug)]
pub(super) struct Photo {
    /// Bytes of its file.
    pub(super) bytes: u64,
    /// The encoded example, or why there is none.
    pub(super) outcome: Result<Vec<u8>, Reject>,
    /// The source failed, not this photo: the whole must stop, or a store that was away for a minute
    /// would have cost all photos of that minute.
    pub(super) failure: Option<StoreError>,
}

/// What one thread needs to convert photos.
pub(super) struct Converter<'a> {
    options: &'a PhotoOptions,
    decode: DecodeOptions,
    src: &'a dyn Store,
    files: &'a Budget,
    pixels: &'a Budget,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    file: Vec<u8>,
    decoder: Decoder,
    pixels: Pixels,
    encoder: Encoder,
    encoded: Vec<u8>,
}

/// Why a photo is rejected; its words go into the list of rejects.
enum Reason {
    Read(StoreError),
    Photo(PhotoError),
    Memory { needed: u64, limit: u64 },
    Panic,
}

impl<'a> Converter<'a> {
    pub(super) fn new(
        options: &'a PhotoOptions,
        src: &'a dyn Store,
        files: &'a Budget,
        pixels: &'a Budget,
    ) -> Self {
        let decode = options.decode();
        Self { options, decode, src, files, pixels, scratch: Scratch::default() }
    }

    /// Never fails and never panics: a photo that cannot be used is the photo's fault.
    pub(super) fn convert(&mut self, catalogue: &Catalogue, photo: usize) -> Photo {
        let path = catalogue.path(photo);
        let bytes = catalogue.size(photo);
        let label = catalogue.label(photo);
        let class = &catalogue.classes[label];
        let outcome = catch_unwind(AssertUnwindSafe(|| self.record(&path, bytes, label, class)));
        let outcome = outcome.unwrap_or_else(|_| {
            self.scratch = Scratch::default(); // may be half-changed
            Err(Reason::Panic)
        });
        if self.scratch.file.capacity() as u64 > KEEP {
            self.scratch.file = Vec::new();
        }
        let (outcome, failure) = match outcome {
            Ok(record) => (Ok(record), None),
            Err(reason) => {
                let reject = Reject { path, reason: words(&reason) };
                (Err(reject), self.failure(reason))
            }
        };
        Photo { bytes, outcome, failure }
    }

    /// The failure, where the reason lies in the store rather than in the photo.
    fn failure(&self, reason: Reason) -> Option<StoreError> {
        match reason {
            Reason::Read(error) if is_failure_of(self.src, &error) => Some(error),
            _ => None,
        }
    }

    fn record(
        &mut self,
        path: &str,
        size: u64,
        label: usize,
        class: &str,
    ) -> Result<Vec<u8>, Reason> {
        // Files first, then pixels, in every thread: the order that rules out waiting in a circle.
        let _file = self.files.take(size);
        let Scratch { file, decoder, pixels, encoder, encoded } = &mut self.scratch;
        file.clear();
        self.src.read_into(path, self.files.total(), file).map_err(Reason::Read)?;
        let target = (self.options.width, self.options.height);
        let needed = decoder.fitted_memory(file, &self.decode, target, self.options.fit);
        let needed = needed.map_err(Reason::Photo)?;
        let limit = self.pixels.total();
        if needed > limit {
            return Err(Reason::Memory { needed, limit });
        }
        let share = self.pixels.take(needed);
        let decoded = decoder.decode_fitted(file, &self.decode, target, self.options.fit, pixels);
        encoded.clear();
        let result =
            decoded.and_then(|()| encoder.encode_into(pixels, self.options.encoding, encoded));
        if needed > KEEP {
            (*decoder, *pixels) = Default::default();
        }
        drop(share);
        result.map_err(Reason::Photo).map(|()| self.example(path, label, class))
    }

    /// The fields that TensorFlow's own image pipelines agree on.
    fn example(&self, path: &str, label: usize, class: &str) -> Vec<u8> {
        let format = match self.options.encoding {
            Encoding::Jpeg { .. } => "jpeg",
            Encoding::Png => "png",
            Encoding::Raw => "raw",
        };
        let text = |text: &str| Feature::bytes([text.as_bytes()]);
        let number = |number: u32| Feature::ints([i64::from(number)]);
        Example::new()
            .with("image/encoded", Feature::bytes([self.scratch.encoded.as_slice()]))
            .with("image/format", text(format))
            .with("image/height", number(self.options.height))
            .with("image/width", number(self.options.width))
            .with("image/colorspace", text("RGB"))
            .with("image/channels", number(3))
            .with("image/filename", text(path))
            .with("image/class/label", Feature::ints([label as i64]))
            .with("image/class/text", text(class))
            .to_bytes()
    }
}

fn words(reason: &Reason) -> String {
    match reason {
        Reason::Read(error) => read_reason(error),
        Reason::Photo(error) => error.to_string(),
        Reason::Memory { needed, limit } => {
            format!("decoding takes {needed} bytes of memory, more than the limit of {limit}")
        }
        Reason::Panic => "the decoder failed on it; please report this photo".into(),
    }
}
