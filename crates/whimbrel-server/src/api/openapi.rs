//! The description of the API, made from its table of routes and its answers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Shared;
use super::answers::Refused;
use super::routes::{By, Gives, PREFIX, ROUTES, Route, Verb};

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    super::json(StatusCode::OK, &document(&shared.about.version))
}

/// The document, in the form of OpenAPI 3.1.
pub(super) fn document(version: &str) -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let refused = schemas.subschema_for::<Refused>();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        path[route.verb.name()] = operation(route, &mut schemas);
    }
    let schemas = schemas.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Whimbrel",
            "version": version,
            "description": "What a broker can be asked. Times are milliseconds since the Unix epoch, spans are milliseconds, unless their name ends with _us: microseconds.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "basic": [] }, { "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Refused": {
                    "description": "It was not done. 401: sign in; 403: that one may not do it; otherwise the words tell what to do.",
                    "content": { "application/json": { "schema": refused } },
                },
            },
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let (media_type, schema) = match route.gives {
        Gives::Json(schema) => ("application/json", schema(schemas).to_value()),
        Gives::Bytes(media_type) => (media_type, json!({})),
    };
    let needs =
        route.action.map_or("Whoever can sign in may ask.".to_owned(), |action| format!("Needs `{}`.", action.name()));
    let by = match route.by {
        By::All => " All brokers are asked; it is waited for them for at most 2 s.",
        By::Itself | By::Each => "",
    };
    let mut operation = json!({
        "operationId": name(route),
        "summary": route.summary,
        "description": format!("{needs}{by}"),
        "responses": {
            "200": { "description": "So it is.", "content": { media_type: { "schema": schema } } },
            "default": { "$ref": "#/components/responses/Refused" },
        },
    });
    let mut parameters: Vec<Value> = within(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(route.fields.iter().map(|(name, is_number, what)| {
        let schema = if *is_number { json!({ "type": "integer", "minimum": 0 }) } else { json!({ "type": "string" }) };
        json!({ "name": name, "in": "query", "description": what, "schema": schema })
    }));
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

/// The names of the variable parts of a path.
fn within(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The unique name of a route's operation.
fn name(route: &Route) -> String {
    let verb = match route.verb {
        Verb::Get => "get",
        Verb::Post => "do",
        Verb::Delete => "end",
    };
    let parts = route.path.split('/').filter(|part| !part.is_empty());
    parts.fold(verb.to_owned(), |name, part| {
        let word = part.trim_matches(['{', '}']).replace(['.', '_'], "-");
        format!("{name}-{word}")
    })
}
