//! The environment: each key of the file has a variable.

use crate::serve::Error;

/// Each key of the file with its variable: `limits.rate` is `SEMEL_LIMITS_RATE`.
pub const KEYS: [(&str, &str); 25] = [
    ("listen", "SEMEL_LISTEN"),
    // Shorter, because it is set by hand.
    ("store.address", "SEMEL_STORE"),
    ("store.schema", "SEMEL_STORE_SCHEMA"),
    ("store.connections", "SEMEL_STORE_CONNECTIONS"),
    ("auth", "SEMEL_AUTH"),
    ("root-token", "SEMEL_ROOT_TOKEN"),
    ("tls.cert", "SEMEL_TLS_CERT"),
    ("tls.key", "SEMEL_TLS_KEY"),
    ("log.format", "SEMEL_LOG_FORMAT"),
    // Shorter, because it is set by hand.
    ("log.filter", "SEMEL_LOG"),
    ("metrics.listen", "SEMEL_METRICS_LISTEN"),
    ("metrics.token", "SEMEL_METRICS_TOKEN"),
    ("cors.origins", "SEMEL_CORS_ORIGINS"),
    ("limits.connections", "SEMEL_LIMITS_CONNECTIONS"),
    ("limits.header-timeout", "SEMEL_LIMITS_HEADER_TIMEOUT"),
    ("limits.request-timeout", "SEMEL_LIMITS_REQUEST_TIMEOUT"),
    ("limits.drain", "SEMEL_LIMITS_DRAIN"),
    ("limits.rate", "SEMEL_LIMITS_RATE"),
    ("limits.streams", "SEMEL_LIMITS_STREAMS"),
    ("limits.max-open-runs", "SEMEL_LIMITS_MAX_OPEN_RUNS"),
    ("otel.endpoint", "SEMEL_OTEL_ENDPOINT"),
    ("http.allow", "SEMEL_HTTP_ALLOW"),
    ("http.deny", "SEMEL_HTTP_DENY"),
    ("demo", "SEMEL_DEMO"),
    ("config", "SEMEL_CONFIG"),
];

/// Variables of others: the client's settings, tests, and what Kubernetes sets for a service that is named `semel`.
const OTHERS: [&str; 6] =
    ["SEMEL_URL", "SEMEL_TOKEN", "SEMEL_TEST_", "SEMEL_SEED", "SEMEL_SERVICE_", "SEMEL_PORT"];

/// What the environment says, by the keys of the file.
pub(super) fn settings(
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Vec<(&'static str, String)>, Error> {
    let mut settings = Vec::new();
    for (name, value) in environment.filter(|(name, _)| name.starts_with("SEMEL_")) {
        match KEYS.iter().find(|(_, variable)| *variable == name) {
            // Which file to read is decided before it is read.
            Some(("config", _)) => {}
            Some((key, _)) => settings.push((*key, value)),
            None if OTHERS.iter().any(|other| name.starts_with(other)) => {}
            #[cfg(feature = "sabotage")]
            None if name == semel::sabotage::VARIABLE => {}
            None => {
                let known = KEYS.map(|(_, variable)| variable).join(", ");
                return Err(Error::Config(format!(
                    "{name} is not a setting: remove it, or use one of {known}"
                )));
            }
        }
    }
    Ok(settings)
}
