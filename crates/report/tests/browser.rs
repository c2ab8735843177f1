//! The report as people use it, in a real browser: every interaction of its script, and its looks at three widths.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_report::nodes;
use paceline_report::page::Page;
use paceline_report::training::RunView;
use paceline_runs::Recording;
use paceline_testing::{browser::chromium, devtools::Tab};
use serde_json::{Value, json};
use support::{figure, open, open_page, page, place, resources, run, two};

#[test]
fn the_cursor_shows_exact_values_in_all_charts_at_once() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let at = place(&mut tab, 0.5);
    tab.mouse("mouseMoved", at, 0);
    tab.wait_for("document.querySelectorAll('.tip:not([hidden])').length > 4");
    let tips = tab.evaluate("[...document.querySelectorAll('figure')].map(it => it.querySelector('.tip:not([hidden])')?.innerText ?? '')");
    let first = tips[0].as_str().unwrap();
    assert!(first.contains("step: ") && first.contains("lr 0.5, batch 256, test"), "{first}");
    // The values are those of the evaluation nearest to the middle, to the last digit shown.
    let exact = 0.3 + 2.0 * (-6.0 * 0.5 * 0.5_f64).exp();
    assert!(first.contains(&format!("{exact:.5}")), "{exact} in {first}");
    // Charts by time show the same moment.
    let by_time = tips.as_array().unwrap().iter().filter_map(Value::as_str);
    let by_time = by_time.filter(|tip| tip.starts_with("time (s): ")).count();
    assert!(by_time > 3, "{tips}");
    tab.mouse("mouseMoved", (2.0, 2.0), 0);
    tab.wait_for("document.querySelectorAll('.tip:not([hidden])').length === 0");
}

#[test]
fn dragging_zooms_and_a_double_click_resets() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let (from, to) = (place(&mut tab, 0.5), place(&mut tab, 0.75));
    let ticks = format!(
        "[...{}.querySelectorAll('.axis text.mid:not(.name)')].map(it => Number(it.textContent.replace(',', '')))",
        figure(0)
    );
    let before = tab.evaluate(&ticks);
    assert_eq!(before[0], 0.0, "{before}");
    tab.mouse("mousePressed", from, 1);
    tab.mouse("mouseMoved", ((from.0 + to.0) / 2.0, from.1), 0);
    assert_eq!(tab.evaluate("document.querySelectorAll('.chosen').length"), 1);
    tab.mouse("mouseMoved", to, 0);
    tab.mouse("mouseReleased", to, 1);
    tab.wait_for(&format!("{ticks}[0] >= 280"));
    let zoomed = tab.evaluate(&ticks);
    let last = zoomed.as_array().unwrap().last().unwrap().as_f64().unwrap();
    assert!(last < 500.0, "{zoomed}");
    for clicks in [1, 2] {
        tab.mouse("mousePressed", from, clicks);
        tab.mouse("mouseReleased", from, clicks);
    }
    tab.wait_for(&format!("{ticks}[0] === 0"));
    assert_eq!(tab.evaluate(&ticks), before);
}

#[test]
fn a_click_in_the_legend_hides_a_run_and_another_shows_it() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let drawn = format!("{}.querySelectorAll('.series .line').length", figure(0));
    assert_eq!(tab.evaluate(&drawn), 4.0, "training and test of two runs");
    let press = format!(
        "{}.querySelector('.entry').dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))",
        figure(0)
    );
    tab.evaluate(&press);
    assert_eq!(tab.evaluate(&drawn), 2.0);
    assert_eq!(
        tab.evaluate(&format!(
            "{}.querySelector('.entry').getAttribute('aria-pressed')",
            figure(0)
        )),
        "false"
    );
    // By keyboard, too.
    tab.evaluate(&format!("{}.querySelector('.entry').focus()", figure(0)));
    tab.call("Input.dispatchKeyEvent", &json!({ "type": "keyDown", "key": "Enter" }));
    tab.wait_for(&format!("{drawn} === 4"));
}

