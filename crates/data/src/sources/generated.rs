//! Examples computed when they are asked for: no files, no download, any size.
//!
//! Written as `generated:digits?examples=1000&seed=1` or
//! `generated:images?size=224&classes=10&examples=1000`.

use std::sync::Arc;

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};

use crate::{
    DataError,
    source::{OpenOptions, Scratch, Source, Split},
    sources::SourceKind,
    synth,
};

/// This kind of data set.
pub const ENTRY: SourceKind = SourceKind {
    name: "generated",
    about: "digits or striped colour images, drawn by the program on the fly",
    looks_for: "generated: `generated:digits?examples=1000&seed=1` or `generated:images?size=224&classes=10`",
    holds: "generated examples",
    recognises: |path| path.to_str().is_some_and(|text| text.starts_with(PREFIX)),
    opens: |path, split, _: &OpenOptions| {
        Ok(Arc::new(Generated::parse(&path.to_string_lossy(), split)?))
    },
};

const PREFIX: &str = "generated:";

/// Larger images are a slip of the keyboard.
const LARGEST_SIDE: u64 = 4096;

/// A generated set.
#[derive(Debug)]
pub struct Generated {
    schema: Schema,
    kind: Kind,
    seed: u64,
    /// Splits are ranges of one endless sequence, so they share classes but no example.
    first: u64,
    examples: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Digits,
    Images { side: usize, classes: u32 },
}

impl Generated {
    /// Opens a specification; `examples` counts the training split, the others get a sixth of it each
    /// (as in MNIST).
    ///
    /// # Errors
    /// Unknown or impossible settings.
    pub fn parse(spec: &str, split: Option<Split>) -> Result<Self, DataError> {
        let text = spec.strip_prefix(PREFIX).unwrap_or(spec);
        let (kind, settings) = text.split_once('?').unwrap_or((text, ""));
        let (mut examples, mut seed, mut side, mut classes) = (60_000, 1, 224, 10);
        let known = match kind {
            "digits" => "examples, seed",
            "images" => "examples, seed, size, classes",
            _ => {
                return Err(DataError::SpecValue {
                    key: "generated".to_owned(),
                    value: kind.to_owned(),
                    wanted: "`digits` or `images`",
                });
            }
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let (target, least, most, wanted): (&mut u64, _, _, _) = match (kind, key) {
                (_, "examples") => (&mut examples, 1, 1 << 40, "a number from 1"),
                (_, "seed") => (&mut seed, 0, u64::MAX, "a number"),
                ("images", "size") => (&mut side, 1, LARGEST_SIDE, "pixels from 1 to 4096"),
                ("images", "classes") => (&mut classes, 2, 100_000, "a number from 2 to 100000"),
                _ => return Err(DataError::SpecKey { key: key.to_owned(), known }),
            };
            *target =
                value.parse().ok().filter(|number| (least..=most).contains(number)).ok_or_else(
                    || DataError::SpecValue {
                        key: key.to_owned(),
                        value: value.to_owned(),
                        wanted,
                    },
                )?;
        }
        let side_pixels = usize::try_from(side).unwrap_or(usize::MAX);
        let (kind, shape, classes) = if kind == "digits" {
            let side = synth::digits::SIDE;
            (Kind::Digits, ImageShape { height: side, width: side, channels: 1 }, 10)
        } else {
            let shape = ImageShape { height: side_pixels, width: side_pixels, channels: 3 };
            let classes = u32::try_from(classes).unwrap_or(u32::MAX);
            (Kind::Images { side: side_pixels, classes }, shape, classes)
        };
        let held_out = examples.div_ceil(6);
        let (first, examples) = match split {
            None | Some(Split::Train) => (0, examples),
            Some(Split::Test) => (examples, held_out),
            Some(Split::Validation) => (examples + held_out, held_out),
        };
        let schema = Schema {
            features: FeatureKind::Image(shape),
            labels: LabelKind::Classes { names: (0..classes).map(|c| c.to_string()).collect() },
        };
        Ok(Self { schema, kind, seed, first, examples })
    }
}

impl Source for Generated {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.examples
    }

    fn read(&self, index: u64, _: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let example = self.first + index;
        Ok(match self.kind {
            Kind::Digits => synth::digits::draw(self.seed, example, pixels),
            Kind::Images { side, classes } => {
                synth::images::draw(self.seed, example, side, classes, pixels)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_share_classes_but_no_example() {
        let spec = "generated:images?size=8&classes=3&examples=12&seed=5";
        let read = |split| {
            let source = Generated::parse(spec, Some(split)).unwrap();
            (0..source.len())
                .map(|index| {
                    let mut pixels = vec![0; 8 * 8 * 3];
                    source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
                    pixels
                })
                .collect::<Vec<_>>()
        };
        let (train, test, validation) =
            (read(Split::Train), read(Split::Test), read(Split::Validation));
        assert_eq!((train.len(), test.len(), validation.len()), (12, 2, 2));
        assert!(test.iter().chain(&validation).all(|image| !train.contains(image)));
        assert_ne!(test, validation);
    }

    #[test]
    fn mistyped_settings_are_refused_by_name() {
        for (spec, told) in [
            ("generated:digit", "digits"),
            ("generated:digits?exampels=3", "exampels"),
            ("generated:digits?size=3", "size"),
            ("generated:digits?examples=0", "from 1"),
            ("generated:digits?examples=many", "many"),
            ("generated:images?size=99999", "4096"),
            ("generated:images?classes", "classes"),
        ] {
            let message = Generated::parse(spec, None).unwrap_err().to_string();
            assert!(message.contains(told), "{spec}: {message}");
        }
    }
}
