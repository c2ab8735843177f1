//! Handwriting drawn by the program, in the size of MNIST's.
//!
//! A digit is written by a pen that follows its skeleton with a shaky hand: another style, slant,
//! size, place, pen and pressure every time, the whole bent like a rubber sheet, some noise on the
//! paper. How much of each is tuned so that a softmax regression ends between 85 and 95 % and a
//! small convolutional network clearly above it, as with the real thing.

use super::{
    canvas::Canvas,
    random::Random,
    skeleton::{DIGITS, Point, Style},
};

/// Rows and columns of a digit, as in MNIST.
pub const SIDE: usize = 28;

/// Bytes of a digit.
pub const PIXELS: usize = SIDE * SIDE;

/// Line pieces per pair of neighbouring points of a stroke; at 28 pixels more would not be visible.
const PIECES: usize = 4;

/// How unsteady the hand is, as standard deviations: `WOBBLE` in fractions of the digit's box, `SLANT`
/// as a tangent, `TURN` in radians, `SHIFT` and `BEND` in pixels. Ten epochs of softmax regression at
/// batch 100 and rate 0.01 end at 89 %, eight at rate 0.2 at 93 %; MNIST gives 90 and 92.
const WOBBLE: f32 = 0.036;
const SLANT: f32 = 0.18;
const TURN: f32 = 0.08;
const SHIFT: f32 = 0.85;
const BEND: f32 = 1.0;

/// Draws digit number `example` of `seed` into `pixels` (28 rows of 28 bytes, ink is white) and
/// returns which digit it is.
///
/// # Panics
/// If `pixels` is not [`PIXELS`] long.
pub fn draw(seed: u64, example: u64, pixels: &mut [u8]) -> u32 {
    assert_eq!(pixels.len(), PIXELS, "a digit has {PIXELS} pixels");
    let mut random = Random::new(seed, example);
    let digit = random.below(10);
    let style = choose(DIGITS[digit as usize], &mut random);
    let hand = Hand::new(&mut random);
    let mut canvas = Canvas::<SIDE>::new();
    for stroke in style.strokes {
        // Points move together with a stroke and a little on their own.
        let drift = [random.normal() * WOBBLE * 0.6, random.normal() * WOBBLE * 0.6];
        let mut points = [[0.0; 2]; 12];
        for (point, &ideal) in points.iter_mut().zip(*stroke) {
            *point = [
                ideal[0] + drift[0] + random.normal() * WOBBLE,
                ideal[1] + drift[1] + random.normal() * WOBBLE,
            ];
        }
        let points = &points[..stroke.len()];
        let mut last = hand.place(points[0]);
        for from in 0..points.len() - 1 {
            for piece in 1..=PIECES {
                let next = hand.place(curve(points, from, piece as f32 / PIECES as f32));
                canvas.line(last, next, hand.radius, hand.soft);
                last = next;
            }
        }
    }
    let (pressure, noise) = (random.between(0.75, 1.0), random.between(0.0, 0.05));
    for ink in canvas.pixels_mut() {
        *ink = *ink * pressure + random.normal() * noise;
    }
    canvas.write(pixels);
    digit as u32
}

fn choose(styles: &'static [Style], random: &mut Random) -> &'static Style {
    let mut left = random.unit() * styles.iter().map(|style| style.weight).sum::<f32>();
    for style in styles {
        left -= style.weight;
        if left <= 0.0 {
            return style;
        }
    }
    &styles[0]
}

/// A point on the smooth curve through `points`, `t` of the way from `from` to the next one.
fn curve(points: &[Point], from: usize, t: f32) -> Point {
    let at = |offset: isize| points[from.saturating_add_signed(offset).min(points.len() - 1)];
    let (a, b, c, d) = (at(-1), at(0), at(1), at(2));
    std::array::from_fn(|axis| {
        let (a, b, c, d) = (a[axis], b[axis], c[axis], d[axis]);
        // Catmull-Rom: passes through b and c with slopes half the chord of their neighbours.
        b + 0.5 * t * (c - a + t * (2.0 * a - 5.0 * b + 4.0 * c - d + t * (3.0 * (b - c) + d - a)))
    })
}

/// From the unit box to the paper: size, slant, turn, place and bend of one piece of writing.
#[derive(Debug)]
struct Hand {
    matrix: [[f32; 2]; 2],
    centre: Point,
    /// Of the pen, in pixels.
    radius: f32,
    /// Blur of the pen's edge, in pixels.
    soft: f32,
    /// Two waves per axis: frequency in x and y, phase, amplitude in pixels.
    bends: [[[f32; 4]; 2]; 2],
}

impl Hand {
    fn new(random: &mut Random) -> Self {
        // 20 pixels is the box MNIST's digits were fitted into.
        let size = [random.between(14.0, 20.5), random.between(17.0, 21.5)];
        let slant = random.normal() * SLANT;
        // Rotation from the tangent of the half angle: exact and without sine.
        let half = random.normal() * TURN * 0.5;
        let (cos, sin) =
            ((1.0 - half * half) / (1.0 + half * half), 2.0 * half / (1.0 + half * half));
        let matrix = [
            [cos * size[0], -cos * slant * size[1] - sin * size[1]],
            [sin * size[0], -sin * slant * size[1] + cos * size[1]],
        ];
        let middle = SIDE as f32 / 2.0;
        let centre = [middle + random.normal() * SHIFT, middle + random.normal() * SHIFT];
        let bends = std::array::from_fn(|_| {
            std::array::from_fn(|_| {
                let amplitude = random.normal() * BEND * 0.7;
                [random.between(-0.9, 0.9), random.between(-0.9, 0.9), random.unit(), amplitude]
            })
        });
        Self {
            matrix,
            centre,
            radius: random.between(0.6, 1.5),
            soft: random.between(0.5, 0.9),
            bends,
        }
    }

    fn place(&self, point: Point) -> Point {
        let (x, y) = (point[0] - 0.5, point[1] - 0.5);
        std::array::from_fn(|axis| {
            let straight = self.matrix[axis][0] * x + self.matrix[axis][1] * y;
            let bent: f32 = self.bends[axis]
                .iter()
                .map(|[in_x, in_y, phase, amplitude]| {
                    amplitude * wave(in_x * point[0] + in_y * point[1] + phase)
                })
                .sum();
            self.centre[axis] + straight + bent
        })
    }
}

/// Like a sine of period 1: smooth, between -1 and 1, from parabolas.
pub(crate) fn wave(t: f32) -> f32 {
    let t = t - t.floor();
    let (half, sign) = if t < 0.5 { (t, 1.0) } else { (t - 0.5, -1.0) };
    sign * 16.0 * half * (0.5 - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_there_varied_and_balanced() {
        let mut counts = [0; 10];
        let mut pixels = [0; PIXELS];
        for example in 0..2000 {
            counts[draw(1, example, &mut pixels) as usize] += 1;
            let ink = pixels.iter().filter(|&&p| p > 64).count();
            assert!((20..400).contains(&ink), "example {example}: {ink} inked pixels");
        }
        assert!(counts.iter().all(|&count| (130..280).contains(&count)), "{counts:?}");
    }
}