#[test]
fn runs_are_picked_for_all_charts_and_charts_are_found_and_pinned() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let drawn = |at: usize| format!("{}.querySelectorAll('.series .line').length", figure(at));
    let boxes = "document.querySelectorAll('.picker input[type=checkbox]')";
    assert_eq!(tab.evaluate(&format!("{boxes}.length")), 2.0);
    let (loss, right) = (tab.evaluate(&drawn(0)), tab.evaluate(&drawn(1)));
    tab.click(".picker input[type=checkbox]");
    for (at, before) in [(0, loss), (1, right)] {
        let half = before.as_f64().unwrap() / 2.0;
        assert_eq!(tab.evaluate(&drawn(at)), half, "one run is gone from chart {at}");
    }
    let summary = "document.querySelector('.picker summary').textContent";
    assert_eq!(tab.evaluate(summary), "Runs: 1 of 2");
    // A chart that is pinned has what the reader has chosen, and goes with a second click.
    tab.evaluate("globalThis.count = document.querySelectorAll('figure').length");
    tab.evaluate(&format!("{}.querySelector('[data-pin]').click()", figure(0)));
    let pinned = "document.querySelectorAll('.pinned figure')";
    assert_eq!(tab.evaluate(&format!("{pinned}.length")), 1.0);
    let lines = format!("{pinned}[0].querySelectorAll('.series .line').length");
    assert_eq!(tab.evaluate(&lines), 2.0);
    tab.click(".picker input[type=checkbox]");
    assert_eq!(tab.evaluate(&lines), 4.0, "it is worked with as its original is");
    tab.click(".pinned [data-pin]");
    tab.wait_for("document.querySelectorAll('figure').length === globalThis.count");
    // By a part of the title, by a pattern, and by what cannot be read as a pattern.
    let shown =
        "[...document.querySelectorAll('figure')].filter(it => it.offsetParent !== null).length";
    let all = tab.evaluate(shown);
    tab.fill(".controls input[name=find]", "how (far|often)");
    assert_eq!(tab.evaluate(shown), 2.0);
    tab.fill(".controls input[name=find]", "(((");
    assert_eq!(tab.evaluate(shown), 0.0);
    tab.evaluate("(field => { field.value = ''; field.dispatchEvent(new Event('input')); })(document.querySelector('.controls input[name=find]'))");
    assert_eq!(tab.evaluate(shown), all);
}

#[test]
fn axes_and_smoothing_are_chosen() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let caption = format!("{}.querySelector('.axis text.mid.name').textContent", figure(0));
    for (axis, words) in [("time", "time (s)"), ("examples", "examples"), ("step", "step")] {
        tab.evaluate(&format!(
            "(choice => {{ choice.value = '{axis}'; choice.dispatchEvent(new Event('change')); }})(document.querySelector('[name=axis]'))"
        ));
        assert_eq!(tab.evaluate(&caption), words);
    }
    tab.evaluate("(range => { range.value = '0.9'; range.dispatchEvent(new Event('input')); })(document.querySelector('[name=smoothing]'))");
    let curves = |class: &str| format!("{}.querySelectorAll('.line.{class}').length", figure(0));
    assert_eq!(tab.evaluate(&curves("smooth")), 4.0);
    assert_eq!(tab.evaluate(&curves("raw")), 4.0, "the raw curves stay behind");
    // The loss is drawn on a logarithmic axis at first.
    let heights = format!(
        "[...{}.querySelectorAll('.axis text.end')].map(it => Number(it.textContent))",
        figure(0)
    );
    let pressed =
        format!("{}.querySelector('.actions button').getAttribute('aria-pressed')", figure(0));
    assert_eq!(tab.evaluate(&pressed), "true");
    tab.click("figure .actions button");
    assert_eq!(tab.evaluate(&pressed), "false");
    let ticks: Vec<f64> = serde_json::from_value(tab.evaluate(&heights)).unwrap();
    let even = ticks.windows(3).all(|three| (three[0] + three[2] - 2.0 * three[1]).abs() < 1e-9);
    assert!(ticks.len() > 2 && even, "{ticks:?}");
}

