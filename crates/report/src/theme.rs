//! Colours and type of every page and chart: one set of CSS custom properties, three media.
//!
//! Series take Okabe and Ito's colours, with a brown in place of their orange, which is too light on paper; the dark set uses
//! lighter members of the same hues. A test holds that readers with red or green blindness tell all of them apart. Print gets the
//! light set without shadows or backgrounds.

/// Number of series colours; charts with more series reuse them, dashed.
pub const COLOURS: usize = 7;
/// Number of dashes, the solid line among them: so many times as many series as colours are told apart.
pub const DASHES: usize = 4;

/// The custom properties: light by default, dark where the reader's system is, always light on paper.
pub const TOKENS_CSS: &str = "\
:root{color-scheme:light dark;\
--paper:#fff;--card:#fff;--sunk:#f5f6f8;--ink:#16191d;--soft:#5a6370;--line:#e3e6ea;--rule:#9aa3ad;\
--good:#00734f;--good-bg:#e8f5f0;--warn:#8a5a00;--warn-bg:#fdf4e0;--bad:#a33c00;--bad-bg:#fcece4;\
--series-0:#0072b2;--series-1:#d55e00;--series-2:#009e73;--series-3:#b5568c;--series-4:#704214;--series-5:#3d96c9;--series-6:#3b4048}\
@media(prefers-color-scheme:dark){:root{\
--paper:#101317;--card:#171b20;--sunk:#1d2228;--ink:#e8ebef;--soft:#a3adb8;--line:#2a3038;--rule:#6b7682;\
--good:#4fd3a5;--good-bg:#12281f;--warn:#f0b94a;--warn-bg:#2b2312;--bad:#ff9a66;--bad-bg:#2f1c12;\
--series-0:#56b4e9;--series-1:#ff8a3d;--series-2:#2cc495;--series-3:#e094c0;--series-4:#ffe16b;--series-5:#9ad4f5;--series-6:#d5dae0}}\
@media print{:root{color-scheme:light;\
--paper:#fff;--card:#fff;--sunk:#fff;--ink:#000;--soft:#444;--line:#d0d0d0;--rule:#666;\
--good:#00583c;--good-bg:#fff;--warn:#6b4600;--warn-bg:#fff;--bad:#8a3200;--bad-bg:#fff;\
--series-0:#0072b2;--series-1:#d55e00;--series-2:#009e73;--series-3:#b5568c;--series-4:#704214;--series-5:#3d96c9;--series-6:#3b4048}}";

/// Style of the charts; needs [`TOKENS_CSS`].
pub const CHART_CSS: &str = "\
.chart{display:block;width:100%;height:auto;overflow:visible;font:13px/1 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif;font-variant-numeric:tabular-nums}\
.chart .paper{fill:var(--paper)}\
.chart text{fill:var(--soft)}\
.chart text.mid{text-anchor:middle}.chart text.end{text-anchor:end}\
.chart text.title{fill:var(--ink);font-size:15px;font-weight:600}\
.chart text.name{fill:var(--ink)}\
.chart text.value{fill:var(--ink);font-size:12.5px}\
.chart text.inside{fill:var(--card);font-size:12.5px;font-weight:600}\
.chart .grid path{stroke:var(--line);stroke-width:1;fill:none}\
.chart .axis path{stroke:var(--rule);stroke-width:1;fill:none}\
.chart .dot{fill:var(--c);fill-opacity:.38;stroke:none}\
.chart .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.chart .line.faint{stroke-width:1;stroke-opacity:.55}\
.chart .spot{fill:var(--c);stroke:none}\
.chart .k1 .line{stroke-dasharray:7 4}\
.chart .k2 .line{stroke-dasharray:1.5 4}\
.chart .k3 .line{stroke-dasharray:10 4 2 4}\
.chart .cell{fill:var(--c);stroke:none;fill-opacity:.04}\
.chart .s1{fill-opacity:.14}.chart .s2{fill-opacity:.25}.chart .s3{fill-opacity:.36}.chart .s4{fill-opacity:.47}.chart .s5{fill-opacity:.58}\
.chart .s6{fill-opacity:.7}.chart .s7{fill-opacity:.8}.chart .s8{fill-opacity:.9}.chart .s9{fill-opacity:1}\
.chart text.halo{paint-order:stroke;stroke:var(--card);stroke-width:3px}\
.chart .framed{stroke:var(--ink);stroke-width:2}\
.chart .band{fill:var(--c);fill-opacity:.16;stroke:none}\
.chart .area{fill:var(--c);fill-opacity:.62;stroke:none}\
.chart .mark{stroke:var(--rule);stroke-width:1;stroke-dasharray:1 4;fill:none}.chart .mark.loud{stroke:var(--bad);stroke-dasharray:none}\
.chart .bar{fill:var(--c)}\
.chart .line:has(>title):hover{stroke-width:4;stroke-opacity:1}\
.chart .raw{stroke-opacity:.25;stroke-width:1.2}\
.chart .cursor{stroke:var(--soft);stroke-width:1;fill:none}\
.chart .chosen{fill:var(--soft);fill-opacity:.18;stroke:none}\
.chart .entry[role=button]{cursor:pointer}\
.chart .entry.off{opacity:.35}\
.chart .whisker{fill:none;stroke:var(--ink);stroke-width:1.4}\
.chart .mean{fill:var(--card);stroke:var(--c);stroke-width:2}\
.c0{--c:var(--series-0)}.c1{--c:var(--series-1)}.c2{--c:var(--series-2)}.c3{--c:var(--series-3)}.c4{--c:var(--series-4)}.c5{--c:var(--series-5)}.c6{--c:var(--series-6)}";

