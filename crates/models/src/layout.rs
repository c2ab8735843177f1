//! Names, shapes and offsets of a model's parameters in one flat buffer.

use std::ops::Range;

/// One named parameter tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutEntry {
    /// Dotted name, as checkpoints and TensorBoard show it.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// First element in the flat buffer.
    pub offset: usize,
    /// Whether the optimiser updates it. Running statistics of batch normalisation are not trained:
    /// the model writes the *change* of such an entry into its gradient slot, and it is added as is.
    pub trained: bool,
}

impl LayoutEntry {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the tensor lies in the flat buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// Where the weights and the bias of a layer lie in the flat buffer.
pub type LayerPlace = (Range<usize>, Range<usize>);

/// All parameters of a model, in buffer order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    entries: Vec<LayoutEntry>,
    len: usize,
}

impl Layout {
    /// Appends a tensor and returns where it lies.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        trained: bool,
    ) -> Range<usize> {
        let entry =
            LayoutEntry { name: name.into(), shape: shape.to_vec(), offset: self.len, trained };
        let range = entry.range();
        self.len = range.end;
        self.entries.push(entry);
        range
    }

    /// Appends the weights and the bias of each layer, trained all of them, and returns where they lie. `shape` says that of
    /// a layer's weights; the first number of it is its outputs.
    pub fn push_layers<const N: usize>(
        &mut self,
        names: [&str; N],
        shape: impl Fn(usize) -> Vec<usize>,
    ) -> [LayerPlace; N] {
        std::array::from_fn(|number| {
            let (name, shape) = (names[number], shape(number));
            let weights = self.push(format!("{name}.weight"), &shape, true);
            (weights, self.push(format!("{name}.bias"), &shape[..1], true))
        })
    }

    /// The tensors, in buffer order, without gaps.
    #[must_use]
    pub fn entries(&self) -> &[LayoutEntry] {
        &self.entries
    }

    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LayoutEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Elements of the whole buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Stops a caller whose buffers belong to another model.
    ///
    /// # Panics
    /// If a buffer's length is not the layout's.
    pub fn check(&self, params: &[f32], grad: &[f32]) {
        assert_eq!(params.len(), self.len, "parameters of another layout");
        assert_eq!(grad.len(), self.len, "gradient of another layout");
    }

    /// Whether there are no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