#[test]
fn a_chart_is_enlarged_and_made_small_again() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let width = "document.querySelector('figure').getBoundingClientRect().width";
    let before = tab.evaluate(width).as_f64().unwrap();
    let press = "document.querySelector('figure [aria-label=\"As wide as the page\"]').click()";
    tab.evaluate(press);
    let wide = tab.evaluate(width).as_f64().unwrap();
    assert!(wide > 1.8 * before, "{before} became {wide}");
    // The cursor still finds its values.
    let middle = place(&mut tab, 0.5);
    tab.mouse("mouseMoved", middle, 0);
    tab.wait_for("!document.querySelector('figure .tip').hidden");
    tab.evaluate(press);
    assert_eq!(tab.evaluate(width).as_f64().unwrap(), before);
}

#[test]
fn tables_are_sorted_and_everything_can_be_saved() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let rows =
        "[...document.querySelector('table').tBodies[0].rows].map(row => row.cells[0].textContent)";
    assert_eq!(tab.evaluate(rows), json!(["lr 0.5, batch 256", "lr 1, batch 64"]));
    // Batch sizes as numbers: 64 before 256.
    tab.click("table thead th:nth-child(3)");
    assert_eq!(tab.evaluate(rows), json!(["lr 1, batch 64", "lr 0.5, batch 256"]));
    tab.click("table thead th:nth-child(3)");
    assert_eq!(tab.evaluate(rows), json!(["lr 0.5, batch 256", "lr 1, batch 64"]));
    for name in ["SVG", "PNG", "CSV"] {
        tab.evaluate("saved.length = 0");
        tab.evaluate(&format!(
            "[...{}.querySelectorAll('.actions button')].find(it => it.textContent === '{name}').click()",
            figure(0)
        ));
        tab.wait_for("saved.length === 1");
        let kind = tab.evaluate("saved[0].type");
        let text = tab.evaluate("saved[0].text()");
        let text = text.as_str().unwrap();
        match name {
            "SVG" => {
                assert_eq!(kind, "image/svg+xml");
                assert!(text.contains("http://www.w3.org/2000/svg") && !text.contains("var("));
                assert!(text.contains("stroke=\"rgb(0, 114, 178)\""), "looks are inside");
            }
            "PNG" => {
                assert_eq!(kind, "image/png");
                assert!(tab.evaluate("saved[0].size").as_f64().unwrap() > 5000.0);
            }
            _ => {
                assert!(
                    text.starts_with("series,part,step,time (s),examples,loss (nats)\n"),
                    "{text}"
                );
                assert!(text.contains("\"lr 1, batch 64\",test,600,"), "{text}");
            }
        }
    }
    // Drawings without axes give their numbers, too.
    tab.evaluate("saved.length = 0; [...document.querySelector('.matrix').closest('figure').querySelectorAll('.actions button')].find(it => it.textContent === 'CSV').click()");
    tab.wait_for("saved.length === 1");
    assert_eq!(
        tab.evaluate("saved[0].text()"),
        "true class / predicted class,daisy,rose,tulip\ndaisy,90,6,4\nrose,12,80,8\ntulip,3,17,80\n"
    );
    tab.evaluate("saved.length = 0; [...document.querySelectorAll('.scroll + .actions button')].find(it => it.textContent === 'LaTeX').click()");
    tab.wait_for("saved.length === 1");
    let text = tab.evaluate("saved[0].text()");
    let text = text.as_str().unwrap();
    assert!(text.starts_with("\\begin{tabular}{lrr") && text.contains("\\toprule"), "{text}");
    assert!(text.contains("test accuracy (\\%)"), "{text}");
}

/// Presses a button below a figure that is found by its heading, and returns what it saves.
fn saved(tab: &mut Tab, heading: &str, button: &str) -> String {
    tab.evaluate("saved.length = 0");
    tab.evaluate(&format!(
        "[...[...document.querySelectorAll('figure')].find(it => it.querySelector('h3').textContent.startsWith('{heading}'))
           .querySelectorAll('.actions button')].find(it => it.textContent === '{button}').click()"
    ));
    tab.wait_for("saved.length === 1");
    tab.evaluate("saved[0].text()").as_str().unwrap().to_owned()
}

