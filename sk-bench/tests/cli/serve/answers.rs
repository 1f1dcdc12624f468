//! Answers: what they hold, how they stream and how they are scored.

use std::process::Command;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use sk_models::device::DeviceName;
use sk_models::engine::Frozen;
use sk_models::local::{ModelOptions, Models};

use super::{LONG_ANSWERS, Reply, Server, chunks, hello, text};
use crate::common::{CONTEXT, models, program, run_on_models, stdout};

#[test]
fn an_answer_is_what_generate_writes() {
    let server = Server::start(&[]);
    let weights = json!({"swiss_knife": {"weights": {"helpful": 0.7, "honest": 0.3}}});
    let reply = server.chat(&hello(&weights));
    let args = ["Hello there", "-w", "helpful=0.7,honest=0.3", "--seed", "7", "--max-new-tokens", "40", "--json", "-q"];
    let generated: Value = serde_json::from_str(&stdout(&run_on_models("generate", &args))).unwrap();
    assert_eq!(text(&reply), generated["text"]);
    let body = reply.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("swiss-knife")));
    assert_eq!(body["usage"]["completion_tokens"], generated["tokens"]);
    assert_eq!(body["usage"]["swiss_knife"]["steps"], generated["steps"]);
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    // Without settings in the body, those of the header apply.
    let header = format!("X-Swiss-Knife: {}\r\n", weights["swiss_knife"]);
    assert_eq!(text(&server.ask("POST", "/v1/chat/completions", &header, &hello(&json!({})))), generated["text"]);
    assert_ne!(text(&server.chat(&hello(&json!({"seed": 8})))), generated["text"]);
    // A prompt as text, and the same prompt as tokens.
    let completed = server.ask("POST", "/v1/completions", "", &json!({"prompt": "Hello", "seed": 1, "max_tokens": 9}));
    assert_eq!(completed.0, 200, "{}", completed.2);
    let tokens: Vec<u32> = "Hello".bytes().map(u32::from).collect();
    let of_tokens = server.ask("POST", "/v1/completions", "", &json!({"prompt": tokens, "seed": 1, "max_tokens": 9}));
    assert_eq!(completed.json()["choices"][0]["text"], of_tokens.json()["choices"][0]["text"]);
}

#[test]
fn spans_stream_as_they_are_chosen() {
    let server = Server::start(&["--span-tokens", "8"]);
    let whole = server.chat(&hello(&json!({"n": 2})));
    let streamed = server.chat(&hello(&json!({"n": 2, "stream": true, "stream_options": {"include_usage": true},
        "swiss_knife": {"explain": true}})));
    assert!(streamed.1.contains("content-type: text/event-stream; charset=utf-8\r\n"), "{}", streamed.1);
    let mut chunks = chunks(&streamed.2);
    let usage = chunks.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["prompt_tokens"]), (&json!([]), &whole.json()["usage"]["prompt_tokens"]));
    assert!(chunks.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null) && chunk["id"] == usage["id"]));
    for choice in 0..2 {
        let of: Vec<&Value> = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == choice).collect();
        assert_eq!(of[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(of[of.len() - 1]["choices"][0]["finish_reason"], "length");
        let joined: String = of.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(joined, whole.json()["choices"][choice]["message"]["content"]);
        let steps: Vec<&Value> = of.iter().map(|chunk| &chunk["swiss_knife"]["step"]).filter(|step| !step.is_null()).collect();
        assert!(steps.len() >= 5, "{}", steps.len());
        for step in steps {
            let candidates = step["candidates"].as_array().unwrap();
            let mass: f64 = candidates.iter().map(|candidate| candidate["probability"].as_f64().unwrap()).sum();
            assert!((mass - 1.0).abs() < 1e-9 && candidates[0]["blades"].as_object().unwrap().len() == 3, "{step}");
            // The composite is the sum of the blades' contributions.
            for candidate in candidates {
                let blades = candidate["blades"].as_object().unwrap().values();
                let added: f64 = blades.map(|blade| blade["contribution"].as_f64().unwrap()).sum();
                assert!((added - candidate["mu"].as_f64().unwrap()).abs() < 1e-9, "{candidate}");
            }
            let shares: f64 = step["influence"].as_object().unwrap().values().map(|share| share.as_f64().unwrap()).sum();
            assert!((shares - 1.0).abs() < 1e-9, "{step}");
        }
    }
    let without = server.chat(&hello(&json!({"stream": true})));
    assert!(!without.2.contains("usage") && !without.2.contains("swiss_knife\""), "{}", without.2);
    // No part of a stop text is sent.
    let all = text(&server.chat(&hello(&json!({}))));
    let (at, _) = all.char_indices().nth(10).unwrap();
    let end = all[at..].char_indices().nth(2).map_or(all.len(), |(length, _)| at + length);
    let stopped = server.chat(&hello(&json!({"stop": &all[at..end]})));
    assert_eq!(stopped.json()["choices"][0]["finish_reason"], "stop");
    assert!(!text(&stopped).contains(&all[at..end]));
}

