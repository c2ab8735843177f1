//! The list of everything that is compiled into the program, as a CycloneDX document.
//!
//! From `cargo metadata`: the packages that the program reaches over normal and build dependencies, with versions, licences
//! and who needs whom; checksums from `Cargo.lock`. No time and no random number, so the same sources give the same file.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The document for the package `program` of `metadata`.
pub fn document(metadata: &Value, lock: &str, program: &str) -> anyhow::Result<Value> {
    let packages = by_id(metadata, "packages")?;
    let nodes = by_id(metadata.get("resolve").context("no resolved packages")?, "nodes")?;
    let root = packages
        .iter()
        .find(|(_, package)| package["name"] == program)
        .map(|(id, _)| *id)
        .with_context(|| format!("no package `{program}`"))?;
    let sums = checksums(lock);
    let mut reached = BTreeSet::from([root]);
    let mut open = vec![root];
    let mut graph: Vec<Value> = Vec::new();
    while let Some(id) = open.pop() {
        let node = nodes.get(id).with_context(|| format!("`{id}` is not resolved"))?;
        let needs = compiled_dependencies(node);
        for need in &needs {
            if reached.insert(need) {
                open.push(need);
            }
        }
        let depends_on: BTreeSet<String> =
            needs.iter().map(|need| reference(packages[need])).collect();
        graph.push(json!({ "ref": reference(packages[id]), "dependsOn": depends_on }));
    }
    graph.sort_by_key(|edge| edge["ref"].to_string());
    let others = reached.iter().filter(|id| **id != root);
    let components: Vec<Value> = others.map(|id| component(packages[id], &sums)).collect();
    if components.is_empty() {
        bail!("`{program}` has no dependencies, which cannot be");
    }
    let mut main = component(packages[root], &sums);
    main["type"] = "application".into();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": main },
        "components": components,
        "dependencies": graph,
    }))
}

fn by_id<'a>(of: &'a Value, list: &str) -> anyhow::Result<BTreeMap<&'a str, &'a Value>> {
    let entries = of[list].as_array().with_context(|| format!("cargo names no {list}"))?;
    let with_id = entries.iter().filter_map(|entry| Some((entry["id"].as_str()?, entry)));
    Ok(with_id.collect())
}

/// What a package is compiled with; what only its tests need is left out.
fn compiled_dependencies(node: &Value) -> Vec<&str> {
    let needs = node["deps"].as_array().into_iter().flatten();
    let compiled = needs.filter(|need| {
        let mut kinds = need["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| kind["kind"] != "dev")
    });
    compiled.filter_map(|need| need["pkg"].as_str()).collect()
}

/// How other documents name a package.
fn reference(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Value {
    let name = package["name"].as_str().unwrap_or_default();
    let version = package["version"].as_str().unwrap_or_default();
    let mut found = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": reference(package),
    });
    if let Some(about) = package["description"].as_str() {
        found["description"] = about.split_whitespace().collect::<Vec<_>>().join(" ").into();
    }
    if let Some(licence) = package["license"].as_str() {
        // An older spelling of "or" that the standard does not have.
        found["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(sum) = sums.get(&(name.to_owned(), version.to_owned())) {
        found["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    found
}

/// Checksums of packages by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name"), value("version"), value("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Value {
        json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" })
    }

    fn need(of: &str, kind: Option<&str>) -> Value {
        json!({ "pkg": of, "dep_kinds": [{ "kind": kind }] })
    }

    #[test]
    fn everything_compiled_is_listed_and_what_only_tests_need_is_not() {
        let metadata = json!({
            "packages": [package("program"), package("library"), package("builder"), package("tests")],
            "resolve": { "nodes": [
                { "id": "program", "deps": [need("library", None), need("tests", Some("dev"))] },
                { "id": "library", "deps": [need("builder", Some("build"))] },
                { "id": "builder", "deps": [] },
                { "id": "tests", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"library\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n";
        let found = document(&metadata, lock, "program").unwrap();
        let names = |of: &Value| of["name"].as_str().unwrap().to_owned();
        let listed: Vec<String> =
            found["components"].as_array().unwrap().iter().map(names).collect();
        assert_eq!(listed, ["builder", "library"]);
        assert_eq!(found["components"][1]["hashes"][0]["content"], "00ff");
        assert_eq!(found["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found["metadata"]["component"]["type"], "application");
        let edge =
            json!({ "ref": "pkg:cargo/program@1.0.0", "dependsOn": ["pkg:cargo/library@1.0.0"] });
        assert!(found["dependencies"].as_array().unwrap().contains(&edge), "{found}");
        assert!(document(&metadata, lock, "nothing").is_err());
    }
}
