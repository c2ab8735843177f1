//! One HTML page that needs nothing but itself: no network, readable on a phone, on paper and without its script.

use crate::chart::Drawing;
use crate::escape::Escaped;
use crate::policy::hash_source;
use crate::script;
use crate::table::Table;
use crate::theme;
use maud::{Markup, PreEscaped, html};
use std::sync::LazyLock;

/// In every page that Paceline writes, so that a later one may replace it.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"Paceline\">";

/// The one style of every page.
static STYLE: LazyLock<String> =
    LazyLock::new(|| [theme::TOKENS_CSS, theme::PAGE_CSS, theme::CHART_CSS].concat());

/// What a browser may do with a page: apply its own style, run its own script, show images that are part of it, and nothing else. A hostile name
/// that slipped through could not run.
#[must_use]
pub fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
            hash_source(&STYLE),
            hash_source(script::CHARTS)
        )
    });
    &POLICY
}

/// A page under construction.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    lead: String,
    body: String,
    footer: String,
}

/// The tone of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A clear finding.
    Good,
    /// A finding with caveats.
    Doubtful,
    /// A failure.
    Bad,
}

/// One key figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub what: String,
    pub value: String,
    pub unit: String,
    /// A line below: interval, count, comparison.
    pub more: String,
    /// Palette place of the series it belongs to.
    pub colour: Option<usize>,
}

/// A chart with its caption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    pub title: String,
    /// Palette place of the series it shows, for the mark before the heading.
    pub colour: Option<usize>,
    /// Key numbers below the heading, as (name, value).
    pub key: Vec<(String, String)>,
    /// The drawing, from [`crate::chart::Chart::svg`].
    pub svg: Drawing,
    /// What it says, in words.
    pub words: String,
    /// Caveats: what, and what to do.
    pub notes: Vec<(String, String)>,
}

impl Page {
    /// A page with a title and a line below it.
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Page {
        Page { title: title.into(), lead: lead.into(), body: String::new(), footer: String::new() }
    }

    /// Puts a part below those before it.
    fn add(&mut self, part: &Markup) {
        self.body.push_str(&part.0);
    }

    /// The finding first: one sentence, then what it rests on.
    pub fn verdict(&mut self, tone: Tone, sentence: &str, points: &[String]) {
        let class = match tone {
            Tone::Good => "verdict",
            Tone::Doubtful => "verdict doubtful",
            Tone::Bad => "verdict bad",
        };
        self.add(&html! {
            div class=(class) { strong { (prose(sentence)) } (items(points)) }
        });
    }

    /// A row of key figures.
    pub fn cards(&mut self, cards: &[Card]) {
        self.add(&html! {
            div class="cards" {
                @for card in cards {
                    div class="card" {
                        div class="what" { (tag(card.colour)) (Escaped(&card.what)) }
                        div class="value" { (Escaped(&card.value)) " " span { (Escaped(&card.unit)) } }
                        div class="more" { (Escaped(&card.more)) }
                    }
                }
            }
        });
    }

    /// A heading.
    pub fn section(&mut self, heading: &str) {
        self.add(&html! { h2 { (Escaped(heading)) } });
    }

    /// A heading below a section's.
    pub fn subsection(&mut self, heading: &str) {
        self.add(&html! { h3 { (Escaped(heading)) } });
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.add(&html! { p { (prose(text)) } });
    }

    /// A paragraph of lesser weight.
    pub fn remark(&mut self, text: &str) {
        self.add(&html! { p class="soft small" { (Escaped(text)) } });
    }

    /// A list of sentences.
    pub fn list(&mut self, points: &[String]) {
        self.add(&items(points));
    }

    /// Figures side by side, below each other on a narrow screen.
    pub fn figures(&mut self, figures: &[Figure]) {
        self.grid("figures", figures);
    }

    /// Figures in twos that belong together: before and after.
    pub fn pairs(&mut self, figures: &[Figure]) {
        self.grid("figures pairs", figures);
    }

    /// The one picture that says it all, as wide as the page.
    pub fn hero(&mut self, figure: &Figure) {
        self.grid("figures hero", std::slice::from_ref(figure));
    }

    /// Places that belong to the page, as (address, name, what is there): addresses of files beside it, so that the page can be
    /// moved with them. One that leads elsewhere is left out.
    pub fn links(&mut self, links: &[(&str, &str, &str)]) {
        self.add(&html! {
            ul class="links" {
                @for (address, name, what) in links.iter().filter(|link| is_beside(link.0)) {
                    li { a href=(Escaped(address)) { (Escaped(name)) } ": " (prose(what)) }
                }
            }
        });
    }

    fn grid(&mut self, class: &str, figures: &[Figure]) {
        self.add(&grid(class, figures));
    }

    /// Figures behind a fold; nothing where there are none.
    pub fn folded_figures(&mut self, title: &str, figures: &[Figure]) {
        if !figures.is_empty() {
            self.folded(&format!("{title} ({})", figures.len()), &grid("figures", figures));
        }
    }

    /// Maps of some tensors, with the numbers from which the pages' script draws those of others, as JSON.
    pub(crate) fn maps(&mut self, title: &str, figures: &[Figure], numbers: &str, folded: bool) {
        let content = html! {
            (grid("figures", figures))
            div class="tensors" hidden { (Escaped(numbers)) }
        };
        if folded {
            self.folded(title, &content);
        } else {
            self.section(title);
            self.add(&content);
        }
    }

    /// Caveats, each with what to do about it.
    pub fn notes(&mut self, notes: &[(String, String)]) {
        self.add(&caveats(notes));
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.add(&table.html());
    }

