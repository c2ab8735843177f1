//! Which permissions an account has in a project, groups, folders and the organisation included.
//!
//! Google's policy troubleshooter answers for all of them at once, where the project has it enabled and the account may ask it.
//! Elsewhere the policies of the project and of what it lies in are read as far as the account may see them, and groups are asked
//! for the account. What neither tells is not known; "missing" is only what the troubleshooter says is missing.

use super::super::{CheckRequest, Finding, or_unknown, without};
use super::entries;
use crate::error::CloudError;
use crate::tool::{Tool, argv};
use serde_json::Value;

/// Of the project, where one is chosen.
pub(super) fn check(
    request: &CheckRequest,
    who: &str,
    tool: Tool<'_>,
    findings: &mut Vec<Finding>,
) -> Result<(), CloudError> {
    let Some(project) = project(request, tool, findings)? else { return Ok(()) };
    let account = ProjectAccount { who, project: &project, tool };
    let mut open: Vec<&str> = request.permissions.iter().map(String::as_str).collect();
    let asked = account.ask_troubleshooter(&mut open, findings)?;
    if open.is_empty() {
        return Ok(());
    }
    let Some((policies, all)) = account.policies(findings)? else { return Ok(()) };
    let mut doubts = Vec::new();
    account.look_through(&policies, &mut open, &mut doubts, findings)?;
    for name in open {
        findings.push(account.not_known(name, all, asked, &doubts));
    }
    Ok(())
}

struct ProjectAccount<'a> {
    who: &'a str,
    project: &'a str,
    tool: Tool<'a>,
}

/// A group that would give a permission if the account is in it, which the tool could not say.
struct UnseenGroup {
    permission: String,
    group: String,
    role: String,
}

/// How a binding reaches the account.
enum MembershipPath<'a> {
    Own,
    Group(&'a str),
}

