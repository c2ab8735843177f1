//! The one page that browsers load, and the policy it comes with.

use crate::header::HeaderValue;
use maud::{DOCTYPE, PreEscaped, html};
use paceline_report::policy::hash_source;
use paceline_report::script;
use paceline_report::theme;
use std::sync::LazyLock;

/// The script of the page.
pub(crate) const SCRIPT: &str = include_str!("assets/app.js");
const STYLE: &str = include_str!("assets/app.css");
/// Its icon.
pub(crate) const ICON: &str = include_str!("assets/icon.svg");

/// The page, and the policy that allows only its own script and style: whatever a run's name, log or file contains, it is
/// never executed.
pub(crate) struct FrontPage {
    pub(crate) html: String,
    pub(crate) policy: HeaderValue,
}

pub(crate) static FRONT: LazyLock<FrontPage> = LazyLock::new(|| {
    let style = [theme::TOKENS_CSS, theme::PAGE_CSS, theme::CHART_CSS, STYLE].concat();
    let (charts, app) = (hash_source(script::CHARTS), hash_source(SCRIPT));
    let policy = format!(
        "default-src 'none'; script-src {charts} {app}; style-src {}; img-src 'self' data:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        hash_source(&style)
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Paceline" }
                link rel="icon" href="/favicon.ico";
                style { (PreEscaped(&style)) }
                // The scripts are files of their own, and ones with these hashes.
                script src="/charts.js" integrity=(charts.trim_matches('\'')) defer {}
                script src="/app.js" integrity=(app.trim_matches('\'')) defer {}
            }
            body {
                header class="top bar" {
                    h1 { a href="#" { "Paceline" } }
                    span id="where" class="lead" {}
                    span id="pulse" role="status" aria-live="polite" {}
                }
                main id="view" { p class="soft" { "Loading…" } }
                noscript {
                    main {
                        p {
                            "This page needs JavaScript to update itself. " code { "paceline report RUN" }
                            " writes a page that works without it."
                        }
                    }
                }
            }
        }
    };
    FrontPage {
        html: page.into_string(),
        policy: HeaderValue::new(policy).expect("hashes are visible ASCII"),
    }
});
