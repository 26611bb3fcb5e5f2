use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Profile, Vec<ConnectionProblem>> {
    let table: Table = toml::from_str(&format!("profile = {text}")).unwrap();
    Profile::read("connections.a.profile", &table["profile"])
}

fn key_of(profile: Profile) -> KeyProfile {
    match profile.by {
        By::Key(key) => key,
        other => panic!("{other:?} is no key"),
    }
}

#[test]
fn every_built_in_profile_is_as_its_page_says() {
    let expected = [
        ("aws-sms-voice", "", ""),
        ("brevo", "key, 15m", "keyed-in-window"),
        ("connect", "", ""),
        ("mailgun", "nothing", "at-most-once"),
        ("postmark", "look-up", "reconcile"),
        ("resend", "key, 24h", "keyed-in-window"),
        ("sendgrid", "nothing", "at-most-once"),
        ("ses", "", ""),
        ("sinch", "key, 10m", "keyed-in-window"),
        ("sinch-sms", "nothing", "at-most-once"),
        ("sparkpost", "key, 24h", "keyed-in-window"),
        ("stripe", "key, 24h", "keyed-in-window"),
        ("telnyx", "key, 24h", "keyed-in-window"),
        ("telnyx-sms", "nothing", "at-most-once"),
        ("twilio", "nothing", "at-most-once"),
        ("vonage", "nothing", "at-most-once"),
    ];
    assert_eq!(
        expected.map(|(name, ..)| name),
        BUILT_IN.map(|(name, _)| name),
        "the table names all of them"
    );
    for (name, by, class) in expected.into_iter().filter(|(_, by, _)| !by.is_empty()) {
        let profile = read(&format!("'{name}'")).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        assert_eq!(profile.summary(), format!("{name} ({by})"));
        assert_eq!(profile.class(), class, "{name}");
    }
    for (name, text) in BUILT_IN {
        let table: Table = toml::from_str(text).unwrap();
        let text = |member: &str| table.get(member).and_then(Value::as_str).unwrap_or_default();
        assert!(text("source").starts_with("https://"), "{name} says where its knowledge is from");
        assert!(text("read").starts_with("2026-") && text("about").len() > 10, "{name}");
    }
}

#[test]
fn a_provider_that_cannot_be_called_is_refused_with_what_to_do_instead() {
    for (name, instead) in
        [("ses", "kind `smtp`"), ("aws-sms-voice", "by = \"nothing\""), ("connect", "/ClientToken")]
    {
        let problems = read(&format!("'{name}'")).unwrap_err();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.member, "connections.a.profile");
        let told = &problem.message;
        assert!(told.contains("Signature Version 4") && told.contains(instead), "{problem}");
    }
}

/// A message with everything that an argument can say.
fn full(channel: Channel) -> Json {
    let address = |email: &str, name: Option<&str>| json!({"email": email, "name": name});
    match channel {
        Channel::Mail => json!({
            "from": address("shop@x.example", Some("Shop")), "from_text": "Shop <shop@x.example>",
            "to": [address("a@x.example", None), address("b@x.example", Some("B"))],
            "to_text": ["a@x.example", "B <b@x.example>"],
            "cc": [address("c@x.example", None)], "cc_text": ["c@x.example"],
            "bcc": [address("d@x.example", None)], "bcc_text": ["d@x.example"],
            "reply_to": [address("r@x.example", None)], "reply_to_text": ["r@x.example"],
            "subject": "S {{ 7 }}", "text": "T", "html": "<p>", "headers": {"X-A": "1"},
            "attachments": [{"name": "f.txt", "type": "text/plain", "content": "Zg=="}],
        }),
        Channel::Sms => json!({"from": "+41440000000", "to": "+41791234567", "text": "T & {{ 7 }}"}),
        Channel::Call => json!({
            "from": "+41440000000", "to": "+41791234567", "text": "1 < 2", "text_xml": "1 &lt; 2",
            "language": "de-CH", "voice": "Vicki",
        }),
    }
}

/// The same message with no more than it needs.
fn small(channel: Channel) -> Json {
    let Json::Object(mut members) = full(channel) else { unreachable!("a message is an object") };
    let needed = ["from", "from_text", "to", "to_text", "subject", "text", "text_xml"];
    members
        .iter_mut()
        .filter(|(name, _)| !needed.contains(&name.as_str()))
        .for_each(|(_, value)| *value = Json::Null);
    Json::Object(members)
}

