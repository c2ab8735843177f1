//! Which photo goes where.
//!
//! The split of a photo follows from its relative path alone, so that it stays in its split when others
//! come or go, whatever the seed. Its place among the shards follows from path and seed. Neither looks
//! at threads, time or the contents of photos; a rejected photo leaves a gap that nothing moves into.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use paceline_photo::Limits;

use super::{Difference, PhotoOptions, PrepareError, options::program};
use paceline_data::path_hash::{hash, split_position};
use paceline_data::{
    catalogue::Catalogue,
    manifest::{Manifest, RecordSettings, SourceSummary, TRAIN},
    source,
};
use paceline_store::Store;

/// The work to be done.
#[derive(Debug)]
pub(super) struct Plan {
    /// Numbers of photos in the order in which they are written.
    pub(super) order: Vec<u32>,
    /// Training first, then the other splits as given.
    pub(super) splits: Vec<SplitPlan>,
    /// Shards of all splits in that order.
    pub(super) shards: Vec<ShardPlan>,
}

/// A split with its number of shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SplitPlan {
    pub(super) name: String,
    pub(super) share: f64,
    pub(super) shards: usize,
}

#[derive(Debug)]
pub(super) struct ShardPlan {
    /// File name, such as `train-00003-of-00016.tfrecord`.
    pub(super) name: String,
    /// Its part of [`Plan::order`]; never empty.
    pub(super) photos: Range<usize>,
}

impl Plan {
    pub(super) fn new(catalogue: &Catalogue, options: &PhotoOptions) -> Result<Self, PrepareError> {
        let given = catalogue.splits();
        if let Some(twice) = options
            .splits
            .iter()
            .find(|cut| cut.name.parse::<source::Split>().is_ok_and(|split| given.contains(&split)))
        {
            return Err(PrepareError::SplitGiven { name: twice.name.clone() });
        }
        let beside = given.iter().filter(|split| **split != source::Split::Train);
        let mut names = vec![TRAIN];
        names.extend(beside.map(|split| split.name()));
        let first_cut = names.len();
        names.extend(options.splits.iter().map(|split| split.name.as_str()));
        let mut members: Vec<Vec<(u64, u32)>> = vec![Vec::new(); names.len()];
        for photo in 0..catalogue.photos() {
            let path = catalogue.path(photo);
            let split = match catalogue.split(photo) {
                // Shares are cut from what would be trained on, never from a given test split.
                None | Some(source::Split::Train) => match split_of(&path, options) {
                    0 => 0,
                    cut => first_cut + cut - 1,
                },
                Some(split) => names.iter().position(|name| *name == split.name()).unwrap_or(0),
            };
            let number = u32::try_from(photo).map_err(|_| PrepareError::TooManyPhotos)?;
            members[split].push((place(&path, options.seed), number));
        }
        let train = members[0].len();
        let mut plan = Self { order: Vec::new(), splits: Vec::new(), shards: Vec::new() };
        let shares: Vec<f64> = if given.is_empty() {
            let rest = 1.0 - options.splits.iter().map(|split| split.share).sum::<f64>();
            std::iter::once(rest).chain(options.splits.iter().map(|split| split.share)).collect()
        } else {
            let share = |photos: &Vec<_>| photos.len() as f64 / catalogue.photos() as f64;
            members.iter().map(share).collect()
        };
        for ((mut photos, name), share) in members.into_iter().zip(names).zip(shares) {
            if name == TRAIN && photos.is_empty() && !given.is_empty() {
                continue; // the source has other splits only
            }
            // Equal hashes are next to impossible; the photo's number then decides.
            photos.sort_unstable();
            let shards = shard_count(photos.len(), train, options.shards as usize);
            plan.splits.push(SplitPlan { name: name.into(), share, shards });
            let first = plan.order.len();
            for shard in 0..shards {
                // Even to within one photo. Widened, because photos times shards may not fit 64 bits.
                let cut = |shard: usize| {
                    first + (photos.len() as u128 * shard as u128 / shards as u128) as usize
                };
                plan.shards.push(ShardPlan {
                    name: format!("{name}-{shard:05}-of-{shards:05}.tfrecord"),
                    photos: cut(shard)..cut(shard + 1),
                });
            }
            plan.order.extend(photos.into_iter().map(|(_, photo)| photo));
        }
        Ok(plan)
    }
}

/// As many as asked for training, in proportion for the others; never an empty one by plan.
fn shard_count(photos: usize, train: usize, asked: usize) -> usize {
    if photos == 0 {
        return 0;
    }
    let share = photos as f64 / train.max(1) as f64;
    ((asked as f64 * share).round() as usize).clamp(1, asked.min(photos))
}

