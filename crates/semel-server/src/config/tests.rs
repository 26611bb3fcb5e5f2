use super::*;

fn load(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("semel.toml");
    std::fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(Some(&path), environment, flags.iter().map(|(key, value)| (*key, (*value).to_owned())))
}

fn refusal(file: &str, environment: &[(&str, &str)]) -> String {
    load(file, environment, &[]).expect_err("it must be refused").to_string()
}

#[test]
fn flags_beat_the_environment_and_the_environment_beats_the_file() {
    let file = "listen = '127.0.0.1:1'\nstore = 'memory:'\n[limits]\nrate = 1\nconnections = 7\n";
    let environment = [("SEMEL_LISTEN", "127.0.0.1:2"), ("SEMEL_LIMITS_RATE", "2"), ("HOME", "/")];
    let config = load(file, &environment, &[("listen", "127.0.0.1:3")]).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!((config.limits.rate, config.limits.connections), (2, 7));
    assert_eq!(config.store.expose(), "memory:");
    assert_eq!(config.limits.drain, Duration::from_secs(20));
}

#[test]
fn every_key_has_a_variable_that_is_understood() {
    let sample = |key: &str| match key {
        "listen" | "metrics.listen" => "127.0.0.1:80",
        "auth" => "keys",
        "root-token" | "metrics.token" => "0123456789abcdef",
        "log.format" => "json",
        "store.address" => "postgres://host/db",
        "store.connections"
        | "limits.connections"
        | "limits.rate"
        | "limits.streams"
        | "limits.max-open-runs" => "5",
        "limits.header-timeout" | "limits.request-timeout" | "limits.drain" => "5s",
        "demo" => "true",
        _ => "text",
    };
    let environment: Vec<_> = KEYS.iter().map(|(key, variable)| (*variable, sample(key))).collect();
    let config = load("", &environment, &[]).unwrap();
    assert_eq!(config.cors.origins, ["text"]);
    assert!(config.demo && config.tls.is_some() && config.root_token.is_some());
}

#[test]
fn the_schema_and_the_connections_of_postgresql_are_settings() {
    let file = "[store]\naddress = 'postgres://me:canary@host/db'\nschema = 'shop'\nconnections = 4\n";
    let of = |config: &Config| {
        let store = &config.store;
        (store.expose().to_owned(), store.schema().map(str::to_owned), store.connections())
    };
    let address = "postgres://me:canary@host/db".to_owned();
    let config = load(file, &[], &[]).unwrap();
    assert_eq!(of(&config), (address.clone(), Some("shop".to_owned()), Some(4)));
    let shown = config.shown();
    assert!(!shown.contains("canary"), "{shown}");
    let again = load(&shown, &[], &[("store.address", &address)]).unwrap();
    assert_eq!(of(&again), of(&config));

    let plain = format!("store = '{address}'");
    let environment = [("SEMEL_STORE_SCHEMA", "till"), ("SEMEL_STORE_CONNECTIONS", "5")];
    assert_eq!(of(&load(&plain, &environment, &[]).unwrap()), (address, Some("till".to_owned()), Some(5)));
    let elsewhere = load(file, &[("SEMEL_STORE", "postgres://other/db")], &[]).unwrap();
    assert_eq!(of(&elsewhere), ("postgres://other/db".to_owned(), Some("shop".to_owned()), Some(4)));
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    assert!(refusal("lisen = 'x'", &[]).contains("lisen"));
    assert!(refusal("[limits]\nrat = 1", &[]).contains("rat"));
    assert!(refusal("", &[("SEMEL_LISEN", "x")]).contains("SEMEL_LISEN"));
    assert!(load("", &[("SEMEL_URL", "x"), ("SEMEL_SERVICE_HOST", "x")], &[]).is_ok());
}

#[test]
fn a_wrong_value_is_refused_with_its_key() {
    for (file, key) in [
        ("listen = 'nowhere'", "listen"),
        ("[limits]\nrate = 'many'", "rate"),
        ("[limits]\ndrain = 'long'", "drain"),
        ("[tls]\ncert = 'c.pem'", "key"),
        ("auth = 'maybe'", "auth"),
        ("[limits]\nconnections = 0", "limits.connections"),
        ("root-token = 'short'", "root-token"),
        (&format!("root-token = '{}'", "a".repeat(super::LONGEST_TOKEN + 1)), "root-token"),
        ("[metrics]\ntoken = 'short'", "metrics.token"),
        ("store = 'http://127.0.0.1:7700'", "store"),
        ("store = 7", "store"),
        ("[store]\naddress = 'postgres://host/db'\nschemas = 'shop'", "schemas"),
        ("[store]\naddress = 'postgres://host/db'\nconnections = 0", "store.connections"),
        ("[store]\naddress = 'postgres://host/db'\nconnections = 'many'", "connections"),
        ("[store]\nschema = 'shop'", "address"),
        ("[store]\naddress = 'sqlite:semel.db'\nschema = 'shop'", "store.schema"),
        ("[store]\naddress = 'memory:'\nconnections = 4", "store.connections"),
    ] {
        let said = refusal(file, &[]);
        assert!(said.contains(key), "{file:?} was refused by {said:?}");
    }
    let said = refusal("", &[("SEMEL_LIMITS_DRAIN", "long")]);
    assert!(said.contains("drain") && said.contains("long"), "{said:?}");
}

#[test]
fn a_public_address_without_auth_is_refused_with_what_to_do() {
    let said = refusal("listen = '0.0.0.0:7700'\nauth = 'none'", &[]);
    assert!(said.contains("SEMEL_ROOT_TOKEN") && said.contains("127.0.0.1"), "{said}");
    assert!(load("auth = 'none'", &[], &[]).is_ok());
    assert!(load("listen = '0.0.0.0:7700'", &[], &[]).is_ok());
}

#[test]
fn a_shown_configuration_hides_its_secrets_and_can_be_read() {
    let file = "store = 'postgres://me:canary@host/db'\nroot-token = 'canary-canary-canary'\n\
         [metrics]\ntoken = 'canary-canary-canary'";
    let shown = load(file, &[], &[]).unwrap().shown();
    assert!(!shown.contains("canary"), "{shown}");
    assert!(
        load(&shown, &[], &[("root-token", "0123456789abcdef"), ("metrics.token", "0123456789abcdef")])
            .is_ok(),
        "{shown}"
    );
}

#[test]
fn a_broken_file_is_refused_by_line_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("semel.toml");
    for line in ["root-token = c4n4ry-c4n4ry-c4n4ry", "store = postgres://semel:c4n4ry@db/semel"] {
        std::fs::write(&path, format!("listen = \"127.0.0.1:7700\"\n{line}\n")).unwrap();
        let refused =
            Config::load(Some(&path), std::iter::empty(), std::iter::empty()).unwrap_err().to_string();
        assert!(refused.contains("line 2") && !refused.contains("c4n4ry"), "{refused}");
    }
}
