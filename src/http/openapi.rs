//! The OpenAPI description of the HTTP API, made from the table of routes.

use serde_json::{Map, Value, json};

use super::routes::{Access, Answer, Kind, Parameter, ROUTES, Route};

/// The description, version 3.0.3 of the format.
#[must_use]
pub fn description() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = path {
            operations.insert(route.method.to_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "gatewayd",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of one gateway, over TCP and over its control socket.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "users": { "type": "http", "scheme": "basic" } },
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": { "error": { "type": "string" } },
                    "required": ["error"],
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let names = route.path.split('/').filter_map(|level| level.strip_prefix('{')?.strip_suffix('}'));
    let in_path = names.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } })
    });
    let parameters: Vec<Value> = in_path.chain(route.parameters.iter().map(parameter)).collect();
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "Done", "content": content(route.answer) }));
    for (status, why) in route.errors {
        responses.insert(status.to_string(), failure(route, *status, why));
    }
    if route.access != Access::Public {
        responses.entry("401").or_insert_with(|| failure(route, 401, "A user name and password are needed"));
        responses.entry("403").or_insert_with(|| failure(route, 403, "The caller may not ask this"));
    }
    let who = match route.access {
        Access::Public => "",
        Access::User => {
            "Users; without users, callers on this machine, and everybody at a listener beyond loopback with \
             allow_anonymous = true."
        }
        Access::Operator => "Callers of the control socket; without users, callers on this machine.",
    };
    let mut shown = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": who,
        "parameters": parameters,
        "responses": responses,
        "security": if route.access == Access::Public { json!([]) } else { json!([{}, { "users": [] }]) },
    });
    if let (Value::Object(members), Some(body)) = (&mut shown, route.body) {
        let schema = json!({ "type": "string", "format": "binary" });
        let content = json!({ "application/octet-stream": { "schema": schema } });
        members.insert("requestBody".to_owned(), json!({ "description": body, "content": content }));
    }
    shown
}

fn failure(route: &Route, status: u16, why: &str) -> Value {
    if route.answer == Answer::Text && status == 503 {
        return json!({ "description": why, "content": content(Answer::Text) });
    }
    let schema = json!({ "$ref": "#/components/schemas/Error" });
    json!({ "description": why, "content": { "application/json": { "schema": schema } } })
}

fn content(answer: Answer) -> Value {
    let text = json!({ "schema": { "type": "string" } });
    match answer {
        Answer::Text => json!({ "text/plain": text }),
        Answer::Archive => {
            json!({ "application/x-tar": { "schema": { "type": "string", "format": "binary" } } })
        }
        Answer::Html => json!({ "text/html": text }),
        Answer::Json => json!({ "application/json": { "schema": {} } }),
        Answer::Readings => json!({
            "application/json": { "schema": {} },
            "application/x-ndjson": text,
            "text/csv": text,
            "text/plain": text,
        }),
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
    };
    json!({
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.summary,
        "schema": schema,
    })
}