/// 0 is training.
fn split_of(path: &str, options: &PhotoOptions) -> usize {
    let position = split_position(path);
    let mut end = 0.0;
    for (number, split) in options.splits.iter().enumerate() {
        end += split.share;
        if position < end {
            return number + 1;
        }
    }
    0
}

fn place(path: &str, seed: u64) -> u64 {
    hash(b"place", seed, path)
}

/// All that decides the bytes of the output. Kept beside unfinished work and derivable from a manifest,
/// so that another one is noticed before shards of two kinds are mixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Recipe {
    /// Another version may encode a pixel differently; `None` where the work is finished.
    pub(super) program: Option<String>,
    pub(super) settings: RecordSettings,
    pub(super) seed: u64,
    pub(super) splits: Vec<SplitPlan>,
    pub(super) source: SourceSummary,
}

impl Recipe {
    pub(super) fn new(catalogue: &Catalogue, plan: &Plan, options: &PhotoOptions) -> Self {
        Self {
            program: Some(program()),
            settings: options.settings(),
            seed: options.seed,
            splits: plan.splits.clone(),
            source: SourceSummary {
                photos: catalogue.total(),
                bytes: catalogue.bytes,
                fingerprint: catalogue.fingerprint.clone(),
                path_fingerprint: catalogue.path_fingerprint.clone(),
            },
        }
    }

    pub(super) fn of_manifest(manifest: &Manifest) -> Self {
        let splits = manifest.splits.iter().map(|split| SplitPlan {
            name: split.name.clone(),
            share: split.share,
            shards: split.shards.len(),
        });
        Self {
            program: None,
            settings: manifest.settings.clone(),
            seed: manifest.seed,
            splits: splits.collect(),
            source: manifest.source.clone(),
        }
    }

    /// Fails if the target was made by another recipe. With `repaired`, photos may have changed in
    /// size, as a photo that is fetched again to be retried does.
    pub(super) fn check_against(
        &self,
        was: &Self,
        dst: &dyn Store,
        repaired: bool,
    ) -> Result<(), PrepareError> {
        let differences = self.differences(was, repaired);
        if differences.is_empty() {
            return Ok(());
        }
        Err(PrepareError::Changed { location: dst.locate(""), differences })
    }

    fn differences(&self, was: &Self, repaired: bool) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut compare = |what, was: String, now: String| {
            if was != now {
                differences.push(Difference { what, was, now });
            }
        };
        let (old, new) = (&was.settings, &self.settings);
        compare("size", size(old), size(new));
        compare("fit", old.fit.clone(), new.fit.clone());
        compare("encoding", encoding(old), encoding(new));
        compare("limit of pixels", most_pixels(old), most_pixels(new));
        compare("seed", was.seed.to_string(), self.seed.to_string());
        if let (Some(was), Some(now)) = (&was.program, &self.program) {
            compare("program", was.clone(), now.clone());
        }
        compare("source", photos(&was.source, repaired), photos(&self.source, repaired));
        // Numbers of shards follow the source too, so they are named only if it is the same.
        if differences.is_empty() && was.splits != self.splits {
            let (was, now) = (splits(&was.splits), splits(&self.splits));
            differences.push(Difference { what: "splits", was, now });
        }
        differences
    }
}

fn size(settings: &RecordSettings) -> String {
    format!("{}x{}", settings.width, settings.height)
}

fn most_pixels(settings: &RecordSettings) -> String {
    settings.max_pixels.unwrap_or(Limits::default().max_pixels).to_string()
}

fn encoding(settings: &RecordSettings) -> String {
    match settings.quality {
        Some(quality) => format!("{} at quality {quality}", settings.encode),
        None => settings.encode.clone(),
    }
}

fn photos(source: &SourceSummary, only_paths: bool) -> String {
    let print = if only_paths { &source.path_fingerprint } else { &source.fingerprint };
    format!("{} photos with fingerprint {}", source.photos, print.get(..12).unwrap_or(print))
}

