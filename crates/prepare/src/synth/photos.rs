//! Photos of flowers that never grew: real JPEG files of varied sizes in class folders.
//!
//! Classes differ by the number, shape and colour of petals and by the heart of the flower; colours
//! overlap between classes, and light, background, size, place and number of flowers change from photo to
//! photo, so that a network has to look.

use std::{
    borrow::Cow,
    path::Path,
    sync::Mutex,
    sync::PoisonError,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use paceline_photo::{Colour, Encoder, Encoding, Pixels};
use serde::{Deserialize, Serialize};

use super::SynthError;
use paceline_data::{order::mix, synth::Random};
use paceline_store::{LocalStore, Store};

type Rgb = [f32; 3];

/// What makes a species.
#[derive(Debug, Clone)]
struct Species {
    name: Cow<'static, str>,
    /// Fewest and most petals per ring.
    petals: (u64, u64),
    rings: u64,
    /// Half the width of a petal, as a share of the flower's radius.
    width: (f32, f32),
    colours: Cow<'static, [Rgb]>,
    heart: Rgb,
    /// Radius of the heart, as a share of the flower's.
    heart_size: (f32, f32),
    /// The share of the full circle that carries petals; less than one is a cup.
    spread: f32,
}

static SPECIES: [Species; 5] = [
    Species {
        name: Cow::Borrowed("daisy"),
        petals: (12, 18),
        rings: 1,
        width: (0.07, 0.11),
        colours: Cow::Borrowed(&[[240.0, 240.0, 235.0], [250.0, 225.0, 235.0]]),
        heart: [225.0, 180.0, 40.0],
        heart_size: (0.2, 0.28),
        spread: 1.0,
    },
    Species {
        name: Cow::Borrowed("dandelion"),
        petals: (28, 36),
        rings: 2,
        width: (0.03, 0.05),
        colours: Cow::Borrowed(&[[240.0, 205.0, 40.0], [225.0, 220.0, 205.0]]),
        heart: [215.0, 170.0, 30.0],
        heart_size: (0.08, 0.14),
        spread: 1.0,
    },
    Species {
        name: Cow::Borrowed("rose"),
        petals: (5, 7),
        rings: 3,
        width: (0.26, 0.36),
        colours: Cow::Borrowed(&[
            [190.0, 25.0, 45.0],
            [230.0, 130.0, 150.0],
            [240.0, 215.0, 170.0],
        ]),
        heart: [130.0, 15.0, 35.0],
        heart_size: (0.1, 0.16),
        spread: 1.0,
    },
    Species {
        name: Cow::Borrowed("sunflower"),
        petals: (16, 24),
        rings: 1,
        width: (0.08, 0.13),
        colours: Cow::Borrowed(&[[240.0, 185.0, 25.0], [225.0, 140.0, 20.0]]),
        heart: [80.0, 50.0, 25.0],
        heart_size: (0.36, 0.48),
        spread: 1.0,
    },
    Species {
        name: Cow::Borrowed("tulip"),
        petals: (3, 4),
        rings: 1,
        width: (0.22, 0.3),
        colours: Cow::Borrowed(&[[205.0, 40.0, 50.0], [235.0, 190.0, 50.0], [150.0, 60.0, 150.0]]),
        heart: [120.0, 140.0, 60.0],
        heart_size: (0.05, 0.1),
        spread: 0.25,
    },
];

/// Decides what species are made up.
const MADE_UP: u64 = 29;

/// How many photos to draw, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhotosOptions {
    /// Photos of each class.
    pub per_class: u32,
    /// Classes: the five known kinds first, then kinds that are made up.
    pub classes: u32,
    /// Shorter side of the smallest photos, in pixels.
    pub least_side: u32,
    /// Longer side of the largest photos, in pixels.
    pub most_side: u32,
    /// Decides every pixel.
    pub seed: u64,
    /// Extra photos of odd shapes: long panoramas, tall strips, a few pixels.
    pub odd: u32,
    /// Extra files that only look like photos: cut short, empty, text.
    pub bad: u32,
    /// Threads to draw on; the files do not depend on it.
    pub threads: usize,
}

