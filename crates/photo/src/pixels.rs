//! Pixels in memory: rows from the top, samples interleaved, one byte each.

use crate::exif::Orientation;

/// What a pixel consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// One byte of luma.
    Grey,
    /// Three bytes: red, green, blue.
    #[default]
    Rgb,
}

impl Colour {
    /// Bytes per pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
        }
    }
}

/// A picture in memory, reusable as a buffer: its allocation only grows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pixels {
    width: u32,
    height: u32,
    colour: Colour,
    data: Vec<u8>,
}

impl Pixels {
    /// An empty picture, to be filled by a decoder or resizer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes pixels made elsewhere; `None` if the length does not fit the shape.
    #[must_use]
    pub fn from_data(width: u32, height: u32, colour: Colour, data: Vec<u8>) -> Option<Self> {
        (data.len() == byte_count(width, height, colour)?).then_some(Self {
            width,
            height,
            colour,
            data,
        })
    }

    /// Width in pixels.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// What a pixel consists of.
    #[must_use]
    pub fn colour(&self) -> Colour {
        self.colour
    }

    /// The samples, row after row.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Gives the buffer away.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Takes a new shape; old contents become meaningless. The caller has checked the size.
    pub(crate) fn reshape(&mut self, width: u32, height: u32, colour: Colour) -> &mut [u8] {
        let bytes = byte_count(width, height, colour)
            .expect("sizes are checked against limits before pixels are allocated");
        (self.width, self.height, self.colour) = (width, height, colour);
        // Growing a used vector would copy stale pixels; the clear makes the growth a plain allocation.
        if bytes > self.data.capacity() {
            self.data.clear();
        }
        self.data.resize(bytes, 0);
        &mut self.data
    }
}

/// Bytes of a picture, or `None` if they cannot be addressed.
pub(crate) fn byte_count(width: u32, height: u32, colour: Colour) -> Option<usize> {
    (width as usize).checked_mul(height as usize)?.checked_mul(colour.channels())
}

/// Writes `source` (`width` x `height`) turned by `orientation` into `target` of the same length.
pub(crate) fn orient(
    source: &[u8],
    width: usize,
    height: usize,
    channels: usize,
    orientation: Orientation,
    target: &mut [u8],
) {
    debug_assert_eq!(source.len(), width * height * channels);
    debug_assert_eq!(source.len(), target.len());
    if orientation == Orientation::Upright {
        target.copy_from_slice(source);
        return;
    }
    if width == 0 || height == 0 {
        return;
    }
    // Where the target's first pixel lies in the source, and the steps for one target column and row.
    let (w, h) = (width as isize, height as isize);
    let (start, column, row) = match orientation {
        Orientation::Upright => (0, 1, w),
        Orientation::MirrorHorizontal => (w - 1, -1, w),
        Orientation::Rotate180 => (w * h - 1, -1, -w),
        Orientation::MirrorVertical => (w * (h - 1), 1, -w),
        Orientation::Transpose => (0, w, 1),
        Orientation::Rotate90 => (w * (h - 1), -w, 1),
        Orientation::Transverse => (w * h - 1, -w, -1),
        Orientation::Rotate270 => (w - 1, w, -1),
    };
    let target_width = if orientation.swaps_sides() { height } else { width };
    for (y, line) in target.chunks_exact_mut(target_width * channels).enumerate() {
        let mut at = start + y as isize * row;
        for pixel in line.chunks_exact_mut(channels) {
            let from = at as usize * channels;
            pixel.copy_from_slice(&source[from..from + channels]);
            at += column;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_put_the_first_pixel_where_exif_says() {
        // A 3 x 2 picture, pixels numbered row by row.
        let source = [0, 1, 2, 3, 4, 5];
        let expected: [&[u8]; 8] = [
            &[0, 1, 2, 3, 4, 5],
            &[2, 1, 0, 5, 4, 3],
            &[5, 4, 3, 2, 1, 0],
            &[3, 4, 5, 0, 1, 2],
            &[0, 3, 1, 4, 2, 5],
            &[3, 0, 4, 1, 5, 2],
            &[5, 2, 4, 1, 3, 0],
            &[2, 5, 1, 4, 0, 3],
        ];
        for (number, expected) in (1..=8).zip(expected) {
            let mut target = [0; 6];
            orient(&source, 3, 2, 1, Orientation::from_exif(number), &mut target);
            assert_eq!(target, expected, "orientation {number}");
        }
    }

    #[test]
    fn a_shape_must_match_its_data() {
        assert!(Pixels::from_data(2, 2, Colour::Rgb, vec![0; 12]).is_some());
        assert!(Pixels::from_data(2, 2, Colour::Rgb, vec![0; 11]).is_none());
        assert!(Pixels::from_data(u32::MAX, u32::MAX, Colour::Rgb, Vec::new()).is_none());
    }
}
