//! `az`: the subscription, registered providers, the region's usage of cores and addresses against its limits.

use super::{AccountCheck, CheckRequest, Finding, number, or_unknown};
use crate::error::CloudError;
use crate::quota::Limits;
use crate::tool::{Tool, argv};
use serde_json::Value;

pub(super) fn check(request: &CheckRequest, tool: Tool<'_>) -> Result<AccountCheck, CloudError> {
    let mut findings = Vec::new();
    let mut left = Limits::default();
    let call = |words: &[&str]| {
        let mut all = argv(["az"].iter().chain(words));
        all.extend(
            request.project.iter().flat_map(|subscription| argv(["--subscription", subscription])),
        );
        all.extend(argv(["--output", "json"]));
        all
    };
    let account = tool.json(&call(&["account", "show"]));
    if let Some(account) = or_unknown("account", account, &mut findings)? {
        let name = account["user"]["name"].as_str().unwrap_or("an account without a name");
        findings.push(Finding::yes(format!("logged in as {name}")));
    }
    let services = tool.json(&call(&["provider", "list"]));
    if let Some(services) = or_unknown("registered providers", services, &mut findings)? {
        for name in &request.services {
            let registered = services.as_array().into_iter().flatten().any(|entry| {
                entry["namespace"] == *name && entry["registrationState"] == "Registered"
            });
            findings.push(if registered {
                Finding::yes(format!("{name} is registered"))
            } else {
                Finding::no(
                    format!("{name} is not registered"),
                    format!("run `az provider register --namespace {name}`"),
                )
            });
        }
    }
    // Machines and networks count apart.
    let usages = [
        (["vm", "list-usage"], "quotas of machines"),
        (["network", "list-usages"], "quotas of networks"),
    ];
    for ([group, list], what) in usages {
        let usage = tool.json(&call(&[group, list, "--location", &request.region]));
        if let Some(usage) = or_unknown(what, usage, &mut findings)? {
            note(&usage, &mut left);
        }
    }
    Ok(AccountCheck { findings, left })
}

/// What limits leave; newer answers have figures as text.
fn note(usage: &Value, left: &mut Limits) {
    for entry in usage.as_array().into_iter().flatten() {
        let Some(limit) = number(&entry["limit"]) else { continue };
        let rest = (limit - number(&entry["currentValue"]).unwrap_or(0.0)).max(0.0);
        match entry["name"]["value"].as_str() {
            Some("cores") => left.vcpus = Some(rest),
            Some("PublicIPAddresses") => left.addresses = Some(rest),
            _ => {}
        }
    }
}