impl Default for PhotosOptions {
    fn default() -> Self {
        let threads = paceline_batch::cores().count;
        let classes = SPECIES.len() as u32;
        Self {
            per_class: 100,
            classes,
            least_side: 180,
            most_side: 500,
            seed: 1,
            odd: 0,
            bad: 0,
            threads,
        }
    }
}

/// Draws photos into class folders below `folder`; each file appears whole or not at all.
///
/// `progress` hears the number of files written so far. Returns that number.
///
/// # Errors
/// A folder or file that cannot be written.
pub fn write_photos(
    folder: &Path,
    options: &PhotosOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64, SynthError> {
    let store = LocalStore::new(folder);
    let species: Vec<Species> = (0..options.classes.max(1)).map(species).collect();
    let regular = u64::from(options.per_class) * species.len() as u64;
    let total = regular + u64::from(options.odd) + u64::from(options.bad);
    let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let failure = Mutex::new(None);
    let work = || {
        let mut encoder = Encoder::new();
        let mut bytes = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total {
                return;
            }
            let kind = &species[(number % species.len() as u64) as usize];
            let place = (regular, number);
            let result = write_one(&store, options, kind, place, &mut encoder, &mut bytes);
            if let Err(error) = result {
                next.store(total, Ordering::Relaxed);
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return;
            }
            progress(written.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(written.into_inner()),
    }
}

/// The species of a class: one of the known ones, or one made up from the number of the class alone, so that more classes leave the
/// first ones as they are.
fn species(class: u32) -> Species {
    if let Some(known) = SPECIES.get(class as usize) {
        return known.clone();
    }
    let mut random = Random::new(MADE_UP, u64::from(class));
    let petals = 3 + random.below(27);
    let rings = 1 + random.below(3);
    let colour = |random: &mut Random| -> Rgb {
        // One channel strong, so that flowers stand out from meadow and soil.
        let strong = random.below(3) as usize;
        std::array::from_fn(|channel| {
            if channel == strong {
                random.between(190.0, 250.0)
            } else {
                random.between(20.0, 240.0)
            }
        })
    };
    let colours: Vec<Rgb> = (0..1 + random.below(2)).map(|_| colour(&mut random)).collect();
    let heart = colour(&mut random).map(|channel| channel * random.between(0.3, 1.0));
    // Petals that nearly touch each other, or leave room between them.
    let width = random.between(0.6, 1.6) * std::f32::consts::PI / petals as f32 * 0.5;
    let heart_size = random.between(0.05, 0.45);
    Species {
        name: Cow::Owned(format!("kind-{:02}", class + 1)),
        petals: (petals, petals + petals / 6),
        rings,
        width: (0.85 * width, 1.15 * width),
        colours: Cow::Owned(colours),
        heart,
        heart_size: (0.9 * heart_size, 1.1 * heart_size),
        spread: if random.below(4) == 0 { random.between(0.2, 0.6) } else { 1.0 },
    }
}

fn write_one(
    store: &LocalStore,
    options: &PhotosOptions,
    species: &Species,
    (regular, number): (u64, u64),
    encoder: &mut Encoder,
    bytes: &mut Vec<u8>,
) -> Result<(), SynthError> {
    let mut random = Random::new(mix(options.seed, 3), number);
    let (width, height) = size(options, number, regular, &mut random);
    let odd_end = regular + u64::from(options.odd);
    let kind = match number {
        n if n < regular => "",
        n if n < odd_end => "odd_",
        _ => "bad_",
    };
    let key = format!("{}/{kind}{number:06}.jpg", species.name);
    let pixels = draw(species, width, height, &mut random);
    let quality = 80 + random.below(15) as u8;
    encoder
        .encode_into(&pixels, Encoding::Jpeg { quality }, bytes)
        .map_err(|source| SynthError::Encode { path: store.locate(&key).into(), source })?;
    if number >= odd_end {
        match number % 3 {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.clear(),
            _ => *bytes = b"this is a text, not a photo\n".to_vec(),
        }
    }
    store.write(&key, bytes)?;
    Ok(())
}

fn size(options: &PhotosOptions, number: u64, regular: u64, random: &mut Random) -> (u32, u32) {
    let (least, most) = (options.least_side.max(8), options.most_side.max(options.least_side));
    let odd = number >= regular && number < regular + u64::from(options.odd);
    if odd {
        return [(4 * most, least), (least, 4 * most), (3, 2), (1, most)][(number % 4) as usize];
    }
    let long = random.between(least as f32, most as f32 + 1.0) as u32;
    let short = (long as f32 * random.between(0.62, 1.0)) as u32;
    let short = short.clamp(least.min(long), long);
    if random.below(3) == 0 { (short, long) } else { (long, short) }
}

/// One flower in a photo.
#[derive(Debug)]
struct Flower {
    centre: [f32; 2],
    radius: f32,
    colour: Rgb,
    heart: f32,
    /// Direction, half width, and how far out: outer rings first.
    petals: Vec<([f32; 2], f32, f32)>,
}

impl Flower {
    fn new(species: &Species, centre: [f32; 2], radius: f32, random: &mut Random) -> Self {
        let count = species.petals.0 + random.below(species.petals.1 - species.petals.0 + 1);
        let colour = species.colours[random.below(species.colours.len() as u64) as usize];
        let colour = colour.map(|channel| channel + random.normal() * 12.0);
        let turn = if species.spread < 1.0 { 0.75 } else { random.unit() };
        let mut petals = Vec::new();
        for ring in 0..species.rings {
            let reach = 1.0 - 0.28 * ring as f32;
            for petal in 0..count {
                let share = (petal as f32 + 0.5 * (ring % 2) as f32) / count as f32 - 0.5;
                let angle = turn + share * species.spread + random.normal() * 0.008;
                let (sin, cos) = (angle * std::f32::consts::TAU).sin_cos();
                let width = random.between(species.width.0, species.width.1) * reach;
                petals.push(([cos, sin], width, reach * random.between(0.92, 1.0)));
            }
        }
        let heart = random.between(species.heart_size.0, species.heart_size.1);
        Self { centre, radius, colour, heart, petals }
    }

    /// The flower's colour at a pixel, if it covers it.
    fn at(&self, x: f32, y: f32, heart: Rgb) -> Option<Rgb> {
        let (dx, dy) = ((x - self.centre[0]) / self.radius, (y - self.centre[1]) / self.radius);
        let distance = dx * dx + dy * dy;
        if distance > 1.0 {
            return None;
        }
        if distance < self.heart * self.heart {
            let shade = 0.75 + 0.5 * (distance / (self.heart * self.heart));
            return Some(heart.map(|channel| channel * shade.min(1.1)));
        }
        let mut found = None;
        for &(direction, width, reach) in &self.petals {
            let along = dx * direction[0] + dy * direction[1];
            let across = dx * direction[1] - dy * direction[0];
            let (u, v) = ((along - 0.52 * reach) / (0.48 * reach), across / width);
            let inside = u * u + v * v;
            if inside < 1.0 {
                // Darker towards the edge and the heart, so that petals stand out from each other.
                let shade = 1.0 - 0.3 * inside - 0.15 * (1.0 - along.abs());
                found = Some(self.colour.map(|channel| channel * shade));
            }
        }
        found
    }
}

fn draw(species: &Species, width: u32, height: u32, random: &mut Random) -> Pixels {
    let (across, down) = (width as f32, height as f32);
    let short = across.min(down);
    // Meadow, soil, sky or wall; the same for all classes.
    let grounds: [Rgb; 4] =
        [[70.0, 110.0, 50.0], [105.0, 85.0, 60.0], [130.0, 165.0, 205.0], [150.0, 145.0, 140.0]];
    let ground = grounds[random.below(4) as usize].map(|channel| channel + random.normal() * 15.0);
    let slope = [random.normal() * 25.0 / across, random.normal() * 25.0 / down];
    let light = random.between(0.7, 1.15);
    let grain = random.between(2.0, 9.0);
    let leaves: Vec<[f32; 4]> = (0..random.below(14))
        .map(|_| {
            let radius = short * random.between(0.03, 0.2);
            [random.unit() * across, random.unit() * down, radius, random.normal() * 22.0]
        })
        .collect();
    let flowers: Vec<Flower> = (0..1 + random.below(3))
        .map(|number| {
            let near = if number == 0 { 0.14 } else { 0.35 };
            let centre = [
                across * (0.5 + near * random.normal().clamp(-1.5, 1.5)),
                down * (0.5 + near * random.normal().clamp(-1.5, 1.5)),
            ];
            let radius = short * random.between(0.2, 0.45) / (1.0 + number as f32 * 0.5);
            Flower::new(species, centre, radius.max(1.0), random)
        })
        .collect();
    let mut data = Vec::with_capacity(width as usize * height as usize * 3);
    for row in 0..height {
        for column in 0..width {
            let (x, y) = (column as f32 + 0.5, row as f32 + 0.5);
            let flower = flowers.iter().rev().find_map(|flower| flower.at(x, y, species.heart));
            let colour = flower.unwrap_or_else(|| {
                let mut shade = slope[0] * (x - across / 2.0) + slope[1] * (y - down / 2.0);
                for [cx, cy, radius, dark] in &leaves {
                    if (x - cx) * (x - cx) + (y - cy) * (y - cy) < radius * radius {
                        shade += dark;
                    }
                }
                ground.map(|channel| channel + shade)
            });
            let noise = random.normal() * grain;
            data.extend(colour.map(|channel| (channel * light + noise).clamp(0.0, 255.0) as u8));
        }
    }
    Pixels::from_data(width, height, Colour::Rgb, data).expect("three bytes for every pixel")
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_data::{OpenOptions, Scratch, open, source::image_shape};

    fn options(threads: usize) -> PhotosOptions {
        PhotosOptions {
            per_class: 3,
            least_side: 24,
            most_side: 60,
            threads,
            ..PhotosOptions::default()
        }
    }

    #[test]
    fn photos_are_real_and_do_not_depend_on_the_number_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let (one, three) = (folder.path().join("one"), folder.path().join("three"));
        assert_eq!(write_photos(&one, &options(1), &|_| {}).unwrap(), 15);
        write_photos(&three, &options(3), &|_| {}).unwrap();
        for species in &SPECIES {
            for file in std::fs::read_dir(one.join(&*species.name)).unwrap() {
                let path = file.unwrap().path();
                let other = three.join(&*species.name).join(path.file_name().unwrap());
                assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(other).unwrap());
            }
        }
        let source = open(&one, &OpenOptions::default()).unwrap();
        assert_eq!((source.len(), source.schema().labels.classes()), (15, 5));
        let mut pixels = vec![0; image_shape(source.schema()).len()];
        for index in 0..15 {
            source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
        }
    }

    /// More classes leave the photos of the first ones' kinds as they are, and differ from each other.
    #[test]
    fn more_kinds_are_made_up() {
        let kinds: Vec<Species> = (0..60).map(species).collect();
        assert_eq!(kinds[4].name, "tulip");
        assert_eq!(kinds[5].name, "kind-06");
        let told =
            |kind: &Species| format!("{:?} {:?} {:?}", kind.colours, kind.petals, kind.rings);
        let differing: std::collections::BTreeSet<String> = kinds.iter().map(told).collect();
        assert_eq!(differing.len(), kinds.len());
        let folder = tempfile::tempdir().unwrap();
        let options = PhotosOptions { classes: 12, per_class: 2, ..options(2) };
        assert_eq!(write_photos(folder.path(), &options, &|_| {}).unwrap(), 24);
        let source = open(folder.path(), &OpenOptions::default()).unwrap();
        assert_eq!((source.len(), source.schema().labels.classes()), (24, 12));
    }

    #[test]
    fn odd_photos_can_be_read_and_bad_ones_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let options = PhotosOptions { per_class: 0, odd: 4, bad: 3, ..options(2) };
        assert_eq!(write_photos(folder.path(), &options, &|_| {}).unwrap(), 7);
        let source = open(folder.path(), &OpenOptions::default()).unwrap();
        let mut pixels = vec![0; image_shape(source.schema()).len()];
        for index in 0..7 {
            let read = source.read(index, &mut Scratch::default(), &mut pixels);
            assert_eq!(read.is_ok(), source.origin(index).contains("odd_"), "{read:?}");
        }
    }
}
