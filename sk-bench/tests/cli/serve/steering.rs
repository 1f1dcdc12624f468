//! Blades and weights of a request, and changes while it runs.

use std::io::{BufRead, BufReader};
use std::thread;

use serde_json::{Value, json};

use super::{LONG_ANSWERS, Server, hello, long_answer, text};
use crate::common::{edit_json, models, run_on_models};
use crate::heads::head;

#[test]
fn weights_change_while_it_answers() {
    let server = Server::start(&LONG_ANSWERS);
    let mut body = long_answer();
    body["swiss_knife"]["weights"] = json!({"helpful": 1});
    let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
    let mut weights = Vec::new();
    let mut edited = false;
    while let Some(Ok(line)) = lines.next() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data).unwrap();
        if !edited {
            // The first chunk holds the id.
            let path = format!("/swiss-knife/generations/{}", chunk["id"].as_str().unwrap());
            assert_eq!(server.ask("PATCH", &path, "", &json!({"weights": {"kind": 1}})).0, 400);
            assert_eq!(server.ask("PATCH", &path, "", &json!({"blades": {"kind": "/etc"}})).0, 400);
            let reply = server.ask("PATCH", &path, "", &json!({"weights": {"honest": 3, "harmless": 1}}));
            assert_eq!((reply.0, &reply.json()["weights"]["honest"]), (200, &json!(0.75)), "{}", reply.2);
            edited = true;
        }
        if let Some(step) = chunk["swiss_knife"]["step"].as_object() {
            weights.push(step["weights"].clone());
        }
    }
    assert_eq!(weights[weights.len() - 1], json!({"honest": 0.75, "harmless": 0.25}));
    assert_eq!(server.ask("GET", "/swiss-knife/generations/chatcmpl-0", "", &Value::Null).0, 404);
}

#[test]
fn options_seat_the_blades_that_they_seat_in_generate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scheme.toml");
    std::fs::write(&file, "[blades.helpful]\nkind = \"implicit-reward\"\n").unwrap();
    let listed = ["--scheme", file.to_str().unwrap()];
    let file = folder.path().join("ensemble.toml");
    let adapters = ["helpful", "harmless"].map(|name| models().join("blades").join(name).display().to_string());
    let text_of =
        format!("[blades.\"*\"]\nkind = \"implicit-reward\"\n[blades.both]\nkind = \"ensemble\"\nadapters = {adapters:?}\n");
    std::fs::write(&file, text_of).unwrap();
    let ensemble = ["--scheme", file.to_str().unwrap()];
    let (more, calm) = (format!("more={}/blades/honest", models().display()), format!("calm={}", head("calm")));
    for (scheme, option, blade, name, kind) in [
        (&listed[..], "--blade", &*more, "more", "adapter"),
        (&listed[..], "--blade", "calm=instruction:Be calm.", "calm", "instruction"),
        (&listed[..], "--head", &*calm, "calm", "discriminator"),
        (&[], "--head", &*calm, "calm", "discriminator"),
        (&ensemble[..], "--blade", &*more, "both", "ensemble"),
    ] {
        let options = [scheme, &[option, blade]].concat();
        let generated = [&["Hello there", "--seed", "7", "--max-new-tokens", "4", "--json"], &options[..]].concat();
        let generated: Value = serde_json::from_slice(&run_on_models("generate", &generated).stdout).unwrap();
        let server = Server::start(&options);
        let reply = server.chat(&hello(&json!({"max_tokens": 4, "swiss_knife": {"explain": true}})));
        assert_eq!(text(&reply), generated["text"], "{options:?}");
        let weights = &reply.json()["choices"][0]["swiss_knife"]["steps"][0]["weights"];
        assert!(weights == &generated["weights"] && weights.get(name).is_some(), "{options:?}: {weights} {generated}");
        let blades = server.ask("GET", "/swiss-knife/blades", "", &Value::Null).json();
        let own = blades["data"].as_array().unwrap().iter().find(|blade| blade["name"] == name).cloned();
        assert_eq!(own.map(|own| (own["kind"].clone(), own["weight"].clone())), Some((json!(kind), weights[name].clone())));
        // A scheme that a request names has its own blades.
        let named = server.chat(&hello(&json!({"max_tokens": 4, "swiss_knife": {"scheme": "best-of-n"}})));
        assert_eq!(named.0, 200, "{}", named.2);
    }
}

