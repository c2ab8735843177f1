//! Values of every run at the cursor, searches by regular expression, charts and maps that the reader chooses, in a real browser.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_report::page::Page;
use paceline_report::training::where_the_time_goes;
use paceline_runs::{Event, Histograms, Tensor};
use paceline_testing::{browser::chromium, devtools::Tab};
use serde_json::{Value, json};
use support::{figure, open, open_page, place, record, run, two};

/// Texts of all cells of the first table that a selector finds, row by row.
fn cells(tab: &mut Tab, selector: &str) -> Vec<Vec<String>> {
    let found = tab.evaluate(&format!(
        "[...document.querySelector({}).rows].map(row => [...row.cells].map(cell => cell.textContent))",
        json!(selector)
    ));
    serde_json::from_value(found).unwrap_or_default()
}

fn press(tab: &mut Tab, key: &str) {
    tab.call("Input.dispatchKeyEvent", &json!({ "type": "keyDown", "key": key }));
    tab.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
}

fn click(tab: &mut Tab, at: (f64, f64)) {
    tab.mouse("mouseMoved", at, 0);
    tab.mouse("mousePressed", at, 1);
    tab.mouse("mouseReleased", at, 1);
}

/// TensorBoard listed every run's value, step and time under each chart, the report only values beside the cursor.
#[test]
fn every_value_at_the_cursor_stands_in_a_table_below_the_chart() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let at = place(&mut tab, 0.5);
    tab.mouse("mouseMoved", at, 0);
    tab.wait_for("document.querySelector('.tip.below:not([hidden]) table')");
    let rows = cells(&mut tab, ".tip.below table");
    assert_eq!(rows[0], ["name", "loss (nats)", "step", "time (s)"]);
    assert_eq!(rows.len(), 5, "training and test of two runs: {rows:?}");
    let row = rows.iter().find(|row| row[0] == "lr 0.5, batch 256, test").unwrap();
    let exact = 0.3 + 2.0 * (-6.0 * 0.5 * 0.5_f64).exp();
    assert_eq!(row[1..], [format!("{exact:.5}"), "300".to_owned(), "30".to_owned()]);
    let near = "document.querySelectorAll('.tip.below .near').length";
    assert_eq!(tab.evaluate(near), 1.0, "the row next to the pointer stands out");
    tab.evaluate("(range => { range.value = '0.9'; range.dispatchEvent(new Event('input')); })(document.querySelector('[name=smoothing]'))");
    let rows = cells(&mut tab, ".tip.below table");
    assert_eq!(rows[0], ["name", "loss (nats)", "smoothed", "step", "time (s)"]);
    assert!(rows[1..].iter().all(|row| row[2].parse::<f64>().is_ok()), "{rows:?}");
    assert_ne!(rows[1][1], rows[1][2]);
}

#[test]
fn a_click_keeps_the_values_and_another_lets_them_go() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let at = place(&mut tab, 0.5);
    click(&mut tab, at);
    tab.wait_for("document.querySelectorAll('.values tbody tr').length === 4");
    tab.mouse("mouseMoved", (2.0, 2.0), 0);
    // The moment is marked in every chart, and the table stays.
    tab.wait_for("document.querySelectorAll('.cursor.held').length > 4");
    let rows = cells(&mut tab, ".values table");
    assert_eq!(rows[0], ["name", "loss (nats)", "step", "time (s)", "examples"]);
    assert!(
        rows.iter().any(|row| row[0] == "lr 0.5, batch 256, test" && row[2] == "300"),
        "{rows:?}"
    );
    // It is sorted by mouse and by keyboard, and a run that is hidden leaves it.
    tab.click(".values thead th:nth-child(2)");
    let column = |tab: &mut Tab| -> Vec<f64> {
        cells(tab, ".values table")[1..].iter().map(|row| row[1].parse().unwrap()).collect()
    };
    let rising = column(&mut tab);
    assert!(rising.is_sorted(), "{rising:?}");
    tab.evaluate("document.querySelector('.values thead th:nth-child(2)').focus()");
    press(&mut tab, "Enter");
    let falling = column(&mut tab);
    assert_eq!(falling, rising.iter().rev().copied().collect::<Vec<_>>());
    let sort = "document.querySelector('.values thead th:nth-child(2)').ariaSort";
    assert_eq!(tab.evaluate(sort), "descending");
    let entry = format!(
        "{}.querySelector('.entry').dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))",
        figure(0)
    );
    tab.evaluate(&entry);
    assert_eq!(column(&mut tab).len(), 2);
    tab.evaluate(&entry);
    // As a file, in the order shown.
    tab.click(".values [aria-label='Save these values as CSV']");
    let csv = tab.evaluate("saved.at(-1).text()");
    let first = format!("{}", falling[0]);
    assert!(csv.as_str().unwrap().lines().nth(1).unwrap().contains(&first), "{csv}");
    let at = place(&mut tab, 0.5);
    click(&mut tab, at);
    tab.wait_for("document.querySelectorAll('.values, .cursor.held').length === 0");
    // Without a moment, the last values.
    tab.click("button[data-values]");
    let rows = cells(&mut tab, ".values table");
    assert!(rows[1..].iter().all(|row| row[2] == "600"), "{rows:?}");
    press(&mut tab, "Escape");
    tab.wait_for("document.querySelectorAll('.values').length === 0");
}

