//! Charts as SVG: points, lines, bands, bars and averages with intervals.
//!
//! One description, drawn the same way everywhere: a speed test's scatter, a training curve, a comparison of strategies. A chart
//! needs no script and no fonts of its own, names its series in a legend below the plot, takes its colours from the page (light,
//! dark or print; see [`crate::theme`]), and tells a screen reader its title and description. It carries its numbers, from which
//! the page's script ([`crate::script`]) zooms and saves it. The same chart always gives the same bytes.
//!
//! ```
//! use paceline_report::chart::{Axis, Chart, Series};
//!
//! let chart = Chart::new("Loss while training", Axis::new("step"), Axis::new("loss"))
//!     .with(Series::line("1 worker", [(0.0, 2.3), (100.0, 0.9), (200.0, 0.4)]))
//!     .with(Series::line("4 workers", [(0.0, 2.3), (100.0, 0.6), (200.0, 0.3)]));
//! assert!(chart.svg().starts_with("<svg"));
//! ```

mod axis;
mod data;
mod drawing;
mod frame;
mod heat;
mod legend;
mod marks;
mod matrix;
mod parallel;
mod stacked;

pub use axis::{Axis, Scale};
pub use drawing::Drawing;
pub use heat::HeatMap;
pub use matrix::Matrix;
pub use parallel::{Parallel, ParallelAxis};
pub use stacked::Stacked;

use crate::escape::Escaped;
use crate::theme;
use frame::Frame;

/// A chart, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows; read out by screen readers, drawn only by [`Chart::standalone`].
    pub title: String,
    /// What it shows, in a sentence, for screen readers.
    pub description: String,
    pub x: Axis,
    /// Further horizontal axes that a reader may choose, in the order of [`Series::other_x`].
    pub other_x: Vec<Axis>,
    pub y: Axis,
    /// What is drawn, later ones over earlier ones (bands always below).
    pub series: Vec<Series>,
    /// Vertical marks at positions of the horizontal axis, each with a label, which may be empty.
    pub marks: Vec<(f64, String)>,
    /// Width and height in units of the drawing; text is 13 units high. The page scales the whole.
    pub size: (f64, f64),
}

/// Some data drawn in one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, written beside it.
    pub name: String,
    /// How it is drawn, with its data.
    pub kind: SeriesKind,
    /// Place in the palette; by default the order of different names.
    pub colour: Option<usize>,
    /// Whether the name is written; a line through points should not repeat their name.
    pub labelled: bool,
    /// How strongly a line is drawn.
    pub style: Style,
    /// Which of several series of one name it is, such as `training`; shown with its values.
    pub part: String,
    /// Its places on the chart's other horizontal axes, one for each point.
    pub other_x: Vec<Vec<f64>>,
}

/// How strongly a line is drawn: two curves of one run share its colour and are told apart by this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// A line.
    #[default]
    Plain,
    /// A thin line behind others.
    Faint,
    /// A line with a marker at every point.
    Marked,
}

/// How a series is drawn. Points that are not finite are left out; in a line they leave a gap.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SeriesKind {
    /// Single measurements.
    Points(Vec<(f64, f64)>),
    /// A line through its points in the given order.
    Line(Vec<(f64, f64)>),
    /// An area between two heights, as an interval around a line.
    Band(Vec<Span>),
    /// A full area between two heights: one of several stacked upon each other, named beside its end.
    Area(Vec<Span>),
    /// Averages with an interval: a marker and a whisker.
    Averages(Vec<Span>),
    /// Bars from zero, with a whisker where `low` and `high` differ; several series stand side by side.
    Bars(Vec<Span>),
}

/// A value with an interval at one place of the horizontal axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Place; on an axis of categories the index of the category.
    pub x: f64,
    pub y: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Span {
    /// A value without an interval.
    pub fn exact(x: f64, y: f64) -> Span {
        Span { x, y, low: y, high: y }
    }

    fn is_finite(&self) -> bool {
        [self.x, self.y, self.low, self.high].iter().all(|part| part.is_finite())
    }
}

impl Series {
    fn new(name: impl Into<String>, kind: SeriesKind) -> Series {
        Series {
            name: name.into(),
            kind,
            colour: None,
            labelled: true,
            style: Style::Plain,
            part: String::new(),
            other_x: Vec::new(),
        }
    }

    /// Single measurements.
    pub fn points(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series::new(name, SeriesKind::Points(points.into_iter().collect()))
    }

    /// A line.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series::new(name, SeriesKind::Line(points.into_iter().collect()))
    }

    /// An interval around a line.
    pub fn band(name: impl Into<String>, spans: impl IntoIterator<Item = Span>) -> Series {
        Series::new(name, SeriesKind::Band(spans.into_iter().collect())).unlabelled()
    }

    /// One of several areas stacked upon each other.
    pub fn area(name: impl Into<String>, spans: impl IntoIterator<Item = Span>) -> Series {
        Series::new(name, SeriesKind::Area(spans.into_iter().collect()))
    }

    /// Averages with intervals.
    pub fn averages(name: impl Into<String>, spans: impl IntoIterator<Item = Span>) -> Series {
        Series::new(name, SeriesKind::Averages(spans.into_iter().collect()))
    }

    /// Bars.
    pub fn bars(name: impl Into<String>, spans: impl IntoIterator<Item = Span>) -> Series {
        Series::new(name, SeriesKind::Bars(spans.into_iter().collect()))
    }

    fn is_empty(&self) -> bool {
        match &self.kind {
            SeriesKind::Points(points) | SeriesKind::Line(points) => points.is_empty(),
            SeriesKind::Band(spans)
            | SeriesKind::Area(spans)
            | SeriesKind::Averages(spans)
            | SeriesKind::Bars(spans) => spans.is_empty(),
        }
    }

    /// Without its name beside it.
    #[must_use]
    pub fn unlabelled(mut self) -> Series {
        self.labelled = false;
        self
    }

    /// In the given colour of the palette; places beyond its end are dashed.
    #[must_use]
    pub fn colour(mut self, place: usize) -> Series {
        self.colour = Some(place);
        self
    }

    /// As one of several parts of its name, drawn in a style of its own.
    #[must_use]
    pub fn part(mut self, part: impl Into<String>, style: Style) -> Series {
        self.part = part.into();
        self.style = style;
        self
    }

    /// With places on the chart's other horizontal axes.
    #[must_use]
    pub fn other_x(mut self, places: Vec<Vec<f64>>) -> Series {
        self.other_x = places;
        self
    }
}

