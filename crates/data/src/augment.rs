//! Training images changed at random, so that a model does not learn them by heart.
//!
//! What becomes of an example follows from the seed, the epoch and the example's number alone: any number of workers and
//! threads sees the same images, and a resumed run continues with them. Held-out examples are never changed.

use std::{fmt, str::FromStr};

use paceline_batch::{Batch, Features, ImageShape};
use paceline_stats::random::{Random, STEP, scramble};
use serde::{Deserialize, Serialize};

use crate::Scratch;

/// What a random number is for, beside the order of examples.
const PURPOSE: u64 = 0xa063;

/// Which changes are made, and how strong they are at most; 0 leaves one out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Augment {
    /// Whether every second image is mirrored.
    pub flip: bool,
    /// Most of an image's side that is cut off; what is left is scaled up again.
    pub crop: f32,
    /// Most by which brightness, contrast and saturation change, as a share of themselves.
    pub color: f32,
    /// Most degrees by which an image is turned, to either side.
    pub rotate: f32,
}

/// Strengths where none are asked for.
const CROP: f32 = 0.2;
const COLOR: f32 = 0.2;
const ROTATE: f32 = 15.0;

/// A list of changes that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` is not one of flip, crop:SHARE, color:SHARE and rotate:DEGREES; {why}")]
pub struct UnknownAugment {
    /// The word at fault.
    pub part: String,
    /// What it may be.
    pub why: &'static str,
}

impl FromStr for Augment {
    type Err = UnknownAugment;

    fn from_str(text: &str) -> Result<Self, UnknownAugment> {
        let mut all = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = |why| UnknownAugment { part: part.to_owned(), why };
            let (name, strength) = match part.split_once(':') {
                Some((name, strength)) => (name, Some(strength)),
                None => (part, None),
            };
            let strength = |usual: f32, most: f32, why| match strength.map(str::parse::<f32>) {
                None => Ok(usual),
                Some(Ok(found)) if found > 0.0 && found <= most => Ok(found),
                Some(_) => Err(wrong(why)),
            };
            match name {
                "flip" if part == name => all.flip = true,
                "crop" => all.crop = strength(CROP, 0.9, "a crop is a share up to 0.9")?,
                "color" | "colour" => {
                    all.color = strength(COLOR, 1.0, "a change of colour is a share up to 1")?;
                }
                "rotate" => {
                    all.rotate = strength(ROTATE, 180.0, "a rotation is at most 180 degrees")?;
                }
                _ => return Err(wrong("several are separated by commas")),
            }
        }
        Ok(all)
    }
}

impl TryFrom<String> for Augment {
    type Error = UnknownAugment;

    fn try_from(text: String) -> Result<Self, UnknownAugment> {
        text.parse()
    }
}

impl From<Augment> for String {
    fn from(augment: Augment) -> Self {
        augment.to_string()
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.flip {
            parts.push("flip".to_owned());
        }
        for (name, strength) in
            [("crop", self.crop), ("color", self.color), ("rotate", self.rotate)]
        {
            if strength > 0.0 {
                parts.push(format!("{name}:{strength}"));
            }
        }
        f.write_str(&parts.join(","))
    }
}

/// Where a pixel of the changed image comes from: `source = origin + x * right + y * down`, in pixels.
struct Affine {
    origin: [f32; 2],
    right: [f32; 2],
    down: [f32; 2],
}

impl Augment {
    /// Changes one image. `copy` is memory to reuse.
    pub fn apply(
        &self,
        shape: ImageShape,
        (seed, epoch, example): (u64, u64, u64),
        copy: &mut Vec<u8>,
        pixels: &mut [u8],
    ) {
        // Each number stirred in by itself: neighbours in one of them have nothing in common.
        let key = scramble(scramble(seed.wrapping_add(STEP)) ^ epoch.wrapping_mul(STEP));
        let mut random = Random::new(scramble(key ^ example), PURPOSE);
        let mut unit = || (random.bits() >> 40) as f32 / (1u32 << 24) as f32;
        // All are drawn whatever is asked for, so that one change does not depend on another's being asked for.
        let [mirrored, cut, left, top, turn, light, contrast, saturation] =
            std::array::from_fn(|_| unit());
        let mirrored = self.flip && mirrored < 0.5;
        if self.crop > 0.0 || self.rotate > 0.0 {
            let window = (1.0 - self.crop * cut, left, top);
            let degrees = self.rotate * (2.0 * turn - 1.0);
            copy.clear();
            copy.extend_from_slice(pixels);
            resample(shape, &affine(shape, window, degrees, mirrored), copy, pixels);
        } else if mirrored {
            for row in pixels.chunks_exact_mut(shape.width * shape.channels) {
                mirror(row, shape.channels);
            }
        }
        if self.color > 0.0 {
            let factor = |unit: f32| 1.0 + self.color * (2.0 * unit - 1.0);
            recolour(shape.channels, factor(light), factor(contrast), factor(saturation), pixels);
        }
    }
}

