//! Images of four pixels with a bright row: `stripes:COUNT`.

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use paceline_data::{DataError, Scratch, Source, sources::SourceKind};
use std::{path::Path, sync::Arc};

pub static ENTRY: SourceKind = SourceKind {
    name: "stripes",
    about: "images of four pixels with a bright row",
    looks_for: "stripes: `stripes:COUNT`",
    holds: "stripes",
    recognises: |path| count(path).is_some(),
    opens: |path, _, _| {
        let names = ["above", "below"].map(str::to_owned).to_vec();
        let shape = ImageShape { height: 2, width: 2, channels: 1 };
        let schema =
            Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
        Ok(Arc::new(Stripes { schema, count: count(path).unwrap_or(0) }))
    },
};

fn count(path: &Path) -> Option<u64> {
    path.to_str()?.strip_prefix("stripes:")?.parse().ok()
}

#[derive(Debug)]
struct Stripes {
    schema: Schema,
    count: u64,
}

impl Source for Stripes {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.count
    }

    fn read(&self, index: u64, _: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let below = usize::from(index.is_multiple_of(3));
        pixels.fill(0);
        pixels[2 * below..][..2].fill(255);
        Ok(below as u32)
    }
}