#[test]
fn a_message_becomes_the_request_that_the_providers_page_shows() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/connections/profile/requests.json");
    let expected: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut made = serde_json::Map::new();
    for (name, _) in BUILT_IN.iter().filter(|(_, text)| !text.contains("\nrefused = ")) {
        let profile = read(&format!("'{name}'")).unwrap();
        for (channel, mapping) in &profile.mappings {
            for (size, message) in [("full", full(*channel)), ("small", small(*channel))] {
                let request =
                    mapping.request(&message, "e1k").unwrap_or_else(|failed| panic!("{name}: {failed:?}"));
                made.insert(format!("{name} {} {size}", channel.name()), request);
            }
        }
    }
    for (name, request) in &made {
        assert_eq!(Some(request), expected.get(name), "{name}: {request:#}");
    }
    assert_eq!(made.len(), expected.as_object().unwrap().len(), "{:?}", made.keys());
}

#[test]
fn the_id_of_a_message_is_where_the_providers_answer_has_it() {
    for (name, channel, answer, id) in [
        ("sendgrid", Channel::Mail, json!({"headers": {"x-message-id": "h7"}, "body": ""}), json!("h7")),
        ("postmark", Channel::Mail, json!({"headers": {}, "body": {"MessageID": "m7"}}), json!("m7")),
        ("sparkpost", Channel::Mail, json!({"headers": {}, "body": {"results": {"id": "7"}}}), json!("7")),
        ("brevo", Channel::Mail, json!({"headers": {}, "body": {"code": "duplicate"}}), Json::Null),
        ("twilio", Channel::Call, json!({"headers": {}, "body": {"sid": "CA7"}}), json!("CA7")),
    ] {
        let profile = read(&format!("'{name}'")).unwrap();
        assert_eq!(profile.mappings[&channel].id(&answer, "e1k"), id, "{name}");
    }
}

#[test]
fn the_profiles_of_the_library_say_the_same() {
    use semel::profiles::{ALL, KeyPlace, Repeats};
    for known in ALL {
        let (_, text) = BUILT_IN.iter().find(|(name, _)| *name == known.name).unwrap();
        let table: Table = toml::from_str(text).unwrap();
        assert_eq!(table["source"].as_str(), Some(known.page), "{}", known.name);
        assert_eq!(table["read"].as_str(), Some(known.read), "{}", known.name);
        let profile = read(&format!("'{}'", known.name)).unwrap();
        let (key, window, place) = match (&profile.by, known.repeats) {
            (By::Nothing, Repeats::Nothing) => continue,
            (By::Key(key), Repeats::Key { window, place }) => (key, window, place),
            (by, repeats) => panic!("{}: {by:?} and {repeats:?}", known.name),
        };
        assert_eq!(key.window.length(), Some(window), "{}", known.name);
        let expected = match place {
            KeyPlace::Header(name) => (SlotPart::Header(name.parse().unwrap()), false),
            KeyPlace::BodyUuid(pointer) => (SlotPart::Json(pointer.to_owned()), true),
        };
        assert_eq!((key.put.part.clone(), key.put.uuid), expected, "{}", known.name);
        for (marks, marked) in
            [(known.busy, &key.busy), (known.other, &key.other), (known.repeated, &key.repeated)]
        {
            assert_eq!(marks.len(), marked.len(), "{}", known.name);
            for ((status, word), mark) in marks.iter().zip(marked) {
                assert!(mark.is(*status, word) && !mark.is(*status + 1, word), "{} {mark:?}", known.name);
            }
        }
    }
}

