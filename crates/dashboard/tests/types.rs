//! The types of the live page's script, checked by TypeScript's own compiler, which ships nothing into the page.

use paceline_testing::type_errors;

#[test]
fn the_script_has_no_type_error() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/assets/app.js");
    assert_eq!(type_errors(script.as_ref()).unwrap_or_default(), "");
}
