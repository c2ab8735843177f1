//! `aws`: who is logged in and may rent machines, the vCPU and disk quotas less what runs already, whether the region offers the instance type.
//!
//! Machines with GPUs count against vCPU quotas of their own. Elastic addresses have a quota too, but machines get addresses of their own, which do not count against it.

use super::{AccountCheck, CheckRequest, Finding, bucket, number, or_unknown, without};
use crate::error::CloudError;
use crate::quota::Limits;
use crate::tool::{Tool, argv};
use serde_json::Value;

/// Quota codes of the EC2 and EBS services.
const STANDARD_VCPUS: &str = "L-1216C47A";
const G_AND_VT_VCPUS: &str = "L-DB2E81BA";
const P_VCPUS: &str = "L-417A185B";
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
        permissions(request, name, &|words| tool.json(&call(words)), &mut findings)?;
    }
    let machine = request.machine.as_deref().unwrap_or_default();
    let vcpus = vcpu_quota(machine).unwrap_or(STANDARD_VCPUS);
    for service in ["ec2", "ebs"] {
        let quotas =
            tool.json(&call(&["service-quotas", "list-service-quotas", "--service-code", service]));
        if let Some(quotas) = or_unknown("quotas", quotas, &mut findings)? {
            note(&quotas, vcpus, &mut left);
        }
    }
    let states = "Name=instance-state-name,Values=pending,running";
    let instances = tool.json(&call(&["ec2", "describe-instances", "--filters", states]));
    if let Some(instances) = or_unknown("running instances", instances, &mut findings)? {
        take(&mut left.vcpus, used_vcpus(&instances, vcpus));
    }
    let volumes = tool.json(&call(&["ec2", "describe-volumes"]));
    if let Some(volumes) = or_unknown("volumes", volumes, &mut findings)? {
        take(&mut left.ssd_disk_gb, volume_gb(&volumes, "gp3"));
        take(&mut left.standard_disk_gb, volume_gb(&volumes, "st1"));
    }
    for url in &request.buckets {
        let Some(name) = url.strip_prefix("s3://") else { continue };
        bucket(
            url,
            tool.output(&call(&["s3api", "head-bucket", "--bucket", name])),
            &mut findings,
        )?;
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

/// What AWS's own simulation says of the user or role, groups and the organisation's policies included. It is asked of all resources at
/// once, so that what is allowed of some only is not known.
fn permissions(
    request: &CheckRequest,
    name: &str,
    ask: &dyn Fn(&[&str]) -> Result<Value, CloudError>,
    findings: &mut Vec<Finding>,
) -> Result<(), CloudError> {
    if request.permissions.is_empty() {
        return Ok(());
    }
    let source = match assumed_role(name) {
        None => name.to_owned(),
        // The session's name lacks the path of its role.
        Some((role, plain)) => without(ask(&["iam", "get-role", "--role-name", role]))?
            .and_then(|answer| answer["Role"]["Arn"].as_str().map(str::to_owned))
            .unwrap_or(plain),
    };
    let words =
        ["iam", "simulate-principal-policy", "--policy-source-arn", &source, "--action-names"];
    let actions = request.permissions.iter().map(String::as_str);
    let words: Vec<&str> = words.into_iter().chain(actions).collect();
    let Some(answer) = or_unknown("permissions", ask(&words), findings)? else { return Ok(()) };
    for result in answer["EvaluationResults"].as_array().into_iter().flatten() {
        let action = result["EvalActionName"].as_str().unwrap_or("an action without a name");
        let hint = format!("ask the account's administrator for a policy that allows {action}");
        let unsure = result["MissingContextValues"].as_array().is_some_and(|list| !list.is_empty());
        findings.push(match result["EvalDecision"].as_str() {
            Some("allowed") => Finding::yes(format!("{name} has {action}")),
            Some("explicitDeny") if !unsure => {
                Finding::no(format!("{name} lacks {action}: a policy denies it"), hint)
            }
            _ => Finding::unknown(
                format!("not known whether {name} has {action}: no policy of its own or of its groups allows it of everything, one may of some"),
                hint,
            ),
        });
    }
    Ok(())
}

/// The role of `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION`, and its name if it has no path.
fn assumed_role(name: &str) -> Option<(&str, String)> {
    let (head, rest) = name.split_once(":assumed-role/")?;
    let role = rest.split('/').next()?;
    Some((role, format!("{}:role/{role}", head.replacen(":sts:", ":iam:", 1))))
}

/// What a quota leaves.
fn take(left: &mut Option<f64>, used: f64) {
    if let Some(left) = left {
        *left = (*left - used).max(0.0);
    }
}

/// The quota that instances of a type count against: A, C, D, H, I, M, R, T and Z, but not such as `inf1` or `hpc7`, have one
/// together, and so have G and VT, and P.
fn vcpu_quota(machine: &str) -> Option<&'static str> {
    let letters: String = machine.chars().take_while(char::is_ascii_alphabetic).collect();
    match letters.as_str() {
        "vt" => Some(G_AND_VT_VCPUS),
        other if ["dl", "inf", "hpc", "trn", "mac"].iter().any(|own| other.starts_with(own)) => {
            None
        }
        other if other.starts_with('g') => Some(G_AND_VT_VCPUS),
        other if other.starts_with('p') => Some(P_VCPUS),
        other if other.starts_with(|c| "acdhimrtz".contains(c)) => Some(STANDARD_VCPUS),
        _ => None,
    }
}

/// vCPUs of running instances that count against a quota.
fn used_vcpus(answer: &Value, quota: &str) -> f64 {
    let reservations = answer["Reservations"].as_array().into_iter().flatten();
    let instances = reservations.filter_map(|each| each["Instances"].as_array()).flatten();
    let counted = instances.filter(|instance| {
        vcpu_quota(instance["InstanceType"].as_str().unwrap_or_default()) == Some(quota)
    });
    let vcpus = |instance: &Value| {
        let options = &instance["CpuOptions"];
        Some(number(&options["CoreCount"])? * number(&options["ThreadsPerCore"])?)
    };
    counted.filter_map(vcpus).sum()
}

/// GB of all volumes of a kind.
fn volume_gb(answer: &Value, kind: &str) -> f64 {
    let volumes = answer["Volumes"].as_array().into_iter().flatten();
    volumes
        .filter(|volume| volume["VolumeType"] == kind)
        .filter_map(|volume| number(&volume["Size"]))
        .sum()
}

fn note(answer: &Value, vcpus: &str, left: &mut Limits) {
    for quota in answer["Quotas"].as_array().into_iter().flatten() {
        let (Some(code), Some(value)) = (quota["QuotaCode"].as_str(), number(&quota["Value"]))
        else {
            continue;
        };
        match code {
            code if code == vcpus => left.vcpus = Some(value),
            GP3_TIB => left.ssd_disk_gb = Some(value * 1024.0),
            ST1_TIB => left.standard_disk_gb = Some(value * 1024.0),
            _ => {}
        }
    }
}