#[test]
fn a_blade_takes_and_leaves_a_seat_while_it_answers() {
    let server = Server::start(&LONG_ANSWERS);
    let mut body = long_answer();
    body["swiss_knife"]["weights"] = json!({"helpful": 1});
    let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
    let mut seen = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data).unwrap();
        if seen.is_empty() {
            let path = format!("/swiss-knife/generations/{}", chunk["id"].as_str().unwrap());
            let long = "Be calm. ".repeat(50);
            let taken = server.ask("PATCH", &path, "", &json!({"blades": {"calm": format!("instruction:{long}")}}));
            assert_eq!((taken.0, taken.json()["error"]["param"].as_str()), (400, Some("blades")), "{}", taken.2);
            let edit = json!({"blades": {"calm": "instruction:Be calm.", "helpful": null}, "weights": {"calm": 1, "honest": 1}});
            let reply = server.ask("PATCH", &path, "", &edit);
            assert_eq!((reply.0, &reply.json()["weights"]["calm"]), (200, &json!(0.5)), "{}", reply.2);
            assert!(reply.json()["weights"].get("helpful").is_none());
            // An adapter is not read under an instruction of the same name, nor the other way
            // round.
            for blades in [json!({"helpful": "instruction:Be helpful."}), json!({"calm": "adapter"})] {
                let twice = server.ask("PATCH", &path, "", &json!({"blades": blades}));
                assert!(twice.0 == 400 && twice.2.contains("of this answer"), "{}", twice.2);
            }
            // An adapter that the server knows can be seated again; any other is refused.
            let unknown = server.ask("PATCH", &path, "", &json!({"blades": {"kind": "adapter"}}));
            assert!(unknown.0 == 400 && unknown.2.contains("helpful"), "{}", unknown.2);
            let again = json!({"blades": {"helpful": "adapter"}, "weights": {"helpful": 1, "honest": 1}});
            let reply = server.ask("PATCH", &path, "", &again);
            assert_eq!((reply.0, &reply.json()["weights"]["helpful"]), (200, &json!(0.5)), "{}", reply.2);
        }
        let weights = &chunk["swiss_knife"]["step"]["weights"];
        seen.push(weights.clone());
    }
    assert!(!seen.is_empty());
    assert!(seen.contains(&json!({"helpful": 0.5, "honest": 0.5})), "{seen:?}");
}

#[test]
fn an_instruction_replaces_the_adapter_of_its_name() {
    let server = Server::start(&[]);
    let scores = |name: &str| {
        let asked =
            json!({"swiss_knife": {"explain": true, "blades": {name: "instruction:Answer rudely."}, "weights": {name: 1}}});
        let reply = server.chat(&hello(&asked)).json();
        let candidates = &reply["choices"][0]["swiss_knife"]["steps"][0]["candidates"];
        let each = candidates.as_array().unwrap().iter();
        each.map(|candidate| candidate["blades"][name]["mu"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(scores("helpful"), scores("rude"));
}

#[test]
fn certificates_are_at_the_requested_tolerance() {
    let server = Server::start(&[]);
    let radius = |more: Value| {
        // The default scheme, a tournament, has no certificate.
        let mut steering = json!({"explain": true, "scheme": "softmax-mu"});
        steering.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = server.chat(&hello(&json!({"swiss_knife": steering}))).json();
        let certificate = &reply["choices"][0]["swiss_knife"]["steps"][0]["certificate"];
        (certificate["tolerance"].as_f64().unwrap(), certificate["radius"].as_f64().unwrap())
    };
    let (usual, narrow) = (radius(json!({})), radius(json!({"tolerance": 0.05})));
    assert_eq!((usual.0, narrow.0), (0.1, 0.05));
    // The radius is proportional to 4 T atanh(τ).
    let ratio = 0.1_f64.atanh() / 0.05_f64.atanh();
    assert!((usual.1 / narrow.1 - ratio).abs() < 1e-9, "{usual:?} {narrow:?}");
}

/// The rule for **w** of some schemes gives a blade another weight than the request.
#[test]
fn contributions_add_up_to_the_composite() {
    let server = Server::start(&[]);
    for scheme in ["swiss-knife", "max-min", "satisficing"] {
        let asked = json!({"model": format!("swiss-knife:{scheme}"), "max_tokens": 8, "swiss_knife": {"explain": true}});
        let reply = server.chat(&hello(&asked));
        assert_eq!(reply.0, 200, "{}", reply.2);
        let reply = reply.json();
        let steps = reply["choices"][0]["swiss_knife"]["steps"].as_array().unwrap();
        let candidates: Vec<&Value> = steps.iter().flat_map(|step| step["candidates"].as_array().unwrap()).collect();
        assert!(!candidates.is_empty());
        for candidate in candidates {
            let parts = candidate["blades"].as_object().unwrap().values().map(|blade| blade["contribution"].as_f64().unwrap());
            let (sum, mu) = (parts.sum::<f64>(), candidate["mu"].as_f64().unwrap());
            // Roundings of sums of a few numbers.
            assert!((sum - mu).abs() <= 1e-9 * (1.0 + mu.abs()), "{scheme}: {sum} {mu}");
        }
    }
}

#[test]
fn adapters_take_memory_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = models().join("blades/helpful");
    for name in ["helpful", "large"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(adapter.join(file), folder.path().join(name).join(file)).unwrap();
        }
    }
    // The weights, which do not have this rank, are not read.
    edit_json(&folder.path().join("large/adapter_config.json"), |config| config["r"] = json!(100_000));
    let server = Server::start(&["--memory", "64", "--adapters", folder.path().to_str().unwrap()]);
    let ask = |body: &Value| server.ask("POST", "/swiss-knife/blades", "", body);
    let large = ask(&json!({"name": "large", "adapter": "large"}));
    assert!(large.0 == 400 && large.2.contains("this server gives all answers 64 MiB"), "{}", large.2);
    let load = |k: usize| ask(&json!({"name": format!("b{k}"), "adapter": "helpful"}));
    let full = (0..65).map(load).find(|reply| reply.0 != 201).expect("the memory ends");
    assert_eq!(full.0, 429, "{}", full.2);
    assert_eq!(server.ask("DELETE", "/swiss-knife/blades/b0", "", &Value::Null).0, 204);
    assert_eq!(load(99).0, 201);
}

#[test]
fn clients_do_not_learn_where_adapters_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("broken")).unwrap();
    std::fs::write(folder.path().join("broken/adapter_config.json"), "{\"r\": \"a\"}").unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Server::start(&["--adapters", path]);
    let refused = server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "x", "adapter": "broken"}));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(refused.0, 400, "{message}");
    assert!(message.contains("broken/adapter_config.json") && !message.contains(path), "{message}");
}