/// Parallel coordinates: the line under the pointer stands out and says which run it is; the numbers can be saved. Dots of a
/// setting against the result are zoomed and read like any chart.
#[test]
fn settings_of_many_runs_are_pointed_at_zoomed_and_saved() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<RunView> = [(0.2, 16), (0.4, 32), (0.6, 64), (0.8, 128), (1.0, 256)]
        .map(|(rate, batch)| run("lenet", rate, batch))
        .to_vec();
    let mut tab = open(&browser, folder.path(), &runs);
    let line = "document.querySelector('.matrix path.line')";
    let middle = tab.evaluate(&format!(
        "(() => {{ const line = {line}; line.scrollIntoView({{ block: 'center' }});
           const at = line.getPointAtLength(line.getTotalLength() / 2).matrixTransform(line.getScreenCTM()); return [at.x, at.y]; }})()"
    ));
    let middle = (middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap());
    tab.mouse("mouseMoved", middle, 0);
    let under = "document.querySelector('.matrix path.line:hover')";
    tab.wait_for(&format!("{under} && getComputedStyle({under}).strokeWidth === '4px'"));
    let name = tab.evaluate(&format!("{under}.querySelector('title').textContent"));
    assert!(name.as_str().unwrap().starts_with("lr 0."), "{name}");
    let numbers = saved(&mut tab, "Which settings go with", "CSV");
    assert!(numbers.starts_with("run,") && numbers.lines().count() == 6, "{numbers}");
    assert!(numbers.contains("\"lr 0.6, batch 64\""), "{numbers}");
    let dots = "[...document.querySelectorAll('figure')].find(it => it.querySelector('h3').textContent.includes(' by learning rate'))";
    let box_ = tab.evaluate(&format!(
        "(() => {{ const svg = {dots}.querySelector('svg'); svg.scrollIntoView({{ block: 'center' }});
           const box = svg.getBoundingClientRect(); return [box.left + box.width / 2, box.right - 25, box.top + box.height / 2]; }})()"
    ));
    let at = |index: usize| (box_[index].as_f64().unwrap(), box_[2].as_f64().unwrap());
    tab.mouse("mouseMoved", at(0), 0);
    tab.wait_for(&format!(
        "{dots}.querySelector('.tip').innerText.startsWith('learning rate: 0.')"
    ));
    let first = format!("Number({dots}.querySelector('.axis text.mid').textContent)");
    assert!(tab.evaluate(&first).as_f64().unwrap() <= 0.3);
    tab.drag(at(0), at(1));
    tab.wait_for(&format!("{first} > 0.5"));
}

/// Recordings of machines without a run: the same cursor over all resources of all nodes, the cores as a map.
#[test]
fn recordings_of_nodes_are_worked_with_as_runs_are() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let recordings = [("alpha", 0.2), ("beta", 0.9)].map(|(node, seed)| Recording {
        node: Some(node.to_owned()),
        file: format!("{node}.csv").into(),
        resources: resources(seed),
    });
    let mut page = Page::new("What the nodes did", "");
    nodes::describe(&mut page, &[nodes::Recorded::of_recordings(&recordings, "")]);
    let mut tab = open_page(&browser, folder.path(), &page.html());
    let at = place(&mut tab, 0.5);
    tab.mouse("mouseMoved", at, 0);
    tab.wait_for("document.querySelectorAll('.tip:not([hidden])').length > 4");
    let tip = tab.evaluate("document.querySelector('.tip:not([hidden])').innerText");
    let tip = tip.as_str().unwrap();
    assert!(
        tip.starts_with("time (s): ") && tip.contains("alpha") && tip.contains("beta"),
        "{tip}"
    );
    // One node is hidden in one chart and shown in the others.
    let lines = |at: usize| format!("{}.querySelectorAll('.series .line').length", figure(at));
    tab.evaluate("document.querySelector('.entry[data-name=beta]').dispatchEvent(new MouseEvent('click', { bubbles: true }))");
    assert_eq!((tab.evaluate(&lines(0)), tab.evaluate(&lines(1))), (json!(1), json!(2)));
    let (from, to) = (place(&mut tab, 0.5), place(&mut tab, 0.8));
    tab.drag(from, to);
    let ticks = format!("Number({}.querySelector('.axis text.mid').textContent)", figure(0));
    tab.wait_for(&format!("{ticks} >= 25"));
    let cores = saved(&mut tab, "CPU by core: alpha", "CSV");
    assert!(cores.starts_with("core / time (s),0.0 s,") && cores.lines().count() == 3, "{cores}");
    let said = tab.evaluate("document.querySelector('.matrix rect title').textContent");
    assert!(said.as_str().unwrap().ends_with("% busy"), "{said}");
}

