//! Bad catalogues, histories and states: a clear error that names the row.

#![allow(clippy::unwrap_used)] // a test may

use paceline_advisor::evaluate::{ReplaySettings, StudyQuestion, StudySource};
use paceline_advisor::{
    Catalogue, Measurements, Objective, Outcome, Problem, SearchState, methods,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const CATALOGUE: &str =
    "machine,count,cores,memory_gib,usd_per_hour\nsmall,2;4,2,4,0.1\nlarge,2;4,8,32,0.4\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::read(&self.file("good.csv", CATALOGUE)).unwrap()
    }

    fn catalogue_error(&self, name: &str, text: &str) -> String {
        Catalogue::read(&self.file(name, text)).unwrap_err().to_string()
    }

    fn history_error(&self, name: &str, text: &str) -> String {
        Measurements::read(&self.file(name, text), &self.catalogue()).unwrap_err().to_string()
    }
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn catalogue_errors_name_the_row() {
    let folder = Folder::new();
    let head = "machine,count,cores,memory_gib,usd_per_hour\n";
    let error = |rows: &str| folder.catalogue_error("c.csv", &format!("{head}{rows}"));
    holds(&error("a,2,2,4,0.1\nb,2,2,4,\n"), &["line 3", "`b` has no price"]);
    holds(&error("a,2,2,4,0.1\na,2,2,4,0.1\n"), &["line 3", "already", "line 2"]);
    holds(&error("a,2,two,4,0.1\n"), &["line 2", "`cores` is `two`"]);
    holds(&error("a,2,2,4,-1\n"), &["line 2", "`usd_per_hour` is `-1`"]);
    holds(&error("a,0,2,4,0.1\n"), &["line 2", "`count` is `0`"]);
    holds(&error("a,2,2,4,inf\n"), &["line 2", "`usd_per_hour`"]);
    holds(&error(""), &["holds no configuration"]);
    holds(&folder.catalogue_error("c.csv", "machine,cores\n"), &["no column `count`"]);
    let misspelt = head.replace("usd_per_hour", "prize");
    holds(&folder.catalogue_error("c.csv", &misspelt), &["no column `usd_per_hour`"]);
    // The first of them used to count, silently.
    let twice = format!("{},cores\na,2,2,4,0.1,8\n", head.trim());
    holds(&folder.catalogue_error("c.csv", &twice), &["c.csv", "the column `cores` twice"]);
    holds(&folder.catalogue_error("c.txt", ""), &[".csv, .toml"]);
    let toml = "[[machine]]\nname = \"a\"\ncores = 2\nmemory_gib = 4\ncounts = [1]\n";
    holds(&folder.catalogue_error("c.toml", toml), &["entry 1", "`a` has no price"]);
}

#[test]
fn both_forms_of_a_catalogue_say_the_same() {
    let folder = Folder::new();
    let toml = "[[machine]]\nname = \"small\"\ncores = 2\nmemory_gib = 4\nusd_per_hour = 0.1\ncounts = [2, 4]\n\
                [[machine]]\nname = \"large\"\ncores = 8\nmemory_gib = 32\nusd_per_hour = 0.4\ncounts = [2, 4]\n";
    let read = Catalogue::read(&folder.file("c.toml", toml)).unwrap();
    assert_eq!(read, folder.catalogue());
    assert_eq!(read.len(), 4);
    assert!((read.cost(read.find("large", 4).unwrap(), 1800.0) - 0.8).abs() < 1e-12);
}

