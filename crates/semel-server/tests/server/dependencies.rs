//! The dependency tree against `deny.toml`: licences, bans, sources. `make deny` checks the same file with cargo-deny, and
//! the advisories with it.

use std::collections::HashSet;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("dependencies::are_those_that_deny_toml_allows", allowed)]
}

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: HashSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    /// The crates that may depend on it nevertheless.
    #[serde(default)]
    wrappers: HashSet<String>,
}

#[derive(Deserialize)]
struct Tree {
    packages: Vec<Package>,
    resolve: Resolved,
}

#[derive(Deserialize)]
struct Resolved {
    nodes: Vec<TreeNode>,
}

/// A package of the tree with the ids of those that it depends on.
#[derive(Deserialize)]
struct TreeNode {
    id: String,
    dependencies: Vec<String>,
}

#[derive(Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    source: Option<String>,
}

impl Tree {
    /// Names of the packages that depend on this one.
    fn dependents(&self, package: &Package) -> HashSet<&str> {
        let nodes = self.resolve.nodes.iter().filter(|node| node.dependencies.contains(&package.id));
        let ids: HashSet<_> = nodes.map(|node| node.id.as_str()).collect();
        let packages = self.packages.iter().filter(|package| ids.contains(package.id.as_str()));
        packages.map(|package| package.name.as_str()).collect()
    }
}

impl Rules {
    fn refuse(&self, package: &Package, dependents: &HashSet<&str>) -> Option<String> {
        let name = &package.name;
        let is_wrapped = |banned: &Banned| {
            !dependents.is_empty() && dependents.iter().all(|dependent| banned.wrappers.contains(*dependent))
        };
        if self.bans.deny.iter().any(|banned| banned.name == *name && !is_wrapped(banned)) {
            return Some(format!("{name} is banned"));
        }
        if package.source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
            return Some(format!("{name} comes from {:?}, not from the registry", package.source));
        }
        let license = package.license.as_deref().unwrap_or("none");
        let mut words = words(license);
        words.reverse();
        (!any_of(&mut words, &self.licenses.allow)).then(|| format!("{name} has the licence {license}"))
    }
}

/// The words of an SPDX expression; some crates still write a slash for OR.
fn words(license: &str) -> Vec<String> {
    let spaced = license.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// `a OR b`: the words that are left are a stack.
fn any_of(words: &mut Vec<String>, allowed: &HashSet<String>) -> bool {
    let mut any = all_of(words, allowed);
    while words.pop_if(|word| word == "OR").is_some() {
        any |= all_of(words, allowed);
    }
    any
}

/// `a AND b`.
fn all_of(words: &mut Vec<String>, allowed: &HashSet<String>) -> bool {
    let mut all = one(words, allowed);
    while words.pop_if(|word| word == "AND").is_some() {
        all &= one(words, allowed);
    }
    all
}

/// A licence, or an expression in parentheses. An exception only gives more rights.
fn one(words: &mut Vec<String>, allowed: &HashSet<String>) -> bool {
    let word = words.pop().unwrap_or_default();
    if word == "(" {
        let inside = any_of(words, allowed);
        words.pop();
        return inside;
    }
    if words.pop_if(|word| word == "WITH").is_some() {
        words.pop();
    }
    allowed.contains(&word)
}

/// The platform that is built for.
fn platform() -> Result<String, Failed> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let told = String::from_utf8(Command::new(rustc).arg("-vV").output()?.stdout)?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc does not say what it builds for")?.to_owned())
}

fn allowed() -> Result<(), Failed> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let rules: Rules = toml::from_str(&std::fs::read_to_string(format!("{root}/deny.toml"))?)?;
    let package = |name: &str, license: &str, source: &str| Package {
        id: name.to_owned(),
        name: name.to_owned(),
        license: Some(license.to_owned()),
        source: Some(source.to_owned()),
    };
    let fine = package("fine", "(GPL-3.0 OR MIT) AND Apache-2.0 WITH LLVM-exception", "registry+x");
    let nothing = HashSet::new();
    assert_eq!(rules.refuse(&fine, &nothing), None);
    for wrong in [
        package("fine", "MIT AND GPL-3.0", "registry+x"),
        package("fine", "(MIT OR ISC) AND GPL-3.0", "registry+x"),
        package("fine", "MIT", "git+https://example.com/fine"),
        package("openssl-sys", "MIT", "registry+x"),
    ] {
        assert!(rules.refuse(&wrong, &nothing).is_some(), "{} {:?}", wrong.name, wrong.license);
    }
    let wrapped = package("chrono", "MIT", "registry+x");
    for (dependents, is_refused) in [(&["rmcp"][..], false), (&["rmcp", "other"], true), (&[], true)] {
        let dependents = dependents.iter().copied().collect();
        assert_eq!(rules.refuse(&wrapped, &dependents).is_some(), is_refused, "{dependents:?}");
    }
    assert!(rules.refuse(&Package { license: None, ..fine }, &nothing).is_some());
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    // Of this platform: those of the others were not downloaded for this build. `make deny` looks at them all.
    cargo
        .args(["metadata", "--format-version=1", "--all-features", "--locked", "--offline"])
        .args(["--filter-platform", &platform()?])
        .current_dir(root);
    let told = cargo.output()?;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let tree: Tree = serde_json::from_slice(&told.stdout)?;
    assert!(tree.packages.len() > 100, "the whole tree is looked at");
    let refuse = |package: &Package| rules.refuse(package, &tree.dependents(package));
    let refused: Vec<String> = tree.packages.iter().filter_map(refuse).collect();
    assert_eq!(refused, Vec::<String>::new());
    Ok(())
}
