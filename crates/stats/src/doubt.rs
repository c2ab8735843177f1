//! Reasons to distrust a result, each with what to do about it.

use serde::{Deserialize, Serialize};

use crate::words::{number, p_equals, percent};

/// A doubt about a result. In JSON its fields come with `message` and `advice`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doubt {
    /// A parameter is the product of others, so their influences cannot be told apart by its slope alone.
    Product { parameter: String, of: Vec<String> },
    /// Two parameters changed together.
    Correlated { parameter: String, with: String, r: f64 },
    /// Parameters of a multiple regression can hardly be told apart.
    Collinear {
        /// Condition number of the scaled parameters.
        condition_number: f64,
        largest_inflation: f64,
    },
    /// Too few measurements for the answer to mean much.
    TooFewPoints {
        /// Measurements there are.
        found: usize,
        /// Measurements advised.
        advised: usize,
    },
    /// Two values cannot show a bend.
    TwoValues { parameter: String },
    /// The scatter is larger than the change that the line describes.
    NoiseExceedsEffect {
        /// Typical distance from the line.
        noise: f64,
        /// Rise or fall of the line over the measured range.
        effect: f64,
    },
    /// Each setting was measured too seldom to know its noise.
    FewRepeats {
        /// Fewest measurements of one setting.
        found: usize,
        advised: usize,
    },
    /// The averages leave the straight line by more than noise explains.
    Bent {
        /// p-value of the lack-of-fit test.
        p: f64,
    },
    /// Some measurements lie far from the others of their setting.
    Outliers {
        count: usize,
        of: usize,
        /// The farthest as a factor of its setting's median.
        worst: f64,
    },
    /// Measurements rose or fell while the test went on.
    Drift {
        /// Change from the first to the last measurement, as a share of the mean.
        change: f64,
        /// p-value of that slope.
        p: f64,
    },
    /// With many tests some come out small by chance.
    ManyTests {
        /// Slopes tested.
        tests: usize,
        /// Of them with p < 0.05 but not below 0.05 / tests.
        borderline: usize,
    },
}

impl Doubt {
    /// What is doubtful.
    pub fn message(&self) -> String {
        match self {
            Doubt::Product { parameter, of } => {
                format!(
                    "{parameter} is {}: its slope mixes their influences and cannot be told apart from them",
                    of.join(" × ")
                )
            }
            Doubt::Correlated { parameter, with, r } => {
                format!(
                    "{parameter} changed together with {with} (correlation {r:.2}): either could be the cause"
                )
            }
            Doubt::Collinear { condition_number, largest_inflation } => format!(
                "the parameters overlap (condition number {}, largest variance inflation {}): single coefficients are shaky",
                number(*condition_number),
                number(*largest_inflation)
            ),
            Doubt::TooFewPoints { found, advised } => {
                format!("only {found} measurements (at least {advised} advised)")
            }
            Doubt::TwoValues { parameter } => {
                format!("{parameter} had two values only: a bend would not show")
            }
            Doubt::NoiseExceedsEffect { noise, effect } => format!(
                "the noise ({} around the line) is larger than the whole effect ({} over the measured range)",
                number(*noise),
                number(effect.abs())
            ),
            Doubt::FewRepeats { found, advised } => {
                format!(
                    "some settings were measured {found} time{} (at least {advised} advised)",
                    if *found == 1 { "" } else { "s" }
                )
            }
            Doubt::Bent { p } => {
                format!("a straight line is the wrong shape here (lack of fit, {})", p_equals(*p))
            }
            Doubt::Outliers { count, of, worst } => {
                format!(
                    "{count} of {of} measurements lie far off; the farthest is {} of its setting's median",
                    percent(*worst)
                )
            }
            Doubt::Drift { change, p } => {
                format!(
                    "measurements {} by {} while the test ran ({})",
                    if *change < 0.0 { "fell" } else { "rose" },
                    percent(change.abs()),
                    p_equals(*p)
                )
            }
            Doubt::ManyTests { tests, borderline } => format!(
                "{tests} slopes were tested: about one in twenty is below p = 0.05 by chance alone, and {borderline} of them {} not far below",
                if *borderline == 1 { "is" } else { "are" }
            ),
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Doubt::Product { .. } => {
                "read the slopes of its factors, or the multiple regression, which holds the others fixed"
            }
            Doubt::Correlated { .. } => {
                "measure a full grid, so that every value of one meets every value of the other"
            }
            Doubt::Collinear { .. } => {
                "leave one of them out, or spread their values independently of each other"
            }
            Doubt::TooFewPoints { .. } => "add values or repeats",
            Doubt::TwoValues { .. } => "measure at least three values",
            Doubt::NoiseExceedsEffect { .. } => {
                "repeat more often, widen the range, or quiet the machine"
            }
            Doubt::FewRepeats { .. } => "repeat each setting more often",
            Doubt::Bent { .. } => {
                "trust the averages per value rather than the line, and do not extend it beyond the measured range"
            }
            Doubt::Outliers { .. } => {
                "look for other load on the machine and measure again; medians suffer less than means"
            }
            Doubt::Drift { .. } => {
                "let the machine settle (caches, clock speed, other jobs), then measure again"
            }
            Doubt::ManyTests { .. } => "confirm a borderline finding with a fresh test of its own",
        }
    }
}

/// A doubt as it is written to JSON: its fields, and the same in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WordedDoubt {
    #[serde(flatten)]
    pub doubt: Doubt,
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl From<Doubt> for WordedDoubt {
    fn from(doubt: Doubt) -> Self {
        WordedDoubt { message: doubt.message(), advice: doubt.advice().to_owned(), doubt }
    }
}
