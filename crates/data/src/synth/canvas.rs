//! A small grey canvas and a round pen.

use super::skeleton::Point;

/// Grey pixels, 0 for paper and 1 for ink.
#[derive(Debug)]
pub(crate) struct Canvas<const SIDE: usize> {
    ink: [[f32; SIDE]; SIDE],
}

impl<const SIDE: usize> Canvas<SIDE> {
    pub(crate) fn new() -> Self {
        Self { ink: [[0.0; SIDE]; SIDE] }
    }

    /// Draws a line with a round pen of `radius` pixels whose edge fades over `soft` pixels.
    pub(crate) fn line(&mut self, from: Point, to: Point, radius: f32, soft: f32) {
        let reach = radius + soft;
        let low = |a: f32, b: f32| (a.min(b) - reach).max(0.0) as usize;
        let high = |a: f32, b: f32| ((a.max(b) + reach + 1.0).max(0.0) as usize).min(SIDE);
        let along = [to[0] - from[0], to[1] - from[1]];
        let length = along[0] * along[0] + along[1] * along[1];
        let scale = if length > 1e-12 { 1.0 / length } else { 0.0 };
        for row in low(from[1], to[1])..high(from[1], to[1]) {
            let y = row as f32 + 0.5 - from[1];
            for column in low(from[0], to[0])..high(from[0], to[0]) {
                let x = column as f32 + 0.5 - from[0];
                let nearest = ((x * along[0] + y * along[1]) * scale).clamp(0.0, 1.0);
                let (dx, dy) = (x - nearest * along[0], y - nearest * along[1]);
                let distance = (dx * dx + dy * dy).sqrt();
                let ink = ((reach - distance) / (2.0 * soft)).clamp(0.0, 1.0);
                let pixel = &mut self.ink[row][column];
                *pixel = pixel.max(ink);
            }
        }
    }

    /// All pixels, row after row.
    pub(crate) fn pixels_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.ink.iter_mut().flatten()
    }

    /// Ink as bytes.
    pub(crate) fn write(&self, out: &mut [u8]) {
        for (byte, ink) in out.iter_mut().zip(self.ink.iter().flatten()) {
            *byte = (ink.clamp(0.0, 1.0) * 255.0 + 0.5) as u8;
        }
    }
}