/// Style of a drawing on its own, on white paper: [`CHART_CSS`] with every custom property replaced by its light value, because
/// programs that place drawings in documents know neither properties nor media queries.
#[must_use]
pub fn paper_css() -> String {
    let light = TOKENS_CSS.split('}').next().unwrap_or_default();
    let tokens: Vec<(&str, &str)> = light
        .split(['{', ';'])
        .filter_map(|rule| rule.split_once(':'))
        .filter(|(name, _)| name.starts_with("--"))
        .collect();
    let mut style = String::new();
    for rule in CHART_CSS.split_inclusive('}') {
        if rule.contains("{--c:") {
            continue;
        }
        if !rule.contains("var(--c)") {
            style.push_str(rule);
            continue;
        }
        for place in 0..COLOURS {
            let of = format!(".chart .c{place} ");
            let colour = format!("var(--series-{place})");
            style.push_str(&rule.replace(".chart ", &of).replace("var(--c)", &colour));
        }
    }
    // The file's own width and height hold.
    style = style.replace("display:block;width:100%;height:auto;overflow:visible;", "");
    for (name, value) in tokens {
        style = style.replace(&format!("var({name})"), value);
    }
    style
}

/// Style of the pages; needs [`TOKENS_CSS`].
pub const PAGE_CSS: &str = "\
*{box-sizing:border-box}\
html{-webkit-text-size-adjust:100%}\
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif}\
main,header.top,footer{max-width:1260px;margin:0 auto;padding:0 24px}\
header.top{padding-top:36px}\
h1{font-size:30px;line-height:1.2;letter-spacing:-.015em;margin:0 0 6px}\
h2{font-size:21px;line-height:1.3;letter-spacing:-.01em;margin:48px 0 12px}\
h3{font-size:16px;margin:0 0 2px}\
p{margin:0 0 12px;max-width:76ch}\
.lead,.soft{color:var(--soft)}.lead{max-width:none}.small{font-size:14px}\
.verdict{border-left:4px solid var(--good);background:var(--good-bg);border-radius:0 10px 10px 0;padding:16px 20px;margin:22px 0}\
.verdict.doubtful{border-color:var(--warn);background:var(--warn-bg)}.verdict.bad{border-color:var(--bad);background:var(--bad-bg)}\
.verdict strong{display:block;font-size:20px;line-height:1.35}\
.verdict ul{margin:10px 0 0;padding-left:20px}.verdict li{margin:4px 0}\
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin:18px 0}\
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}\
.card .what{color:var(--soft);font-size:14px}\
.card .value{font-size:27px;font-weight:650;line-height:1.25;letter-spacing:-.01em;font-variant-numeric:tabular-nums}\
.card .value span{font-size:15px;font-weight:400;color:var(--soft);letter-spacing:0}\
.card .more{color:var(--soft);font-size:13.5px}\
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,362px),1fr));gap:16px;margin:14px 0}\
@media(min-width:786px){.figures.pairs,.figures:has([data-box]):has(>figure:nth-of-type(2):last-of-type),.figures:has([data-box]):has(>figure:nth-of-type(4):last-of-type){grid-template-columns:1fr 1fr}}\
.figures:not(.hero):has([data-box]):has(>figure:only-of-type){grid-template-columns:minmax(0,800px)}\
figure:not([data-wide]) .chart{max-width:440px}\
.figures.hero{grid-template-columns:minmax(0,1fr)}.hero h3{font-size:19px}.hero figcaption .key{font-size:17px}.hero figure:not([data-wide]) .chart{max-width:640px}\
@media(min-width:1000px){.hero figure:not([data-wide]){display:grid;grid-template-columns:640px minmax(0,1fr);grid-template-rows:auto auto 1fr auto;column-gap:40px;align-items:start}.hero figure:not([data-wide]) figcaption{display:contents}.hero h3{grid-column:1/-1}\
.hero .chart{grid-column:1;grid-row:2/span 2}.hero .actions{grid-column:1;grid-row:4}.hero .words{grid-column:2;grid-row:3;margin:22px 0 0;font-size:15px;color:var(--soft)}\
.hero figure:not([data-wide]) .key{grid-column:2;grid-row:2;margin-top:2px;visibility:hidden;line-height:0}.hero figure:not([data-wide]) .key span{visibility:visible;display:grid;grid-template-columns:5.5em auto;align-items:baseline;font-size:17px;line-height:1.5}.hero figure:not([data-wide]) .key b{font-size:28px;letter-spacing:-.01em}}\
.links{padding-left:20px}.links li{margin:4px 0}a{color:var(--series-0)}\
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 12px 12px;break-inside:avoid}\
figcaption{margin-bottom:8px}\
figure[data-wide]{grid-column:1/-1}figure[data-wide] .chart{max-width:min(100%,118vh);margin:0 auto}figure .chart[data-fit]{max-width:none!important}\
figure{position:relative}\
figure .chart[data-live]{touch-action:pan-y}\
.chart .cursor.held{stroke-dasharray:3 3}.chart .grip{fill:transparent;stroke:none;cursor:crosshair}\
.tip{position:absolute;z-index:2;pointer-events:none;max-width:92%;background:var(--card);border:1px solid var(--rule);border-radius:7px;padding:6px 9px;font-size:13px;line-height:1.45;font-variant-numeric:tabular-nums;box-shadow:0 2px 8px rgb(0 0 0/.18)}\
.tip.below{max-width:none;z-index:5;border-radius:0 0 10px 10px}.tip[hidden]{display:none}.tip .at{color:var(--soft)}.tip b{margin-left:8px;font-weight:600}.tip .tag{margin-right:6px}\
.actions{display:flex;flex-wrap:wrap;gap:2px;margin:8px -5px 0}\
.actions button{font:inherit;font-size:12.5px;line-height:1.2;color:var(--soft);background:none;border:0;border-radius:5px;padding:5px;min-height:25px;cursor:pointer}\
.actions button:hover{color:var(--ink);background:var(--sunk)}.actions button[aria-pressed=true],.actions button[aria-expanded=true]{color:var(--ink);background:var(--sunk);box-shadow:inset 0 0 0 1px var(--rule)}\
.tip table,.values table{font-size:13px;line-height:1.3}.tip th,.tip td,.values th,.values td{padding:3px 10px 3px 0;vertical-align:baseline}.tip tbody th,.values tbody th{font-weight:400;min-width:7em}\
.tip tr:last-child>*{border-bottom:0}.tip tr.near>*{font-weight:700}.tip .num,.values .num{padding-right:6px}\
.values{margin-top:6px;border-top:1px solid var(--line)}.values .scroll{max-height:264px;overflow:auto;margin:2px 0 0}.values thead th{position:sticky;top:0;background:var(--card)}\
.values .actions{margin:4px 0 0;align-items:center}.values .actions span{flex:1;font-size:13px;color:var(--soft)}\
.wrong{color:var(--bad);font-size:13px}.wrong:empty{display:none}.picker .wrong{max-width:30em}input[data-wrong]{border-color:var(--bad)!important;outline-color:var(--bad)}\
.scroll+.actions{margin:-4px 0 12px}\
.controls{position:sticky;top:0;z-index:3;display:flex;flex-wrap:wrap;gap:6px 20px;align-items:center;background:var(--paper);border-bottom:1px solid var(--line);padding:8px 0;font-size:14px}\
.controls label{display:flex;gap:8px;align-items:center}.controls select{font:inherit}.controls .hint{color:var(--soft);font-size:13px}\
th[tabindex]{cursor:pointer}th[aria-sort=ascending]::after{content:\" \\2191\"}th[aria-sort=descending]::after{content:\" \\2193\"}\
@media print{.actions,.chooser,.controls,.tip,.pinned{display:none}}\
.controls input[type=search]{font:inherit;padding:3px 8px;border:1px solid var(--rule);border-radius:6px;background:var(--card);color:var(--ink);width:11em}\
.picker{position:relative;margin:0;padding:3px 10px;border-radius:6px}.picker summary{font-weight:400}\
.picker>div{position:absolute;left:-1px;z-index:4;margin-top:8px;padding:10px 14px;background:var(--card);border:1px solid var(--rule);border-radius:8px;max-height:60vh;overflow:auto;display:grid;gap:4px;width:max-content;max-width:min(460px,calc(100vw - 32px))}\
.picker .line{display:flex;gap:6px;flex-wrap:wrap}.picker button{font:inherit;font-size:13px;padding:3px 9px;border:1px solid var(--line);border-radius:6px;background:none;color:var(--ink);cursor:pointer}\
.pinned{border-bottom:1px solid var(--line);padding-bottom:16px}.pinned h2{grid-column:1/-1;margin:8px 0 0}\
figure[data-unfound],figure[data-aside],.figures[data-unfound],[data-unfound]>*{display:none}.chooser{font-size:14px;margin:12px 0 0}.chooser select{font:inherit;max-width:min(100%,30em)}\
@media(max-width:800px){.controls{position:static}.controls .hint{display:none}}\
figcaption .key{font-size:14.5px;color:var(--soft);font-variant-numeric:tabular-nums}\
figcaption .key span{white-space:nowrap}\
figcaption .key b{color:var(--ink);font-weight:600}\
.settings{color:var(--soft);font-size:14px;max-width:none;overflow-wrap:anywhere}.settings b{color:var(--ink);font-weight:600}\
tbody th{white-space:normal;overflow-wrap:break-word;min-width:9em}thead th{white-space:normal;vertical-align:bottom}\
figure .words{margin:10px 0 0;font-size:14.5px}\
.tag{display:inline-block;width:10px;height:10px;border-radius:50%;background:var(--c);margin-right:8px}\
.c1 .tag,.tag.c1{border-radius:2px}\
.notes{list-style:none;margin:8px 0 0;padding:0}\
.notes li{font-size:14px;margin:6px 0;padding:7px 12px;border-radius:7px;background:var(--warn-bg)}\
.notes li b{color:var(--warn);font-weight:600}\
.notes .advice{color:var(--soft)}\
.scroll{overflow-x:auto;margin:12px 0}\
table{border-collapse:collapse;width:100%;font-size:14.5px;font-variant-numeric:tabular-nums}\
caption{text-align:left;color:var(--soft);padding:0 0 6px}\
caption span{display:inline-block;max-width:min(60em,calc(100vw - 40px));position:sticky;left:0}\
th,td{padding:7px 12px 7px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}\
th{font-weight:600}thead th{border-bottom:1px solid var(--rule)}\
th small{font-weight:400;color:var(--soft);display:block}\
.num{text-align:right;white-space:nowrap}thead th.num{white-space:normal}\
details{margin:14px 0;border:1px solid var(--line);border-radius:10px;padding:10px 16px}\
summary{cursor:pointer;font-weight:600}\
code{font:13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--sunk);border-radius:4px;padding:1px 5px;overflow-wrap:anywhere}\
footer{color:var(--soft);font-size:14px;padding-top:40px;padding-bottom:40px}\
@media(max-width:800px){main,header.top,footer{padding-left:16px;padding-right:16px}}\
@media(max-width:520px){main,header.top,footer{padding-left:12px;padding-right:12px}header.top{padding-top:24px}h1{font-size:25px}\
h2{margin-top:36px}figure{padding:12px 8px 10px}.verdict{padding:14px 16px}.verdict strong{font-size:18px}\
.cards{grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}.card .value{font-size:23px}\
.stack,.stack tbody,.stack caption{display:block}.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}\
.stack tr{display:flex;flex-wrap:wrap;gap:2px 14px;padding:8px 0;border-bottom:1px solid var(--line)}.stack th,.stack td{border:0;padding:0;text-align:left;white-space:normal}\
.stack tbody th{flex:1 0 100%}.stack td::before,.stack th[data-label]::before{content:attr(data-label)\" \";color:var(--soft)}.stack td:empty{display:none}}\
@media print{body{font-size:11pt}main,header.top,footer{max-width:none;padding:0}figure,.card,.verdict,tr{break-inside:avoid}h2,h3{break-after:avoid}\
.figures{grid-template-columns:1fr 1fr}.verdict{border:1px solid var(--rule);border-left-width:4px}\
.scroll{overflow:visible;break-inside:avoid}details .scroll{break-inside:auto}caption{break-after:avoid}.notes li{border:1px solid var(--line)}\
details::details-content{content-visibility:visible;block-size:auto}}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Red, green and blue from 0 to 1, in proportion to light.
    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// CIE L*a*b* of a colour of sRGB.
    fn lab(colour: [f64; 3]) -> [f64; 3] {
        let [r, g, b] = colour;
        let x = (0.412_456 * r + 0.357_576 * g + 0.180_438 * b) / 0.950_47;
        let y = 0.212_673 * r + 0.715_152 * g + 0.072_175 * b;
        let z = (0.019_334 * r + 0.119_192 * g + 0.950_304 * b) / 1.088_83;
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        [116.0 * f(y) - 16.0, 500.0 * (f(x) - f(y)), 200.0 * (f(y) - f(z))]
    }

    /// What someone without red or green cones sees, by Viénot, Brettel and Mollon (1999).
    const SIGHTS: [(&str, [[f64; 3]; 3]); 3] = [
        ("full sight", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]],
        ),
        (
            "deuteranopia",
            [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]],
        ),
    ];
    /// Distance of two colours in L*a*b*; 2.3 can just be noticed side by side.
    const APART: f64 = 15.0;

    /// The orange and the red of the light set were 2.4 apart to a reader without green cones.
    #[test]
    fn every_two_colours_are_told_apart_with_any_sight() {
        let sets: Vec<Vec<&str>> = TOKENS_CSS
            .split("@media")
            .map(|set| {
                let colours = set.split("--series-").skip(1);
                colours.map(|rest| rest.split([':', ';', '}']).nth(1).unwrap()).collect()
            })
            .collect();
        assert_eq!(sets.len(), 3, "light, dark, print");
        for set in sets {
            assert_eq!(set.len(), COLOURS);
            for (sight, matrix) in SIGHTS {
                let seen: Vec<[f64; 3]> = set
                    .iter()
                    .map(|hex| {
                        let colour = linear(hex);
                        lab(matrix.map(|row| {
                            let sum: f64 = row.iter().zip(colour).map(|(a, b)| a * b).sum();
                            sum.clamp(0.0, 1.0)
                        }))
                    })
                    .collect();
                for (at, a) in seen.iter().enumerate() {
                    for (other, b) in seen.iter().enumerate().skip(at + 1) {
                        let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
                        let distance = squares.sum::<f64>().sqrt();
                        assert!(
                            distance >= APART,
                            "{} and {} with {sight}: {distance:.1}",
                            set[at],
                            set[other]
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn paper_needs_no_custom_properties() {
        let style = paper_css();
        assert!(!style.contains("var(") && !style.contains("--"), "{style}");
        assert!(style.contains(".chart .c0 .line{") && style.contains("#0072b2"), "{style}");
    }
}
