//! Nodes of runs and of recordings, from what is in their files.

use super::told::{marks_table, words};
use super::*;
use paceline_runs::{Record, TaskJoined};

fn record(time: f64, event: Event) -> Record {
    Record { time, task: "worker/0".to_owned(), kind: String::new(), event: Some(event) }
}

fn view(records: Vec<Record>) -> RunView {
    RunView { name: "r".to_owned(), threads: 2, records, ..RunView::default() }
}

fn recording(rows: &[(f64, f64, f64)]) -> Resources {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resources.csv");
    let mut text = "time_seconds,elapsed_seconds,cpu_idle_percent,process_cpu_percent,disk_reads_per_second,disk_writes_per_second\n".to_owned();
    for (time, idle, own) in rows {
        text.push_str(&format!("{},{time},{idle},{own},3,4\n", 100.0 + time));
    }
    std::fs::write(&path, text).unwrap();
    Resources::read(&path).unwrap()
}

fn cluster() -> RunView {
    let joined = |role: &str, host: &str| {
        let (role, host) = (role.to_owned(), host.to_owned());
        record(100.0, Event::TaskJoined(TaskJoined { role, host, ..TaskJoined::default() }))
    };
    let task =
        |name: &str, own: f64| (name.to_owned(), recording(&[(1.0, 80.0, own), (2.0, 60.0, own)]));
    RunView {
        resources: vec![task("ps/0", 5.0), task("worker/0", 30.0), task("worker/1", 70.0)],
        ..view(vec![
            joined("ps/0", "alpha"),
            joined("worker/0", "beta"),
            joined("worker/1", "alpha"),
        ])
    }
}

#[test]
fn every_node_is_drawn_by_name_and_its_processes_are_added_up() {
    let run = cluster();
    let figures = charts(&[Recorded::of_run(&run, "r")]).figures;
    let find = |title: &str| &figures.iter().find(|it| it.title == title).unwrap().svg;
    for title in ["CPU, whole node", "CPU, own processes", "Disk operations"] {
        let svg = find(title);
        assert!(svg.contains(">alpha<") && svg.contains(">beta<"), "{title}: {svg}");
    }
    assert!(find("CPU, own processes").contains("[75,75]"), "5 and 70 on one node");
    assert!(find("CPU, whole node").contains("[20,40]"), "busy is what is not idle");
    assert!(find("Disk operations").contains("[7,7]"), "reads and writes");
    assert!(!figures.iter().any(|it| it.title.starts_with("Network")), "it was not recorded");
}

#[test]
fn two_runs_share_the_axes_and_no_line_its_look() {
    let runs = [cluster(), cluster(), cluster()];
    let names = ["before", "between", "after"];
    let all: Vec<Recorded<'_>> =
        runs.iter().zip(names).map(|(run, name)| Recorded::of_run(run, name)).collect();
    let found = charts(&all);
    let svg = &found.figures[0].svg;
    for look in ["c0 k0", "c1 k0", "c0 k1", "c1 k1", "c0 k2", "c1 k2"] {
        assert_eq!(svg.matches(&format!("series {look}")).count(), 1, "{look}: {svg}");
    }
    assert!(svg.contains(">beta, after<") && !found.paired, "{svg}");
}

#[test]
fn before_and_after_stand_side_by_side_on_the_same_axes() {
    let (before, mut after) = (cluster(), cluster());
    // The second run took twice as long, and its own processes half as much.
    after.resources[1].1 = recording(&[(1.0, 80.0, 15.0), (4.0, 60.0, 15.0)]);
    let all = [Recorded::of_run(&before, "before"), Recorded::of_run(&after, "after")];
    let found = charts(&all);
    assert!(found.paired);
    let titled = |title: &str| found.figures.iter().find(|it| it.title == title).unwrap();
    let pair = ["before", "after"].map(|name| titled(&format!("CPU, own processes: {name}")));
    let at = |title: &str| found.figures.iter().position(|it| it.title == title).unwrap();
    assert_eq!(at(&pair[0].title) + 1, at(&pair[1].title), "one beside the other");
    for figure in pair {
        assert!(figure.svg.contains(">alpha<") && figure.svg.contains(">beta<"));
        // Ends of both axes: four seconds and 75 per cent in both.
        for end in ["\"range\":[0,4]", "\"range\":[0,75]"] {
            let end = end.replace('"', "&quot;");
            assert!(figure.svg.contains(&end), "{end}: {}", figure.svg);
        }
    }
}

fn recorded(file: &str, node: Option<&str>, begin: f64) -> Recording {
    let mut text =
        "time_seconds,elapsed_seconds,cpu_idle_percent,process_cpu_percent,cpu_cores_percent,mark\n"
            .to_owned();
    for at in 0..4 {
        let time = begin + f64::from(at);
        text.push_str(&format!("{time},{at},20,50,100 {}.5,\n", 10 * at));
    }
    text.push_str(&format!("{},,,,,\"job <a>, submitted\"\n", begin + 1.5));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, text).unwrap();
    let resources = Resources::read(&path).unwrap();
    Recording { node: node.map(str::to_owned), file: file.into(), resources }
}