#[test]
fn an_answer_continues_its_prefix() {
    let server = Server::start(&["--span-tokens", "4"]);
    let whole = server.chat(&hello(&json!({"swiss_knife": {"explain": true}})));
    let steps = whole.json()["choices"][0]["swiss_knife"]["steps"].as_array().unwrap().clone();
    let other = (steps[0]["chosen"].as_u64().unwrap() as usize + 1) % steps[0]["candidates"].as_array().unwrap().len();
    let taken = &steps[0]["candidates"][other];
    let body = json!({"swiss_knife": {"explain": true, "prefix": taken["tokens"]}, "max_tokens": 8});
    let rest = server.chat(&hello(&body));
    assert_eq!(rest.0, 200, "{}", rest.2);
    let prompt = |reply: &Reply| reply.json()["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(prompt(&rest), prompt(&whole) + taken["tokens"].as_array().unwrap().len());
    // The answer is the same as if the prompt had ended with the prefix.
    let dialogue = "\n\nHuman: Hello there\n\nAssistant:".bytes().map(u32::from);
    let taken = taken["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32);
    let tokens: Vec<u32> = dialogue.chain(taken).collect();
    let completed = server.ask("POST", "/v1/completions", "", &json!({"prompt": tokens, "seed": 7, "max_tokens": 8}));
    assert_eq!(completed.json()["choices"][0]["text"], rest.json()["choices"][0]["message"]["content"]);
    let unknown = server.chat(&hello(&json!({"swiss_knife": {"prefix": [99999]}})));
    assert_eq!((unknown.0, unknown.json()["error"]["param"].as_str()), (400, Some("swiss_knife.prefix")));
}

#[test]
fn a_text_goes_on_with_the_blank_after_its_last_word() {
    let server = Server::of(Command::new(env!("CARGO_BIN_EXE_swiss-knife")).args(["serve", "--port", "0"]));
    let asked =
        json!({"prompt": "The sky is", "max_tokens": 3, "echo": true, "logprobs": 1, "swiss_knife": {"scheme": "greedy"}});
    let choice = server.ask("POST", "/v1/completions", "", &asked).json()["choices"][0].clone();
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap());
    assert_eq!(choice["text"], tokens.clone().collect::<String>());
    assert!(choice["text"].as_str().unwrap().starts_with("The sky is "), "{choice}");
}

#[test]
fn offsets_count_special_tokens_of_a_prompt() {
    let server = Server::of(Command::new(env!("CARGO_BIN_EXE_swiss-knife")).args(["serve", "--port", "0"]));
    let asked = json!({"prompt": "Hi.<|im_end|>\nThe sky is", "max_tokens": 3, "echo": true, "logprobs": 1});
    let choice = server.ask("POST", "/v1/completions", "", &asked).json()["choices"][0].clone();
    let (text, log_probs) = (choice["text"].as_str().unwrap(), &choice["logprobs"]);
    let [tokens, offsets] = ["tokens", "text_offset"].map(|field| log_probs[field].as_array().unwrap());
    assert!(tokens.contains(&json!("<|im_end|>")), "{choice}");
    for (token, offset) in tokens.iter().zip(offsets) {
        assert!(text[offset.as_u64().unwrap() as usize..].starts_with(token.as_str().unwrap()), "{choice}");
    }
}

#[test]
fn an_answer_that_ignores_its_end_has_the_set_length() {
    let server = Server::of(Command::new(env!("CARGO_BIN_EXE_swiss-knife")).args(["serve", "--port", "0"]));
    let ask = |ignored: bool, scheme: &str| {
        let steering = json!({"scheme": scheme});
        let body = json!({"prompt": "The sky is", "max_tokens": 96, "seed": 1, "ignore_eos": ignored, "swiss_knife": steering});
        server.ask("POST", "/v1/completions", "", &body)
    };
    let ended = |reply: &Reply| reply.json()["choices"][0]["finish_reason"].clone();
    assert_eq!(ended(&ask(false, "swiss-knife")), "stop");
    let whole = ask(true, "swiss-knife");
    assert_eq!((ended(&whole), &whole.json()["usage"]["completion_tokens"]), (json!("length"), &json!(96)));
    let refused = ask(true, "mod");
    assert_eq!((refused.0, refused.json()["error"]["param"].as_str()), (400, Some("ignore_eos")), "{}", refused.2);
}

/// A pass over a whole text adds log-probabilities in another order.
const ROUNDING: f64 = 1e-4;

/// Only the answer to a dialogue ends before the next turn. A text goes on, even if the model writes
/// a turn.
#[test]
fn a_text_does_not_end_at_a_turn() {
    let server = Server::of(program().arg("serve").args(["--port", "0"]));
    let asked = json!({"prompt": "The sun", "max_tokens": 24, "n": 8, "seed": 1});
    let reply = server.ask("POST", "/v1/completions", "", &asked);
    assert_eq!(reply.0, 200, "{}", reply.2);
    // Of five answers of this model, about three go on with a turn.
    let answers = reply.json()["choices"].as_array().unwrap().clone();
    assert!(answers.iter().any(|answer| answer["text"].as_str().unwrap().contains("\n\nAssistant:")), "{answers:?}");
}

#[test]
fn a_stream_ends_with_the_log_probabilities_of_its_tokens() {
    let server = Server::start(&[]);
    for (path, body) in [
        ("/v1/chat/completions", hello(&json!({"logprobs": true, "top_logprobs": 2}))),
        ("/v1/completions", json!({"prompt": "Hello", "echo": true, "logprobs": 1, "max_tokens": 9, "seed": 7})),
    ] {
        let whole = server.ask("POST", path, "", &body).json();
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        let chunks = chunks(&server.ask("POST", path, "", &streamed).2);
        let told: Vec<&Value> =
            chunks.iter().map(|chunk| &chunk["choices"][0]["logprobs"]).filter(|log_probs| !log_probs.is_null()).collect();
        assert_eq!(told, [&whole["choices"][0]["logprobs"]], "{path}");
    }
}

#[test]
fn a_text_is_scored_under_the_backbone() {
    let server = Server::start(&[]);
    let complete = |body: Value| {
        let reply = server.ask("POST", "/v1/completions", "", &body);
        assert_eq!(reply.0, 200, "{}", reply.2);
        reply.json()
    };
    // A request of lm-evaluation-harness: several prompts as tokens, and one new token.
    let prompts: Vec<Vec<u32>> = ["Hello there", "General"].map(|text| text.bytes().map(u32::from).collect()).to_vec();
    let asked = json!({"prompt": prompts, "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234});
    let body = complete(asked);
    for (place, prompt) in prompts.iter().enumerate() {
        let choice = &body["choices"][place];
        let log_probs = &choice["logprobs"];
        let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"].map(|list| log_probs[list].as_array().unwrap());
        assert!(lists.iter().all(|list| list.len() == prompt.len() + 1), "{choice}");
        assert!(choice["text"].as_str().unwrap().starts_with(["Hello there", "General"][place]), "{choice}");
        assert!(lists[1][0].is_null() && lists[2][0].is_null());
        for ((token, own), top) in lists[0].iter().zip(lists[1]).zip(lists[2]).skip(1) {
            // The most likely token, and the token itself if it is another one.
            let top = top.as_object().unwrap();
            let best = top.values().map(|p| p.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
            assert!(own.as_f64().unwrap() <= best && best <= 0.0 && top.len() <= 2, "{choice}");
            assert!(top.contains_key(token.as_str().unwrap()), "{choice}");
        }
        // A token has the same log-probability whether a shorter prompt or a longer one holds it.
        let half = &prompt[..prompt.len() - 2];
        let alone = complete(json!({"prompt": half, "echo": true, "logprobs": 0, "max_tokens": 0}));
        let alone = alone["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().clone();
        assert_eq!(alone.len(), half.len());
        for (a, b) in alone.iter().zip(lists[1]).skip(1) {
            assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < ROUNDING, "{a} {b}");
        }
    }
    // The library gives the same scores without HTTP.
    let path = |part: &str| Some(models().join(part).display().to_string());
    let options =
        ModelOptions { backbone: path("backbone"), drafter: path("drafter"), device: DeviceName::Cpu, ..ModelOptions::default() };
    let engine = Models::open(&options, &mut ()).unwrap();
    for (place, prompt) in prompts.iter().enumerate() {
        let scores = Frozen::new(Arc::clone(&engine.backbone)).score(prompt, 1, 0).unwrap();
        let served = body["choices"][place]["logprobs"]["token_logprobs"].as_array().unwrap()[1..].iter();
        for (own, served) in scores.iter().zip(served) {
            assert!((f64::from(own.log_prob) - served.as_f64().unwrap()).abs() < ROUNDING, "{own:?} {served}");
        }
    }
    let chat = server.chat(&hello(&json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 9}))).json();
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len() as u64, chat["usage"]["completion_tokens"].as_u64().unwrap());
    assert_eq!(content[0]["top_logprobs"].as_array().unwrap().len(), 2);
    let written: Vec<u8> =
        content.iter().flat_map(|token| serde_json::from_value::<Vec<u8>>(token["bytes"].clone()).unwrap()).collect();
    assert_eq!(String::from_utf8_lossy(&written), chat["choices"][0]["message"]["content"].as_str().unwrap());
    // A prompt that fills the context can be scored, and not continued.
    let full = |most: usize| {
        let prompt: Vec<u32> = std::iter::repeat_n(70, CONTEXT).collect();
        server.ask("POST", "/v1/completions", "", &json!({"prompt": prompt, "echo": true, "logprobs": 0, "max_tokens": most}))
    };
    let scored = full(0).json()["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().len();
    assert_eq!((scored, full(1).0), (CONTEXT, 400));
    // A completion of no tokens without `echo` has nothing to return.
    assert_eq!(server.ask("POST", "/v1/completions", "", &json!({"prompt": "Hi", "max_tokens": 0})).0, 400);
}

/// Metrics that appear late are missing from sums and alerts until then.
#[test]
fn every_metric_is_there_before_the_first_answer() {
    let server = Server::start(&[]);
    let metrics = server.ask("GET", "/metrics", "", &Value::Null).2;
    let named = include_str!("../../../../docs/src/serving.md").split('`').filter(|text| text.starts_with("swiss_knife_"));
    let names: Vec<&str> = named.map(|name| name.split('{').next().unwrap()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name} is missing: {metrics}");
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} is not described: {metrics}");
    }
}

