//! Two axes as a map, the effect of each axis, and the best setting in words.

use crate::effects::{Best, Better, Effect, bests, effects, levels};
use crate::findings::{Findings, joined};
use paceline_report::chart::{Axis, Chart, Drawing, HeatMap, Series, Span};
use paceline_report::page::{Figure, capitalised};
use paceline_stats::words::number;

/// Most measures that are drawn as maps or effects; the tables have all.
const MOST_DRAWN: usize = 4;
/// Beyond this factor between smallest and largest, shades follow the logarithm.
const WIDE: f64 = 10.0;

fn figure(title: String, svg: Drawing, words: String) -> Figure {
    Figure { title, colour: None, key: Vec::new(), svg, words, notes: Vec::new() }
}

/// The two axes with the most levels, in their order, and the others that vary; nothing where fewer than two vary.
fn chosen(found: &Findings) -> Option<(usize, usize, Vec<usize>)> {
    let count = |axis: usize| levels(&found.groups, axis).len();
    let mut order: Vec<usize> = (0..found.axes.len()).filter(|axis| count(*axis) > 1).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(count(*axis)));
    let others = order.split_off(order.len().min(2));
    order.sort_unstable();
    let [rows, columns] = order[..] else { return None };
    Some((rows, columns, others))
}

/// A map for each measure whose good end is known, where two axes vary; the published figures beside, where there are any. Of
/// further axes each cell has the best level.
pub(super) fn maps(found: &Findings) -> Vec<Figure> {
    let Some((rows, columns, others)) = chosen(found) else { return Vec::new() };
    let others: Vec<&str> = others.iter().map(|axis| found.axes[*axis].as_str()).collect();
    let words = match others.is_empty() {
        true => "Framed: the best setting.".to_owned(),
        false => {
            format!("Each cell with its best {}. Framed: the best setting.", others.join(", "))
        }
    };
    let best = bests(found);
    let mut figures = Vec::new();
    for best in best.iter().take(MOST_DRAWN) {
        let measure = &found.measures[best.measure];
        let ours =
            |group: usize| found.repeats(&found.groups[group], best.measure).map(|set| set.centre);
        let title = format!(
            "{} by {} and {}",
            capitalised(&measure.name),
            found.axes[rows],
            found.axes[columns]
        );
        let mut map = map(found, best.measure, (rows, columns), &ours);
        let place = |axis: usize| {
            let label = &found.groups[best.group].settings[axis].1;
            levels(&found.groups, axis).iter().position(|level| level == label)
        };
        map.framed = place(rows).zip(place(columns));
        map.title.clone_from(&title);
        // Said once is enough.
        let words = if figures.is_empty() { words.clone() } else { String::new() };
        figures.push(figure(title.clone(), map.svg(), words));
        let published = |group: usize| found.groups[group].published[best.measure];
        let known = (0..found.groups.len()).filter_map(published).count();
        if known > 1 && others.is_empty() {
            let mut map = self::map(found, best.measure, (rows, columns), &published);
            map.title = format!("{title}, published");
            let words = "Empty cells were not published.".to_owned();
            figures.push(figure(map.title.clone(), map.svg(), words));
        }
    }
    figures
}

/// A measure by two axes; of several values for a cell it has the best.
fn map(
    found: &Findings,
    measure: usize,
    (rows, columns): (usize, usize),
    value: &dyn Fn(usize) -> Option<f64>,
) -> HeatMap {
    let (down, across) = (levels(&found.groups, rows), levels(&found.groups, columns));
    let mut values = vec![vec![f64::NAN; across.len()]; down.len()];
    for (at, group) in found.groups.iter().enumerate() {
        let row = down.iter().position(|level| *level == group.settings[rows].1);
        let column = across.iter().position(|level| *level == group.settings[columns].1);
        if let (Some(row), Some(column), Some(value)) = (row, column, value(at)) {
            let other = values[row][column];
            let is_better = match found.measures[measure].better() {
                Some(Better::Lower) => value < other,
                _ => value > other,
            };
            if other.is_nan() || is_better {
                values[row][column] = value;
            }
        }
    }
    let text = |value: &f64| if value.is_finite() { number(*value) } else { String::new() };
    let texts = values.iter().map(|row| row.iter().map(text).collect()).collect();
    let known = || values.iter().flatten().copied().filter(|value| value.is_finite());
    let low = known().fold(f64::INFINITY, f64::min);
    let high = known().fold(f64::NEG_INFINITY, f64::max);
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let ticks = across.iter().enumerate().map(|(at, name)| (at as f64 + 0.5, (*name).to_owned()));
    HeatMap {
        title: String::new(),
        axes: (found.axes[rows].clone(), found.axes[columns].clone()),
        rows: named(&down),
        columns: named(&across),
        ticks: ticks.collect(),
        logarithmic: low > 0.0 && high / low > WIDE,
        values,
        range: if low <= high { (low, high) } else { (0.0, 1.0) },
        unit: found.measures[measure].unit.clone(),
        texts,
        framed: None,
    }
}

