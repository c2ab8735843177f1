//! The recipes that come with the program: the files of `recipes/`, which the crate has as a link, so that they are packaged with it.

/// Name and text of every recipe, in the order of the experiments.
pub const ALL: &[(&str, &str)] = &[
    ("prepare-shards", include_str!("../recipes/prepare-shards.toml")),
    ("prepare-by-partitions", include_str!("../recipes/prepare-by-partitions.toml")),
    ("cluster-shapes", include_str!("../recipes/cluster-shapes.toml")),
    ("speedtest", include_str!("../recipes/speedtest.toml")),
    ("softmax-batch", include_str!("../recipes/softmax-batch.toml")),
    ("softmax-epochs", include_str!("../recipes/softmax-epochs.toml")),
    ("softmax-learning-rate", include_str!("../recipes/softmax-learning-rate.toml")),
    ("async-sync-batch", include_str!("../recipes/async-sync-batch.toml")),
    ("async-sync-workers", include_str!("../recipes/async-sync-workers.toml")),
    ("until-loss", include_str!("../recipes/until-loss.toml")),
    ("alexnet", include_str!("../recipes/alexnet.toml")),
    ("lenet", include_str!("../recipes/lenet.toml")),
    ("lenet-epochs", include_str!("../recipes/lenet-epochs.toml")),
    ("mobilenet-batch", include_str!("../recipes/mobilenet-batch.toml")),
    ("mobilenet-strategies", include_str!("../recipes/mobilenet-strategies.toml")),
    ("grow-batch", include_str!("../recipes/grow-batch.toml")),
    ("sparse-transfer", include_str!("../recipes/sparse-transfer.toml")),
    ("batch-stream-online", include_str!("../recipes/batch-stream-online.toml")),
    ("matmul", include_str!("../recipes/matmul.toml")),
];

/// The text of a recipe.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// All names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Places, Recipe, SweepSettings, analyse};
    use std::collections::BTreeSet;

    #[test]
    fn the_folder_and_the_list_hold_the_same() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let listed: BTreeSet<String> = names().into_iter().map(str::to_owned).collect();
        assert_eq!(files, listed);
    }

    /// Every recipe says where its experiment was published, by a name of the page that lists the sources, and that page lists it.
    #[test]
    fn every_source_is_on_the_page_that_lists_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sources.md");
        let page = std::fs::read_to_string(path).unwrap();
        let sections: Vec<(&str, &str)> =
            page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect();
        assert_eq!(sections.len(), 6, "five reports, and a paper that one of them discusses");
        for (name, text) in ALL {
            let recipe = Recipe::parse(name, text).unwrap();
            assert!(!recipe.sources.is_empty(), "{name} names no source");
            for published in &recipe.published {
                assert!(recipe.sources.contains(&published.source), "{name}: {}", published.source);
                assert!(!published.part.is_empty(), "{name}: {}", published.place());
            }
            for (heading, section) in &sections {
                let listed = section.contains(&format!("`{name}`"));
                let cited = recipe.sources.iter().any(|source| source == heading);
                assert_eq!(listed, cited, "`{name}` under `{heading}`");
            }
            let known = |source: &String| sections.iter().any(|(heading, _)| heading == source);
            assert!(recipe.sources.iter().all(known), "{name}: {:?}", recipe.sources);
        }
        for (heading, section) in &sections {
            let recipes = section.split("- Recipes: ").nth(1).unwrap_or_default();
            for name in recipes.split('`').skip(1).step_by(2) {
                assert!(names().contains(&name), "`{name}` under `{heading}` is not a recipe");
            }
        }
    }

    /// Every recipe parses, fills all its placeholders at every scale, and finds its own published figures again when it
    /// measures exactly them.
    #[test]
    fn every_recipe_is_whole() {
        for (name, text) in ALL {
            let recipe = Recipe::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!recipe.title.is_empty() && !recipe.about.is_empty(), "{name}");
            assert!(!recipe.measure.is_empty(), "{name}");
            for scale in [1.0, 0.01] {
                let settings = SweepSettings { scale, ..SweepSettings::default() };
                let cells = settings.cells(&recipe).unwrap();
                assert!(!cells.is_empty(), "{name}");
                let places = Places { out: "out".into(), data: Some("data".into()) };
                for cell in &cells {
                    let arguments = places.arguments(cell).unwrap();
                    assert!(!arguments.join(" ").contains('{'), "{name}: {arguments:?}");
                }
                let found = analyse(&recipe, &settings, &cells, &[]);
                let series = recipe.published.iter().filter(|series| series.is.len() > 1);
                assert_eq!(found.comparisons.len(), series.count(), "{name}");
            }
        }
    }
}