#[test]
fn the_cursor_and_its_table_are_worked_by_keyboard() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    tab.evaluate("document.querySelector('figure .grip').focus()");
    let said = "document.activeElement.getAttribute('aria-valuetext')";
    press(&mut tab, "End");
    tab.wait_for(&format!("{said}.startsWith('step: 600; ')"));
    press(&mut tab, "ArrowLeft");
    tab.wait_for(&format!("!{said}.startsWith('step: 600; ')"));
    press(&mut tab, "Home");
    tab.wait_for(&format!("{said}.startsWith('step: 4; ')"));
    let most = tab.evaluate("document.activeElement.ariaValueMax");
    assert_eq!(most, "600");
    press(&mut tab, "Enter");
    tab.wait_for("document.querySelectorAll('.values tbody tr').length === 4");
    let rows = cells(&mut tab, ".values table");
    assert_eq!(rows[1][2], "4", "{rows:?}");
    press(&mut tab, "Escape");
    tab.wait_for("document.querySelectorAll('.values').length === 0");
}

#[test]
fn a_search_that_is_not_a_regular_expression_says_so() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let said = "document.querySelector('.controls > .wrong').textContent";
    tab.fill(".controls input[name=find]", "(loss|right");
    let words = "not a regular expression (unterminated group): searched as plain text";
    assert_eq!(tab.evaluate(said), words);
    let field = "document.querySelector('.controls input[name=find]').ariaInvalid";
    assert_eq!(tab.evaluate(field), "true");
    tab.fill(".controls input[name=find]", "(loss|right)");
    assert_eq!(tab.evaluate(said), "");
    assert_eq!(tab.evaluate(field), Value::Null);
    // The names of runs are searched the same way.
    tab.evaluate("document.querySelector('.picker').open = true");
    let left = "[...document.querySelectorAll('.picker label')].filter(it => !it.hidden).map(it => it.textContent).join('; ')";
    tab.fill(".picker input[type=search]", "batch (64|65)$");
    assert_eq!(tab.evaluate(left), "lr 1, batch 64");
    tab.fill(".picker input[type=search]", "batch [");
    assert_eq!(tab.evaluate(left), "");
    let said = "document.querySelector('.picker .wrong').textContent";
    assert!(tab.evaluate(said).as_str().unwrap().starts_with("not a regular expression"));
}

/// Letters grew with the chart, up to three times the page's.
#[test]
fn an_enlarged_chart_keeps_the_size_of_its_letters_and_has_more_room() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = open(&browser, folder.path(), &two());
    let scale = "(svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)(document.querySelector('figure svg'))";
    let ticks = format!("{}.querySelectorAll('.axis text.mid').length", figure(0));
    let few = tab.evaluate(&ticks).as_f64().unwrap();
    let press = "document.querySelector('figure [aria-label=\"As wide as the page\"]').click()";
    tab.evaluate(press);
    let large = tab.evaluate(scale).as_f64().unwrap();
    assert!((0.98..1.02).contains(&large), "{large}");
    assert!(tab.evaluate(&ticks).as_f64().unwrap() > few);
    assert_eq!(tab.misfits(), Vec::<String>::new());
    // On paper it is what the server drew.
    tab.call("Emulation.setEmulatedMedia", &json!({ "media": "print" }));
    tab.wait_for("document.querySelector('figure svg').viewBox.baseVal.width === 380");
    tab.call("Emulation.setEmulatedMedia", &json!({ "media": "" }));
    tab.wait_for("document.querySelector('figure svg').viewBox.baseVal.width > 380");
    tab.evaluate(press);
    assert_eq!(tab.evaluate(&ticks), few);
}

