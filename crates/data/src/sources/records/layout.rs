//! Under which names the parts of an image are found in an example.

use std::ops::Range;

use paceline_batch::ImageShape;
use paceline_photo::probe;
use paceline_tfrecord::{ExampleView, FeatureKind, FeatureView, Malformed, RecordPlace};

use crate::DataError;

/// The names one family of writers uses.
#[derive(Debug)]
pub(crate) struct Layout {
    image: &'static str,
    label: &'static str,
    /// Absent where images are always raw.
    format: Option<&'static str>,
    pub(super) text: Option<&'static str>,
    height: &'static str,
    width: &'static str,
    channels: &'static str,
}

/// Known families: the standard names, and those of the classic MNIST conversion script.
const LAYOUTS: [Layout; 2] = [
    Layout {
        image: "image/encoded",
        label: "image/class/label",
        format: Some("image/format"),
        text: Some("image/class/text"),
        height: "image/height",
        width: "image/width",
        channels: "image/channels",
    },
    Layout {
        image: "image_raw",
        label: "label",
        format: None,
        text: None,
        height: "height",
        width: "width",
        channels: "depth",
    },
];

/// An image and its label, found in a record.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where the image is in the payload.
    pub(crate) image: Range<usize>,
    pub(crate) label: i64,
    /// Pixels as they are, rather than a JPEG or PNG.
    pub(crate) raw: bool,
}

impl Layout {
    /// Finds image and label in a payload.
    pub(crate) fn find(
        &self,
        payload: &[u8],
        place: &dyn Fn() -> RecordPlace,
    ) -> Result<Found, DataError> {
        let names = [self.image, self.label, self.format.unwrap_or("")];
        let [image, label, format] = ExampleView::new(payload)
            .find(names)
            .map_err(|source| DataError::Example { place: place(), source })?;
        let missing = |name| DataError::MissingFeature { place: place(), name };
        let image = image.as_ref().and_then(FeatureView::first_bytes);
        let image = image.ok_or_else(|| missing(self.image))?;
        let label = label.as_ref().and_then(FeatureView::first_int);
        let label = label.ok_or_else(|| missing(self.label))?;
        let format = format.as_ref().and_then(FeatureView::first_bytes);
        let raw = self.format.is_none()
            || format.is_some_and(|format| format.eq_ignore_ascii_case(b"raw"));
        // The view lends a slice of the payload; as a range it outlives the borrow.
        let start = image.as_ptr() as usize - payload.as_ptr() as usize;
        Ok(Found { image: start..start + image.len(), label, raw })
    }
}

/// Features of a foreign record that are named.
const MOST_NAMED: usize = 12;

/// What a record without an image has instead.
fn foreign(view: &ExampleView<'_>, place: &RecordPlace) -> Result<DataError, Malformed> {
    let mut found = Vec::new();
    for entry in view.entries() {
        let (name, feature) = entry?;
        let kind = match feature.kind() {
            FeatureKind::Bytes => "bytes",
            FeatureKind::Float => "float",
            FeatureKind::Int64 => "int64",
            FeatureKind::Unset => "empty",
        };
        found.push(format!("`{name}` ({kind})"));
    }
    let more = found.len().saturating_sub(MOST_NAMED);
    found.truncate(MOST_NAMED);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    let found = if found.is_empty() { "no features".to_owned() } else { found.join(", ") };
    let wanted =
        LAYOUTS.map(|layout| format!("`{}` with `{}`", layout.image, layout.label)).join(", or ");
    Ok(DataError::ForeignRecords { place: place.clone(), found, wanted })
}

/// The layout of a set by its first record, and the shape of that record's image as stored.
pub(super) fn recognise(
    payload: &[u8],
    place: &RecordPlace,
) -> Result<(&'static Layout, ImageShape), DataError> {
    let view = ExampleView::new(payload);
    let example = |source| DataError::Example { place: place.clone(), source };
    for layout in &LAYOUTS {
        if view.feature(layout.image).map_err(example)?.is_none() {
            continue;
        }
        let found = layout.find(payload, &|| place.clone())?;
        let image = &payload[found.image];
        if !found.raw {
            let header = probe(image)
                .map_err(|source| DataError::RecordPhoto { place: place.clone(), source })?;
            let (width, height) = header.upright_size();
            let shape = ImageShape {
                height: height as usize,
                width: width as usize,
                channels: header.natural_colour().channels(),
            };
            return Ok((layout, shape));
        }
        let names = [layout.height, layout.width, layout.channels];
        let sides = view.find(names).map_err(example)?;
        let side = |which: usize| {
            let value = sides[which].as_ref().and_then(FeatureView::first_int)?;
            usize::try_from(value).ok().filter(|&side| side > 0 && side <= 1 << 20)
        };
        let missing = |name| DataError::MissingFeature { place: place.clone(), name };
        let height = side(0).ok_or_else(|| missing(layout.height))?;
        let width = side(1).ok_or_else(|| missing(layout.width))?;
        let channels = side(2).unwrap_or(3);
        let shape = ImageShape { height, width, channels };
        let wanted = height.checked_mul(width).and_then(|area| area.checked_mul(channels));
        if wanted != Some(image.len()) || !matches!(channels, 1 | 3) {
            let (found, wanted) = (image.len(), wanted.unwrap_or(usize::MAX));
            return Err(DataError::RawLength { place: place.clone(), found, wanted });
        }
        return Ok((layout, shape));
    }
    Err(foreign(&view, place).map_err(example)?)
}