#[test]
fn history_errors_name_the_row() {
    let folder = Folder::new();
    let head = "workload,machine,count,seconds,completed\n";
    let error = |rows: &str| folder.history_error("h.csv", &format!("{head}{rows}"));
    holds(
        &error("w,tiny,2,10,true\nw,vast,9,2,true\n"),
        &["h.csv", "none of its 2 runs", "`tiny`"],
    );
    holds(&error("w,small,2,-5,true\n"), &["line 2", "-5 s"]);
    holds(&error("w,small,2,0,true\n"), &["line 2", "0 s"]);
    holds(&error("w,small,2,,true\n"), &["line 2", "needs its `seconds`"]);
    holds(&error("w,small,2,5,maybe\n"), &["line 2", "`maybe`"]);
    holds(&error("w,small,2,5,true\nw,small,2,5,true\n"), &["line 3", "repeats line 2"]);
    holds(&error("w,small,2,5,true\nw,small,2,6,true\n"), &["line 3", "contradicts line 2"]);
    holds(&error("w,small,2,5,true\nw,small,2,5,false\n"), &["line 3", "contradicts line 2"]);
    holds(&error(""), &["holds no measurement"]);
    let metric = format!("{},metric.cpu\nw,small,2,5,true,high\n", head.trim());
    holds(&folder.history_error("h.csv", &metric), &["line 2", "`metric.cpu` is `high`"]);
    holds(&error("w,small,2,5\n"), &["not a table"]);
    let json = r#"[{"workload":"w","machine":"small","count":2,"seconds":5},
                   {"workload":"w","machine":"huge","count":2,"seconds":5,"cores":-8}]"#;
    holds(&folder.history_error("h.json", json), &["entry 2", "`cores` is `-8`"]);
}

/// A machine that the catalogue does not hold was once an error.
#[test]
fn runs_on_other_machines_tell_what_they_can() {
    let folder = Folder::new();
    let catalogue = folder.catalogue();
    let head = "workload,machine,count,cores,memory_gib,seconds,completed\n";
    let read = |name: &str, text: &str| {
        let found = Measurements::read(&folder.file(name, text), &catalogue).unwrap();
        let rows = found.rows().iter();
        let rows = rows.map(|row| {
            let seconds = row.outcome.completed().unwrap_or(f64::NAN);
            (catalogue.name(row.configuration), seconds, row.stands_in)
        });
        (rows.collect::<Vec<_>>(), found.outside().clone())
    };
    // Six cores stand for eight: the time of as many.
    let (rows, outside) = read("a.csv", &format!("{head}w,small,3,,,80,true\n"));
    assert_eq!(rows, [("4 x small".to_owned(), 60.0, true)]);
    assert_eq!((outside.kept, outside.skipped), (1, 0));
    // Another provider's machine of one size, one of another, one that nothing is told of.
    let others =
        "w,n2-8,2,8,32,50,true\nw,n2-96,4,96,384,5,true\nw,tiny,2,,,9,true\nw,tiny,1,,,9,true\n";
    let (rows, outside) = read("b.csv", &format!("{head}{others}"));
    assert_eq!(rows, [("2 x large".to_owned(), 50.0, true)]);
    assert_eq!((outside.kept, outside.skipped), (1, 3));
    assert_eq!(outside.machines, ["n2-96", "tiny"]);
    let words = outside.words().unwrap();
    holds(&words, &["1 run on machines outside", "not 3 runs", "n2-96, tiny"]);
    // What the job took there itself counts more; repeats on two machines are none of one.
    let both =
        "w,n2-8,2,8,32,50,true\nw,large,2,,,40,true\nv,n2-8,2,8,32,50,true\nv,m5,2,8,32,70,true\n";
    let (rows, outside) = read("c.csv", &format!("{head}{both}"));
    assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [40.0, 50.0, 70.0]);
    assert_eq!(outside.kept, 2);
    // JSON says the same.
    let json =
        r#"[{"workload":"w","machine":"n2-8","count":2,"cores":8,"memory_gib":32,"seconds":50}]"#;
    assert_eq!(read("d.json", json).0, [("2 x large".to_owned(), 50.0, true)]);
    // Nothing is said where there is nothing to say.
    assert_eq!(read("e.csv", &format!("{head}w,small,2,,,80,true\n")).1.words(), None);
}

const DISKS: &str = "machine,count,cores,memory_gib,usd_per_hour,disk,iops,owner\n\
                     a,1;2;4,4,16,0.2,ssd,30000,us\nb,1;2;4,4,16,0.2,hdd,500,us\n\
                     c,1;2;4,4,16,0.2,nvme,90000,us\nd,1;2;4,4,16,0.2,hdd,600,us\n";

