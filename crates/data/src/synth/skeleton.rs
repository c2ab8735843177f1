//! The lines a pen follows to write each digit.
//!
//! Coordinates in a unit box, x to the right, y down. A stroke is a smooth curve through its points;
//! a corner is where one stroke ends and the next begins. Each digit has several ways of being
//! written, with the share of people (by eye) who write it so.

/// A point of the unit box.
pub(crate) type Point = [f32; 2];

/// One way of writing a digit.
#[derive(Debug)]
pub(crate) struct Style {
    /// Relative frequency among the styles of a digit.
    pub(crate) weight: f32,
    /// Curves, each through its points.
    pub(crate) strokes: &'static [&'static [Point]],
}

/// The styles of the digits 0 to 9.
pub(crate) const DIGITS: [&[Style]; 10] =
    [ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT, NINE];

const ZERO: &[Style] = &[
    Style {
        weight: 0.8,
        strokes: &[&[
            [0.52, 0.05],
            [0.25, 0.2],
            [0.15, 0.5],
            [0.25, 0.82],
            [0.5, 0.95],
            [0.76, 0.8],
            [0.85, 0.48],
            [0.75, 0.18],
            [0.48, 0.05],
        ]],
    },
    // Begun at the right, left open at the top.
    Style {
        weight: 0.2,
        strokes: &[&[
            [0.7, 0.1],
            [0.4, 0.06],
            [0.18, 0.35],
            [0.22, 0.75],
            [0.5, 0.94],
            [0.8, 0.72],
            [0.8, 0.35],
            [0.55, 0.12],
        ]],
    },
];

const ONE: &[Style] = &[
    Style { weight: 0.6, strokes: &[&[[0.5, 0.04], [0.5, 0.5], [0.5, 0.96]]] },
    Style {
        weight: 0.3,
        strokes: &[&[[0.3, 0.26], [0.42, 0.16], [0.53, 0.04]], &[[0.53, 0.04], [0.52, 0.96]]],
    },
    Style {
        weight: 0.1,
        strokes: &[
            &[[0.32, 0.24], [0.52, 0.04]],
            &[[0.52, 0.04], [0.52, 0.95]],
            &[[0.28, 0.95], [0.76, 0.95]],
        ],
    },
];

const TWO: &[Style] = &[
    Style {
        weight: 0.6,
        strokes: &[
            &[[0.2, 0.26], [0.36, 0.07], [0.66, 0.08], [0.78, 0.3], [0.6, 0.58], [0.2, 0.92]],
            &[[0.2, 0.92], [0.5, 0.92], [0.84, 0.92]],
        ],
    },
    // A loop at the foot instead of a corner.
    Style {
        weight: 0.4,
        strokes: &[&[
            [0.22, 0.22],
            [0.45, 0.05],
            [0.75, 0.2],
            [0.62, 0.55],
            [0.32, 0.88],
            [0.15, 0.86],
            [0.3, 0.74],
            [0.55, 0.87],
            [0.88, 0.9],
        ]],
    },
];

const THREE: &[Style] = &[
    Style {
        weight: 0.75,
        strokes: &[
            &[[0.22, 0.16], [0.48, 0.05], [0.75, 0.2], [0.66, 0.4], [0.42, 0.48]],
            &[[0.42, 0.48], [0.72, 0.55], [0.79, 0.76], [0.52, 0.95], [0.2, 0.84]],
        ],
    },
    // A flat top with a corner.
    Style {
        weight: 0.25,
        strokes: &[
            &[[0.22, 0.08], [0.76, 0.08]],
            &[[0.76, 0.08], [0.46, 0.42]],
            &[[0.46, 0.42], [0.75, 0.53], [0.77, 0.78], [0.48, 0.95], [0.2, 0.83]],
        ],
    },
];

