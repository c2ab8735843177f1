//! Before anything is submitted: is the tool there and logged in, are the services enabled, do the quotas hold the shape.
//!
//! The provider's own command-line tool answers, as JSON. Each [`Finding`] is one sentence, and what to do where it fails.

mod aws;
mod azure;
mod gcp;

use crate::catalogue::Provider;
use crate::error::CloudError;
use crate::quota::{Demand, Limits};
use crate::tool::{Tool, advice};
use serde::Serialize;

/// What is to be checked.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    pub provider: Provider,
    /// The project or subscription; the tool's own default where absent.
    pub project: Option<String>,
    pub region: String,
    /// What the shape takes.
    pub demand: Demand,
    pub machine: Option<String>,
    /// The name the job or cluster will have.
    pub name: String,
    /// Which services the target needs, by the provider's names.
    pub services: Vec<String>,
}

/// Whether one requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is.
    Yes,
    /// It is not: submitting would fail.
    No,
    /// The tool could not say.
    Unknown,
}

/// One requirement, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub answer: Answer,
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// All findings, and what may still be rented.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountCheck {
    pub findings: Vec<Finding>,
    pub left: Limits,
}

impl AccountCheck {
    /// Whether submitting could work.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.iter().all(|finding| finding.answer != Answer::No)
    }
}

impl Finding {
    fn yes(what: impl Into<String>) -> Self {
        Self { answer: Answer::Yes, what: what.into(), hint: None }
    }

    fn no(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { answer: Answer::No, what: what.into(), hint: Some(hint.into()) }
    }

    /// The tool's own failure, which says nothing of the requirement.
    fn unknown(what: &str, error: &CloudError) -> Self {
        Self {
            answer: Answer::Unknown,
            what: format!("{what}: {error}"),
            hint: advice(error).map(str::to_owned),
        }
    }
}

/// Asks the provider's tool. Errors only where it is missing or the user interrupts; what it cannot say is a finding.
pub fn account(request: &CheckRequest, tool: Tool<'_>) -> Result<AccountCheck, CloudError> {
    let mut check = match request.provider {
        Provider::Gcp => gcp::check(request, tool)?,
        Provider::Aws => aws::check(request, tool)?,
        Provider::Azure => azure::check(request, tool)?,
    };
    let short = check.left.shortages(&request.demand);
    for shortage in &short {
        let what = format!(
            "you asked for {} {}, {} are left in {}",
            shortage.asked, shortage.what, shortage.limit, request.region
        );
        let hint = "ask for a larger quota in the provider's console, or plan with [quota] in the job's file";
        check.findings.push(Finding::no(what, hint));
    }
    let known = known(&check.left);
    if short.is_empty() && !known.is_empty() {
        check.findings.push(Finding::yes(format!("quotas hold the shape: {known}")));
    }
    Ok(check)
}

fn known(left: &Limits) -> String {
    let named = [
        ("vCPUs", left.vcpus),
        ("addresses", left.addresses),
        ("GB of standard disk", left.standard_disk_gb),
        ("GB of SSD disk", left.ssd_disk_gb),
    ];
    let words =
        named.iter().filter_map(|(what, value)| value.map(|value| format!("{value} {what}")));
    let words: Vec<String> = words.collect();
    if words.is_empty() { String::new() } else { format!("{} left", words.join(", ")) }
}

/// A failed call as a finding; what ends the whole check is passed on.
fn or_unknown<T>(
    what: &str,
    result: Result<T, CloudError>,
    findings: &mut Vec<Finding>,
) -> Result<Option<T>, CloudError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (CloudError::NoTool { .. } | CloudError::Interrupted { .. })) => Err(error),
        Err(error) => {
            findings.push(Finding::unknown(what, &error));
            Ok(None)
        }
    }
}

/// A number, also where the tool writes it as text.
fn number(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}
