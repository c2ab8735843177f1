//! The types of the pages' script, checked by TypeScript's own compiler, which ships nothing into the page.

use paceline_testing::type_errors;

#[test]
fn the_script_has_no_type_error() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/charts.js");
    assert_eq!(type_errors(script.as_ref()).unwrap_or_default(), "");
}
