//! Senders without an API key: an address delivers to one hook, and a signature says who has sent it.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Method;
use semel::clock::{Clock, SystemClock, Time};
use semel::id::WorkspaceId;
use semel::store::Store;
use semel::testing::ManualClock;
use semel::{Ctx, Engine};
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use semel_server::config::Config;
use semel_server::connections::{Connections, Opening, SystemNames};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::world::{Api, Reply, World, cases};

cases![
    an_address_delivers_to_its_hook_without_a_key,
    an_address_is_created_once_and_shown_once,
    an_address_can_be_revoked_and_expires,
    addresses_belong_to_a_workspace_and_need_permissions,
    a_body_is_json_or_a_form,
    a_standard_webhook_is_verified_and_absorbed,
    a_stripe_event_is_verified_and_absorbed,
    a_github_delivery_is_verified_and_absorbed,
    an_unsigned_request_learns_nothing_about_the_hook,
    a_secret_is_replaced_without_a_gap,
    any_headers_are_answered_with_a_problem,
];

const NOW: i64 = 1_800_000_000;
/// Base64 of `new-secret-of-a-sender`.
const STANDARD_SECRET: &str = "whsec_bmV3LXNlY3JldC1vZi1hLXNlbmRlcg==";

async fn collect(ctx: Ctx, wanted: usize) -> semel::Result<Vec<Value>> {
    let mut hook = ctx.hook::<Value>("payments");
    let mut all = Vec::new();
    while all.len() < wanted {
        all.push(hook.recv().await?);
    }
    Ok(all)
}

/// A run that waits for payloads, and a server at a fixed time, with the secrets of the connections.
struct Receiving {
    api: Api,
    run: String,
    _engine: Engine,
}

/// The first id of a clock. The servers of a test share a store, so they must not give the same ids.
fn fresh_ids() -> u64 {
    static CLOCKS: AtomicU64 = AtomicU64::new(0);
    CLOCKS.fetch_add(1_000_000, Ordering::Relaxed)
}

/// The server's configuration: a connection of the default workspace, with these secrets of its sender.
fn configured(secrets: &[&str]) -> Config {
    let places: Vec<_> = (0..secrets.len()).map(|n| format!("{{ env = 'SECRET_{n}' }}")).collect();
    let secrets =
        if places.is_empty() { String::new() } else { format!("sender-secret = [{}]", places.join(", ")) };
    let text = format!(
        "[connections.sender]\nkind = 'http'\nbase = 'https://sender.example'\nworkspaces = ['{}']\n{secrets}",
        WorkspaceId::DEFAULT
    );
    toml::from_str(&text).unwrap()
}

fn app(store: Arc<dyn Store>, now: i64, secrets: &'static [&'static str]) -> App {
    let environment =
        |name: &str| Some(secrets[name.strip_prefix("SECRET_")?.parse::<usize>().ok()?].to_owned());
    let config = configured(secrets);
    let names = Arc::new(SystemNames);
    let opening = Opening { config: &config, store: store.clone(), environment: &environment, names };
    App {
        connections: Some(Arc::new(Connections::open_with(opening).unwrap())),
        ..App::open(store, Arc::new(ManualClock::new(Time(now * 1_000), fresh_ids())))
    }
}

async fn api(world: &World, now: i64, secrets: &'static [&'static str]) -> Api {
    let caller = Caller::new(WorkspaceId::DEFAULT, "ops", vec![Permission::Admin]);
    Api::serve_as(app(world.store.clone(), now, secrets), caller).await
}

async fn receiving(world: &World, wanted: usize, secrets: &'static [&'static str]) -> Receiving {
    let engine = world.engine(|builder| builder.workflow("collect", collect)).await;
    let run = world.client.start("collect", "k", &wanted.to_string()).await;
    world.client.reached(&run, "WAITING").await;
    Receiving { api: api(world, NOW, secrets).await, run, _engine: engine }
}

impl Receiving {
    /// Creates an address; gives its path.
    async fn address(&self, asked: Value) -> String {
        let made = self.api.post("/hooks/payments/address", asked.to_string()).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.json()["path"].as_str().unwrap().to_owned()
    }