impl ProjectAccount<'_> {
    /// Takes from `open` what the troubleshooter decides; whether it answers at all.
    fn ask_troubleshooter(
        &self,
        open: &mut Vec<&str>,
        findings: &mut Vec<Finding>,
    ) -> Result<bool, CloudError> {
        for name in open.clone() {
            let answer = self.tool.json(&argv([
                "gcloud",
                "policy-troubleshoot",
                "iam",
                &format!("//cloudresourcemanager.googleapis.com/projects/{}", self.project),
                &format!("--principal-email={}", self.who),
                &format!("--permission={name}"),
                &format!("--project={}", self.project),
                "--format=json",
            ]));
            let Some(answer) = without(answer)? else { return Ok(false) };
            // The second of each pair is of the service's third version.
            let state = answer["access"].as_str().or(answer["overallAccessState"].as_str());
            match state {
                Some("GRANTED" | "CAN_ACCESS") => {
                    findings.push(Finding::yes(format!("{} has {name}", self.who)));
                }
                Some("NOT_GRANTED" | "CANNOT_ACCESS") => findings.push(Finding::no(
                    format!(
                        "{} lacks {name} in {}, also by groups, folders and the organisation",
                        self.who, self.project
                    ),
                    owner(name),
                )),
                _ => continue,
            }
            open.retain(|each| *each != name);
        }
        Ok(true)
    }

    /// The policies of the project and, where the account may see those, of all it lies in; whether these are all.
    fn policies(
        &self,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<(Vec<Value>, bool)>, CloudError> {
        let read = |what| {
            self.tool.json(&argv(["gcloud", "projects", what, self.project, "--format=json"]))
        };
        if let Some(all) = without(read("get-ancestors-iam-policy"))? {
            return Ok(Some((entries(&all).to_vec(), true)));
        }
        let own = or_unknown("permissions", read("get-iam-policy"), findings)?;
        Ok(own.map(|policy| {
            let entry =
                serde_json::json!({"type": "project", "id": self.project, "policy": policy});
            (vec![entry], false)
        }))
    }

    /// Takes from `open` what a role gives the account; roles of groups that could not be asked become doubts.
    fn look_through(
        &self,
        policies: &[Value],
        open: &mut Vec<&str>,
        doubts: &mut Vec<UnseenGroup>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), CloudError> {
        for entry in policies {
            let place = place(entry, self.project);
            for binding in entries(&entry["policy"]["bindings"]) {
                let reaches = self.reaches(binding);
                let role = binding["role"].as_str().filter(|_| binding["condition"].is_null());
                let Some(role) = role.filter(|_| !open.is_empty() && !reaches.is_empty()) else {
                    continue;
                };
                let Some(gives) = self.role(role, findings)? else { continue };
                let given = |name: &&str| {
                    entries(&gives["includedPermissions"]).iter().any(|each| each == *name)
                };
                for reach in reaches {
                    if !open.iter().any(given) {
                        break;
                    }
                    let through = match reach {
                        MembershipPath::Own => String::new(),
                        MembershipPath::Group(group) => match self.is_in(group)? {
                            Some(true) => format!(" through the group {group}"),
                            Some(false) => continue,
                            None => {
                                doubts.extend(open.iter().filter(|name| given(name)).map(|name| {
                                    let (permission, group) =
                                        ((*name).to_owned(), group.to_owned());
                                    UnseenGroup { permission, group, role: role.to_owned() }
                                }));
                                continue;
                            }
                        },
                    };
                    for name in open.extract_if(.., |name| given(&&**name)) {
                        findings.push(Finding::yes(format!(
                            "{} has {name} by {role}{place}{through}",
                            self.who
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// The members of a binding that are the account or may have it among them.
    fn reaches<'b>(&self, binding: &'b Value) -> Vec<MembershipPath<'b>> {
        let domain = self.who.split_once('@').map_or("", |(_, domain)| domain);
        let reach = |member: &'b str| match member.split_once(':') {
            Some(("user" | "serviceAccount", name)) => {
                name.eq_ignore_ascii_case(self.who).then_some(MembershipPath::Own)
            }
            Some(("domain", name)) => {
                name.eq_ignore_ascii_case(domain).then_some(MembershipPath::Own)
            }
            Some(("group", name)) => Some(MembershipPath::Group(name)),
            _ => None,
        };
        let members = entries(&binding["members"]).iter().filter_map(Value::as_str);
        let mut reaches: Vec<MembershipPath<'b>> = members.filter_map(reach).collect();
        // No group needs to be asked for what is the account's own.
        reaches.sort_by_key(|reach| matches!(reach, MembershipPath::Group(_)));
        reaches
    }

    /// Whether the account is a member of a group, also by groups in it; `None` where the tool may not say.
    fn is_in(&self, group: &str) -> Result<Option<bool>, CloudError> {
        let mut ask = argv(["gcloud", "identity", "groups", "memberships"]);
        ask.extend(argv([
            "check-transitive-membership",
            &format!("--group-email={group}"),
            &format!("--member-email={}", self.who),
            "--format=json",
        ]));
        Ok(without(self.tool.json(&ask))?.map(|answer| answer["hasMembership"] == true))
    }

    /// What a role is, one of a project or organisation included.
    fn role(&self, role: &str, findings: &mut Vec<Finding>) -> Result<Option<Value>, CloudError> {
        let mut describe = argv(["gcloud", "iam", "roles", "describe"]);
        match role.split_once("/roles/") {
            Some((owner, name)) => {
                describe.push(name.to_owned());
                describe.push(match owner.split_once('/') {
                    Some(("organizations", id)) => format!("--organization={id}"),
                    Some((_, id)) => format!("--project={id}"),
                    None => format!("--project={}", self.project),
                });
            }
            None => describe.push(role.to_owned()),
        }
        describe.push("--format=json".to_owned());
        or_unknown(role, self.tool.json(&describe), findings)
    }

    fn not_known(&self, name: &str, all: bool, asked: bool, doubts: &[UnseenGroup]) -> Finding {
        let (who, project) = (self.who, self.project);
        let why = match doubts.iter().find(|doubt| doubt.permission == name) {
            Some(doubt) => format!(
                "the group {} has it by {}, and its members cannot be seen",
                doubt.group, doubt.role
            ),
            None if all => format!("no role that can be seen in {project} and above it gives it"),
            None => format!("no role in {project} gives it; a folder or the organisation may"),
        };
        let hint = if asked {
            owner(name)
        } else {
            format!(
                "`gcloud services enable policytroubleshooter.googleapis.com` lets it be asked, or {}",
                owner(name)
            )
        };
        Finding::unknown(format!("not known whether {who} has {name}: {why}"), hint)
    }
}

fn owner(permission: &str) -> String {
    format!("ask the project's owner for a role that has {permission}")
}

/// Where a policy is, if not at the project itself.
fn place(entry: &Value, project: &str) -> String {
    match (entry["type"].as_str(), entry["id"].as_str()) {
        (Some(kind), Some(id)) if id != project => format!(" of the {kind} {id}"),
        _ => String::new(),
    }
}

/// The project that was given, or the tool's own.
fn project(
    request: &CheckRequest,
    tool: Tool<'_>,
    findings: &mut Vec<Finding>,
) -> Result<Option<String>, CloudError> {
    if let Some(project) = &request.project {
        return Ok(Some(project.clone()));
    }
    let config = tool.json(&argv(["gcloud", "config", "list", "--format=json"]));
    let Some(config) = or_unknown("project", config, findings)? else { return Ok(None) };
    let project = config["core"]["project"].as_str().map(str::to_owned);
    if project.is_none() {
        findings.push(Finding::no(
            "no project is chosen",
            "give --project, or run `gcloud config set project NAME`",
        ));
    }
    Ok(project)
}
