//! `gcloud`: the active account and its permissions, enabled services, the region's quotas, the machine type, the cluster's name.

mod permissions;

use super::{AccountCheck, CheckRequest, Finding, bucket, number, or_unknown};
use crate::error::CloudError;
use crate::quota::Limits;
use crate::tool::{Tool, argv};
use serde_json::Value;

pub(super) fn check(request: &CheckRequest, tool: Tool<'_>) -> Result<AccountCheck, CloudError> {
    let mut findings = Vec::new();
    let mut left = Limits::default();
    let call = |words: &[&str]| {
        let mut all = argv(["gcloud"].iter().chain(words));
        all.extend(request.project.iter().map(|project| format!("--project={project}")));
        all.push("--format=json".to_owned());
        all
    };
    let accounts = tool.json(&call(&["auth", "list"]));
    let mut who = None;
    if let Some(accounts) = or_unknown("account", accounts, &mut findings)? {
        who = active(&accounts).map(str::to_owned);
        let Some(name) = &who else {
            // It would answer everything else with the same.
            findings.push(Finding::no("no account is logged in", "run `gcloud auth login`"));
            return Ok(AccountCheck { findings, left });
        };
        findings.push(Finding::yes(format!("logged in as {name}")));
    }
    if let Some(who) = who.filter(|_| !request.permissions.is_empty()) {
        permissions::check(request, &who, tool, &mut findings)?;
    }
    for url in request.buckets.iter().filter(|url| url.starts_with("gs://")) {
        bucket(url, tool.output(&call(&["storage", "buckets", "describe", url])), &mut findings)?;
    }
    let services = tool.json(&call(&["services", "list", "--enabled"]));
    if let Some(services) = or_unknown("enabled services", services, &mut findings)? {
        for name in &request.services {
            findings.push(service(&services, name));
        }
    }
    let region = tool.json(&call(&["compute", "regions", "describe", &request.region]));
    if let Some(region) = or_unknown("quotas", region, &mut findings)? {
        left = quotas(&region);
    }
    if let Some(machine) = &request.machine {
        let filter = format!("--filter=name={machine} AND zone:{}", request.region);
        let types = tool.json(&call(&["compute", "machine-types", "list", &filter]));
        if let Some(types) = or_unknown("machine type", types, &mut findings)? {
            findings.push(offered(&types, machine, &request.region));
        }
    }
    if request.services.iter().any(|service| service.starts_with("dataproc")) {
        let region = format!("--region={}", request.region);
        let clusters = tool.json(&call(&["dataproc", "clusters", "list", &region]));
        if let Some(clusters) = or_unknown("clusters", clusters, &mut findings)? {
            findings.push(free_name(&clusters, &request.name));
        }
    }
    Ok(AccountCheck { findings, left })
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn active(accounts: &Value) -> Option<&str> {
    entries(accounts).iter().find(|entry| entry["status"] == "ACTIVE")?["account"].as_str()
}

fn service(services: &Value, name: &str) -> Finding {
    let named = |entry: &&Value| {
        entry["config"]["name"] == *name
            || entry["name"].as_str().is_some_and(|full| full.ends_with(&format!("/{name}")))
    };
    if entries(services).iter().any(|entry| named(&entry)) {
        Finding::yes(format!("{name} is enabled"))
    } else {
        Finding::no(
            format!("{name} is not enabled"),
            format!("run `gcloud services enable {name}`"),
        )
    }
}

fn offered(types: &Value, machine: &str, region: &str) -> Finding {
    if entries(types).is_empty() {
        let hint = "`gcloud compute machine-types list` shows what the region offers";
        Finding::no(format!("{machine} is not offered in {region}"), hint)
    } else {
        Finding::yes(format!("{machine} is offered in {region}"))
    }
}

fn free_name(clusters: &Value, name: &str) -> Finding {
    let taken = entries(clusters).iter().any(|entry| entry["clusterName"] == *name);
    if taken {
        Finding::no(
            format!("a cluster named {name} exists already"),
            "choose another name in the job's file",
        )
    } else {
        Finding::yes(format!("the name {name} is free"))
    }
}

/// What the region's quotas leave: limit minus usage.
fn quotas(region: &Value) -> Limits {
    let mut left = Limits::default();
    for quota in entries(&region["quotas"]) {
        let (Some(metric), Some(limit)) = (quota["metric"].as_str(), number(&quota["limit"]))
        else {
            continue;
        };
        let rest = (limit - number(&quota["usage"]).unwrap_or(0.0)).max(0.0);
        match metric {
            "CPUS" => left.vcpus = Some(rest),
            "IN_USE_ADDRESSES" => left.addresses = Some(rest),
            "DISKS_TOTAL_GB" => left.standard_disk_gb = Some(rest),
            "SSD_TOTAL_GB" => left.ssd_disk_gb = Some(rest),
            other => {
                let gpu = other.strip_prefix("NVIDIA_").and_then(|name| name.strip_suffix("_GPUS"));
                if let Some(gpu) = gpu {
                    left.gpus.insert(gpu.to_owned(), rest);
                }
            }
        }
    }
    left
}
