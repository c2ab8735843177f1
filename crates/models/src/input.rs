//! Checks a batch against what a model was built for, before anything is computed.

pub(crate) use crate::kernels::convert::{BYTE, Pixels, Scaling};
use crate::{
    mobilenet_v2,
    model::{ModelError, ModelOptions, PixelScale},
};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, Schema};

/// Mean and deviation of ImageNet's red, green and blue, as torchvision and timm train with.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

/// The scaling the options ask for, if the images have the channels for it.
pub(crate) fn scaling(
    model: &'static str,
    image: ImageShape,
    options: &ModelOptions,
) -> Result<Scaling, ModelError> {
    let (mean, deviation) = match options.pixels {
        PixelScale::Unit => return Ok(Scaling::UNIT),
        PixelScale::Imagenet => IMAGENET,
        PixelScale::Keras if model == mobilenet_v2::ENTRY.name => ([0.5; 3], [0.5; 3]),
        PixelScale::Keras => {
            let (option, found) = ("the scale of pixels", "Keras's".to_owned());
            let wanted = "0 to 1 or ImageNet's";
            return Err(ModelError::Option { model, option, found, wanted });
        }
    };
    if image.channels != 3 {
        return Err(ModelError::Mismatch {
            model,
            needs: "red, green and blue to scale as its weights expect".to_owned(),
            has: format!("images of {image}"),
        });
    }
    let mut scaling = Scaling::UNIT;
    for channel in 0..3 {
        scaling.scale[channel] = 1.0 / deviation[channel];
        scaling.shift[channel] = -mean[channel] / deviation[channel];
    }
    Ok(scaling)
}

/// Refuses other scales for models without weights that expect them.
pub(crate) fn unit_only(model: &'static str, options: &ModelOptions) -> Result<(), ModelError> {
    let found = match options.pixels {
        PixelScale::Unit => None,
        PixelScale::Imagenet => Some("ImageNet's"),
        PixelScale::Keras => Some("Keras's"),
    };
    if let Some(found) = found {
        let (option, found) = ("the scale of pixels", found.to_owned());
        return Err(ModelError::Option { model, option, found, wanted: "0 to 1" });
    }
    Ok(())
}

/// The image shape and number of classes a schema describes.
pub(crate) fn image_and_classes(
    model: &'static str,
    schema: &Schema,
) -> Result<(ImageShape, usize), ModelError> {
    let mismatch = |needs: &str, has: String| {
        Err(ModelError::Mismatch { model, needs: needs.to_owned(), has })
    };
    let image = match schema.features {
        FeatureKind::Image(image) if image.is_empty() => {
            return mismatch("images with pixels", format!("images of {image}"));
        }
        FeatureKind::Image(image) => image,
        FeatureKind::Sparse { width } => {
            return mismatch("images", format!("sparse rows of {width} features"));
        }
    };
    match schema.labels.classes() {
        classes @ 0..2 => mismatch("at least 2 classes", format!("{classes}")),
        classes => Ok((image, classes)),
    }
}

/// The same, with images of a least height and width.
pub(crate) fn large_image_and_classes(
    model: &'static str,
    schema: &Schema,
    least: usize,
) -> Result<(ImageShape, usize), ModelError> {
    let (image, classes) = image_and_classes(model, schema)?;
    if image.height < least || image.width < least {
        let needs = format!("images of at least {least}x{least}");
        return Err(ModelError::Mismatch { model, needs, has: format!("images of {image}") });
    }
    Ok((image, classes))
}

/// The dropout the options ask for, if it is a share that leaves something.
pub(crate) fn dropout(
    model: &'static str,
    options: &ModelOptions,
    default: f32,
) -> Result<f32, ModelError> {
    let rate = options.dropout.unwrap_or(default);
    if (0.0..1.0).contains(&rate) {
        return Ok(rate);
    }
    let (option, found) = ("dropout", rate.to_string());
    Err(ModelError::Option { model, option, found, wanted: "at least 0 and below 1" })
}

/// The pixels of a batch whose examples have `width` values and whose labels are below `classes`.
pub(crate) fn pixels<'a>(
    model: &'static str,
    batch: &'a Batch,
    width: usize,
    classes: usize,
) -> Result<Pixels<'a>, ModelError> {
    let mismatch = |has| {
        let needs = format!("{width} values per example");
        ModelError::Mismatch { model, needs, has }
    };
    let (found, len, pixels) = match &batch.features {
        Features::Dense { values, width } => (*width, values.len(), Pixels::Floats(values)),
        Features::Pixels { values, width } => (*width, values.len(), Pixels::Bytes(values)),
        Features::Sparse { .. } => return Err(mismatch("sparse rows".to_owned())),
    };
    if found != width || len != width * batch.len() {
        let examples = batch.len();
        return Err(mismatch(format!("{len} values for {examples} examples of {found}")));
    }
    match batch.labels.iter().position(|&label| label as usize >= classes) {
        Some(example) => Err(ModelError::Label { example, label: batch.labels[example], classes }),
        None => Ok(pixels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_batch::LabelKind;

    #[test]
    fn batches_that_do_not_fit_are_named() {
        let mut batch = Batch::dense(4, 1);
        batch.labels.push(1);
        let error = pixels("softmax", &batch, 4, 2).unwrap_err();
        assert!(error.to_string().contains("0 values for 1 examples of 4"), "{error}");
        let Features::Dense { values, .. } = &mut batch.features else { unreachable!() };
        values.extend([0.0; 4]);
        assert!(pixels("softmax", &batch, 4, 2).is_ok());
        assert!(pixels("softmax", &batch, 5, 2).is_err());
        batch.labels[0] = 2;
        let error = pixels("softmax", &batch, 4, 2).unwrap_err();
        assert_eq!(error, ModelError::Label { example: 0, label: 2, classes: 2 });
        assert!(pixels("softmax", &Batch::sparse(), 4, 2).is_err());
    }

    #[test]
    fn schemas_without_images_or_classes_are_refused() {
        let image = FeatureKind::Image(ImageShape { height: 2, width: 2, channels: 1 });
        let classes = |names: &[&str]| LabelKind::Classes {
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let check = |features, labels| image_and_classes("lenet", &Schema { features, labels });
        assert!(check(image, classes(&["a", "b"])).is_ok());
        assert!(check(image, classes(&[])).is_err());
        let error = check(FeatureKind::Sparse { width: 9 }, LabelKind::Binary).unwrap_err();
        assert_eq!(
            error.to_string(),
            "model `lenet` needs images, but the data has sparse rows of 9 features"
        );
    }
}
