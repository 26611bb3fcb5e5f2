//! Secrets of connections: where they are, and how they are kept out of everything that is recorded, logged or answered.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use toml::Value;

use crate::config::Secret;

/// Where the operator keeps a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SecretPlace {
    /// The name of a variable of the environment.
    Env(String),
    /// The path of a file.
    File(PathBuf),
}

impl SecretPlace {
    /// Reads `{env = "…"}` or `{file = "…"}`. A secret itself is refused.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        const HOW: &str = "write `{ env = \"NAME\" }` or `{ file = \"/path\" }`";
        let Some(table) = value.as_table() else {
            return Err(format!("a secret does not stand in the configuration file itself; {HOW}"));
        };
        let mut members = table.iter();
        match (members.next(), members.next()) {
            (Some((name, Value::String(text))), None) if !text.is_empty() => match name.as_str() {
                "env" => Ok(Self::Env(text.clone())),
                "file" => Ok(Self::File(text.into())),
                _ => Err(format!("`{name}` is not known here; {HOW}")),
            },
            _ => Err(format!("a secret has one place; {HOW}")),
        }
    }

    /// Fetches the secret, without the line end that a file has.
    pub(super) fn fetch(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Secret, String> {
        let text = match self {
            Self::Env(name) => environment(name)
                .ok_or_else(|| format!("the variable {name} is not set in the server's environment"))?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("the file {} cannot be read: {error}", path.display()))?,
        };
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return Err(format!("{self} is empty"));
        }
        Ok(Secret::new(text))
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

/// Fetches the secrets of these members, as far as they are given, and hides them. The error names the members whose secrets are
/// missing.
#[cfg(any(feature = "nats", feature = "redis"))]
pub(super) fn fetch_all<const N: usize>(
    places: [(&str, &Option<SecretPlace>); N],
    environment: &dyn Fn(&str) -> Option<String>,
    redactor: &mut Redactor,
) -> Result<[Option<String>; N], Vec<(String, String)>> {
    let mut problems = Vec::new();
    let fetched = places.map(|(member, place)| match place.as_ref()?.fetch(environment) {
        Ok(secret) => {
            redactor.hide(secret.expose());
            Some(secret.expose().to_owned())
        }
        Err(why) => {
            problems.push((member.to_owned(), why));
            None
        }
    });
    if problems.is_empty() { Ok(fetched) } else { Err(problems) }
}

/// Minimum length of a secret that is replaced: a shorter one would occur by chance, and black out what is none.
const SHORTEST: usize = 4;
/// What stands in the place of a secret.
const BLACK: &str = "***";

/// Replaces secrets in texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The texts to replace, the longest first.
    needles: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} texts)", self.needles.len())
    }
}

impl Redactor {
    /// Also replaces this secret, and the forms in which others write it.
    pub(super) fn hide(&mut self, secret: &str) {
        if secret.len() < SHORTEST {
            return;
        }
        let as_json = Json::String(secret.to_owned()).to_string();
        let in_address: String = crate::connections::encoded(secret);
        let base64 = STANDARD.encode(secret);
        let unpadded = base64.trim_end_matches('=').to_owned();
        let forms =
            [secret.to_owned(), as_json[1..as_json.len() - 1].to_owned(), in_address, base64, unpadded];
        self.needles.extend(forms);
        self.needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.needles.dedup();
    }

    /// The text without secrets.
    pub fn text(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for needle in &self.needles {
            if clean.contains(needle.as_str()) {
                clean = clean.replace(needle.as_str(), BLACK);
            }
        }
        clean
    }

    /// Whether a text is free of secrets.
    pub fn is_clean(&self, text: &str) -> bool {
        !self.needles.iter().any(|needle| text.contains(needle.as_str()))
    }

    /// The JSON value without secrets, in whatever way its text had escaped them.
    pub fn json(&self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.text(&text)),
            Json::Number(number) if !self.is_clean(&number.to_string()) => Json::String(BLACK.to_owned()),
            Json::Array(items) => items.into_iter().map(|item| self.json(item)).collect(),
            Json::Object(members) => {
                members.into_iter().map(|(name, value)| (self.text(&name), self.json(value))).collect()
            }
            plain => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(text: &str) -> Result<SecretPlace, String> {
        let table: toml::Table = toml::from_str(&format!("secret = {text}")).unwrap();
        SecretPlace::read(&table["secret"])
    }

    #[test]
    fn a_secret_in_the_file_itself_is_refused_with_what_to_write() {
        assert_eq!(place("{ env = 'KEY' }"), Ok(SecretPlace::Env("KEY".to_owned())));
        assert_eq!(place("{ file = '/run/key' }"), Ok(SecretPlace::File("/run/key".into())));
        for text in [
            "'sk_live_canary'",
            "{}",
            "{ env = '' }",
            "{ env = 'A', file = 'b' }",
            "{ value = 'canary' }",
            "7",
        ] {
            let refused = place(text).unwrap_err();
            assert!(
                refused.contains("{ env = \"NAME\" }") && !refused.contains("canary"),
                "{text}: {refused}"
            );
        }
    }

    #[test]
    fn a_missing_or_empty_secret_is_told_by_its_place() {
        let environment = |name: &str| (name == "EMPTY").then(|| " \n".to_owned());
        for (place, said) in [
            (SecretPlace::Env("ABSENT".to_owned()), "ABSENT"),
            (SecretPlace::Env("EMPTY".to_owned()), "is empty"),
            (SecretPlace::File("no/such/file".into()), "no/such/file"),
        ] {
            let refused = place.fetch(&environment).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn no_form_of_a_secret_stays_in_an_answer() {
        let mut redactor = Redactor::default();
        redactor.hide("c4n\"ry/ü");
        redactor.hide("123");
        let echoed = json!({"a": ["x c4n\"ry/ü y"], "c4n\"ry/ü": 123, "c": "c4n%22ry%2F%C3%BC"});
        assert_eq!(redactor.json(echoed), json!({"a": ["x *** y"], "***": 123, "c": "***"}));
        assert!(!redactor.is_clean(r#"{"a":"c4n\"ry/ü"}"#), "as JSON writes it");
        let escaped: Json = serde_json::from_str(r#""c4n\"ry\/\u00fc""#).unwrap();
        assert_eq!(redactor.json(escaped), json!("***"));
        redactor.hide("4242");
        assert_eq!(redactor.json(json!({"pin": 14242})), json!({"pin": "***"}));
        assert_eq!(format!("{redactor:?}").matches("c4n").count(), 0);
    }
}
