//! What a source yields, known before the first example is read.

use serde::{Deserialize, Serialize};

/// Describes the examples of one data source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// What an example's features look like.
    pub features: FeatureKind,
    /// What its label means.
    pub labels: LabelKind,
}

/// The shape of one example's features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Pixels in height, width, channel order, scaled to 0..=1.
    Image(ImageShape),
    /// Index/value pairs; indices are below `width`.
    Sparse {
        /// Number of distinct features.
        width: u64,
    },
}

/// Height, width and channels of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageShape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// 1 for grey, 3 for colour.
    pub channels: usize,
}

impl ImageShape {
    /// Values per image.
    #[must_use]
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether an image of this shape holds no value at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Display for ImageShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.height, self.width, self.channels)
    }
}

/// What a label means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// One of several classes; a label is an index into `names`.
    Classes {
        /// Class names in label order.
        names: Vec<String>,
    },
    /// 0 or 1, for a probability (clicked or not).
    Binary,
}

impl LabelKind {
    /// Number of classes a label can name.
    #[must_use]
    pub fn classes(&self) -> usize {
        match self {
            Self::Classes { names } => names.len(),
            Self::Binary => 2,
        }
    }
}
