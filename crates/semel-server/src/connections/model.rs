//! Connections of the kinds `openai` and `anthropic`: servers of language models.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::http::{HeaderSource, RouteSettings, base};
use super::kind::{Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::members::Members;
use super::route::Route;
use super::secret::{Redactor, SecretPlace};
use crate::models::{Cost, ModelApi, Price};

pub(super) static OPENAI: ConnectionKind =
    ConnectionKind { name: "openai", read: |members| read(members, ModelApi::OpenAi) };
pub(super) static ANTHROPIC: ConnectionKind =
    ConnectionKind { name: "anthropic", read: |members| read(members, ModelApi::Anthropic) };

/// Maximum time of a call that neither the connection nor the step bounds: long answers take minutes.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Version of Anthropic's API that is spoken.
const VERSION: &str = "2023-06-01";

/// A server of language models.
#[derive(Debug)]
pub struct ModelTarget {
    /// Shape in which it is asked.
    pub api: ModelApi,
    /// Address below which its paths are.
    pub base: Url,
    /// The way to it, with its credentials.
    pub route: Route,
    /// Model of steps that name none.
    pub model: Option<String>,
    /// Prices by the names of models.
    prices: BTreeMap<String, Price>,
}

impl ModelTarget {
    /// What a model costs; none if the operator has not said it.
    pub fn price(&self, model: &str) -> Option<Price> {
        self.prices.get(model).copied()
    }
}

impl Target for ModelTarget {
    fn kind(&self) -> &'static str {
        match self.api {
            ModelApi::OpenAi => OPENAI.name,
            ModelApi::Anthropic => ANTHROPIC.name,
        }
    }

    fn class(&self) -> &'static str {
        "keyed"
    }

    fn summary(&self) -> String {
        "asked again after a lost answer; what is answered is recorded".to_owned()
    }

    fn redactor(&self) -> &Redactor {
        &self.route.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        let mut models = self.base.clone();
        models.set_path(&format!("{}/models", self.base.path().trim_end_matches('/')));
        Box::pin(self.route.reach(check, models))
    }
}

/// What the configuration says about a server of models.
#[derive(Debug)]
struct ModelSettings {
    api: ModelApi,
    base: Url,
    route: RouteSettings,
    model: Option<String>,
    prices: BTreeMap<String, Price>,
}

fn read(members: &mut Members<'_>, api: ModelApi) -> Option<Box<dyn Settings>> {
    let base = base(members, "base");
    let mut route = RouteSettings::read(members);
    if let Some(key) = members.get("key") {
        match SecretPlace::read(key) {
            Ok(key) if api == ModelApi::OpenAi => route.add(AUTHORIZATION, HeaderSource::Bearer(key)),
            Ok(key) => route.add(HeaderName::from_static("x-api-key"), HeaderSource::Secret(key)),
            Err(why) => members.refuse("key", why),
        }
    }
    if api == ModelApi::Anthropic {
        let version = HeaderSource::Plain(HeaderValue::from_static(VERSION));
        route.add(HeaderName::from_static("anthropic-version"), version);
    }
    let model = members.text("model").map(str::to_owned);
    let prices = prices(members, model.as_deref());
    Some(Box::new(ModelSettings { api, base: base?, route, model, prices }))
}

/// The price of the connection's model (`price`), and those of others (`prices`).
fn prices(members: &mut Members<'_>, model: Option<&str>) -> BTreeMap<String, Price> {
    let mut prices = BTreeMap::new();
    if let Some(table) = members.table("prices") {
        for (model, value) in table {
            let at = format!("prices.{model}");
            match value.as_table() {
                Some(table) => {
                    let price = price(members, &at, table);
                    prices.extend(price.map(|price| (model.clone(), price)));
                }
                None => members.refuse(&at, PRICE),
            }
        }
    }
    if let Some(table) = members.table("price") {
        let price = price(members, "price", table);
        match model {
            Some(model) => prices.extend(price.map(|price| (model.to_owned(), price))),
            None => members.refuse("price", "it is the price of the connection's `model`, and there is none"),
        }
    }
    prices
}

const PRICE: &str = "give `{ in = 3.0, out = 15.0 }`, the prices of a million tokens";

fn price(members: &mut Members<'_>, at: &str, table: &toml::Table) -> Option<Price> {
    let mut inside = Members::new(members.path(at), table);
    let mut amount = |name: &'static str| {
        if inside.get(name).is_none() {
            inside.refuse(name, format!("it is missing; {PRICE}"));
        }
        let cost = inside.amount(name).map(Cost::read);
        if cost == Some(None) {
            inside.refuse(name, "the price is too large");
        }
        cost.flatten()
    };
    let (input, output) = (amount("in"), amount("out"));
    members.add(inside.finish());
    Some(Price { input: input?, output: output? })
}

impl Settings for ModelSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let Self { api, base, route, model, prices } = *self;
        Ok(Box::new(ModelTarget { api, base, route: route.open(environment)?, model, prices }))
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str, api: ModelApi) -> Result<Box<dyn Target>, Vec<String>> {
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut members = Members::new("connections.m", &table);
        let settings = read(&mut members, api);
        let problems: Vec<_> = members.finish().iter().map(ToString::to_string).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let environment = |name: &str| (name == "KEY").then(|| "canary-of-a-key".to_owned());
        settings.unwrap().open(&environment).map_err(|problems| vec![format!("{problems:?}")])
    }

    #[test]
    fn keys_are_sent_as_each_api_wants_them_and_never_shown() {
        let text = "base = 'http://127.0.0.1:1/v1'\nkey = { env = 'KEY' }\nmodel = 'm'\nprice = { in = 3, out = 15.0 }";
        for (api, header) in [(ModelApi::OpenAi, "authorization"), (ModelApi::Anthropic, "x-api-key")] {
            let target = settings(text, api).unwrap();
            let any: &dyn std::any::Any = &*target;
            let model: &ModelTarget = any.downcast_ref().unwrap();
            assert!(model.route.headers[header].to_str().unwrap().ends_with("canary-of-a-key"));
            assert_eq!(model.route.headers.contains_key("anthropic-version"), api == ModelApi::Anthropic);
            assert!(model.price("m").is_some() && model.price("n").is_none());
            assert!(!format!("{target:?}").contains("canary"), "{target:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_prices_and_keys_is_told_by_member() {
        let text = "base = 'https://a.example'\nkey = 'canary'\nprice = { in = -1 }\nprices = { x = 7 }";
        let problems = settings(text, ModelApi::OpenAi).unwrap_err().join("\n");
        for member in ["m.key", "m.price.in", "m.price.out", "`connections.m.price`", "m.prices.x"] {
            assert!(problems.contains(member), "{member}: {problems}");
        }
        assert!(!problems.contains("canary"), "{problems}");
    }
}