#[test]
fn every_chunk_tells_the_usage_so_far_if_asked() {
    let server = Server::start(&["--span-tokens", "8"]);
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let reply = server.chat(&hello(&json!({"stream": true, "stream_options": options, "n": 2})));
    assert!(reply.1.contains("x-accel-buffering: no"), "{}", reply.1);
    let counts: Vec<Value> = chunks(&reply.2).into_iter().map(|mut chunk| chunk["usage"].take()).collect();
    let of = |field: &str| counts.iter().map(|usage| usage[field].as_u64().unwrap()).collect::<Vec<_>>();
    let (completion, total) = (of("completion_tokens"), of("total_tokens"));
    assert!(completion.is_sorted() && completion[0] == 0 && completion[3] > 0, "{completion:?}");
    assert_eq!(completion[completion.len() - 1], 80);
    assert!(
        completion.iter().zip(total).zip(of("prompt_tokens")).all(|((completion, total), prompt)| completion + prompt == total)
    );
}

#[test]
fn the_cost_of_a_search_is_reported() {
    let server = Server::start(&["--span-tokens", "8"]);
    let body = hello(&json!({"stream": true, "stream_options": {"include_usage": true}, "swiss_knife":
        {"explain": true, "weights": {"helpful": 1, "honest": 1}}}));
    let chunks = chunks(&server.chat(&body).2);
    let cost = &chunks[chunks.len() - 1]["usage"]["swiss_knife"];
    // The backbone and two adapters score each drafted token.
    let drafted = cost["drafted_tokens"].as_u64().unwrap();
    assert!(drafted > 0 && cost["scored_tokens"] == 3 * drafted, "{cost}");
    // The server counts an answer after it has sent the last chunk.
    server.until(|server| server.metric("swiss_knife_answers_total{outcome=\"complete\"}") == 1.0);
    assert_eq!(server.metric("swiss_knife_scored_tokens_total"), 3.0 * drafted as f64);
    assert_eq!(server.metric("swiss_knife_kv_bytes"), 0.0, "nothing is left of it");
    assert!(
        server.metric("swiss_knife_pass_positions_bucket{le=\"+Inf\"}")
            > server.metric("swiss_knife_pass_positions_bucket{le=\"1\"}")
    );
    assert!(server.metric("swiss_knife_pass_requests_count") > 0.0 && server.metric("swiss_knife_span_seconds_count") > 0.0);
    // While an answer is under way, its cache is smaller than the memory reserved for it.
    let server = Server::start(&LONG_ANSWERS);
    let _reader = server.send_and_take_nothing();
    server.until(|server| server.metric("swiss_knife_kv_bytes") > 0.0);
    assert!(server.metric("swiss_knife_kv_bytes") < server.metric("swiss_knife_reserved_bytes"));
}

