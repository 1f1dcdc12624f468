//! Who may use the server, what it describes and what it refuses by name.

use std::collections::BTreeSet;
#[cfg(unix)]
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use serde_json::{Value, json};

use super::{Server, hello, text};
use crate::common::{assert_refused, model_args, program, run_on_models};

#[test]
fn bad_requests_are_refused_in_openais_format() {
    let server = Server::start(&[]);
    for (body, status, param) in [
        (hello(&json!({"tools": [{"type": "function"}]})), 400, "tools"),
        (hello(&json!({"response_format": {"type": "json_object"}})), 400, "response_format"),
        (hello(&json!({"swiss_knife": {"weights": {"kind": 1}}})), 400, "swiss_knife.weights"),
        (hello(&json!({"swiss_knife": {"weights": {"helpful": -1}}})), 400, "swiss_knife.weights"),
        (hello(&json!({"swiss_knife": {"scheme": "/etc/passwd"}})), 400, "swiss_knife.scheme"),
        (hello(&json!({"swiss_knife": {"set": ["blades.helpful.adapter=/etc"]}})), 400, "swiss_knife.set"),
        (hello(&json!({"swiss_knife": {"blades": {"calm": "/etc"}}})), 400, "swiss_knife.blades"),
        (hello(&json!({"swiss_knife": {"blades": {"": "instruction:Be calm."}}})), 400, "swiss_knife.blades"),
        (hello(&json!({"messages": [{"role": "user", "content": "a".repeat(600)}]})), 400, "messages"),
        (json!([]), 400, "body"),
    ] {
        let reply = server.chat(&body);
        let error = &reply.json()["error"];
        assert_eq!((reply.0, error["param"].as_str().unwrap()), (status, param), "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()) && error.get("code").is_some());
    }
    let known = server.chat(&hello(&json!({"swiss_knife": {"weights": {"kind": 1}}})));
    assert!(known.2.contains("helpful"), "the known blades are named: {}", known.2);
    let elsewhere = server.chat(&hello(&json!({"model": "gpt-5"})));
    assert_eq!((elsewhere.0, elsewhere.json()["error"]["code"].as_str()), (404, Some("not_found")));
    assert_eq!(server.ask("GET", "/v1/models/swiss-knife:best-of-n", "", &Value::Null).0, 200);
    let bogus = server.ask("GET", "/v1/models/swiss-knife:bogus", "", &Value::Null);
    assert!(bogus.0 == 404 && bogus.2.contains("best-of-n") && !bogus.2.contains("fudge"), "{}", bogus.2);
    // It reads heads, and the server has none.
    let fudge = server.ask("GET", "/v1/models/swiss-knife:fudge", "", &Value::Null);
    assert!(fudge.0 == 404 && fudge.2.contains("cannot run"), "{}", fudge.2);
    assert_eq!(server.chat(&hello(&json!({"model": "swiss-knife:bogus"}))).0, 404);
    assert_eq!(server.ask("GET", "/v2", "", &Value::Null).0, 404);
    let long = server.ask("POST", "/v1/chat/completions", "", &json!("x".repeat(2 << 20)));
    assert_eq!((long.0, long.json()["error"]["code"].as_str()), (413, Some("request_too_large")));
    assert_eq!(server.ask("DELETE", "/v1/models", "", &Value::Null).json()["error"]["code"], "method_not_allowed");
    let many = hello(&json!({"swiss_knife": {"set": ["proposal.candidates=65"]}}));
    assert_eq!(server.chat(&many).json()["error"]["param"], "swiss_knife.set");
    // A scheme may be named as the model, and a blade may be an instruction.
    let scheme = hello(&json!({"model": "swiss-knife:best-of-n"}));
    assert_ne!(text(&server.chat(&scheme)), text(&server.chat(&hello(&json!({})))));
    let calm = json!({"swiss_knife": {"blades": {"calm": "instruction:Be calm."}, "weights": {"calm": 1}}});
    assert!(!text(&server.chat(&hello(&calm))).is_empty());
    let models = server.ask("GET", "/v1/models", "", &Value::Null).json();
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "swiss-knife:best-of-n"));
}