#[test]
fn recordings_are_called_by_host_then_file_then_folder() {
    let all = [
        recorded("x/a.csv", Some("alpha"), 0.0),
        recorded("x/machine.csv", None, 0.0),
        recorded("y/machine.csv", None, 0.0),
        recorded("z.csv", Some("beta"), 0.0),
        recorded("w.csv", Some("beta"), 0.0),
        recorded("v.csv", None, 0.0),
        recorded("v.csv", None, 0.0),
    ];
    let names = node_names(&all);
    assert_eq!(names, ["alpha", "x/machine", "y/machine", "z", "w", "v.csv", "v.csv (2)"]);
}

#[test]
fn marks_are_drawn_on_every_chart_and_listed() {
    let files = [recorded("a.csv", None, 100.0), recorded("b.csv", None, 101.0)];
    let all = [Recorded::of_recordings(&files, "")];
    let found = charts(&all);
    let chart = &found.figures[0];
    assert_eq!(chart.title, "CPU, whole node");
    assert_eq!(chart.svg.matches("mark loud").count(), 2, "{}", chart.svg);
    assert!(chart.svg.contains("job &lt;a&gt;, submitted (a)"), "{}", chart.svg);
    let text = marks_table(&all).markdown();
    assert!(text.contains("1.5") && text.contains("2.5") && text.contains("(b)"), "{text}");
    let others = found.figures.iter().find(|it| it.title == "CPU, other programs").unwrap();
    assert!(others.svg.contains("[110,110"), "two cores, 80 % busy, 50 of them own");
}

#[test]
fn cores_are_a_map_for_each_node() {
    let files = [recorded("a.csv", None, 100.0), recorded("b.csv", None, 101.0)];
    let found = charts(&[Recorded::of_recordings(&files, "")]).figures;
    let maps: Vec<&Figure> =
        found.iter().filter(|it| it.title.starts_with("CPU by core: ")).collect();
    assert_eq!(maps.len(), 2);
    assert!(maps[0].svg.contains("cell s9") && maps[0].svg.contains("% busy"));
}

/// Two recordings of one machine, a day apart, once would have been two dots at the ends of a day.
#[test]
fn recordings_of_different_days_lie_over_each_other() {
    let files = [recorded("before.csv", None, 0.0), recorded("after.csv", None, 86_400.0)];
    let all = [Recorded::of_recordings(&files, "")];
    assert!(all[0].apart && all[0].seconds() < 10.0, "{}", all[0].seconds());
    assert!(words(&all).1.iter().any(|point| point.contains("no moment in common")));
    assert!(overlap(&[(0.0, 5.0), (4.0, 9.0), (8.0, 12.0)]) && overlap(&[]));
}

#[test]
fn a_table_a_file_and_drawings_say_the_same() {
    let files = [recorded("a.csv", None, 100.0)];
    let all = [Recorded::of_recordings(&files, "")];
    let text = markdown(&all);
    assert!(text.contains("What one node did in 3 s") && text.contains("20.0"), "{text}");
    let table = csv(&all);
    assert!(table.lines().count() == 2 && table.contains(",a,,20,"), "{table}");
    assert!(pictures(&all).iter().all(|(_, svg)| svg.starts_with("<svg")));
}

#[test]
fn means_have_a_row_for_each_node() {
    let text = means(&[Recorded::of_run(&cluster(), "r")]).markdown();
    assert!(text.contains("| alpha | ps/0 worker/1 |"), "{text}");
    assert!(text.contains("70.0"), "{text}");
}

/// Tasks of an engine come one after the other; a node's line once ended with its first task.
#[test]
fn tasks_of_one_host_are_one_node_with_all_of_their_time() {
    let files = [
        recorded("x/resources-task-1@alpha.csv", None, 100.0),
        recorded("x/resources-task-2@beta.csv", None, 101.0),
        recorded("x/resources-task-3@alpha.csv", None, 106.0),
    ];
    let one = Recorded::of_recordings(&files, "");
    let names: Vec<&str> = one.hosts().map(String::as_str).collect();
    assert_eq!(names, ["alpha", "beta"]);
    let own = METRICS.iter().find(|metric| metric.own).unwrap();
    let curves = curves_of(own, &one, false);
    let alpha: Vec<f64> = curves[0].1.iter().map(|point| point.0).collect();
    assert_eq!(alpha, [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0]);
    assert!(curves[0].1.iter().all(|point| point.1 == 50.0), "one at a time: {curves:?}");
    assert!(means(&[one]).markdown().contains("| alpha | task-1 task-3 |"));
}
