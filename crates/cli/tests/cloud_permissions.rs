//! Which permissions `paceline cloud check` finds, through groups and what lies above a project too, and what it says it cannot know.
//!
//! The stand-ins answer in the form of the tools themselves: read from the message classes of Google Cloud's command-line tool 528 (policy
//! troubleshooter v2alpha1, Cloud Identity v1), the service model of `aws` 1.45 (IAM 2010-05-08) and the source of `az` 2.91.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod cloud_support;
mod support;

use cloud_support::{calls, cloud, site, tool};
use std::fs;
use std::path::Path;
use support::{CLOUD_JOB, document, said};

/// `gcloud` of a project in a folder of an organisation, where all that is said of Ann is what replaces the words in capitals.
const GCLOUD: &str = r#"here=$(dirname "$0")/..
denied() { echo "ERROR: ($1) $2" >&2; exit 1; }
case "$*" in
"auth list"*) echo '[{"account": "ann@example.org", "status": "ACTIVE"}]' ;;
"policy-troubleshoot iam //cloudresourcemanager.googleapis.com/projects/lab --principal-email=ann@example.org --permission=dataproc.clusters."*) TROUBLESHOOT ;;
"projects get-ancestors-iam-policy lab"*) ANCESTORS ;;
"projects get-iam-policy lab"*) echo '{"bindings": [{"members": ["user:bob@example.org"], "role": "roles/owner"}], "etag": "BwX", "version": 1}' ;;
"iam roles describe roles/dataproc.editor"*) echo '{"includedPermissions": ["dataproc.clusters.create", "dataproc.clusters.delete"], "name": "roles/dataproc.editor", "stage": "GA", "title": "Dataproc Editor"}' ;;
"iam roles describe maker --organization=5"*) echo '{"includedPermissions": ["dataproc.clusters.create"], "name": "organizations/5/roles/maker"}' ;;
"identity groups memberships check-transitive-membership --group-email=team@example.org --member-email=ann@example.org"*) MEMBER ;;
*) denied gcloud "PERMISSION_DENIED: not told" ;;
esac"#;

const DISABLED: &str = r#"denied gcloud.policy-troubleshoot.iam "PERMISSION_DENIED: Policy Troubleshooter API has not been used in project lab before or it is disabled. This command is authenticated as ann@example.org which is the active account specified by the [core/account] property.""#;
const HIDDEN: &str = r#"denied gcloud.projects.get-ancestors-iam-policy "User is not permitted to access IAM policy for one or more of the ancestors""#;
/// A role of the organisation that Ann has, and one of the folder that a group has.
const ANCESTORS: &str = r#"echo '[{"id": "lab", "policy": {"bindings": [{"members": ["user:bob@example.org"], "role": "roles/owner"}], "etag": "BwX", "version": 1}, "type": "project"}, {"id": "7", "policy": {"bindings": [{"members": ["group:team@example.org"], "role": "roles/dataproc.editor"}]}, "type": "folder"}, {"id": "5", "policy": {"bindings": [{"members": ["user:Ann@example.org"], "role": "organizations/5/roles/maker"}]}, "type": "organization"}]'"#;

fn gcloud(site: &Path, troubleshoot: &str, ancestors: &str, member: &str) {
    let script = GCLOUD
        .replace("TROUBLESHOOT", troubleshoot)
        .replace("ANCESTORS", ancestors)
        .replace("MEMBER", member);
    tool(site, "gcloud", &script);
}

/// What is said of permissions by `paceline cloud check`.
fn of_permissions(site: &Path, words: &[&str]) -> Vec<String> {
    let output = cloud(site, &[&["check", "job.toml", "--json"], words].concat());
    let answer = document(&output);
    let list = answer["findings"].as_array().unwrap_or_else(|| panic!("{}", said(&output)));
    let each = |finding: &serde_json::Value| {
        format!("{} {}", finding["answer"].as_str().unwrap(), finding["what"].as_str().unwrap())
    };
    let permissions = ["dataproc.clusters.", "ec2:", "Microsoft.Compute/virtualMachines"];
    let of = |line: &String| permissions.iter().any(|name| line.contains(name));
    list.iter().map(each).filter(of).collect()
}