/// Only the six largest tensors could be looked at.
#[test]
fn any_tensor_is_chosen_and_drawn_for_every_run() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut runs = two();
    for (at, run) in runs.iter_mut().enumerate() {
        for step in [100, 200, 300] {
            let tensor = |size: u64| Tensor {
                name: format!("t<{size}>"),
                min: -1.0,
                max: 1.0 + at as f64,
                counts: vec![size, 2 * size, step],
            };
            let tensors = (1..=8).map(tensor).collect();
            run.records.push(record(
                1000.0,
                "worker/0",
                Event::Histograms(Histograms { step, tensors }),
            ));
        }
    }
    let mut tab = open(&browser, folder.path(), &runs);
    let titles = "[...document.querySelectorAll('figure')].filter(it => it.checkVisibility()).map(it => it.querySelector('h3').textContent).filter(it => it.includes('spread')).join('; ')";
    tab.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })");
    let drawn = tab.evaluate(titles);
    assert_eq!(drawn.as_str().unwrap().split("; ").count(), 6, "{drawn}");
    assert_eq!(tab.evaluate("document.querySelector('[name=tensor]').options.length"), 9.0);
    let choose = |tab: &mut Tab, name: &str| {
        tab.evaluate(&format!("(choice => {{ choice.value = '{name}'; choice.dispatchEvent(new Event('change')); }})(document.querySelector('[name=tensor]'))"));
    };
    choose(&mut tab, "t<2>");
    let wanted = "How is t<2> spread? lr 0.5, batch 256; How is t<2> spread? lr 1, batch 64";
    assert_eq!(tab.evaluate(titles), wanted);
    // Its map is the one that the server would have drawn: the numbers of the largest are those of its own drawing.
    let numbers = |tab: &mut Tab, of: &str| -> Vec<Vec<Value>> {
        let found = tab.evaluate(&format!(
            "JSON.parse(document.querySelector('{of} svg.chart metadata').textContent).rows"
        ));
        serde_json::from_value(found).unwrap()
    };
    choose(&mut tab, "t<8>");
    let grid = "document.querySelector('[name=tensor]').closest('div').nextElementSibling";
    tab.evaluate(&format!("{grid}.id = 'maps'"));
    let (ours, theirs) = (numbers(&mut tab, "#maps figure[data-own]"), numbers(&mut tab, "#maps"));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs).skip(1) {
        assert_eq!(ours[0], theirs[0]);
        for (ours, theirs) in ours.iter().zip(theirs).skip(1) {
            let (ours, theirs) = (ours.as_f64().unwrap_or(0.0), theirs.as_f64().unwrap_or(0.0));
            assert!((ours - theirs).abs() < 0.02, "{ours} for {theirs}");
        }
    }
    assert_eq!(tab.misfits(), Vec::<String>::new());
    choose(&mut tab, "");
    assert_eq!(tab.evaluate(titles), drawn);
}

/// Its letters were 10.5 px on a phone, and it did not say how long a run took.
#[test]
fn the_picture_of_where_the_time_goes_is_read_on_a_phone_too() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut page = Page::new("Tour", "");
    page.hero(&where_the_time_goes(&two()));
    let mut tab = open_page(&browser, folder.path(), &page.html());
    for width in [390, 1400] {
        tab.picture(width, false, &folder.path().join("hero.png"));
        assert_eq!(tab.misfits(), Vec::<String>::new(), "at {width}");
    }
    let said = tab.evaluate("document.querySelector('.hero .key').textContent");
    assert_eq!(
        said,
        "2 runs 120 s \u{b7} compute 60 % \u{b7} input 20 % \u{b7} exchange 15 % \u{b7} wait 5 %"
    );
    let wholes =
        "[...document.querySelectorAll('.hero svg text.end')].map(it => it.textContent).join()";
    assert_eq!(tab.evaluate(wholes), "60.0 s,60.0 s");
}

/// Runs of one model have one table of layers, with shapes.
#[test]
fn the_layers_of_the_model_are_listed() {
    let mut one = run("lenet", 0.5, 64);
    one.layers = vec![("fc1.weight".to_owned(), vec![10, 84]), ("fc1.bias".to_owned(), vec![10])];
    let page = support::page(&[one]);
    assert!(
        page.contains("Layers of the model (1)") && page.contains("weight 10 \u{d7} 84, bias 10"),
        "{page}"
    );
}
