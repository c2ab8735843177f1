//! A batch of examples in the layout kernels want: one flat buffer, no pointers per example.

/// Some examples, ready for a model. Reused from step to step, so that a step allocates nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The features of all examples, one after another.
    pub features: Features,
    /// One label per example.
    pub labels: Vec<u32>,
}

/// Features of a whole batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// `labels.len() * width` values, example after example; images in height, width, channel order.
    Dense {
        values: Vec<f32>,
        /// Values per example.
        width: usize,
    },
    /// Like `Dense`, but as decoded: one byte a value, worth `byte / 255`. A quarter of the memory and
    /// of the copying; a model widens it while it reads it.
    Pixels {
        values: Vec<u8>,
        /// Bytes per example.
        width: usize,
    },
    /// Rows of index/value pairs.
    Sparse {
        /// Start of each row in `indices` and `values`; one more entry than there are rows.
        offsets: Vec<usize>,
        /// Feature numbers, row after row.
        indices: Vec<u32>,
        /// The value of each feature; empty where every one is 1, as in click logs: half the memory, and
        /// no multiplication.
        values: Vec<f32>,
    },
}

impl Batch {
    /// An empty dense batch with room for `examples` examples of `width` values.
    #[must_use]
    pub fn dense(width: usize, examples: usize) -> Self {
        Self {
            features: Features::Dense { values: Vec::with_capacity(width * examples), width },
            labels: Vec::with_capacity(examples),
        }
    }

    /// An empty batch of pixels with room for `examples` examples of `width` bytes.
    #[must_use]
    pub fn pixels(width: usize, examples: usize) -> Self {
        Self {
            features: Features::Pixels { values: Vec::with_capacity(width * examples), width },
            labels: Vec::with_capacity(examples),
        }
    }

    /// An empty sparse batch.
    #[must_use]
    pub fn sparse() -> Self {
        Self {
            features: Features::Sparse {
                offsets: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
            },
            labels: Vec::new(),
        }
    }

    /// Number of examples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether the batch holds no example.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Bytes of memory the batch's contents occupy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let features = match &self.features {
            Features::Dense { values, .. } => values.len() * 4,
            Features::Pixels { values, .. } => values.len(),
            Features::Sparse { offsets, indices, values } => {
                offsets.len() * 8 + indices.len() * 4 + values.len() * 4
            }
        };
        features + self.labels.len() * 4
    }

    /// Forgets the examples and keeps the memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        match &mut self.features {
            Features::Dense { values, .. } => values.clear(),
            Features::Pixels { values, .. } => values.clear(),
            Features::Sparse { offsets, indices, values } => {
                offsets.truncate(1);
                indices.clear();
                values.clear();
            }
        }
    }
}