const TO_DATAPROC: &[&str] = &["--project", "lab", "--target", "dataproc"];

#[test]
fn what_the_troubleshooter_decides_holds_for_groups_and_everything_above_the_project() {
    let site = site();
    let here = site.path();
    let answers = r#"case "$*" in *clusters.create*) echo '{"access": "GRANTED", "explainedPolicies": []}' ;; *) echo '{"access": "NOT_GRANTED", "explainedPolicies": []}' ;; esac"#;
    gcloud(here, answers, HIDDEN, "exit 9");
    let found = of_permissions(here, TO_DATAPROC);
    assert_eq!(
        found,
        [
            "yes ann@example.org has dataproc.clusters.create",
            "no ann@example.org lacks dataproc.clusters.delete in lab, also by groups, folders and the organisation",
        ]
    );
    let calls = calls(here);
    assert!(!calls.contains("get-iam-policy") && !calls.contains("identity"), "{calls}");
}

#[test]
fn a_role_of_a_group_or_of_the_organisation_was_called_missing() {
    let site = site();
    let here = site.path();
    gcloud(here, DISABLED, ANCESTORS, r#"echo '{"hasMembership": true}'"#);
    assert_eq!(
        of_permissions(here, TO_DATAPROC),
        [
            "yes ann@example.org has dataproc.clusters.create by roles/dataproc.editor of the folder 7 through the group team@example.org",
            "yes ann@example.org has dataproc.clusters.delete by roles/dataproc.editor of the folder 7 through the group team@example.org",
        ]
    );
    // Not a member: the role of the organisation is her own. An absent field is `false` in this form.
    gcloud(here, DISABLED, ANCESTORS, "echo '{}'");
    assert_eq!(
        of_permissions(here, TO_DATAPROC),
        [
            "yes ann@example.org has dataproc.clusters.create by organizations/5/roles/maker of the organization 5",
            "unknown not known whether ann@example.org has dataproc.clusters.delete: no role that can be seen in lab and above it gives it",
        ]
    );
}

#[test]
fn what_cannot_be_told_is_not_known_and_says_why() {
    let site = site();
    let here = site.path();
    let undecided = r#"echo '{"access": "UNKNOWN_INFO_DENIED"}'"#;
    gcloud(here, undecided, ANCESTORS, "denied gcloud.identity Forbidden");
    let found = of_permissions(here, TO_DATAPROC);
    let doubt = "unknown not known whether ann@example.org has dataproc.clusters.delete: the group team@example.org has it by roles/dataproc.editor, and its members cannot be seen";
    assert!(found.iter().any(|line| line == doubt), "{found:?}");
    gcloud(here, DISABLED, HIDDEN, "exit 9");
    let hidden = "unknown not known whether ann@example.org has dataproc.clusters.create: no role in lab gives it; a folder or the organisation may";
    assert_eq!(of_permissions(here, TO_DATAPROC)[0], hidden);
    let text = cloud(here, &[&["check", "job.toml"], TO_DATAPROC].concat());
    let shown = String::from_utf8_lossy(&text.stdout).into_owned();
    let hint =
        "hint: `gcloud services enable policytroubleshooter.googleapis.com` lets it be asked";
    assert!(shown.contains(hint) && !shown.contains("missing"), "{shown}");
}

/// `aws` for a user or an assumed role, as `ARN` says.
const AWS: &str = r#"case "$*" in
"sts get-caller-identity"*) echo '{"UserId": "AIDA", "Account": "111122223333", "Arn": "ARN"}' ;;
"iam get-role --role-name Lab"*) echo '{"Role": {"Path": "/team/", "RoleName": "Lab", "RoleId": "AROA", "Arn": "arn:aws:iam::111122223333:role/team/Lab", "CreateDate": "2026-01-01T00:00:00+00:00"}}' ;;
"iam simulate-principal-policy --policy-source-arn SOURCE --action-names ec2:RunInstances ec2:TerminateInstances"*) echo '{"EvaluationResults": [{"EvalActionName": "ec2:RunInstances", "EvalResourceName": "*", "EvalDecision": "allowed", "MatchedStatements": [{"SourcePolicyId": "team", "SourcePolicyType": "group", "StartPosition": {"Line": 1, "Column": 1}, "EndPosition": {"Line": 1, "Column": 90}}], "MissingContextValues": []}, {"EvalActionName": "ec2:TerminateInstances", "EvalResourceName": "*", "EvalDecision": "DECISION", "MatchedStatements": [], "MissingContextValues": []}]}' ;;
*) echo "An error occurred (AccessDenied) when calling the operation" >&2; exit 254 ;;
esac"#;