    async fn signed_address(&self, scheme: &str) -> String {
        self.address(json!({"verify": {"scheme": scheme, "connection": "sender"}})).await
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = self.api.outside(Method::POST, path).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Reply::of(request).await
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn an_address_delivers_to_its_hook_without_a_key(world: World) {
    let receiving = receiving(&world, 2, &[]).await;
    let path = receiving.address(json!({})).await;
    assert!(path.starts_with("/in/") && path.len() > 60, "{path}");
    let first = receiving.send(&path, &[("idempotency-key", "d1")], r#"{"n": 1.10}"#).await;
    assert_eq!((first.ok(), first.is_replayed()), (json!({"absorbed": false}), false));
    let again = receiving.send(&format!("{path}?deliveryId=d1&utm=x"), &[], r#"{"n": 1.10}"#).await;
    assert_eq!((again.ok(), again.is_replayed()), (json!({"absorbed": true}), true));
    receiving.send(&path, &[("idempotency-key", "d1")], "2").await.problem(422, "KEY_REUSED");
    receiving.send(&path, &[], "").await.ok();
    let result = world.client.ended(&receiving.run).await["result"].clone();
    assert_eq!(result, json!([{"n": 1.1}, null]));
    let problem = receiving.send(&path, &[], "3").await.problem(404, "HOOK_NOT_FOUND");
    assert!(!problem["detail"].as_str().unwrap().contains("payments"), "{problem}");
}

async fn an_address_is_created_once_and_shown_once(world: World) {
    let receiving = receiving(&world, 1, &[]).await;
    let create = async |token: &str, body: &str| {
        receiving.api.post_as("c1", &format!("/hooks/{token}/address"), body).await
    };
    let (first, second) = (create("payments", "{}").await, create("payments", "{}").await);
    assert_eq!((first.status, second.status, second.is_replayed()), (201, 200, true));
    assert_eq!((&first.json()["id"], &second.json()["path"]), (&second.json()["id"], &Value::Null));
    create("other", "{}").await.problem(422, "KEY_REUSED");
    let path = first.json()["path"].as_str().unwrap().to_owned();
    let (start, secret) = path.split_once('_').unwrap();
    let listed = receiving.api.get("/hook-addresses").await;
    assert_eq!(listed.ok()["addresses"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&listed.ok()["addresses"][0]["token"], &listed.ok()["addresses"][0]["createdBy"]),
        (&json!("payments"), &json!("ops"))
    );
    assert!(!listed.text.contains(secret) && !listed.text.contains("hash"), "{}", listed.text);
    let other = secret.replace(secret.chars().last().unwrap(), "!");
    for wrong in [format!("{start}_{other}"), format!("{start}_"), start.to_owned(), "/in/x_y".to_owned()] {
        receiving.send(&wrong, &[], "1").await.problem(404, "NOT_FOUND");
    }
    receiving.send(&path, &[], "1").await.ok();
    for wrong in [
        r#"{"expiresAt": "2000-01-01T00:00:00Z"}"#,
        r#"{"expiresAt": "2190-01-01T00:00:00Z"}"#,
        r#"{"expiresAt": "soon"}"#,
        r#"{"verify": {"scheme": "md5", "connection": "sender"}}"#,
        r#"{"verify": {"scheme": "stripe", "connection": "unknown"}}"#,
        r#"{"verify": {"scheme": "stripe"}}"#,
        r#"{"expires": "30d"}"#,
    ] {
        receiving.api.post("/hooks/payments/address", wrong).await.problem(400, "VALIDATION_ERROR");
    }
}

async fn an_address_can_be_revoked_and_expires(world: World) {
    let receiving = receiving(&world, 9, &[]).await;
    let path = receiving.address(json!({})).await;
    let made = receiving.api.get("/hook-addresses").await.ok()["addresses"][0].clone();
    receiving.send(&path, &[], "1").await.ok();
    let later = api(&world, NOW + 29 * 86_400, &[]).await;
    Reply::of(later.outside(Method::POST, &path).body("2")).await.ok();
    let late = api(&world, NOW + 30 * 86_400, &[]).await;
    Reply::of(late.outside(Method::POST, &path).body("3")).await.problem(404, "NOT_FOUND");
    let place = format!("/hook-addresses/{}", made["id"].as_str().unwrap());
    let revoked = receiving.api.delete(&place).await;
    assert!(revoked.ok()["revokedAt"].is_string() && !revoked.is_replayed());
    let again = receiving.api.delete(&place).await;
    assert_eq!((again.is_replayed(), again.ok()), (true, revoked.ok()));
    receiving.send(&path, &[], "4").await.problem(404, "NOT_FOUND");
    assert_eq!(
        receiving.api.get("/hook-addresses").await.ok()["addresses"][0]["revokedAt"],
        revoked.ok()["revokedAt"]
    );
    receiving.api.delete("/hook-addresses/nonsense").await.problem(404, "NOT_FOUND");
}

async fn addresses_belong_to_a_workspace_and_need_permissions(world: World) {
    let receiving = receiving(&world, 1, &["secret"]).await;
    receiving.address(json!({})).await;
    let id = receiving.api.get("/hook-addresses").await.ok()["addresses"][0]["id"].clone();
    let place = format!("/hook-addresses/{}", id.as_str().unwrap());
    let elsewhere = Caller::new(WorkspaceId(SystemClock::new().uuid()), "spy", vec![Permission::Admin]);
    let spy = Api::serve_as(app(world.store.clone(), NOW, &["secret"]), elsewhere).await;
    assert_eq!(spy.get("/hook-addresses").await.ok()["addresses"], json!([]));
    spy.delete(&place).await.problem(404, "NOT_FOUND");
    // A connection is open to some workspaces, and to the others it does not exist.
    let verify = r#"{"verify": {"scheme": "stripe", "connection": "sender"}}"#;
    spy.post("/hooks/payments/address", verify).await.problem(400, "VALIDATION_ERROR");
    // An address of another workspace with the same token delivers to its own hook, which is not open.
    let foreign = spy.post("/hooks/payments/address", "{}").await.ok();
    let foreign = foreign["path"].as_str().unwrap().to_owned();
    receiving.send(&foreign, &[], "1").await.problem(404, "HOOK_NOT_FOUND");
    let reader = Caller::new(WorkspaceId::DEFAULT, "reader", vec![Permission::Read]);
    let reader = Api::serve_as(app(world.store.clone(), NOW, &[]), reader).await;
    reader.post("/hooks/payments/address", "{}").await.problem(403, "FORBIDDEN");
    reader.delete(&place).await.problem(403, "FORBIDDEN");
    assert_eq!(reader.get("/hook-addresses").await.ok()["addresses"][0]["id"], id);
    let starter = Caller::new(WorkspaceId::DEFAULT, "starter", vec![Permission::Start]);
    let starter = Api::serve_as(app(world.store.clone(), NOW, &[]), starter).await;
    starter.get("/hook-addresses").await.problem(403, "FORBIDDEN");
    starter.delete(&place).await.ok();
}

async fn a_body_is_json_or_a_form(world: World) {
    let receiving = receiving(&world, 2, &[]).await;
    let path = receiving.address(json!({})).await;
    for wrong in ["<xml/>", "a=1", "{", r#"{"a":1,"a":2}"#, "\u{0}"] {
        receiving.send(&path, &[], wrong).await.problem(400, "VALIDATION_ERROR");
    }
    let large = format!("\"{}\"", "x".repeat(2 * 1024 * 1024));
    receiving.send(&path, &[], &large).await.problem(413, "PAYLOAD_TOO_LARGE");
    let form = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    receiving.send(&path, &form, "From=%2B41&Body=hi+there&tag=a&tag=b").await.ok();
    receiving.send(&path, &[("content-type", "text/plain")], " [1] ").await.ok();
    let result = world.client.ended(&receiving.run).await["result"].clone();
    assert_eq!(result, json!([{"From": "+41", "Body": "hi there", "tag": ["a", "b"]}, [1]]));
}

/// The headers of Standard Webhooks.
pub(crate) fn standard(secret: &str, id: &str, at: i64, body: &str) -> Vec<(&'static str, String)> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let signature = STANDARD.encode(mac(&key, &format!("{id}.{at}.{body}")));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", format!("v1,{signature}")),
    ]
}

pub(crate) fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

async fn a_standard_webhook_is_verified_and_absorbed(world: World) {
    let receiving = receiving(&world, 2, &[STANDARD_SECRET]).await;
    let path = receiving.signed_address("standard-webhooks").await;
    let send = async |id: &str, at: i64, signed: &str, body: &str| {
        receiving.send(&path, &borrowed(&standard(STANDARD_SECRET, id, at, signed)), body).await
    };
    assert!(!send("msg_1", NOW - 299, "1", "1").await.is_replayed());
    // The sender repeats it later, with another time and signature.
    let again = send("msg_1", NOW + 120, "1", "1").await;
    assert_eq!((again.is_replayed(), again.ok()), (true, json!({"absorbed": true})));
    for (id, at, signed, body) in
        [("msg_2", NOW, "1", "2"), ("msg_2", NOW - 301, "2", "2"), ("msg_2", NOW + 301, "2", "2")]
    {
        send(id, at, signed, body).await.problem(401, "AUTH_ERROR");
    }
    let other = standard("whsec_b3RoZXI=", "msg_2", NOW, "2");
    receiving.send(&path, &borrowed(&other), "2").await.problem(401, "AUTH_ERROR");
    send("msg_2", NOW, "2", "2").await.ok();
    assert_eq!(world.client.ended(&receiving.run).await["result"], json!([1, 2]));
    assert!(send("msg_2", NOW, "2", "2").await.is_replayed(), "also when the hook is closed");
}

async fn a_stripe_event_is_verified_and_absorbed(world: World) {
    let receiving = receiving(&world, 2, &["whsec_stripe"]).await;
    let path = receiving.signed_address("stripe").await;
    let header = |key: &str, at: i64, body: &str| {
        format!("t={at},v1={}", hex(&mac(key.as_bytes(), &format!("{at}.{body}"))))
    };
    let send = async |header: String, body: &str| {
        receiving.send(&path, &[("stripe-signature", &header)], body).await
    };
    let event = r#"{"id": "evt_1", "pending_webhooks": 2}"#;
    assert!(!send(header("whsec_stripe", NOW, event), event).await.is_replayed());
    assert!(send(header("whsec_stripe", NOW + 60, event), event).await.is_replayed());
    // Stripe counts down in what it sends again: it is the same event.
    let changed = r#"{"id": "evt_1", "pending_webhooks": 1}"#;
    assert!(send(header("whsec_stripe", NOW + 90, changed), changed).await.is_replayed());
    send(header("whsec_stripe", NOW - 301, event), event).await.problem(401, "AUTH_ERROR");
    send(header("whsec_other", NOW, event), event).await.problem(401, "AUTH_ERROR");
    send(header("whsec_stripe", NOW, event), changed).await.problem(401, "AUTH_ERROR");
    let second = r#"{"id": "evt_2"}"#;
    send(header("whsec_stripe", NOW, second), second).await.ok();
    let result = world.client.ended(&receiving.run).await["result"].clone();
    assert_eq!((&result[0]["pending_webhooks"], &result[1]["id"]), (&json!(2), &json!("evt_2")));
}

async fn a_github_delivery_is_verified_and_absorbed(world: World) {
    let receiving = receiving(&world, 2, &["the secret of a repository"]).await;
    let path = receiving.signed_address("github").await;
    let send = async |key: &str, id: &str, signed: &str, body: &str| {
        let signature = format!("sha256={}", hex(&mac(key.as_bytes(), signed)));
        let headers = [("x-hub-signature-256", signature.as_str()), ("x-github-delivery", id)];
        receiving.send(&path, &headers, body).await
    };
    let right = "the secret of a repository";
    assert!(!send(right, "d-1", r#"{"n":1}"#, r#"{"n":1}"#).await.is_replayed());
    assert!(send(right, "d-1", r#"{"n":1}"#, r#"{"n":1}"#).await.is_replayed());
    send("wrong", "d-2", "2", "2").await.problem(401, "AUTH_ERROR");
    send(right, "d-2", "2", "3").await.problem(401, "AUTH_ERROR");
    send(right, "d-2", "2", "2").await.ok();
    assert_eq!(world.client.ended(&receiving.run).await["result"], json!([{"n": 1}, 2]));
}

async fn an_unsigned_request_learns_nothing_about_the_hook(world: World) {
    let receiving = receiving(&world, 1, &[STANDARD_SECRET]).await;
    let open = receiving.signed_address("standard-webhooks").await;
    let asked = json!({"verify": {"scheme": "standard-webhooks", "connection": "sender"}});
    let made = receiving.api.post("/hooks/nothing-there/address", asked.to_string()).await.ok();
    let closed = made["path"].as_str().unwrap().to_owned();
    let told = [&open, &closed].map(|path| receiving.send(path, &[], "not even JSON"));
    let told = futures_util::future::join_all(told).await;
    assert_eq!(told[0].problem(401, "AUTH_ERROR"), told[1].problem(401, "AUTH_ERROR"));
    let right = standard(STANDARD_SECRET, "m", NOW, "1");
    receiving.send(&closed, &borrowed(&right), "1").await.problem(404, "HOOK_NOT_FOUND");
    // The connection has lost its secret: the sender is told to try again, and nothing is accepted.
    let without = api(&world, NOW, &[]).await;
    let unverified = without.outside(Method::POST, &open).body("1").send().await.unwrap();
    assert_eq!(unverified.status().as_u16(), 503);
}

async fn a_secret_is_replaced_without_a_gap(world: World) {
    const OLD: &str = "whsec_b2xkLXNlY3JldC1vZi1hLXNlbmRlcg==";
    let receiving = receiving(&world, 9, &[OLD, STANDARD_SECRET]).await;
    let path = receiving.signed_address("standard-webhooks").await;
    for secret in [OLD, STANDARD_SECRET] {
        let signed = standard(secret, secret, NOW, "1");
        receiving.send(&path, &borrowed(&signed), "1").await.ok();
    }
    // A secret that is no base64 is taken as it is.
    let plain = "a text that is no base64!";
    let taken = api(&world, NOW, &["a text that is no base64!"]).await;
    let signature = STANDARD.encode(mac(plain.as_bytes(), &format!("p.{NOW}.1")));
    let mut request = taken.outside(Method::POST, &path).body("1");
    for (name, value) in [
        ("webhook-id", "p".to_owned()),
        ("webhook-timestamp", NOW.to_string()),
        ("webhook-signature", format!("v1,{signature}")),
    ] {
        request = request.header(name, value);
    }
    Reply::of(request).await.ok();
    // The sender signs with both while it replaces its own.
    let (mut old, new) =
        (standard("whsec_b3RoZXI=", "m", NOW, "1"), standard(STANDARD_SECRET, "m", NOW, "1"));
    old[2].1 = format!("{} {}", old[2].1, new[2].1);
    receiving.send(&path, &borrowed(&old), "1").await.ok();
    let replaced = api(&world, NOW, &[STANDARD_SECRET]).await;
    let mut request = replaced.outside(Method::POST, &path).body("1");
    for (name, value) in standard(OLD, "n", NOW, "1") {
        request = request.header(name, value);
    }
    Reply::of(request).await.problem(401, "AUTH_ERROR");
}

async fn any_headers_are_answered_with_a_problem(world: World) {
    let receiving = receiving(&world, 1, &[STANDARD_SECRET]).await;
    let names =
        ["webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x-hub-signature-256"];
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let pieces =
        ["v1,", "t=", "v1=", "sha256=", ",", "=", " ", "0", "ff", "é", "1800000000", "x", "==", "-1"];
    for scheme in ["standard-webhooks", "stripe", "github"] {
        let path = receiving.signed_address(scheme).await;
        for _ in 0..60 {
            let mut request = receiving.api.outside(Method::POST, &path).body("1");
            for _ in 0..next() % 6 {
                let value: String = (0..next() % 12).map(|_| pieces[next() % pieces.len()]).collect();
                let value = reqwest::header::HeaderValue::from_bytes(value.as_bytes()).unwrap();
                request = request.header(names[next() % names.len()], value);
            }
            Reply::of(request).await.problem(401, "AUTH_ERROR");
        }
    }
    let path = receiving.address(json!({})).await;
    for wrong in ["", " ", "\"", "\"a", &"x".repeat(256)] {
        receiving.send(&path, &[("idempotency-key", wrong)], "1").await.problem(400, "VALIDATION_ERROR");
    }
}