/// Columns of a catalogue that nothing here knew were once errors.
#[test]
fn other_columns_of_a_catalogue_are_dimensions() {
    let folder = Folder::new();
    let read = |name: &str, text: &str| Catalogue::read(&folder.file(name, text)).unwrap();
    let catalogue = read("disks.csv", DISKS);
    let columns = catalogue.extra_columns();
    assert_eq!((columns.used, columns.left_out.len()), (vec!["disk".to_owned(), "iops".into()], 0));
    // The number of machines, a word each of three kinds, and a number by its logarithm.
    let features = catalogue.features();
    assert!(features.iter().all(|row| row.len() == 5), "{features:?}");
    let at = |name: &str| &features[catalogue.find(name, 1).unwrap()];
    assert_eq!(at("b")[1..4], at("d")[1..4]);
    assert!(at("a")[1..4] != at("b")[1..4] && at("a")[1..4] != at("c")[1..4]);
    assert!(at("a")[4] > 0.7 && at("b")[4] == 0.0 && at("c")[4] == 1.0, "{features:?}");
    // What a machine lacks, or what is a name, cannot be compared.
    let gap = read("gap.csv", &DISKS.replace("hdd,500", "hdd,"));
    assert_eq!(gap.extra_columns().left_out, ["iops"]);
    let mut many = String::from("machine,count,cores,memory_gib,usd_per_hour,remark\n");
    for at in 0..12 {
        many += &format!("m{at},1,4,16,0.2,the {at}th\n");
    }
    assert_eq!(read("many.csv", &many).extra_columns().left_out, ["remark"]);
    let toml = "[[machine]]\nname = \"a\"\ncores = 4\nmemory_gib = 16\nusd_per_hour = 0.2\ncounts = [1]\ndisk = \"ssd\"\niops = 30000\n\
                [[machine]]\nname = \"b\"\ncores = 4\nmemory_gib = 16\nusd_per_hour = 0.2\ncounts = [1]\ndisk = \"hdd\"\niops = 500.0\n";
    assert_eq!(read("c.toml", toml).extra_columns().used, ["disk", "iops"]);
    let error = |text: &str| folder.catalogue_error("e.csv", text);
    holds(&error(&DISKS.replace("nvme", "7")), &["line 4", "`disk` is `7`", "a word"]);
    holds(&error(&DISKS.replace("600", "few")), &["line 5", "`iops` is `few`", "a number"]);
    holds(&error(&DISKS.replace("600", "NaN")), &["line 5", "`iops` is `NaN`"]);
    let list = toml.replace("500.0", "[1, 2]");
    holds(&folder.catalogue_error("e.toml", &list), &["entry 2", "`iops`", "a number or a word"]);
    // A search remembers them: with other disks it is another search.
    let path = folder.0.path().join("state.json");
    SearchState::new("paceline", Objective::Cost, 0, &catalogue).write(&path).unwrap();
    let state = SearchState::read(&path).unwrap().unwrap();
    state.check_space(&path, &catalogue).unwrap();
    let other = read("other.csv", &DISKS.replace("nvme", "ssd"));
    holds(&state.check_space(&path, &other).unwrap_err().to_string(), &["`c`", "other properties"]);
}

/// Runs until a search has tried all machines with the fast disk, on machines that are otherwise alike.
fn runs_to_all_fast_disks(method: &str, catalogue: Catalogue, seed: u64) -> usize {
    let problem = Problem {
        catalogue: Arc::new(catalogue),
        history: Arc::new(Measurements::default()),
        objective: Objective::Cost,
    };
    let advisor = (methods::find(method).unwrap().build)(&problem, seed).unwrap();
    let mut search = paceline_advisor::Search::new(problem.clone(), seed);
    let mut fast = 0;
    while fast < 4 {
        let at = advisor.propose(&search).unwrap().configuration;
        let number: usize = problem.catalogue.machine(at).name[1..].parse().unwrap();
        fast += usize::from(number % 5 == 2);
        let seconds = if number % 5 == 2 { 1000.0 } else { 4000.0 } + number as f64;
        let outcome = Outcome::Completed { seconds };
        let run = paceline_advisor::Run { configuration: at, outcome, metrics: Vec::new() };
        search.tell(run).unwrap();
    }
    search.runs().len()
}

#[test]
fn a_search_learns_from_a_column_that_decides() {
    let folder = Folder::new();
    let catalogue = |told: bool| {
        let mut text = String::from("machine,count,cores,memory_gib,usd_per_hour");
        text += if told { ",disk\n" } else { "\n" };
        for at in 0..20 {
            let disk = if told { format!(",kind{}", at % 5) } else { String::new() };
            text += &format!("m{at},1,4,{},0.2{disk}\n", 16 + at);
        }
        Catalogue::read(&folder.file("c.csv", &text)).unwrap()
    };
    for method in ["paceline", "cherrypick"] {
        let mean = |told: bool| {
            let all = (0..4).map(|seed| runs_to_all_fast_disks(method, catalogue(told), seed));
            all.sum::<usize>() as f64 / 4.0
        };
        let (with, without) = (mean(true), mean(false));
        assert!(with < without - 3.0, "{method}: {with} runs with the column, {without} without");
    }
}