fn splits(splits: &[SplitPlan]) -> String {
    let each = splits.iter().map(|split| {
        let SplitPlan { name, share, shards } = split;
        format!("{name} {:.1} % in {shards} shards", share * 100.0)
    });
    each.collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photos::SplitShare;
    use paceline_data::catalogue;
    use paceline_store::LocalStore;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, sync::atomic::AtomicBool};

    fn source(count: usize) -> (tempfile::TempDir, Catalogue) {
        let dir = tempfile::tempdir().unwrap();
        for photo in 0..count {
            let class = dir.path().join(format!("class{}", photo % 3));
            std::fs::create_dir_all(&class).unwrap();
            std::fs::write(class.join(format!("{photo}.jpg")), b"x").unwrap();
        }
        let store = LocalStore::new(dir.path());
        let catalogue = catalogue::read(&store, &AtomicBool::new(false)).unwrap();
        (dir, catalogue)
    }

    fn options(shards: u32, seed: u64, validation: f64) -> PhotoOptions {
        let splits = vec![SplitShare { name: "validation".into(), share: validation }];
        PhotoOptions { shards, seed, splits, ..PhotoOptions::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_photo_has_one_place(count in 1usize..60, shards in 1u32..20, seed: u64, part in 0.01f64..0.9) {
            let (_dir, catalogue) = source(count);
            let plan = Plan::new(&catalogue, &options(shards, seed, part)).unwrap();
            let mut order = plan.order.clone();
            order.sort_unstable();
            prop_assert_eq!(order, (0..count as u32).collect::<Vec<_>>());
            let mut next = 0;
            for shard in &plan.shards {
                prop_assert_eq!(shard.photos.start, next);
                prop_assert!(!shard.photos.is_empty());
                next = shard.photos.end;
            }
            prop_assert_eq!(next, count);
        }
    }

    #[test]
    fn split_ignores_the_seed_and_other_photos() {
        let splits = |count: usize, seed| -> BTreeMap<String, bool> {
            let (_dir, catalogue) = source(count);
            let plan = Plan::new(&catalogue, &options(4, seed, 0.3)).unwrap();
            let train: usize =
                plan.shards[..plan.splits[0].shards].iter().map(|s| s.photos.len()).sum();
            let place = |(at, &photo): (usize, &u32)| (catalogue.path(photo as usize), at < train);
            plan.order.iter().enumerate().map(place).collect()
        };
        let few = splits(300, 1);
        let many = splits(600, 2);
        assert!(few.iter().all(|(path, train)| many[path] == *train));
        let share = few.values().filter(|train| !**train).count() as f64 / 300.0;
        assert!((0.2..0.4).contains(&share), "{share}");
    }

    #[test]
    fn splits_that_folders_give_are_kept_and_only_training_photos_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        for photo in 0..300 {
            let split = ["train", "train", "test"][photo % 3];
            let class = dir.path().join(format!("{split}/class{}", photo % 2));
            std::fs::create_dir_all(&class).unwrap();
            std::fs::write(class.join(format!("{photo}.jpg")), b"x").unwrap();
        }
        let store = LocalStore::new(dir.path());
        let catalogue = catalogue::read(&store, &AtomicBool::new(false)).unwrap();
        let plan = Plan::new(&catalogue, &options(4, 1, 0.3)).unwrap();
        let names: Vec<&str> = plan.splits.iter().map(|split| split.name.as_str()).collect();
        assert_eq!(names, ["train", "test", "validation"]);
        for shard in &plan.shards {
            let from = if shard.name.starts_with("test") { "test/" } else { "train/" };
            for &photo in &plan.order[shard.photos.clone()] {
                let path = catalogue.path(photo as usize);
                assert!(path.starts_with(from), "{path} in {}", shard.name);
            }
        }
        let test = plan.splits.iter().find(|split| split.name == "test").unwrap();
        assert!((test.share - 1.0 / 3.0).abs() < 1e-9, "{}", test.share);
        let splits = vec![SplitShare { name: "test".into(), share: 0.1 }];
        let error =
            Plan::new(&catalogue, &PhotoOptions { splits, ..options(4, 1, 0.3) }).unwrap_err();
        assert!(error.to_string().contains("name a test split already"), "{error}");
    }

    #[test]
    fn seed_mixes_classes_into_every_shard() {
        let (_dir, catalogue) = source(300);
        let plan = |seed| Plan::new(&catalogue, &options(5, seed, 0.1)).unwrap();
        assert_ne!(plan(1).order, plan(2).order);
        let one = plan(1);
        for shard in &one.shards[..5] {
            let mut counts = [0; 3];
            for &photo in &one.order[shard.photos.clone()] {
                counts[catalogue.label(photo as usize)] += 1;
            }
            assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
        }
    }

    #[test]
    fn places_never_change_between_versions() {
        // From Python's hashlib. A change of these numbers would move photos between splits and shards of existing data.
        assert_eq!(hash(b"split", 0, "daisy/1.jpg"), 0xcda6_f128_dc2a_1aa7);
        assert_eq!(place("daisy/1.jpg", 7), 0xd000_95d4_a9e5_ce77);
    }

    #[test]
    fn shard_counts_are_in_proportion_and_never_empty() {
        assert_eq!(shard_count(9000, 9000, 16), 16);
        assert_eq!(shard_count(1000, 9000, 16), 2);
        assert_eq!(shard_count(10, 9000, 16), 1);
        assert_eq!(shard_count(5, 5, 16), 5);
        assert_eq!(shard_count(0, 5, 16), 0);
        assert_eq!(shard_count(9, 0, 16), 9);
    }
}
