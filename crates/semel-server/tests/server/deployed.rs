//! What is in deploy/ and what the book says of operating are true to the server.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use semel_server::config::Config;
use semel_server::metrics::NAMES;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("deployed::the_book_lists_every_metric", listed),
        Trial::test("deployed::alerts_and_dashboard_know_no_other_metrics", known),
        Trial::test("deployed::the_example_configuration_is_one", configured),
        Trial::test("deployed::links_of_the_book_lead_somewhere", linked),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The metrics that a file names; the parts of a histogram are the histogram's.
fn metrics_in(file: &str) -> Result<BTreeSet<String>, Failed> {
    let text = fs::read_to_string(root().join(file))?;
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &str| word.strip_suffix("_bucket").unwrap_or(word).to_owned();
    Ok(words.filter(|word| word.starts_with("semel_")).map(metric).collect())
}

fn listed() -> Result<(), Failed> {
    let all: BTreeSet<_> = NAMES.iter().map(ToString::to_string).collect();
    assert_eq!(metrics_in("docs/operating.md")?, all);
    Ok(())
}

fn known() -> Result<(), Failed> {
    for file in ["deploy/alerts.yaml", "deploy/grafana-dashboard.json"] {
        let named = metrics_in(file)?;
        assert!(named.len() > 5, "{file} watches something");
        for metric in named {
            assert!(NAMES.contains(&metric.as_str()), "{file} names {metric}");
        }
    }
    let dashboard = fs::read_to_string(root().join("deploy/grafana-dashboard.json"))?;
    serde_json::from_str::<serde_json::Value>(&dashboard)?;
    Ok(())
}

fn configured() -> Result<(), Failed> {
    let file = root().join("deploy/semel.toml");
    let config = Config::load(Some(&file), std::iter::empty(), std::iter::empty())?;
    assert_eq!(config.store.expose(), "sqlite:semel.db");
    let unit = fs::read_to_string(root().join("deploy/semel.service"))?;
    // Whoever it runs as cannot read the file itself.
    assert!(unit.contains("LoadCredential=semel.toml:/etc/semel/semel.toml"));
    assert!(unit.contains("semel serve --config ${CREDENTIALS_DIRECTORY}/semel.toml"));
    Ok(())
}

fn linked() -> Result<(), Failed> {
    let mut links = 0;
    for entry in fs::read_dir(root().join("docs"))? {
        let page = entry?.path();
        if page.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            assert!(page.with_file_name(target).exists(), "{} leads to {target}", page.display());
        }
    }
    assert!(links > 10, "the book has links");
    Ok(())
}