#[test]
fn requests_are_logged_without_what_they_say() {
    for (args, says) in [(&[][..], false), (&["--log-prompts"][..], true)] {
        let server = Server::start(args);
        let reply = server.chat(&hello(&json!({"messages": [{"role": "user", "content": "Something private"}]})));
        let id = reply.1.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
        let logged = |part: &str| server.log.lock().unwrap().lines().any(|line| line.contains(id) && line.contains(part));
        server.until(|_| logged("status=200") && logged("outcome=\"complete\""));
        assert!(logged("tokens=40") && logged("seconds="), "{}", server.log.lock().unwrap());
        assert_eq!(logged("Something private"), says);
        assert_eq!(logged(&format!("{:?}", text(&reply))), says, "{}", server.log.lock().unwrap());
    }
}

#[test]
fn concurrent_clients_get_the_answers_that_each_gets_alone() {
    let server = Server::start(&["--concurrent", "6", "--waiting", "64"]);
    let body = |client: usize| {
        let weights = [json!({"helpful": 1}), json!({"honest": 1, "harmless": 2}), json!({"helpful": 1, "honest": 1})];
        let content = format!("{}Client {client}", "The same beginning. ".repeat(8));
        json!({"messages": [{"role": "user", "content": content}], "seed": client, "max_tokens": 30,
            "swiss_knife": {"weights": weights[client % 3]}})
    };
    let alone: Vec<String> = (0..12).map(|client| text(&server.chat(&body(client)))).collect();
    let beside: Vec<String> = thread::scope(|scope| {
        let (server, body) = (&server, &body);
        let clients: Vec<_> = (0..12).map(|client| scope.spawn(move || text(&server.chat(&body(client))))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(beside, alone);
}

/// More answers than are generated at once, each with more spans than the server buffers for a slow
/// reader.
#[test]
fn the_answers_of_a_request_do_not_wait_for_each_other() {
    let server = Server::start(&["--concurrent", "1", "--span-tokens", "2"]);
    let reply = server.chat(&hello(&json!({"n": 3, "max_tokens": 120})));
    assert_eq!((reply.0, reply.json()["choices"].as_array().unwrap().len()), (200, 3), "{}", reply.2);
}
