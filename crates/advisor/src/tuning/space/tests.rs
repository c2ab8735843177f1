//! Search spaces as they are written, and the ways they make no sense.

use super::*;

fn space(text: &str) -> Result<SearchSpace, SpaceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("space.toml");
    std::fs::write(&path, text).unwrap();
    SearchSpace::read(&path)
}

/// What is wrong in a file.
fn inner(found: Result<SearchSpace, SpaceError>) -> SpaceError {
    let Err(SpaceError::InFile { what, .. }) = found else { panic!("{found:?}") };
    *what
}

#[test]
fn every_kind_of_dimension_is_read_and_covers_its_values() {
    let written = space(
        "[lr]\nfrom = 0.001\nto = 1.0\nscale = \"log\"\n[batch-size]\nvalues = [16, 32, 64]\n\
         [strategy]\nchoices = [\"one-device\", \"ps-async\"]\n[ps]\nfrom = 1\nto = 3\nwhen = { strategy = \"ps-async\" }\n",
    )
    .unwrap();
    let names: Vec<&str> = written.dimensions().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["batch-size", "lr", "ps", "strategy"]);
    let low = written.at(&[0.0, 0.0, 0.0, 0.0]);
    let text = |point: &Point| -> Vec<String> {
        point.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned())).collect()
    };
    assert_eq!(text(&low), ["16", "0.001", "-", "one-device"]);
    assert_eq!(text(&written.at(&[0.99, 1.0, 0.9, 0.6])), ["64", "1", "3", "ps-async"]);
    assert_eq!(text(&written.at(&[0.5, 0.5, 0.5, 0.5])), ["32", "0.03162", "2", "ps-async"]);
    assert_eq!(written.features(&low).len(), 5);
    let typed =
        SearchSpace::parse(["lr=0.001..1:log", "batch-size=16,32,64", "workers=1..4"]).unwrap();
    assert_eq!(typed.dimensions()[0], written.dimensions()[1]);
    assert_eq!(typed.dimensions()[1], written.dimensions()[0]);
    assert_eq!(SearchSpace::parse(["workers=1..4", "a=x,y"]).unwrap().all(8).unwrap().len(), 8);
    assert!(typed.all(1000).is_none(), "a range of numbers has no end");
    assert_eq!(
        written.point([("strategy", "one-device"), ("lr", "0.5"), ("batch-size", "16")]).unwrap()
            [2],
        None
    );
    assert!(
        written.point([("strategy", "one-device"), ("lr", "5"), ("batch-size", "16")]).is_none()
    );
    assert!(written.point([("strategy", "one-device"), ("lr", "0.5")]).is_none());
}

/// The first number proposed ended the search with a panic: its bounds were 1 to 0.
#[test]
fn whole_numbers_between_bounds_that_hold_none_are_refused() {
    let whole =
        |from: &str, to: &str| space(&format!("[n]\nfrom = {from}\nto = {to}\nwhole = true\n"));
    let error = whole("0.2", "0.8").unwrap_err();
    assert!(error.to_string().contains("`n`: there is not one whole number from 0.2 to 0.8"));
    assert!(matches!(inner(whole("0.2", "0.8")), SpaceError::NoWhole { .. }));
    assert!(matches!(inner(whole("-0.9", "-0.1")), SpaceError::NoWhole { .. }));
    assert!(matches!(inner(whole("0.5", "1.5")), SpaceError::Count { count: 1, .. }));
    let two = whole("0.5", "2.5").unwrap();
    assert_eq!(two.all(9).unwrap().len(), 2);
    for share in [0.0, 0.3, 0.7, 1.0] {
        let value = two.at(&[share])[0].clone().unwrap();
        assert!(value == "1" || value == "2", "{value}");
    }
    // More whole numbers than can be counted are counted as many.
    assert!(whole("0.0", "1e30").unwrap().all(1000).is_none());
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (text, wanted) in [
        ("", "the search space is empty"),
        ("[a]\nfrom = 1\n", "`a` must have either"),
        ("[a]\nfrom = 2\nto = 1\n", "`a`: 2 to 1 is not a range"),
        ("[a]\nfrom = 0\nto = 1\nscale = \"log\"\n", "`a`: a logarithmic scale needs"),
        ("[a]\nvalues = [1]\n", "`a` needs at least two values"),
        ("[a]\nvalues = [1, 1]\n", "`a`: the value `1` is there twice"),
        ("[a]\nvalues = [1, 2]\nwhole = true\n", "`a`: `scale` and `whole` belong to"),
        ("[a]\nvalues = [1, 2]\nwhen = { b = 1 }\n", "`b` is not in the search space"),
        (
            "[a]\nvalues = [1, 2]\nwhen = { b = 3 }\n[b]\nvalues = [1, 2]\n",
            "is `3`, which is not among",
        ),
        ("[a]\nvalues = [1, 2]\nwhen = { a = 1 }\n", "a condition must name a list"),
        (
            "[a]\nvalues = [1, 2]\nwhen = { b = [] }\n[b]\nvalues = [1, 2]\n",
            "`a` applies when `b` is one of no values",
        ),
        ("[a]\nfrom = -1e308\nto = 1e308\n", "is not a range"),
        ("[a]\nfrom = \"low\"\nto = 1\n", "`a`: `low` is not a number"),
        ("[a]\nvalues = [1, 2, \"all\"]\n", "`a`: `all` is not a number as the other `values`"),
        ("[a]\nvalues = [1, nan]\n", "`a`: `NaN` is not a number"),
        ("[a]\nvalues = [1, true]\n", "`a`: `true` is not a number"),
    ] {
        let found = space(text).unwrap_err().to_string();
        assert!(found.contains(wanted) && found.contains("space.toml`: "), "{text}: {found}");
    }
    // Words that have an order, and choices of any kind, are welcome.
    for text in ["values = [\"1\", \"2\", \"all\"]", "choices = [1, \"auto\", true]"] {
        assert_eq!(space(&format!("[a]\n{text}\n")).unwrap().dimensions().len(), 1);
    }
    assert!(matches!(space("[a]\nfrm = 1\n"), Err(SpaceError::Toml { .. })));
    for text in ["lr", "lr=", "=1,2", "lr=1..x", "lr=1..2:cube", "a=1,,2"] {
        let found = SearchSpace::parse([text]).unwrap_err();
        assert!(matches!(found, SpaceError::Syntax { .. }), "{text}: {found}");
    }
    assert!(matches!(SearchSpace::parse(["a=1,2", "a=3,4"]), Err(SpaceError::Twice { .. })));
    assert!(matches!(SearchSpace::parse(["a=nan..2"]), Err(SpaceError::Bounds { .. })));
}