    /// Settings as (name, value), one after the other.
    pub fn settings(&mut self, title: &str, settings: &[(String, String)]) {
        self.add(&html! { p class="settings" { (Escaped(title)) ": " (named_values(settings)) } });
    }

    /// Settings behind a fold; nothing where there are none.
    pub fn folded_settings(&mut self, title: &str, settings: &[(String, String)]) {
        if !settings.is_empty() {
            self.folded(title, &html! { p class="settings" { (named_values(settings)) } });
        }
    }

    /// A table behind a fold.
    pub fn folded_table(&mut self, title: &str, table: &Table) {
        self.folded(title, &table.html());
    }

    /// A list of sentences behind a fold.
    pub fn folded_list(&mut self, title: &str, points: &[String]) {
        self.folded(title, &items(points));
    }

    /// Content behind a fold, which opens without a script; on paper it is open.
    fn folded(&mut self, title: &str, content: &Markup) {
        self.add(&html! { details { summary { (Escaped(title)) } (content) } });
    }

    /// The footer.
    pub fn footer(&mut self, text: &str) {
        self.footer = text.to_owned();
    }

    /// The content between header and footer, for a page that brings its own.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }

    /// The page as one file.
    pub fn html(&self) -> String {
        let title = Escaped(&self.title);
        let page = html! {
            (PreEscaped("<!doctype html>\n"))
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy());
                    (PreEscaped(GENERATOR))
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(&*STYLE)) }
                }
                (PreEscaped("\n"))
                body {
                    header class="top" { h1 { (title) } p class="lead" { (Escaped(&self.lead)) } }
                    (PreEscaped("\n"))
                    main { (PreEscaped(&self.body)) }
                    (PreEscaped("\n"))
                    footer { (Escaped(&self.footer)) }
                    script { (PreEscaped(script::CHARTS)) }
                }
            }
            (PreEscaped("\n"))
        };
        page.into_string()
    }
}

fn grid(class: &str, figures: &[Figure]) -> Markup {
    html! {
        div class=(class) {
            @for figure in figures {
                figure {
                    figcaption {
                        h3 { (tag(figure.colour)) (Escaped(&figure.title)) }
                        div class="key" { (named_values(&figure.key)) }
                    }
                    (PreEscaped(&*figure.svg))
                    @if !figure.words.is_empty() { p class="words" { (prose(&figure.words)) } }
                    (caveats(&figure.notes))
                }
            }
        }
    }
}

fn items(points: &[String]) -> Markup {
    html! {
        @if !points.is_empty() {
            ul { @for point in points { li { (prose(point)) } } }
        }
    }
}

fn named_values(all: &[(String, String)]) -> Markup {
    html! {
        @for (at, (name, value)) in all.iter().enumerate() {
            @if at > 0 { " · " }
            span { (Escaped(name)) " " b { (Escaped(value)) } }
        }
    }
}

fn caveats(notes: &[(String, String)]) -> Markup {
    html! {
        @if !notes.is_empty() {
            ul class="notes" {
                @for (what, advice) in notes {
                    li {
                        b { "Note:" } " " (prose(what)) "."
                        @if !advice.is_empty() {
                            " " span class="advice" { (prose(&capitalised(advice))) "." }
                        }
                    }
                }
            }
        }
    }
}

/// Whether an address names a file in the page's own folder or below: no scheme, no host, nothing above.
fn is_beside(address: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != ".." && !part.contains([':', '\\']);
    address.split('/').all(plain)
}

/// Text without line breaks before a percent sign or inside a number such as 4.1e-21; what stands between backticks is code.
fn prose(text: &str) -> Markup {
    let spaced = text.replace(" %", "\u{a0}%").replace("p = ", "p\u{a0}=\u{a0}");
    let mut whole = String::with_capacity(spaced.len());
    let mut before = [' '; 2];
    for c in spaced.chars() {
        let exponent = c == '-' && before[1] == 'e' && before[0].is_ascii_digit();
        whole.push(if exponent { '\u{2011}' } else { c });
        before = [before[1], c];
    }
    let mut parts = Vec::new();
    let mut rest = whole.as_str();
    // A backtick that is left alone stays as it is.
    while let Some((before, opened)) = rest.split_once('`')
        && let Some((code, after)) = opened.split_once('`')
    {
        parts.push((before, code));
        rest = after;
    }
    html! {
        @for (before, code) in parts { (Escaped(before)) code { (Escaped(code)) } }
        (Escaped(rest))
    }
}

fn tag(colour: Option<usize>) -> Markup {
    html! {
        @if let Some(place) = colour {
            span class={ "tag c" (place % theme::COLOURS) } {}
        }
    }
}

/// The text with its first letter as a capital: sentences of the analysis start small, as they also stand after a colon.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page showed the backticks.
    #[test]
    fn what_stands_between_backticks_is_code() {
        let prose = |text: &str| prose(text).into_string();
        assert_eq!(prose("`a <b>` shows 4 %"), "<code>a &lt;b&gt;</code> shows 4\u{a0}%");
        assert_eq!(prose("one ` alone"), "one ` alone");
        assert_eq!(prose("`a` and `b`"), "<code>a</code> and <code>b</code>");
    }

    #[test]
    fn links_lead_to_files_beside_the_page_and_nowhere_else() {
        let mut page = Page::new("", "");
        let addresses = ["a/b.html", "javascript:alert(1)", "//host/x", "../up", "/etc/passwd", ""];
        let links: Vec<_> = addresses.iter().map(|it| (*it, "a <b>", "what & why")).collect();
        page.links(&links);
        let wanted = "<ul class=\"links\"><li><a href=\"a/b.html\">a &lt;b&gt;</a>: what &amp; why</li></ul>";
        assert_eq!(page.body(), wanted);
    }
}