impl Chart {
    /// An empty chart of the usual size.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.into(),
            description: String::new(),
            x,
            other_x: Vec::new(),
            y,
            series: Vec::new(),
            marks: Vec::new(),
            // On a phone 390 pixels wide, 380 units leave text more than 11 pixels high.
            size: (380.0, 250.0),
        }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// Adds a vertical mark; one with an empty label is drawn thinner.
    #[must_use]
    pub fn mark(mut self, x: f64, word: impl Into<String>) -> Chart {
        self.marks.push((x, word.into()));
        self
    }

    /// Says in a sentence what the chart shows.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Chart {
        self.description = description.into();
        self
    }

    /// Sets width and height.
    #[must_use]
    pub fn sized(mut self, width: f64, height: f64) -> Chart {
        self.size = (width, height);
        self
    }

    /// The drawing for a page that carries [`theme::CHART_CSS`].
    pub fn svg(&self) -> Drawing {
        let places = self.places();
        let frame = Frame::of(self);
        let legend = legend::height(self, &places);
        let mut out = String::with_capacity(4096);
        out.push_str(&format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\">",
            at(self.size.0),
            at(self.size.1 + if legend > 0.0 { legend + LEGEND_GAP } else { 0.0 })
        ));
        out.push_str(&format!("<title>{}</title>", Escaped(&self.title)));
        if !self.description.is_empty() {
            out.push_str(&format!("<desc>{}</desc>", Escaped(&self.description)));
        }
        out.push_str(&data::element(self, &frame, &places));
        out.push_str("<g class=\"plot\">");
        frame.draw_axes(self, &mut out);
        marks::draw(self, &frame, &places, &mut out);
        marks::draw_marks(self, &frame, &mut out);
        out.push_str("</g>");
        legend::draw(self, &places, self.size.1 + LEGEND_GAP, &mut out);
        out.push_str("</svg>");
        Drawing::drawn(out)
    }

    /// The drawing as a file of its own: with its style inside and the title drawn above.
    pub fn standalone(&self) -> String {
        standalone(&self.title, &self.svg())
    }

    /// A palette place per series: equal names share one. Places beyond the palette begin it again, dashed.
    fn places(&self) -> Vec<usize> {
        let mut names: Vec<&str> = Vec::new();
        self.series
            .iter()
            .map(|series| {
                let place =
                    names.iter().position(|name| *name == series.name).unwrap_or_else(|| {
                        names.push(&series.name);
                        names.len() - 1
                    });
                series.colour.unwrap_or(place)
            })
            .collect()
    }
}

/// Room between the horizontal axis and the legend.
const LEGEND_GAP: f64 = 5.0;

/// Colour and dash of a place in the palette.
fn classes(place: usize) -> String {
    format!("c{} k{}", place % theme::COLOURS, place / theme::COLOURS % theme::DASHES)
}

/// A page's drawing as a file of its own, for papers: with the title above and a style that needs neither custom properties nor
/// media queries, which most programs that place drawings in documents do not know.
#[must_use]
pub fn standalone(title: &str, svg: &Drawing) -> String {
    const ABOVE: f64 = 26.0;
    let size = svg.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split('"').next());
    let mut size = size.unwrap_or("380 250").split(' ').map(|side| side.parse().unwrap_or(0.0));
    let (width, height): (f64, f64) = (size.next().unwrap_or(0.0), size.next().unwrap_or(0.0));
    let place = format!("<svg y=\"{ABOVE}\" width=\"{width}\" height=\"{height}\" ");
    let all = at(height + ABOVE + 6.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{all}\" viewBox=\"-6 0 {} {all}\">\
         <style>{}</style><rect class=\"paper\" x=\"-6\" width=\"100%\" height=\"100%\"/>\
         <text class=\"title\" x=\"0\" y=\"18\">{}</text>{}</svg>\n",
        at(width + 12.0),
        theme::paper_css(),
        Escaped(title),
        svg.replacen("<svg ", &place, 1)
    )
}

/// A number with three digits, as a key shows it.
fn short_number(value: f64) -> String {
    format!("{value:.2e}").parse().map_or_else(|_| "–".to_owned(), axis::plain)
}

/// A coordinate with one decimal, without a trailing zero: short and the same on every machine.
fn at(value: f64) -> String {
    // Far outside of any drawing nothing is seen, but browsers would still choke on the digits.
    let value = value.clamp(-1e5, 1e5);
    // Adding zero turns -0 into 0.
    let text = format!("{:.1}", (value * 10.0).round() / 10.0 + 0.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
