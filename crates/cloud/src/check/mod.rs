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
    /// Which permissions submitting and stopping needs, by the provider's names.
    pub permissions: Vec<String>,
    /// Buckets that the job's command names.
    pub buckets: Vec<String>,
}

/// Whether one requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is.
    Yes,
    /// It is not: submitting would fail.
    No,
    /// The account lacks the permission to look.
    Denied,
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

    fn unknown(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { answer: Answer::Unknown, what: what.into(), hint: Some(hint.into()) }
    }

    /// The tool's own failure, which says nothing of the requirement, but may say which permission is missing.
    fn failed(what: &str, error: &CloudError) -> Self {
        let CloudError::Tool { said, .. } = error else {
            let hint = advice(error).map(str::to_owned);
            return Self { answer: Answer::Unknown, what: format!("{what}: {error}"), hint };
        };
        match missing_permission(said) {
            Some(permission) => Self {
                answer: Answer::Denied,
                what: format!("{what}: the account lacks the permission {permission}"),
                hint: Some(format!("ask the project's owner for a role that has {permission}")),
            },
            None => Self {
                answer: if is_denial(said) { Answer::Denied } else { Answer::Unknown },
                what: format!("{what}: {error}"),
                hint: advice(error).map(str::to_owned),
            },
        }
    }
}

/// Whether the service refused because of who asked. A disabled service answers 403 as well.
fn is_denial(said: &str) -> bool {
    let said = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    has(&["403", "permission_denied", "accessdenied", "authorizationfailed", "forbidden"])
        && !has(&["service_disabled", "is disabled", "not enabled", "has not been used in project"])
}

/// The permission that a refusal names, in the words of the three providers.
fn missing_permission(said: &str) -> Option<&str> {
    let quoted = ["Required '", "Permission '", "authorization to perform action '"];
    let after = |mark: &str| said.split_once(mark).map(|(_, rest)| rest);
    let name = quoted
        .iter()
        .find_map(|mark| after(mark)?.split('\'').next())
        .or_else(|| after("not authorized to perform: ")?.split_whitespace().next())?;
    let sound = |c: char| c.is_ascii_alphanumeric() || "./:-_*".contains(c);
    (!name.is_empty() && name.chars().all(sound)).then_some(name)
}

/// Which permissions renting machines needs, by the provider's names: for who starts them without a service that does.
#[must_use]
pub fn renting(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Gcp => &["compute.instances.create", "compute.instances.delete"],
        Provider::Aws => &["ec2:RunInstances", "ec2:TerminateInstances"],
        Provider::Azure => {
            &["Microsoft.Compute/virtualMachines/write", "Microsoft.Compute/virtualMachines/delete"]
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
    // AWS counts the vCPUs of machines with GPUs, by a quota of their own that was asked for.
    let asked = request.demand.gpus.keys().filter(|_| request.provider != Provider::Aws);
    for gpu in asked.filter(|gpu| !check.left.gpus.contains_key(*gpu)) {
        check.findings.push(Finding::unknown(
            format!("not known how many {gpu} GPUs may be rented in {}", request.region),
            "look at the quotas in the provider's console: for GPUs they are often 0 until more is asked for",
        ));
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
            findings.push(Finding::failed(what, &error));
            Ok(None)
        }
    }
}

/// The answer, or `None` where the tool could not give it; what ends the whole check is passed on.
fn without<T>(result: Result<T, CloudError>) -> Result<Option<T>, CloudError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (CloudError::NoTool { .. } | CloudError::Interrupted { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

/// A number, also where the tool writes it as text.
fn number(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Whether a bucket is there, from a command that succeeds if it is.
fn bucket(
    url: &str,
    result: Result<String, CloudError>,
    findings: &mut Vec<Finding>,
) -> Result<(), CloudError> {
    if let Err(CloudError::Tool { said, .. }) = &result
        && ["404", "not found", "NoSuchBucket"].iter().any(|word| said.contains(word))
        && missing_permission(said).is_none()
    {
        findings.push(Finding::no(
            format!("the bucket {url} does not exist"),
            "make it, or correct the job's `command`",
        ));
    } else if or_unknown(&format!("bucket {url}"), result, findings)?.is_some() {
        findings.push(Finding::yes(format!("the bucket {url} exists")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_permission_in_the_words_of_each_provider() {
        let refusals = [
            (
                "ERROR: (gcloud.compute.regions.describe) Could not fetch resource: | - Required 'compute.regions.get' permission for 'projects/lab/regions/us-central1'",
                Some("compute.regions.get"),
            ),
            (
                "Permission 'dataproc.clusters.list' denied on resource (or it may not exist).",
                Some("dataproc.clusters.list"),
            ),
            (
                "An error occurred (AccessDeniedException) when calling the ListServiceQuotas operation: User: arn:aws:iam::1:user/ann is not authorized to perform: servicequotas:ListServiceQuotas because no identity-based policy allows the action",
                Some("servicequotas:ListServiceQuotas"),
            ),
            (
                "(AuthorizationFailed) The client 'ann' with object id '1' does not have authorization to perform action 'Microsoft.Compute/locations/usages/read' over scope '/subscriptions/1'",
                Some("Microsoft.Compute/locations/usages/read"),
            ),
            ("PERMISSION_DENIED: The caller does not have permission (403)", None),
            ("Permission '", None),
        ];
        for (said, permission) in refusals {
            assert_eq!(missing_permission(said), permission, "{said}");
        }
        assert!(
            is_denial("HTTPError 403: Forbidden")
                && !is_denial("403: API [compute] not enabled on project")
        );
    }
}