#[test]
fn adapters_come_and_go_if_the_operator_allows_it() {
    let refused = Server::start(&[]);
    let load = json!({"name": "more", "adapter": "helpful"});
    assert_eq!(refused.ask("POST", "/swiss-knife/blades", "", &load).0, 403);
    assert_eq!(refused.ask("DELETE", "/swiss-knife/blades/helpful", "", &Value::Null).0, 403);
    let server = Server::start(&["--adapters", models().join("blades").to_str().unwrap()]);
    for adapter in ["../helpful", "/etc", "", ".", "helpful/.."] {
        assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "x", "adapter": adapter})).0, 400, "{adapter}");
    }
    assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "x", "adapter": "nowhere"})).0, 404);
    assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "helpful", "adapter": "helpful"})).0, 400);
    for name in ["", "very calm", "a,b", "a=b", "x:y", "fluency", "..", "a\0", &"x".repeat(257)] {
        let refused = server.ask("POST", "/swiss-knife/blades", "", &json!({"name": name, "adapter": "helpful"}));
        assert_eq!((refused.0, refused.json()["error"]["param"].as_str()), (400, Some("name")), "{name:?}: {}", refused.2);
    }
    let before = text(&server.chat(&hello(&json!({"swiss_knife": {"weights": {"helpful": 1}}}))));
    let usual = || {
        let steps = &server.chat(&hello(&json!({"swiss_knife": {"explain": true}}))).json()["choices"][0]["swiss_knife"]["steps"];
        (steps[0]["weights"].clone(), steps[0]["candidates"].clone())
    };
    let unchanged = usual();
    assert!(unchanged.0.is_object() && unchanged.1.is_array(), "{unchanged:?}");
    let loaded = server.ask("POST", "/swiss-knife/blades", "", &load);
    assert_eq!(loaded.0, 201, "{}", loaded.2);
    // Requests that do not name the adapter are answered as before.
    assert_eq!(usual(), unchanged);
    let weights = json!({"swiss_knife": {"weights": {"more": 1}}});
    assert_eq!(text(&server.chat(&hello(&weights))), before);
    assert!(server.ask("GET", "/swiss-knife/blades", "", &Value::Null).2.contains("\"more\""));
    assert_eq!(server.ask("DELETE", "/swiss-knife/blades/more", "", &Value::Null).0, 204);
    assert_eq!(server.chat(&hello(&weights)).0, 400);
    assert_eq!(server.ask("DELETE", "/swiss-knife/blades/more", "", &Value::Null).0, 404);
    // The blades that the server was started with stay.
    let own = server.ask("DELETE", "/swiss-knife/blades/helpful", "", &Value::Null);
    assert!(own.0 == 403 && own.2.contains("helpful"), "{}", own.2);
    assert_eq!(text(&server.chat(&hello(&json!({"swiss_knife": {"weights": {"helpful": 1}}})))), before);
    // Of several requests that load one name, one succeeds.
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = || server.ask("POST", "/swiss-knife/blades", "", &load).0;
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
}
