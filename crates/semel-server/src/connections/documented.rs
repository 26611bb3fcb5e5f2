//! The configuration in docs/connections.md is one that a server accepts.

use toml::Table;

use super::address::AddressPolicy;
use super::profile::Profile;
use crate::config::Config;

const PAGE: &str = include_str!("../../../../docs/connections.md");

#[test]
fn every_example_of_the_documentation_is_accepted() {
    let blocks: Vec<_> =
        PAGE.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "{}", blocks.len());
    for text in blocks {
        let table: Table = toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        if let Some(profile) = table.get("profile") {
            assert!(Profile::read("profile", profile).is_ok(), "{text}");
            continue;
        }
        let config: Config = toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        super::check(&config.connections, text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        assert!(AddressPolicy::read(&config.http).is_ok(), "{text}");
    }
}

#[test]
fn the_page_names_every_built_in_profile_with_its_source() {
    for (name, text) in super::profile::BUILT_IN {
        let table: Table = toml::from_str(text).unwrap();
        let source = table["source"].as_str().unwrap();
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        assert!(row.is_some_and(|row| row.contains(source)), "{name} and {source}");
    }
}
