//! One HTML page that needs nothing but itself: no network, readable on a phone, on paper and without its script.

use crate::chart::Drawing;
use crate::escape::Escaped;
use crate::policy::hash_source;
use crate::script;
use crate::table::Table;
use crate::theme;
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

    /// The finding first: one sentence, then what it rests on.
    pub fn verdict(&mut self, tone: Tone, sentence: &str, points: &[String]) {
        let class = match tone {
            Tone::Good => "",
            Tone::Doubtful => " doubtful",
            Tone::Bad => " bad",
        };
        self.body.push_str(&format!(
            "<div class=\"verdict{class}\"><strong>{}</strong>",
            prose(sentence)
        ));
        self.list_items(points);
        self.body.push_str("</div>");
    }

    /// A row of key figures.
    pub fn cards(&mut self, cards: &[Card]) {
        self.body.push_str("<div class=\"cards\">");
        for card in cards {
            self.body.push_str(&format!(
                "<div class=\"card\"><div class=\"what\">{}{}</div><div class=\"value\">{} <span>{}</span></div><div class=\"more\">{}</div></div>",
                tag(card.colour),
                Escaped(&card.what),
                Escaped(&card.value),
                Escaped(&card.unit),
                Escaped(&card.more)
            ));
        }
        self.body.push_str("</div>");
    }

    /// A heading.
    pub fn section(&mut self, heading: &str) {
        self.body.push_str(&format!("<h2>{}</h2>", Escaped(heading)));
    }

    /// A heading below a section's.
    pub fn subsection(&mut self, heading: &str) {
        self.body.push_str(&format!("<h3>{}</h3>", Escaped(heading)));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>", prose(text)));
    }

    /// A paragraph of lesser weight.
    pub fn remark(&mut self, text: &str) {
        self.body.push_str(&format!("<p class=\"soft small\">{}</p>", Escaped(text)));
    }

    /// A list of sentences.
    pub fn list(&mut self, points: &[String]) {
        self.list_items(points);
    }

    fn list_items(&mut self, points: &[String]) {
        if points.is_empty() {
            return;
        }
        self.body.push_str("<ul>");
        for point in points {
            self.body.push_str(&format!("<li>{}</li>", prose(point)));
        }
        self.body.push_str("</ul>");
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
        self.body.push_str("<ul class=\"links\">");
        for (address, name, what) in links.iter().filter(|link| is_beside(link.0)) {
            self.body.push_str(&format!(
                "<li><a href=\"{}\">{}</a>: {}</li>",
                Escaped(address),
                Escaped(name),
                prose(what)
            ));
        }
        self.body.push_str("</ul>");
    }

    fn grid(&mut self, class: &str, figures: &[Figure]) {
        self.body.push_str(&format!("<div class=\"{class}\">"));
        for figure in figures {
            let key: Vec<String> = figure
                .key
                .iter()
                .map(|(name, value)| {
                    format!("<span>{} <b>{}</b></span>", Escaped(name), Escaped(value))
                })
                .collect();
            self.body.push_str(&format!(
                "<figure><figcaption><h3>{}{}</h3><div class=\"key\">{}</div></figcaption>{}",
                tag(figure.colour),
                Escaped(&figure.title),
                key.join(" · "),
                figure.svg
            ));
            if !figure.words.is_empty() {
                self.body.push_str(&format!("<p class=\"words\">{}</p>", prose(&figure.words)));
            }
            self.notes(&figure.notes);
            self.body.push_str("</figure>");
        }
        self.body.push_str("</div>");
    }

    /// Caveats, each with what to do about it.
    pub fn notes(&mut self, notes: &[(String, String)]) {
        if notes.is_empty() {
            return;
        }
        self.body.push_str("<ul class=\"notes\">");
        for (what, advice) in notes {
            self.body.push_str(&format!(
                "<li><b>Note:</b> {}. <span class=\"advice\">{}.</span></li>",
                prose(what),
                prose(&capitalised(advice))
            ));
        }
        self.body.push_str("</ul>");
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.body.push_str(&table.html());
    }

    /// Settings as (name, value), one after the other.
    pub fn settings(&mut self, title: &str, settings: &[(String, String)]) {
        let all: Vec<String> = settings
            .iter()
            .map(|(name, value)| {
                format!("<span>{} <b>{}</b></span>", Escaped(name), Escaped(value))
            })
            .collect();
        let (title, all) = (Escaped(title), all.join(" · "));
        self.body.push_str(&format!("<p class=\"settings\">{title}: {all}</p>"));
    }

    /// Content behind a fold, which opens without a script; on paper it is open.
    pub(crate) fn folded(&mut self, title: &str, html: &str) {
        self.body
            .push_str(&format!("<details><summary>{}</summary>{html}</details>", Escaped(title)));
    }

    /// A list of sentences behind a fold.
    pub fn folded_list(&mut self, title: &str, points: &[String]) {
        let mut list = Page::new("", "");
        list.list_items(points);
        self.folded(title, &list.body);
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
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">{GENERATOR}\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
             <style>{}</style></head>\n<body><header class=\"top\"><h1>{title}</h1><p class=\"lead\">{}</p></header>\n\
             <main>{}</main>\n<footer>{}</footer><script>{}</script></body></html>\n",
            policy(),
            *STYLE,
            Escaped(&self.lead),
            self.body,
            Escaped(&self.footer),
            script::CHARTS
        )
    }
}

/// Whether an address names a file in the page's own folder or below: no scheme, no host, nothing above.
fn is_beside(address: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != ".." && !part.contains([':', '\\']);
    address.split('/').all(plain)
}

/// Text without line breaks before a percent sign or inside a number such as 4.1e-21.
fn prose(text: &str) -> String {
    let escaped =
        Escaped(text).to_string().replace(" %", "\u{a0}%").replace("p = ", "p\u{a0}=\u{a0}");
    let mut out = String::with_capacity(escaped.len());
    let mut before = [' '; 2];
    for c in escaped.chars() {
        let exponent = c == '-' && before[1] == 'e' && before[0].is_ascii_digit();
        out.push(if exponent { '\u{2011}' } else { c });
        before = [before[1], c];
    }
    out
}

fn tag(colour: Option<usize>) -> String {
    colour
        .map(|place| format!("<span class=\"tag c{}\"></span>", place % theme::COLOURS))
        .unwrap_or_default()
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
