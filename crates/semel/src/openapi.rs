//! Schemas of the types that are written as plain text or numbers, and of those that a derive cannot describe. All others
//! derive theirs.

use std::borrow::Cow;

use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Schema,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Fingerprint, Key, Label, MAX_KEY, RecordId, Scope, Token};
use crate::rules::once::OnceScope;
use crate::rules::path::{Name, Visit};
use crate::rules::start::{Policy, PolicyMatrix, PolicyRow};
use crate::store::FindBy;

/// The origin of a fork.
pub(crate) enum ForkPoint {}

/// Gives types the schemas that the functions return.
macro_rules! schemas {
    ($($type:ident $(uses $($used:ident),+)? => $schema:expr;)+) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                RefOr::T($schema.into())
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            $(fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                $(
                    schemas.push(($used::name().into_owned(), $used::schema()));
                    $used::schemas(schemas);
                )+
            })?
        }
    )+};
}

schemas! {
    RunId => id("run_", "Id of a run");
    NodeId => id("node_", "Id of a worker, drawn anew for each process");
    WorkspaceId => id("ws_", "Id of a workspace");
    Name => text("A name, without `/`, `[`, `]`, `#` and control characters").min_length(Some(1)).max_length(Some(200));
    Visit => text("A visit of the code: the path `scope/name[key]`, and `#2` if it is the second visit of this path").min_length(Some(1));
    Key => key("Idempotency key of a run");
    Token => key("Public address of a hook");
    CallId => key("Id under which a call may be repeated");
    Label => key("Label under which a `run_once` value is remembered");
    RecordId => key("Id of a record");
    Scope => text("Scope of a key: `*` (the workspace), `w/order`, `v/order/1` or `child`");
    Fingerprint => text("Fingerprint of a request: SHA-256").pattern(Some("^[0-9a-f]{64}$"));
    Payload => typed(SchemaType::AnyValue, "Any JSON value");
    Time => typed(SchemaType::Type(Type::Integer), "Milliseconds since 1970-01-01 UTC, by the store's clock")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)));
    Policy uses PolicyMatrix, PolicyRow => OneOfBuilder::new()
        .item(text("Name of a preset").enum_values(Some(Policy::PRESETS.map(|(name, _)| name))))
        .item(Ref::from_schema_name(PolicyMatrix::name()))
        .description(Some("What to do about an existing run under the key"));
    ForkPoint => pair::<RunId, u64>().description(Some("The run that was forked, and its version at the fork"));
    OnceScope => OneOfBuilder::new()
        .item(text("Shared by all runs of the workspace").enum_values(Some(["workspace"])))
        .item(variant("key", pair::<Scope, Key>()))
        .description(Some("What the value of a label is shared by"));
    FindBy uses RunId, Token, CallId => OneOfBuilder::new()
        .item(variant("id", Ref::from_schema_name(RunId::name())))
        .item(variant("key", pair::<Scope, Key>()))
        .item(variant("token", Ref::from_schema_name(Token::name())))
        .item(variant("call", Ref::from_schema_name(CallId::name())))
        .description(Some("How the run is identified: by its id, by the key it holds, by a token it owns, or by the id of an action on it"));
}

fn typed(schema_type: SchemaType, description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(schema_type).description(Some(description))
}

fn text(description: &str) -> ObjectBuilder {
    typed(SchemaType::Type(Type::String), description)
}

fn id(prefix: &str, description: &str) -> ObjectBuilder {
    text(description).pattern(Some(format!("^{prefix}[0-7][0-9a-hjkmnp-tv-z]{{25}}$")))
}

fn key(description: &str) -> ObjectBuilder {
    text(description).min_length(Some(1)).max_length(Some(MAX_KEY))
}

/// An object with one member, as enums travel.
fn variant(name: &str, value: impl Into<RefOr<Schema>>) -> ObjectBuilder {
    ObjectBuilder::new()
        .property(name, value)
        .required(name)
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

/// A list of exactly these two. Without `prefixItems`, which generators of clients do not read.
fn pair<A: PartialSchema, B: PartialSchema>() -> ArrayBuilder {
    ArrayBuilder::new()
        .items(AnyOfBuilder::new().item(A::schema()).item(B::schema()))
        .min_items(Some(2))
        .max_items(Some(2))
}
