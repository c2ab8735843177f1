//! What the changes do, that they are the same for any number of workers and threads, and that they cost nothing where off.

use super::*;
use crate::{
    Loader, LoaderOptions, OpenOptions, Source, open, order::Shuffle, source::image_shape,
};
use paceline_batch::Features;
use std::{collections::BTreeMap, sync::Arc};

const SHAPE: ImageShape = ImageShape { height: 9, width: 12, channels: 3 };

fn image() -> Vec<u8> {
    (0..SHAPE.len()).map(|at| (at * 37 % 256) as u8).collect()
}

fn changed(text: &str, (seed, epoch, example): (u64, u64, u64)) -> Vec<u8> {
    let mut pixels = image();
    let augment: Augment = text.parse().unwrap();
    augment.apply(SHAPE, (seed, epoch, example), &mut Vec::new(), &mut pixels);
    pixels
}

#[test]
fn words_are_understood_and_written_alike() {
    for (text, written) in [
        ("flip", "flip"),
        ("flip,crop,color,rotate", "flip,crop:0.2,color:0.2,rotate:15"),
        ("rotate:5, colour:0.5", "color:0.5,rotate:5"),
    ] {
        let augment: Augment = text.parse().unwrap();
        assert_eq!(augment.to_string(), written);
        let json = serde_json::to_string(&augment).unwrap();
        assert_eq!(serde_json::from_str::<Augment>(&json).unwrap(), augment);
    }
    for text in ["", "flop", "crop:2", "crop:-1", "rotate:NaN", "flip:1", "color:x", "flip,"] {
        let error = text.parse::<Augment>().unwrap_err().to_string();
        assert!(error.contains("crop:SHARE"), "{error}");
    }
}

#[test]
fn a_mirror_is_exact_and_half_of_all_images_see_one() {
    let mut mirrored = image();
    mirrored.chunks_exact_mut(12 * 3).for_each(|row| mirror(row, 3));
    let mut seen = 0;
    for example in 0..1000 {
        let found = changed("flip", (1, 0, example));
        assert!(found == image() || found == mirrored);
        seen += usize::from(found == mirrored);
    }
    assert!((400..600).contains(&seen), "{seen}");
    let again = |epoch| (0..64).map(|n| changed("flip", (1, epoch, n))).collect::<Vec<_>>();
    assert_eq!(again(3), again(3));
    assert_ne!(again(3), again(4), "each epoch has changes of its own");
}

/// Mirrored by a map, an image is what it is mirrored by swapping; not moved at all it stays as it is.
#[test]
fn maps_that_move_nothing_change_nothing() {
    let mut to = vec![0; SHAPE.len()];
    resample(SHAPE, &affine(SHAPE, (1.0, 0.3, 0.7), 0.0, false), &image(), &mut to);
    assert_eq!(to, image());
    resample(SHAPE, &affine(SHAPE, (1.0, 0.3, 0.7), 0.0, true), &image(), &mut to);
    let mut mirrored = image();
    mirrored.chunks_exact_mut(12 * 3).for_each(|row| mirror(row, 3));
    assert_eq!(to, mirrored);
    let mut same = image();
    recolour(3, 1.0, 1.0, 1.0, &mut same);
    assert_eq!(same, image());
}

#[test]
fn a_crop_stays_inside_and_colours_stay_in_range() {
    let flat = |value: u8| vec![value; SHAPE.len()];
    for example in 0..200 {
        let augment: Augment = "crop:0.9,rotate:180".parse().unwrap();
        let mut pixels = flat(77);
        augment.apply(SHAPE, (5, 1, example), &mut Vec::new(), &mut pixels);
        assert_eq!(pixels, flat(77), "nothing comes from outside");
        let bright: Augment = "color:1".parse().unwrap();
        for value in [0, 255] {
            bright.apply(SHAPE, (5, 1, example), &mut Vec::new(), &mut flat(value));
        }
    }
    assert_ne!(changed("crop:0.5", (1, 1, 1)), image());
    assert_ne!(changed("rotate:30", (1, 1, 1)), image());
    assert_ne!(changed("color:0.5", (1, 1, 1)), image());
}

/// Examples of two epochs by what tells them apart, as `workers` workers with so many threads see them.
fn epochs(
    source: &Arc<dyn Source>,
    workers: u64,
    threads: usize,
    augment: Option<Augment>,
) -> BTreeMap<(u64, Vec<u8>), u64> {
    let mut seen = BTreeMap::new();
    for worker in 0..workers {
        let options = LoaderOptions {
            batch_size: 6,
            seed: 9,
            shuffle: Shuffle::Full,
            worker,
            workers,
            epochs: Some(2),
            threads,
            augment,
            ..LoaderOptions::default()
        };
        let width = image_shape(source.schema()).len();
        let mut loader = Loader::new(Arc::clone(source), options).unwrap();
        while loader.next_batch().unwrap().is_some() {
            let epoch = loader.current().unwrap().epoch;
            let batch = loader.batch();
            let Features::Pixels { values, .. } = &batch.features else { unreachable!() };
            for image in values.chunks_exact(width) {
                *seen.entry((epoch, image.to_vec())).or_default() += 1;
            }
        }
    }
    seen
}

#[test]
fn one_worker_and_three_see_the_same_images_in_memory_and_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let photos = paceline_prepare::synth::PhotosOptions { per_class: 4, ..Default::default() };
    paceline_prepare::synth::write_photos(folder.path(), &photos, &|_| ()).unwrap();
    let options = OpenOptions { size: Some((16, 16)), ..OpenOptions::default() };
    let augment: Augment = "flip,crop,color,rotate".parse().unwrap();
    for source in [
        open(folder.path(), &options).unwrap(),
        open("generated:digits?examples=20", &OpenOptions::default()).unwrap(),
    ] {
        let alone = epochs(&source, 1, 1, Some(augment));
        assert_eq!(alone.values().sum::<u64>(), 2 * source.len());
        assert_eq!(alone, epochs(&source, 3, 2, Some(augment)));
        let plain = epochs(&source, 1, 1, None);
        assert_ne!(alone, plain);
        let first: Vec<&Vec<u8>> =
            alone.keys().filter(|key| key.0 == 0).map(|key| &key.1).collect();
        let again = alone.keys().filter(|key| key.0 == 1 && first.contains(&&key.1));
        assert!(again.count() < first.len() / 4, "the second epoch has changes of its own");
    }
}
