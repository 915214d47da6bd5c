//! The OpenAPI description against the server: schemathesis makes requests of it, and no answer may be an error of the
//! server's, or one that the description does not name.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::tool::subscribe;
use crate::{get, publish};

#[test]
fn schemathesis_finds_no_error_of_the_server() {
    let daemon = Daemon::started("schemathesis", "");
    subscribe(&daemon, &["-i", "keeper", "-c", "-q", "1", "-t", "a/#", "-E"]);
    publish(&daemon, "topic=a/b", "x");
    publish(&daemon, "topic=sensors/a", "{\"value\": 3}");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/schemathesis");
    assert!(program.exists(), "{} is missing: ./scripts/setup makes it", program.display());
    let description = daemon.folder().join("openapi.json");
    std::fs::write(&description, get(&daemon, "/api/v1/openapi.json").body).unwrap();
    let output = Command::new(program)
        .current_dir(daemon.folder())
        .arg("run")
        .arg(&description)
        .args(["--url", &format!("http://{}", daemon.http())])
        .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"])
        // Their answers do not end.
        .args(["--exclude-name", "GET /api/v1/collections/{collection}/tail"])
        .args(["--exclude-name", "GET /api/v1/tail"])
        .args(["--max-examples", "25", "--seed", "1", "--request-timeout", "20", "--no-color"])
        .args(["--phases", "examples,coverage,fuzzing"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(get(&daemon, "/readyz").status, 200);
}

#[test]
fn the_description_names_every_route_once() {
    let daemon = Daemon::started("description", "");
    let description = get(&daemon, "/api/v1/openapi.json").json();
    let mut names = Vec::new();
    for operations in description["paths"].as_object().unwrap().values() {
        for operation in operations.as_object().unwrap().values() {
            names.push(operation["operationId"].as_str().unwrap().to_owned());
        }
    }
    names.sort();
    let mut routes: Vec<_> =
        gatewayd::http::routes::ROUTES.iter().map(|route| route.name.to_owned()).collect();
    routes.sort();
    assert_eq!(names, routes);
    assert_eq!(description["openapi"], Value::from("3.0.3"));
}