#[test]
fn numbered_repeats_and_failures_without_a_time_are_welcome() {
    let folder = Folder::new();
    let text = "workload,machine,count,run,seconds,completed\nw,small,2,1,5,true\nw,small,2,2,6,true\nw,large,2,1,,false\n";
    let read = Measurements::read(&folder.file("h.csv", text), &folder.catalogue()).unwrap();
    assert_eq!(read.rows().len(), 3);
    assert_eq!(read.rows()[2].outcome, Outcome::Failed { seconds: 0.0 });
}

#[test]
fn methods_that_learn_from_history_refuse_to_go_without() {
    let folder = Folder::new();
    let problem = Problem {
        catalogue: Arc::new(folder.catalogue()),
        history: Arc::new(Measurements::default()),
        objective: Objective::Cost,
    };
    for entry in &methods::ALL {
        let built = (entry.build)(&problem, 0);
        assert_eq!(built.is_err(), entry.needs_history, "{}", entry.name);
        if let Err(error) = built {
            holds(&error.to_string(), &[entry.name, "history"]);
        }
    }
}

/// Whatever happens to the runs, a method proposes untried configurations until there are none, and
/// recommends one that completed.
#[test]
fn every_method_survives_failures_and_runs_out_of_candidates() {
    let folder = Folder::new();
    let history = "workload,machine,count,seconds,completed\nv,small,2,90,true\nv,small,4,50,true\nv,large,2,20,true\nv,large,4,15,true\n\
                   w,small,2,,false\nw,small,4,60,true\nw,large,2,40,true\nw,large,4,30,true\n";
    let catalogue = folder.catalogue();
    let history = Measurements::read(&folder.file("h.csv", history), &catalogue).unwrap();
    for objective in
        [Objective::Cost, Objective::Time, Objective::CostUnderDeadline { deadline: 45.0 }]
    {
        let problem = Problem {
            catalogue: Arc::new(catalogue.clone()),
            history: Arc::new(history.clone()),
            objective,
        };
        for entry in &methods::ALL {
            let advisor = (entry.build)(&problem, 0).unwrap();
            let mut state = SearchState::new(entry.name, objective, 1, &catalogue);
            for step in 0..4 {
                let search = state.search(&problem).unwrap();
                let proposal = advisor.propose(&search).unwrap();
                let outcome = match step {
                    0 => Outcome::Failed { seconds: 0.0 },
                    1 => Outcome::TimedOut { seconds: 7200.0 },
                    _ => Outcome::Completed { seconds: 40.0 },
                };
                let known = |at: usize| search.runs().iter().any(|run| run.configuration == at);
                assert!(!known(proposal.configuration), "{} repeats itself", entry.name);
                state.tell(&catalogue, proposal.configuration, outcome, BTreeMap::new());
            }
            let search = state.search(&problem).unwrap();
            assert!(advisor.propose(&search).is_none(), "{}", entry.name);
            let found = advisor.recommend(&search).unwrap();
            assert!(found.measured, "{}", entry.name);
            let run = search.runs().iter().find(|run| run.configuration == found.configuration);
            assert!(run.unwrap().outcome.completed().is_some(), "{}", entry.name);
            assert!(found.seconds.low <= 40.0 && found.seconds.high >= 40.0);
            assert_eq!(found.failed_runs, 2);
        }
    }
}