#[test]
fn a_key_is_required() {
    let mut command = program();
    command.env("SWISS_KNIFE_SERVE_KEY", "secret").arg("serve").args(["--port", "0"]).args(model_args());
    let server = Server::of(command.args(["--blade", "calm=instruction:Never mention falcons."]));
    // Who has no key learns the names of blades, and no instruction.
    let about = server.ask("GET", "/swiss-knife", "", &Value::Null);
    assert!(about.0 == 200 && about.2.contains("\"calm\"") && !about.2.contains("falcons"), "{}", about.2);
    let description = server.ask("GET", "/openapi.json", "", &Value::Null).json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let path = path.replace("{id}", "swiss-knife").replace("{name}", "helpful");
            let status = server.ask(&method.to_uppercase(), &path, "", &Value::Null).0;
            assert_eq!(status == 401, about.get("security") != Some(&json!([])), "{method} {path}: {status}");
        }
    }
    for header in ["", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n"] {
        let reply = server.ask("GET", "/v1/models", header, &Value::Null);
        assert_eq!((reply.0, reply.json()["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    }
    assert_eq!(server.ask("GET", "/v1/models", "Authorization: Bearer secret\r\n", &Value::Null).0, 200);
    assert_eq!(server.ask("GET", "/health", "", &Value::Null).0, 200);
}

#[cfg(unix)]
#[test]
fn a_key_in_the_environment_is_one_that_clients_can_send() {
    let serve = |key: &[u8]| {
        let mut command = program();
        command.env("SWISS_KNIFE_SERVE_KEY", OsStr::from_bytes(key)).args(["serve", "--port", "0"]).args(model_args());
        command
    };
    // As from a file with the line ends of Windows.
    let server = Server::of(&mut serve(b"secret\r"));
    assert_eq!(server.ask("GET", "/v1/models", "", &Value::Null).0, 401);
    assert_eq!(server.ask("GET", "/v1/models", "Authorization: Bearer secret\r\n", &Value::Null).0, 200);
    for key in [&b"\xff"[..], b"two words"] {
        assert_refused(&serve(key).output().unwrap(), &["SWISS_KNIFE_SERVE_KEY", "a key cannot have"]);
    }
    assert_refused(&serve(b" \n").output().unwrap(), &["SWISS_KNIFE_SERVE_KEY", "no key"]);
    // A variable that is set to nothing is as one that is not set.
    assert_eq!(Server::of(&mut serve(b"")).ask("GET", "/v1/models", "", &Value::Null).0, 200);
}

#[test]
fn a_key_may_be_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let path = file.to_str().unwrap().to_owned();
    std::fs::write(&file, "secret\n").unwrap();
    let mut command = program();
    command.env("SWISS_KNIFE_SERVE_KEY", "other").args(["serve", "--port", "0", "--api-key-file", &path]).args(model_args());
    let server = Server::of(&mut command);
    for (key, status) in [("secret", 200), ("other", 401), ("", 401)] {
        let header = format!("Authorization: Bearer {key}\r\n");
        assert_eq!(server.ask("GET", "/v1/models", &header, &Value::Null).0, status, "{key}");
    }
    // Editors on Windows write a byte order mark.
    std::fs::write(&file, "\u{feff}secret\r\n").unwrap();
    let server = Server::of(program().args(["serve", "--port", "0", "--api-key-file", &path]).args(model_args()));
    assert_eq!(server.ask("GET", "/v1/models", "Authorization: Bearer secret\r\n", &Value::Null).0, 200);
    for text in ["schlüssel", "two words", "two\nlines"] {
        std::fs::write(&file, text).unwrap();
        let output = run_on_models("serve", &["--api-key-file", &path]);
        assert_refused(&output, &[&path, "a key cannot have"]);
    }
    std::fs::write(&file, " \n").unwrap();
    assert_refused(&run_on_models("serve", &["--api-key-file", &path]), &[&path, "no key"]);
    assert_refused(&run_on_models("serve", &["--api-key-file", "/nowhere/key"]), &["/nowhere/key"]);
}

#[test]
fn origins_are_let_in_by_name() {
    let asked = "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-stainless-os\r\n";
    let preflight = |server: &Server| server.ask("OPTIONS", "/v1/chat/completions", asked, &Value::Null).1;
    let closed = preflight(&Server::start(&[]));
    assert!(!closed.contains("access-control-allow-origin"), "{closed}");
    let open = preflight(&Server::start(&["--origin", "http://a", "--origin", "http://b"]));
    assert!(open.contains("access-control-allow-origin: http://a") && open.contains("x-stainless-os"), "{open}");
    let other = Server::start(&["--origin", "http://b", "--origin", "http://c:443"]);
    assert!(!preflight(&other).contains("allow-origin: http://a"));
    let refused = other.ask("POST", "/v1/chat/completions", "Origin: http://a\r\n", &hello(&json!({})));
    assert!(refused.0 == 403 && refused.2.contains("--origin http://a\""), "{}", refused.2);
    for wrong in ["http://a/", "a", "http://", "http://A", "https://a@b", "http://*.a", "http://a:80", "https://a:443"] {
        assert_refused(&run_on_models("serve", &["--port", "0", "--origin", wrong]), &["--origin", "SCHEME://HOST:PORT"]);
    }
}

#[test]
fn a_folder_of_adapters_that_is_not_there_is_refused() {
    assert_refused(&run_on_models("serve", &["--port", "0", "--adapters", "/nowhere/adapters"]), &["/nowhere/adapters"]);
}

/// The server accepts every field and serves every path of its OpenAPI description.
#[test]
fn the_description_agrees_with_the_server() {
    let server = Server::start(&[]);
    let description = server.ask("GET", "/openapi.json", "", &Value::Null).json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, _) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let path = path.replace("{id}", "swiss-knife").replace("{name}", "helpful");
            let status = server.ask(&method.to_uppercase(), &path, "", &Value::Null).0;
            assert_ne!(status, 405, "{method} {path}");
            assert!(status != 404 || path.contains("generations"), "{method} {path}");
        }
    }
    for (schema, path, least) in [
        ("ChatRequest", "/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})),
        ("CompletionRequest", "/v1/completions", json!({"prompt": "Hi", "max_tokens": 4})),
    ] {
        let fields = description["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for (field, about) in fields {
            let mut body = least.clone();
            if field == "top_logprobs" {
                body["logprobs"] = true.into();
            }
            let example = about.get("example").or_else(|| least.get(field));
            body[field] = example.unwrap_or_else(|| panic!("{schema}.{field} has no example")).clone();
            let reply = server.ask("POST", path, "", &body);
            assert_eq!(reply.0, 200, "{schema}.{field}: {}", reply.2);
        }
    }
    let steering = description["components"]["schemas"]["Steering"]["properties"].as_object().unwrap();
    for (field, about) in steering {
        // A certificate is sent with an explanation only.
        let reply = server.chat(&hello(&json!({"max_tokens": 4, "swiss_knife": {"explain": true, field: about["example"]}})));
        assert_eq!(reply.0, 200, "swiss_knife.{field}: {}", reply.2);
    }
    let about = server.ask("GET", "/swiss-knife", "", &Value::Null).json();
    assert_eq!(about["blades"].as_array().unwrap().len(), 3, "{about}");
    assert!(about["blades"][0]["weight"].as_f64().unwrap() > 0.3 && about["defaults"]["candidates"].is_u64(), "{about}");
}

/// Everything that the page loads comes from the server.
#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::start(&[]);
    let page = server.ask("GET", "/", "", &Value::Null);
    assert!(page.1.contains("content-security-policy: default-src 'self'") && page.1.contains("text/html"), "{}", page.1);
    let linked = |text: &str| -> Vec<String> {
        let quoted = text.split(['"', '\'']);
        let named = quoted.filter_map(|part| part.strip_prefix("playground/").or_else(|| part.strip_prefix("./")));
        named.map(|name| format!("/playground/{name}")).collect()
    };
    let (mut open, mut seen) = (linked(&page.2), BTreeSet::new());
    while let Some(path) = open.pop() {
        if seen.insert(path.clone()) {
            let file = server.ask("GET", &path, "", &Value::Null);
            assert_eq!(file.0, 200, "{path}");
            // Modules import other modules.
            open.extend(linked(&file.2));
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    assert_eq!(Server::start(&["--no-playground"]).ask("GET", "/", "", &Value::Null).0, 404);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let output = run_on_models("serve", &["--port", port]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains(&server.address) && error.contains("--port"), "{error}");
    assert_refused(&run_on_models("serve", &["--concurrent", "0"]), &[]);
}