impl Augment {
    /// Changes those images of a batch that were added after the first `before`; their numbers begin `examples`.
    pub fn apply_all(
        &self,
        shape: ImageShape,
        (seed, epoch): (u64, u64),
        examples: &[u64],
        scratch: &mut Scratch,
        (batch, before): (&mut Batch, usize),
    ) {
        let Features::Pixels { values, width } = &mut batch.features else { return };
        let images = values.chunks_exact_mut((*width).max(1)).skip(before);
        for (pixels, &example) in images.zip(examples) {
            self.apply(shape, (seed, epoch, example), &mut scratch.copy, pixels);
        }
    }
}

fn mirror(row: &mut [u8], channels: usize) {
    let count = row.len() / channels;
    for at in 0..count / 2 {
        for channel in 0..channels {
            row.swap(at * channels + channel, (count - 1 - at) * channels + channel);
        }
    }
}

/// A window of that share of both sides, somewhere within the image, turned about its middle.
fn affine(
    shape: ImageShape,
    (share, left, top): (f32, f32, f32),
    degrees: f32,
    mirrored: bool,
) -> Affine {
    let (width, height) = (shape.width as f32, shape.height as f32);
    let (sin, cos) = degrees.to_radians().sin_cos();
    let across = if mirrored { -share } else { share };
    let (right, down) = ([across * cos, across * sin], [-share * sin, share * cos]);
    let middle = [
        width * (left * (1.0 - share) + share / 2.0) - 0.5,
        height * (top * (1.0 - share) + share / 2.0) - 0.5,
    ];
    let half = [(width - 1.0) / 2.0, (height - 1.0) / 2.0];
    let origin = [0, 1].map(|axis| middle[axis] - half[0] * right[axis] - half[1] * down[axis]);
    Affine { origin, right, down }
}

/// Between the four pixels around each place; beyond the edge the outermost pixel goes on.
fn resample(shape: ImageShape, map: &Affine, from: &[u8], to: &mut [u8]) {
    let (width, channels) = (shape.width, shape.channels);
    let (last_x, last_y) = (shape.width - 1, shape.height - 1);
    for (y, row) in to.chunks_exact_mut(width * channels).enumerate() {
        let start = [0, 1].map(|axis| map.origin[axis] + y as f32 * map.down[axis]);
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            let at_x = (start[0] + x as f32 * map.right[0]).clamp(0.0, last_x as f32);
            let at_y = (start[1] + x as f32 * map.right[1]).clamp(0.0, last_y as f32);
            let (x0, y0) = (at_x as usize, at_y as usize);
            let (part_x, part_y) = (at_x - x0 as f32, at_y - y0 as f32);
            let (x1, y1) = ((x0 + 1).min(last_x), (y0 + 1).min(last_y));
            let corner = |y: usize, x: usize| &from[(y * width + x) * channels..][..channels];
            let corners = [corner(y0, x0), corner(y0, x1), corner(y1, x0), corner(y1, x1)];
            for (channel, value) in pixel.iter_mut().enumerate() {
                let [a, b, c, d] = corners.map(|corner| f32::from(corner[channel]));
                let (upper, lower) = (a + (b - a) * part_x, c + (d - c) * part_x);
                *value = (upper + (lower - upper) * part_y + 0.5) as u8;
            }
        }
    }
}

/// Brightness of all values, contrast about the image's mean, saturation about each pixel's own grey.
fn recolour(channels: usize, light: f32, contrast: f32, saturation: f32, pixels: &mut [u8]) {
    let sum: u64 = pixels.iter().map(|&value| u64::from(value)).sum();
    let mean = light * sum as f32 / pixels.len().max(1) as f32;
    let shift = mean * (1.0 - contrast);
    let scale = light * contrast;
    if channels != 3 {
        for value in pixels {
            *value = (f32::from(*value) * scale + shift + 0.5) as u8;
        }
        return;
    }
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [red, green, blue] = pixel.map(f32::from);
        let grey = 0.299 * red + 0.587 * green + 0.114 * blue;
        for (value, old) in pixel.iter_mut().zip([red, green, blue]) {
            *value = ((grey + (old - grey) * saturation) * scale + shift + 0.5) as u8;
        }
    }
}

#[cfg(test)]
mod tests;