#[test]
fn aws_simulates_groups_and_is_not_sure_of_what_is_allowed_of_some_resources_only() {
    let site = site();
    let here = site.path();
    let job = CLOUD_JOB.replace("n1-standard-2", "m5.large");
    fs::write(here.join("job.toml"), job).unwrap();
    let aws = |arn: &str, source: &str, decision: &str| {
        let script =
            AWS.replace("ARN", arn).replace("SOURCE", source).replace("DECISION", decision);
        tool(here, "aws", &script);
        of_permissions(here, &["--provider", "aws"])
    };
    let ann = "arn:aws:iam::111122223333:user/ann";
    let found = aws(ann, ann, "implicitDeny");
    assert_eq!(found[0], format!("yes {ann} has ec2:RunInstances"));
    assert!(
        found[1]
            .starts_with(&format!("unknown not known whether {ann} has ec2:TerminateInstances")),
        "{found:?}"
    );
    let session = "arn:aws:sts::111122223333:assumed-role/Lab/ann";
    let found = aws(session, "arn:aws:iam::111122223333:role/team/Lab", "explicitDeny");
    let denied = format!("no {session} lacks ec2:TerminateInstances: a policy denies it");
    assert_eq!(found, [format!("yes {session} has ec2:RunInstances"), denied]);
}

/// `az` of an account whose group has a role of a management group above the subscription.
const AZ: &str = r#"case "$*" in
"account show"*) echo '{"id": "0000", "name": "lab", "user": {"name": "ann@example.org", "type": "user"}}' ;;
"role assignment list --assignee ann@example.org --include-groups --include-inherited"*) echo '[{"condition": null, "id": "/providers/Microsoft.Management/managementGroups/all/providers/Microsoft.Authorization/roleAssignments/1", "principalId": "2", "principalName": "team", "principalType": "Group", "roleDefinitionId": "/subscriptions/0000/providers/Microsoft.Authorization/roleDefinitions/b24988ac", "roleDefinitionName": "ROLE", "scope": "/providers/Microsoft.Management/managementGroups/all", "type": "Microsoft.Authorization/roleAssignments"}]' ;;
"role definition list --name Contributor"*) echo '[{"assignableScopes": ["/"], "permissions": [{"actions": ["*"], "dataActions": [], "notActions": ["Microsoft.Authorization/*/Delete", "Microsoft.Compute/virtualMachines/delete"], "notDataActions": []}], "roleName": "Contributor", "roleType": "BuiltInRole", "type": "Microsoft.Authorization/roleDefinitions"}]' ;;
*) echo "ERROR: (AuthorizationFailed) not told" >&2; exit 1 ;;
esac"#;

#[test]
fn azure_roles_of_groups_and_of_what_lies_above_the_subscription_count() {
    let site = site();
    let here = site.path();
    let job = CLOUD_JOB.replace("n1-standard-2", "Standard_D2s_v3");
    fs::write(here.join("job.toml"), job).unwrap();
    tool(here, "az", &AZ.replace("ROLE", "Contributor"));
    assert_eq!(
        of_permissions(here, &["--provider", "azure"]),
        [
            "yes ann@example.org has Microsoft.Compute/virtualMachines/write by Contributor through the group team",
            "unknown not known whether ann@example.org has Microsoft.Compute/virtualMachines/delete: no role of the subscription or above it gives it; one of a resource group may",
        ]
    );
}