/// One chart for each axis and measure: what its levels do, the other axes averaged out.
pub(super) fn marginals(found: &Findings) -> Vec<Figure> {
    let all = effects(found);
    let mut measures: Vec<usize> = all.iter().map(|effect| effect.measure).collect();
    measures.dedup();
    measures.truncate(MOST_DRAWN);
    all.iter()
        .filter(|effect| measures.contains(&effect.measure))
        .map(|effect| marginal(found, effect))
        .collect()
}

fn marginal(found: &Findings, effect: &Effect) -> Figure {
    let measure = &found.measures[effect.measure];
    let unit = if effect.factor { "times the mean".to_owned() } else { measure.unit.clone() };
    let label = if effect.factor { "" } else { "difference from the mean" };
    let names: Vec<&String> = effect.levels.iter().map(|(level, _)| level).collect();
    let spans = effect.levels.iter().enumerate().map(|(at, (_, set))| {
        let ends = set.whisker();
        Span { x: at as f64, y: set.centre, low: ends.low, high: ends.high }
    });
    let spans: Vec<Span> = spans.collect();
    let title = format!("Effect of {} on {}", effect.axis, measure.name);
    let line = spans.iter().map(|span| (span.x, span.y)).collect::<Vec<_>>();
    let chart =
        Chart::new(&title, Axis::categories(&effect.axis, names), Axis::new(label).unit(unit))
            .with(Series::line(&measure.name, line).colour(0))
            .with(Series::averages(&measure.name, spans).colour(0).unlabelled());
    let least = effect.levels.iter().min_by(|a, b| a.1.centre.total_cmp(&b.1.centre));
    let most = effect.levels.iter().max_by(|a, b| a.1.centre.total_cmp(&b.1.centre));
    let words = match (least, most) {
        (Some((low, least)), Some((high, most))) if effect.factor && least.centre > 0.0 => {
            format!("{high} gives {} times as much as {low}.", number(most.centre / least.centre))
        }
        (Some((low, least)), Some((high, most))) => format!(
            "{high} gives {} {} more than {low}.",
            number(most.centre - least.centre),
            if measure.unit == "%" { "percentage points" } else { &measure.unit }
        ),
        _ => String::new(),
    };
    figure(title, chart.svg(), words)
}

/// The best setting of each measure, each in a sentence.
pub(super) fn best_words(found: &Findings) -> Vec<String> {
    bests(found).iter().filter_map(|best| words(found, best)).collect()
}

fn words(found: &Findings, best: &Best) -> Option<String> {
    let measure = &found.measures[best.measure];
    let said = |group: usize| {
        let set = found.repeats(&found.groups[group], best.measure)?;
        let value = format!("{} {}", number(set.centre), measure.unit).trim_end().to_owned();
        Some(format!("{} ({value})", joined(&found.groups[group].settings)))
    };
    let sure = match best.probability {
        Some(share) if share >= 0.995 => "more than 99 % sure".to_owned(),
        Some(share) => format!("{:.0} % sure", 100.0 * share),
        None => "how sure is not known without repeats".to_owned(),
    };
    Some(format!(
        "Best {}: {}; {sure}. Next: {}",
        measure.name,
        said(best.group)?,
        said(best.next)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::tests::grid;

    /// A grid of three axes had no map at all.
    #[test]
    fn of_three_axes_the_longest_two_are_a_map_of_the_best() {
        let mut found = grid(3, 0.01);
        // A second level of a third axis, half as fast.
        found.axes.push("optimizer".to_owned());
        let mut slower = found.groups.clone();
        for (groups, level) in [(&mut found.groups, "adam"), (&mut slower, "sgd")] {
            let setting = ("optimizer".to_owned(), level.to_owned());
            groups.iter_mut().for_each(|group| group.settings.push(setting.clone()));
        }
        slower.iter_mut().flat_map(|it| it.values[0].iter_mut()).for_each(|value| *value /= 2.0);
        let plain = maps(&grid(3, 0.01));
        found.groups.splice(0..0, slower);
        let maps = maps(&found);
        assert_eq!(maps.len(), 1);
        assert_eq!(maps[0].title, "Rate by batch-size and workers");
        assert_eq!(maps[0].svg, plain[0].svg, "each cell has the faster optimizer");
        assert!(maps[0].words.starts_with("Each cell with its best optimizer."), "{maps:?}");
    }

    #[test]
    fn two_axes_are_a_map_with_the_best_framed_and_an_effect_each() {
        let found = grid(3, 0.01);
        let maps = maps(&found);
        assert_eq!(maps.len(), 1);
        assert_eq!(maps[0].title, "Rate by batch-size and workers");
        assert_eq!(maps[0].svg.matches(" framed").count(), 1);
        let effects = marginals(&found);
        let titles: Vec<&str> = effects.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["Effect of batch-size on rate", "Effect of workers on rate"]);
        assert!(effects[0].words.contains("40 gives 2.25 times as much as 10"), "{effects:?}");
        let words = best_words(&found);
        assert!(words[0].contains("batch-size 40, workers 2"), "{words:?}");
        assert!(words[0].contains("more than 99 % sure"), "{words:?}");
    }
}
