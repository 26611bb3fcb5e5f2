//! Docs of public items, variants and fields are API text: OpenAPI and docs.rs show them. "The run." says nothing that the name
//! does not. A module's doc says what belongs in it.

use libtest_mimic::{Failed, Trial};

use super::{Finding, Source, is_rust, untested_lines};

/// A doc of fewer words cannot say what the item holds.
const FEWEST_WORDS: usize = 4;

pub(super) fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && is_rust(path) && !path.contains("/tests")
}

/// Public items, variants, fields and modules whose doc is too short.
pub(super) fn too_short(file: &Source) -> Vec<Finding> {
    let (mut found, mut doc) = (Vec::new(), Vec::new());
    let module = file.text.lines().filter_map(|line| line.strip_prefix("//!"));
    let words = module.flat_map(str::split_whitespace).count();
    if (1..FEWEST_WORDS).contains(&words) {
        found.push((1, "say what belongs in this module".into()));
    }
    for (number, line) in untested_lines(&file.text) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text);
        } else if line.starts_with("#[doc") {
            // The doc goes on with the text of a file.
            doc.extend([line; FEWEST_WORDS]);
        } else if !line.starts_with("#[") {
            let words = doc.iter().flat_map(|text| text.split_whitespace()).count();
            let is_api = line.starts_with("pub ") || is_variant(line) || is_field(line);
            if (1..FEWEST_WORDS).contains(&words) && is_api {
                found.push((number, "say what it holds: meaning, unit, default, when it is absent".into()));
            }
            doc.clear();
        }
    }
    found
}

/// `Name,`, `Name(..)`, `Name {..}` or `Name = 1,`: only variants of an enum begin a line with a capital and have a doc.
fn is_variant(line: &str) -> bool {
    let name = line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// `name: Type`, in a struct or in a variant of an enum: private fields that have a doc are documented as well.
fn is_field(line: &str) -> bool {
    let (name, rest) = line.split_once(':').unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_#".contains(c));
    !name.is_empty() && is_name && !rest.starts_with(':')
}

/// Short docs of each kind are refused, and an item without a doc is not.
pub(super) fn trial() -> Trial {
    Trial::test("tidy::a_short_doc_of_each_kind_is_refused", || {
        let refused = [
            "/// The run.\npub run: RunId,\n",
            "/// The file.\npub struct File;\n",
            "    /// Where.\n    address: SocketAddr,\n",
            "    /// Not there.\n    #[error(\"no\")]\n    Missing { path: PathBuf },\n",
            "//! The blocks.\n\nuse std::fmt;\n",
        ];
        let accepted =
            ["path: PathBuf,\n", "/// The path of the file.\npath: PathBuf,\n", "/// Short.\nuse a::b;\n"];
        let finds =
            |text: &str| !too_short(&Source { path: String::new(), text: text.to_owned() }).is_empty();
        let wrong =
            refused.iter().filter(|text| !finds(text)).chain(accepted.iter().filter(|text| finds(text)));
        let wrong: Vec<_> = wrong.collect();
        if wrong.is_empty() { Ok(()) } else { Err(Failed::from(format!("judged wrongly: {wrong:?}"))) }
    })
}
