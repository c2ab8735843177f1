//! What the caller decides.

use std::collections::BTreeSet;

use paceline_photo::{DecodeOptions, Encoding, Fit, Limits};

use super::PrepareError;
use paceline_data::{
    manifest::{MAX_SIDE, RecordSettings, TRAIN},
    rejects::RejectLimit,
};
use paceline_store::Store;

/// The names have five digits.
const MAX_SHARDS: u32 = 99_999;

/// Threads that read photos from another machine, at least: with some tens of milliseconds a photo it
/// takes so many to keep two cores busy.
const DISTANT_READERS: usize = 16;

/// How photos are to be prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct PhotoOptions {
    /// Width of every photo, in pixels.
    pub width: u32,
    /// Height of every photo, in pixels.
    pub height: u32,
    /// What happens to a photo of another shape.
    pub fit: Fit,
    /// How pixels are stored.
    pub encoding: Encoding,
    /// Shards of the training split. Other splits get as many in proportion, at least one.
    pub shards: u32,
    /// Splits beside training, by a stable hash of the relative path.
    pub splits: Vec<SplitShare>,
    /// Decides which photo goes to which shard, and where.
    pub seed: u64,
    /// Threads that convert; `None` for all cores this process may use.
    pub threads: Option<usize>,
    /// Most pixels of a photo; larger ones are rejected. 64 million where absent.
    pub max_pixels: Option<u64>,
    /// How many rejects end the run; `None` for no limit.
    pub max_rejects: Option<RejectLimit>,
    /// Remove what an earlier call left in the target, and begin again.
    pub fresh: bool,
    /// Do those shards again that have rejects.
    pub retry_rejects: bool,
}

impl Default for PhotoOptions {
    fn default() -> Self {
        Self {
            width: 192,
            height: 192,
            fit: Fit::Crop,
            encoding: Encoding::Jpeg { quality: 90 },
            shards: 16,
            splits: Vec::new(),
            seed: 0,
            threads: None,
            max_pixels: None,
            max_rejects: None,
            fresh: false,
            retry_rejects: false,
        }
    }
}

/// A split and its share of the photos.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitShare {
    /// `validation`, `test`, ...
    pub name: String,
    /// Between 0 and 1.
    pub share: f64,
}

impl PhotoOptions {
    pub(super) fn check(&self) -> Result<(), PrepareError> {
        let (width, height) = (self.width, self.height);
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(PrepareError::BadSize { width, height });
        }
        if let Encoding::Jpeg { quality } = self.encoding
            && !(1..=100).contains(&quality)
        {
            return Err(PrepareError::BadQuality { quality });
        }
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return Err(PrepareError::BadShards { shards: self.shards });
        }
        let mut seen = BTreeSet::from([TRAIN]);
        for SplitShare { name, .. } in &self.splits {
            let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
            if name.is_empty() || !letters || !seen.insert(name) {
                return Err(PrepareError::BadSplitName { name: name.clone() });
            }
        }
        let sum: f64 = self.splits.iter().map(|split| split.share).sum();
        if self.splits.iter().any(|split| split.share.is_nan() || split.share <= 0.0) || sum >= 1.0
        {
            return Err(PrepareError::BadShares { sum });
        }
        Ok(())
    }

    /// Threads that read and convert: more than cores where most of them wait for another machine.
    pub(super) fn threads_for(&self, src: &dyn Store) -> usize {
        let most = if src.is_distant() { DISTANT_READERS } else { 0 };
        self.threads.unwrap_or_else(|| paceline_batch::cores().count.max(most))
    }

    /// The settings that decide the bytes of a record, as the manifest says them.
    pub(super) fn settings(&self) -> RecordSettings {
        let (encode, quality) = match self.encoding {
            Encoding::Jpeg { quality } => ("jpeg", Some(quality)),
            Encoding::Png => ("png", None),
            Encoding::Raw => ("raw", None),
        };
        RecordSettings {
            width: self.width,
            height: self.height,
            fit: self.fit.name().into(),
            encode: encode.into(),
            quality,
            max_pixels: self.max_pixels,
        }
    }

    /// How photos are decoded.
    pub(super) fn decode(&self) -> DecodeOptions {
        let limits = Limits::default();
        let max_pixels = self.max_pixels.unwrap_or(limits.max_pixels);
        DecodeOptions { limits: Limits { max_pixels, ..limits }, ..DecodeOptions::default() }
    }

    /// PhotoOptions that make records as `settings` say; unknown words get values that [`PhotoOptions::check`] refuses.
    pub(super) fn of_settings(settings: &RecordSettings) -> Self {
        let fit = Fit::named(&settings.fit);
        let encoding = match settings.encode.as_str() {
            "png" => Encoding::Png,
            "raw" => Encoding::Raw,
            "jpeg" => Encoding::Jpeg { quality: settings.quality.unwrap_or(0) },
            _ => Encoding::Jpeg { quality: 0 },
        };
        let width = if fit.is_some() { settings.width } else { 0 };
        let fit = fit.unwrap_or(Fit::Crop);
        let (height, max_pixels) = (settings.height, settings.max_pixels);
        Self { width, height, fit, encoding, max_pixels, ..Self::default() }
    }

    /// Smallest and likely size of a record in bytes.
    pub(super) fn record_bytes(&self) -> (u64, u64) {
        let pixels = u64::from(self.width) * u64::from(self.height);
        // Field names and numbers of an example, with the frame around it.
        let around = 300;
        match self.encoding {
            Encoding::Raw => (3 * pixels + around, 3 * pixels + around),
            // Photographs at quality 90 take about 0.3 bytes a pixel; flat ones can take almost nothing.
            Encoding::Jpeg { .. } => (around, pixels * 3 / 10 + around),
            Encoding::Png => (around, pixels * 3 / 2 + around),
        }
    }
}

/// This program, as manifests and plans name it.
pub(super) fn program() -> String {
    format!("paceline {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_splits(splits: &[(&str, f64)]) -> PhotoOptions {
        let splits = splits.iter().map(|&(name, share)| SplitShare { name: name.into(), share });
        PhotoOptions { splits: splits.collect(), ..PhotoOptions::default() }
    }

    #[test]
    fn impossible_options_are_named() {
        assert!(PhotoOptions::default().check().is_ok());
        assert!(with_splits(&[("validation", 0.1), ("test", 0.2)]).check().is_ok());
        for (splits, wanted) in [
            (vec![("train", 0.1)], "split name"),
            (vec![("a/b", 0.1)], "split name"),
            (vec![("", 0.1)], "split name"),
            (vec![("x", 0.1), ("x", 0.1)], "split name"),
            (vec![("x", 0.5), ("y", 0.5)], "shares"),
            (vec![("x", -0.5)], "shares"),
            (vec![("x", f64::NAN)], "shares"),
        ] {
            let message = with_splits(&splits).check().unwrap_err().to_string();
            assert!(message.contains(wanted), "{splits:?}: {message}");
        }
        assert!(PhotoOptions { width: 0, ..PhotoOptions::default() }.check().is_err());
        assert!(PhotoOptions { shards: 0, ..PhotoOptions::default() }.check().is_err());
        let encoding = Encoding::Jpeg { quality: 0 };
        assert!(PhotoOptions { encoding, ..PhotoOptions::default() }.check().is_err());
    }
}
