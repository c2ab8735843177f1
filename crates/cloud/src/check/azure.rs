//! `az`: the subscription, what the account may do there, registered providers, the region's usage of cores and addresses against its limits.

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
        permissions(request, name, &|words| tool.json(&call(words)), &mut findings)?;
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

/// What the roles of the account give, those of its groups and of management groups above the subscription included.
fn permissions(
    request: &CheckRequest,
    who: &str,
    ask: &dyn Fn(&[&str]) -> Result<Value, CloudError>,
    findings: &mut Vec<Finding>,
) -> Result<(), CloudError> {
    let mut open: Vec<&str> = request.permissions.iter().map(String::as_str).collect();
    if open.is_empty() {
        return Ok(());
    }
    let words = [
        "role",
        "assignment",
        "list",
        "--assignee",
        who,
        "--include-groups",
        "--include-inherited",
    ];
    let Some(roles) = or_unknown("permissions", ask(&words), findings)? else { return Ok(()) };
    for assignment in roles.as_array().into_iter().flatten() {
        let name = assignment["roleDefinitionName"].as_str();
        let Some(role) = name.filter(|_| assignment["condition"].is_null() && !open.is_empty())
        else {
            continue;
        };
        let definitions = ask(&["role", "definition", "list", "--name", role]);
        let Some(definitions) = or_unknown(role, definitions, findings)? else { continue };
        let through = match assignment["principalType"].as_str() {
            Some("Group") => {
                let group = assignment["principalName"].as_str().filter(|name| !name.is_empty());
                format!(" through the group {}", group.unwrap_or("that has the role"))
            }
            _ => String::new(),
        };
        for permission in open.extract_if(.., |permission| gives(&definitions, permission)) {
            findings.push(Finding::yes(format!("{who} has {permission} by {role}{through}")));
        }
    }
    for permission in open {
        findings.push(Finding::unknown(
            format!("not known whether {who} has {permission}: no role of the subscription or above it gives it; one of a resource group may"),
            format!("ask the subscription's owner for a role that has {permission}"),
        ));
    }
    Ok(())
}

/// Whether a role has an action: among its actions, and not among its exceptions.
fn gives(definitions: &Value, action: &str) -> bool {
    let any = |list: &Value| {
        let mut patterns = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        patterns.any(|pattern| covers(pattern, action))
    };
    let permissions = definitions.as_array().into_iter().flatten();
    permissions
        .filter_map(|definition| definition["permissions"].as_array())
        .flatten()
        .any(|permission| any(&permission["actions"]) && !any(&permission["notActions"]))
}

/// Whether a pattern of a role, where `*` is any characters, covers an action; case does not matter.
fn covers(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_lowercase(), action.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = action.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
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

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_of_a_role_covers_what_its_stars_stand_for() {
        let action = "Microsoft.Compute/virtualMachines/write";
        let covering = [
            "*",
            "*/write",
            "Microsoft.Compute/*",
            "microsoft.compute/virtualmachines/*",
            action,
            "Microsoft.*/*/write",
        ];
        assert!(covering.iter().all(|pattern| covers(pattern, action)));
        let others = [
            "*/read",
            "Microsoft.Compute",
            "Microsoft.Network/*",
            "Microsoft.Compute/*/write/action",
            "",
        ];
        assert!(!others.iter().any(|pattern| covers(pattern, action)));
    }
}
