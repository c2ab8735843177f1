//! `aws`: who is logged in, the vCPU, address and disk quotas, whether the region offers the instance type.

use super::{AccountCheck, CheckRequest, Finding, number, or_unknown};
use crate::error::CloudError;
use crate::quota::Limits;
use crate::tool::{Tool, argv};
use serde_json::Value;

/// Quota codes of the EC2 and EBS services.
const STANDARD_VCPUS: &str = "L-1216C47A";
const ELASTIC_ADDRESSES: &str = "L-0263D0A3";
const GP3_TIB: &str = "L-7A658B76";
const ST1_TIB: &str = "L-82ACEF56";

pub(super) fn check(request: &CheckRequest, tool: Tool<'_>) -> Result<AccountCheck, CloudError> {
    let mut findings = Vec::new();
    let mut left = Limits::default();
    let call = |words: &[&str]| {
        let mut all = argv(["aws"].iter().chain(words));
        all.extend(argv(["--region", &request.region, "--output", "json"]));
        all.extend(request.project.iter().flat_map(|profile| argv(["--profile", profile])));
        all
    };
    let identity = tool.json(&call(&["sts", "get-caller-identity"]));
    if let Some(identity) = or_unknown("account", identity, &mut findings)? {
        let name = identity["Arn"].as_str().unwrap_or("an account without a name");
        findings.push(Finding::yes(format!("logged in as {name}")));
    }
    for service in ["ec2", "ebs"] {
        let quotas =
            tool.json(&call(&["service-quotas", "list-service-quotas", "--service-code", service]));
        if let Some(quotas) = or_unknown("quotas", quotas, &mut findings)? {
            note(&quotas, &mut left);
        }
    }
    if let Some(machine) = &request.machine {
        let filter = format!("Name=instance-type,Values={machine}");
        let offers =
            tool.json(&call(&["ec2", "describe-instance-type-offerings", "--filters", &filter]));
        if let Some(offers) = or_unknown("instance type", offers, &mut findings)? {
            let found =
                offers["InstanceTypeOfferings"].as_array().is_some_and(|list| !list.is_empty());
            findings.push(if found {
                Finding::yes(format!("{machine} is offered in {}", request.region))
            } else {
                Finding::no(
                    format!("{machine} is not offered in {}", request.region),
                    "choose another type or region",
                )
            });
        }
    }
    Ok(AccountCheck { findings, left })
}

fn note(answer: &Value, left: &mut Limits) {
    for quota in answer["Quotas"].as_array().into_iter().flatten() {
        let (Some(code), Some(value)) = (quota["QuotaCode"].as_str(), number(&quota["Value"]))
        else {
            continue;
        };
        match code {
            STANDARD_VCPUS => left.vcpus = Some(value),
            ELASTIC_ADDRESSES => left.addresses = Some(value),
            GP3_TIB => left.ssd_disk_gb = Some(value * 1024.0),
            ST1_TIB => left.standard_disk_gb = Some(value * 1024.0),
            _ => {}
        }
    }
}