const FOUR: &[Style] = &[
    Style {
        weight: 0.65,
        strokes: &[
            &[[0.26, 0.08], [0.2, 0.35], [0.24, 0.54]],
            &[[0.24, 0.54], [0.5, 0.55], [0.78, 0.5]],
            &[[0.76, 0.08], [0.72, 0.5], [0.68, 0.96]],
        ],
    },
    Style {
        weight: 0.35,
        strokes: &[
            &[[0.66, 0.05], [0.16, 0.64]],
            &[[0.16, 0.64], [0.86, 0.62]],
            &[[0.66, 0.05], [0.65, 0.96]],
        ],
    },
];

const FIVE: &[Style] = &[
    Style {
        weight: 0.7,
        strokes: &[
            &[[0.8, 0.07], [0.34, 0.08]],
            &[[0.34, 0.08], [0.27, 0.45]],
            &[[0.27, 0.45], [0.55, 0.39], [0.78, 0.6], [0.64, 0.88], [0.22, 0.9]],
        ],
    },
    // In one go, without corners.
    Style {
        weight: 0.3,
        strokes: &[&[
            [0.8, 0.08],
            [0.45, 0.12],
            [0.3, 0.38],
            [0.55, 0.5],
            [0.7, 0.7],
            [0.5, 0.92],
            [0.2, 0.86],
        ]],
    },
];

const SIX: &[Style] = &[
    Style {
        weight: 0.7,
        strokes: &[&[
            [0.7, 0.06],
            [0.4, 0.25],
            [0.22, 0.62],
            [0.36, 0.92],
            [0.66, 0.9],
            [0.76, 0.66],
            [0.54, 0.52],
            [0.26, 0.7],
        ]],
    },
    Style {
        weight: 0.3,
        strokes: &[&[
            [0.45, 0.04],
            [0.26, 0.4],
            [0.22, 0.75],
            [0.45, 0.95],
            [0.74, 0.8],
            [0.64, 0.58],
            [0.3, 0.68],
        ]],
    },
];

const SEVEN: &[Style] = &[
    Style {
        weight: 0.6,
        strokes: &[
            &[[0.17, 0.12], [0.5, 0.09], [0.82, 0.1]],
            &[[0.82, 0.1], [0.58, 0.5], [0.44, 0.96]],
        ],
    },
    Style {
        weight: 0.25,
        strokes: &[
            &[[0.18, 0.1], [0.82, 0.08]],
            &[[0.82, 0.08], [0.45, 0.95]],
            &[[0.36, 0.5], [0.78, 0.48]],
        ],
    },
    Style {
        weight: 0.15,
        strokes: &[
            &[[0.18, 0.28], [0.24, 0.1], [0.5, 0.1], [0.8, 0.12]],
            &[[0.8, 0.12], [0.66, 0.45], [0.6, 0.95]],
        ],
    },
];

const EIGHT: &[Style] = &[
    Style {
        weight: 0.7,
        strokes: &[&[
            [0.72, 0.18],
            [0.46, 0.05],
            [0.27, 0.24],
            [0.5, 0.47],
            [0.74, 0.72],
            [0.5, 0.95],
            [0.24, 0.76],
            [0.48, 0.48],
            [0.74, 0.2],
        ]],
    },
    // Two rings.
    Style {
        weight: 0.3,
        strokes: &[
            &[[0.5, 0.05], [0.28, 0.25], [0.5, 0.46], [0.72, 0.25], [0.5, 0.05]],
            &[[0.5, 0.46], [0.22, 0.7], [0.5, 0.95], [0.78, 0.7], [0.5, 0.46]],
        ],
    },
];

const NINE: &[Style] = &[
    Style {
        weight: 0.65,
        strokes: &[
            &[[0.74, 0.24], [0.5, 0.06], [0.25, 0.26], [0.42, 0.48], [0.7, 0.36], [0.75, 0.2]],
            &[[0.75, 0.2], [0.71, 0.58], [0.66, 0.96]],
        ],
    },
    // A bent tail.
    Style {
        weight: 0.35,
        strokes: &[&[
            [0.72, 0.3],
            [0.52, 0.06],
            [0.26, 0.22],
            [0.36, 0.47],
            [0.68, 0.38],
            [0.76, 0.22],
            [0.73, 0.62],
            [0.56, 0.93],
            [0.26, 0.9],
        ]],
    },
];
