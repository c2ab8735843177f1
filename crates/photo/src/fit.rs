//! Where in the source a target of another shape comes from.

/// What happens when source and target differ in shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fit {
    /// Fill the target, cutting equal parts from both ends of the longer side.
    #[default]
    Crop,
    /// Keep everything, with black bars at the shorter sides.
    Pad,
    /// Keep everything, distorted.
    Stretch,
}

impl Fit {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Crop, Self::Pad, Self::Stretch];

    /// The name on the command line, in manifests and in plans of runs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crop => "crop",
            Self::Pad => "pad",
            Self::Stretch => "stretch",
        }
    }

    /// The way of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fit| fit.name() == name)
    }
}

/// A part of the source, in source pixels; fractions are parts of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Region {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Region {
    /// The same part of a source scaled by `factor`.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            left: self.left * factor,
            top: self.top * factor,
            width: self.width * factor,
            height: self.height * factor,
        }
    }
}

/// Which region of the source fills which rectangle of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) region: Region,
    /// Left edge, top edge, width, height in target pixels; the rest of the target is black.
    pub(crate) inside: [u32; 4],
}

/// Plans the fit of a `source` into a `target`; all sides are at least 1.
pub(crate) fn plan(fit: Fit, source: (u32, u32), target: (u32, u32)) -> Plan {
    let (sw, sh) = (f64::from(source.0), f64::from(source.1));
    let (tw, th) = (f64::from(target.0), f64::from(target.1));
    let whole = Region { left: 0.0, top: 0.0, width: sw, height: sh };
    let full = [0, 0, target.0, target.1];
    match fit {
        Fit::Stretch => Plan { region: whole, inside: full },
        Fit::Crop => {
            // Source pixels per target pixel, by the side that limits.
            let step = (sw / tw).min(sh / th);
            let (width, height) = ((tw * step).min(sw), (th * step).min(sh));
            let region =
                Region { left: (sw - width) / 2.0, top: (sh - height) / 2.0, width, height };
            Plan { region, inside: full }
        }
        Fit::Pad => {
            let step = (sw / tw).max(sh / th);
            let side = |source: f64, target: u32| ((source / step).round() as u32).clamp(1, target);
            let (width, height) = (side(sw, target.0), side(sh, target.1));
            let inside = [(target.0 - width) / 2, (target.1 - height) / 2, width, height];
            Plan { region: whole, inside }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crop_keeps_the_middle_of_the_longer_side() {
        let plan = plan(Fit::Crop, (500, 375), (192, 192));
        assert_eq!(plan.region, Region { left: 62.5, top: 0.0, width: 375.0, height: 375.0 });
        assert_eq!(plan.inside, [0, 0, 192, 192]);
    }

    #[test]
    fn padding_centres_and_never_leaves_an_empty_side() {
        assert_eq!(plan(Fit::Pad, (500, 250), (100, 100)).inside, [0, 25, 100, 50]);
        assert_eq!(plan(Fit::Pad, (10_000, 1), (64, 64)).inside[3], 1);
    }
}
