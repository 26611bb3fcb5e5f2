//! A mail as its arguments describe it, before it becomes bytes or a request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::connections::MailAddress;

/// A mail: checked, and the same on every attempt.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tasks) struct MailParts {
    pub(in crate::tasks) from: MailAddress,
    pub(in crate::tasks) to: Vec<MailAddress>,
    pub(in crate::tasks) cc: Vec<MailAddress>,
    pub(in crate::tasks) bcc: Vec<MailAddress>,
    pub(in crate::tasks) reply_to: Vec<MailAddress>,
    pub(in crate::tasks) subject: String,
    pub(in crate::tasks) text: Option<String>,
    pub(in crate::tasks) html: Option<String>,
    pub(in crate::tasks) headers: Vec<(String, String)>,
    pub(in crate::tasks) attachments: Vec<AttachedFile>,
}

/// A file that is sent along.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tasks) struct AttachedFile {
    pub(in crate::tasks) name: String,
    pub(in crate::tasks) kind: String,
    pub(in crate::tasks) content: Vec<u8>,
}

impl MailParts {
    /// What a mapping can read. What is not there is null.
    pub(in crate::tasks) fn json(&self) -> Json {
        let object = |address: &MailAddress| json!({"email": address.email, "name": address.name});
        let some = |list: Vec<Json>| if list.is_empty() { Json::Null } else { Json::Array(list) };
        let objects = |list: &[MailAddress]| some(list.iter().map(object).collect());
        let texts =
            |list: &[MailAddress]| some(list.iter().map(|address| json!(address.to_string())).collect());
        let file = |file: &AttachedFile| json!({"name": file.name, "type": file.kind, "content": STANDARD.encode(&file.content)});
        let headers: Map<_, _> =
            self.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "from": object(&self.from),
            "from_text": self.from.to_string(),
            "to": objects(&self.to),
            "to_text": texts(&self.to),
            "cc": objects(&self.cc),
            "cc_text": texts(&self.cc),
            "bcc": objects(&self.bcc),
            "bcc_text": texts(&self.bcc),
            "reply_to": objects(&self.reply_to),
            "reply_to_text": texts(&self.reply_to),
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "headers": if headers.is_empty() { Json::Null } else { Json::Object(headers) },
            "attachments": some(self.attachments.iter().map(file).collect()),
        })
    }
}