#[test]
fn state_survives_a_round_trip_and_refuses_what_it_does_not_know() {
    let folder = Folder::new();
    let catalogue = folder.catalogue();
    let path = folder.0.path().join("state.json");
    assert!(SearchState::read(&path).unwrap().is_none());
    let objective = Objective::CostUnderDeadline { deadline: 60.0 };
    let mut state = SearchState::new("cherrypick", objective, 7, &catalogue);
    state.tell(&catalogue, 1, Outcome::Completed { seconds: 12.5 }, BTreeMap::new());
    state.write(&path).unwrap();
    assert_eq!(SearchState::read(&path).unwrap(), Some(state));
    let names: Vec<_> = std::fs::read_dir(folder.0.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
    folder.file("state.json", "{\"version\": 1, \"surprise\": true}");
    holds(&SearchState::read(&path).unwrap_err().to_string(), &["state.json"]);
}

#[test]
fn state_of_another_search_space_is_refused() {
    let folder = Folder::new();
    let catalogue = folder.catalogue();
    let path = folder.0.path().join("state.json");
    SearchState::new("paceline", Objective::Cost, 0, &catalogue).write(&path).unwrap();
    let state = SearchState::read(&path).unwrap().unwrap();
    let check = |text: &str| {
        let other = Catalogue::read(&folder.file("other.csv", text)).unwrap();
        state.check_space(&path, &other).map_err(|error| error.to_string())
    };
    let head = "machine,count,cores,memory_gib,usd_per_hour\n";
    // Reordered and extended is still the same space.
    check(&format!("{head}large,4;2;8,8,32,0.4\nsmall,2;4,2,4,0.1\nhuge,1,64,256,3\n")).unwrap();
    let error = |rows: &str| check(&format!("{head}{rows}")).unwrap_err();
    holds(&error("small,2;4,2,4,0.1\n"), &["state.json", "`large` is not in the catalogue"]);
    holds(&error("small,2;4,2,4,0.1\nlarge,2;4,8,32,0.5\n"), &["`large`", "another price"]);
    holds(&error("small,2,2,4,0.1\nlarge,2;4,8,32,0.4\n"), &["4 x `small`"]);
}

#[test]
fn results_that_cannot_be_are_named_with_file_and_entry() {
    let folder = Folder::new();
    let catalogue = folder.catalogue();
    let path = folder.0.path().join("state.json");
    let mut state = SearchState::new("paceline", Objective::Cost, 0, &catalogue);
    state.tell(&catalogue, 0, Outcome::Completed { seconds: 5.0 }, BTreeMap::new());
    state.tell(&catalogue, 1, Outcome::Completed { seconds: -5.0 }, BTreeMap::new());
    state.write(&path).unwrap();
    holds(&SearchState::read(&path).unwrap_err().to_string(), &["state.json", "entry 2", "-5 s"]);
    let head = "workload,machine,count,seconds,completed\n";
    let error = |rows: &str| folder.history_error("h.csv", &format!("{head}{rows}"));
    holds(&error("w,small,2,NaN,true\n"), &["h.csv", "line 2", "`seconds` is `NaN`"]);
    holds(&error("w,small,2,5,true\nw,large,2,inf,true\n"), &["line 3", "`inf`"]);
    holds(&error("w,small,2,-5,false\n"), &["line 2", "-5 s"]);
    holds(&error("w,small,2.5,5,true\n"), &["line 2", "`count` is `2.5`"]);
    holds(&error("w,small,2,5,false\nw,large,2,,false\n"), &["h.csv", "2 runs", "never measured"]);
    let json = r#"[{"workload":"w","machine":"small","count":2,"seconds":-1}]"#;
    holds(&folder.history_error("h.json", json), &["entry 1", "-1 s"]);
}

/// It used to print an empty table, and said that all was well.
#[test]
fn a_replay_under_a_deadline_that_nothing_keeps_is_refused() {
    let folder = Folder::new();
    let rows = "v,small,2,30,true\nw,small,2,60,true\nw,large,2,50,true\n";
    let history =
        folder.file("h.csv", &format!("workload,machine,count,seconds,completed\n{rows}"));
    let question = |deadline: f64| StudyQuestion {
        source: StudySource::Files {
            catalogue: folder.file("c.csv", CATALOGUE),
            history: history.clone(),
        },
        settings: ReplaySettings {
            seeds: 1,
            steps: 2,
            threads: 1,
            objective: Objective::CostUnderDeadline { deadline },
            medians: false,
            past_jobs: None,
            complete_jobs_only: false,
        },
    };
    let replay = |deadline: f64| {
        let question = question(deadline);
        let set = question.read().unwrap();
        question.replay(&set, &[methods::find("random").unwrap()], &|_, _| {})
    };
    assert!(replay(40.0).is_ok());
    let Err(error) = replay(20.0) else { panic!("nothing can be searched") };
    holds(&error.to_string(), &["h.csv", "deadline of 20 s", "30 s"]);
}