/// Nothing scrolls sideways, no text is smaller than 11 pixels, and no legend leaves its card; by eye: `target/report`.
#[test]
fn pages_fit_every_screen() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut runs = two().to_vec();
    runs.push(run("softmax", 0.3, 32));
    let mut tab = open(&browser, folder.path(), &runs);
    let shots = paceline_testing::workspace().join("target/report");
    std::fs::create_dir_all(&shots).unwrap();
    std::fs::copy(folder.path().join("report.html"), shots.join("runs.html")).unwrap();
    for width in [1400, 800, 768, 390] {
        for (dark, theme) in [(false, "light"), (true, "dark")] {
            tab.picture(width, dark, &shots.join(format!("runs-{width}-{theme}.png")));
        }
        assert_eq!(tab.misfits(), Vec::<String>::new(), "at {width}");
    }
    // A phone has no room for the columns of a wide table: its rows stand below each other, each cell with its name.
    let cut = "[...document.querySelectorAll('.scroll:has(.stack)')].filter(it => it.scrollWidth > it.clientWidth + 1).length";
    assert_eq!(tab.evaluate(cut), 0.0);
    let named = "getComputedStyle(document.querySelector('.stack td.num'), '::before').content";
    assert_eq!(tab.evaluate(&format!("{named}.includes('learning rate')")), true);
    // On paper everything is light, and nothing is a button.
    let print = json!({ "media": "print", "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    tab.call("Emulation.setEmulatedMedia", &print);
    assert_eq!(
        tab.evaluate("getComputedStyle(document.body).backgroundColor"),
        "rgb(255, 255, 255)"
    );
    for hidden in [".actions", ".controls"] {
        let shown = format!("getComputedStyle(document.querySelector('{hidden}')).display");
        assert_eq!(tab.evaluate(&shown), "none", "{hidden}");
    }
    tab.call("Emulation.setEmulatedMedia", &json!({ "media": "" }));
    // At 1400 pixels no table scrolls in its box either.
    tab.picture(1400, false, &shots.join("runs-1400-light.png"));
    let wide = tab.evaluate("[...document.querySelectorAll('.scroll')].filter(it => it.scrollWidth > it.clientWidth + 1).length");
    assert_eq!(wide, 0.0);
}

/// Focus, labels, contrast and table semantics, in both themes.
#[test]
fn pages_keep_the_rules_of_accessibility() {
    let (Some(browser), Some(axe)) =
        (chromium(), paceline_testing::node_file("test-env-axe", "axe-core/axe.min.js"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    tab.evaluate(&std::fs::read_to_string(axe).unwrap());
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        tab.call("Emulation.setEmulatedMedia", &media);
        let found = tab.evaluate(
            "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'] }).then(found => found.violations.map(it =>
               `${it.id}: ${it.nodes.length} x ${it.nodes[0].html.slice(0, 200)} ${it.nodes[0].failureSummary}`))",
        );
        assert_eq!(found, json!([]), "{scheme}");
    }
}

#[test]
fn the_page_says_everything_without_its_script() {
    let mut runs = two().to_vec();
    runs.push(run("softmax", 0.3, 32));
    let page = page(&runs);
    assert!(page.contains("lenet on flowers") && page.contains("softmax on flowers"));
    assert!(page.contains("compute-bound: 0.5 &lt;b&gt;"), "verdicts are there and stay text");
    for setting in
        ["schedule <b>cosine</b>", "threads <b>2</b>", "version <b>0.1.0</b>", "seed <b>7</b>"]
    {
        assert!(page.contains(setting), "{setting}");
    }
    assert!(page.contains(">daisy<") && page.contains("daisy as rose: 6 (6.0 %)"));
    assert!(
        page.contains(">alpha<") && page.contains("lr 0.5, batch 256"),
        "nodes and runs are named"
    );
    // Between models there is no ratio: the only ones are within a group.
    assert_eq!(page.matches("1.00 x").count(), 1, "the first run of the group of two");
}