#[test]
fn answers_mean_what_the_profile_says() {
    let sparkpost = key_of(read("'sparkpost'").unwrap());
    let body = r#"{"errors":[{"message":"…","code":"1601"}]}"#;
    assert!(sparkpost.busy.iter().any(|mark| mark.is(409, body)));
    assert!(!sparkpost.other.iter().any(|mark| mark.is(409, body)));
    assert!(!sparkpost.busy.iter().any(|mark| mark.is(409, "16011")), "a word, and not a part of one");
    assert!(!sparkpost.busy.iter().any(|mark| mark.is(400, body)));
    let brevo = key_of(read("'brevo'").unwrap());
    assert!(brevo.put.uuid && brevo.put.part == SlotPart::Json("/headers/idempotencyKey".to_owned()));
    assert!(brevo.repeated.iter().any(|mark| mark.is(400, r#"{"code":"Duplicate_request"}"#)));
    assert_eq!(brevo.window.last_send(), Some(Duration::from_secs(15 * 60 * 9 / 10)));
}

#[test]
fn a_look_up_finds_misses_or_does_not_know() {
    let By::LookUp(slot, find) = read("'postmark'").unwrap().by else { panic!("it is a look-up") };
    assert_eq!(slot.part, SlotPart::Json("/Metadata/semel".to_owned()));
    assert_eq!(find.path("e1k").unwrap(), "/messages/outbound?count=1&offset=0&metadata_semel=e1k");
    let found = |status, body| find.found("e1k", status, &body);
    assert_eq!(found(200, json!({"Messages": [{"id": 7}, {"id": 8}]})), Ok(Some(json!({"id": 7}))));
    assert_eq!(found(200, json!({"Messages": []})), Ok(None));
    assert!(found(200, json!({})).is_err(), "an answer of another shape says nothing");
    assert!(found(500, json!({"Messages": []})).is_err());
    assert!(found(404, json!({"Messages": []})).is_err(), "not found is no word about the effect");
    let by_id = "{ by = 'look-up', put = { header = 'x-ref' }, find = { get = '/by-ref/{{ effect.key }}' }, found = '{{ body }}', absent = [404] }";
    let By::LookUp(_, find) = read(by_id).unwrap().by else { panic!("it is a look-up") };
    assert_eq!(find.found("k", 404, &json!("no")), Ok(None));
    assert_eq!(find.found("k", 200, &json!({"id": 1})), Ok(Some(json!({"id": 1}))));
}

#[test]
fn a_profile_that_is_none_is_refused_by_its_member() {
    for (text, member, said) in [
        ("'strype'", "", "stripe"),
        ("7", "", "built-in"),
        ("{}", ".by", "missing"),
        ("{ by = 'kee' }", ".by", "`key`, `look-up` and `nothing`"),
        ("{ by = 'key', window = '24h' }", ".header", "exactly one"),
        ("{ by = 'key', header = 'a', query = 'b', window = '24h' }", ".header", "exactly one"),
        ("{ by = 'key', header = 'a b', window = '24h' }", ".header", "no name of a header"),
        ("{ by = 'key', header = 'a' }", ".window", "for-ever"),
        ("{ by = 'key', header = 'a', window = 'long' }", ".window", "not a duration"),
        ("{ by = 'key', header = 'a', window = '24h', busy = 409 }", ".busy", "list of statuses"),
        ("{ by = 'key', header = 'a', window = '24h', busy = [200] }", ".busy", "list of statuses"),
        ("{ by = 'key', header = 'a', window = '24h', format = 'hex' }", ".format", "`uuid`"),
        ("{ by = 'key', json = 'a', window = '24h' }", ".json", "pointer"),
        ("{ by = 'key', header = 'a', window = '24h', bussy = [409] }", ".bussy", "`busy`"),
        ("{ by = 'look-up' }", ".put", "missing"),
        ("{ by = 'look-up', put = { header = 'a' }, found = '{{ body }}' }", ".find", "look-up has"),
        (
            "{ by = 'look-up', put = { header = 'a' }, find = { get = '/x' }, found = 'body' }",
            ".found",
            "every answer",
        ),
        (
            "{ by = 'look-up', put = { header = 'a' }, find = { get = '/{{' }, found = '{{ body }}' }",
            ".find.get",
            "}}",
        ),
        (
            "{ by = 'look-up', put = { hedder = 'a' }, find = { get = '/x' }, found = '{{ body }}' }",
            ".put.hedder",
            "`header`",
        ),
        ("{ by = 'nothing', window = '24h' }", ".window", "not known"),
    ] {
        let problems = read(text).unwrap_err();
        let member = format!("connections.a.profile{member}");
        assert!(
            problems.iter().any(|problem| problem.member == member && problem.message.contains(said)),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn a_window_may_be_for_ever() {
    let key = key_of(read("{ by = 'key', query = 'k', window = 'for-ever', format = 'key' }").unwrap());
    assert_eq!((key.window.length(), key.window.last_send()), (None, None));
    assert_eq!(Profile { by: By::Key(key), ..Profile::default() }.class(), "keyed");
}
