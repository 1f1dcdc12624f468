//! Token ids and chat prompts of Qwen2.5 against recorded vectors.
//!
//! The vectors are larger than the crate and are not part of it. `SWISS_KNIFE_TOKENIZER_VECTORS`
//! names the folder with `tokenizer.json.gz`, `tokenizer_config.json`, `text_vectors.jsonl.gz`,
//! `chat_vectors.json` and llama.cpp's `ggml-vocab-qwen2.gguf.inp` and `.out`. If the variable is
//! not set, the tests print that they are skipped, and pass.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use minijinja::Value;
use serde::Deserialize;
use sk_models::text::{ChatOptions, ChatTemplate, Detokenizer, Tokenizer};

const VARIABLE: &str = "SWISS_KNIFE_TOKENIZER_VECTORS";

/// The separator between the cases in llama.cpp's input file.
const GGML_SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// The folder of vectors. If it is not set, prints that the test is skipped and returns `None`.
fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from);
    if folder.is_none() {
        println!("SKIPPED {test}: {VARIABLE} is not set");
    }
    folder
}

fn unzipped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn tokenizer(folder: &Path) -> Tokenizer {
    Tokenizer::from_json("tokenizer.json", &unzipped(&folder.join("tokenizer.json.gz"))).unwrap()
}

/// The text that the streaming decoder makes of the ids, without special tokens.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = Detokenizer::new(tokenizer);
    let mut text: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    text.push_str(&stream.finish());
    text
}

#[derive(Deserialize)]
struct TextVector {
    text: String,
    ids: Vec<u32>,
}

#[test]
fn texts_have_the_recorded_ids() {
    let Some(folder) = folder("texts_have_the_recorded_ids") else { return };
    let tokenizer = tokenizer(&folder);
    let lines = String::from_utf8(unzipped(&folder.join("text_vectors.jsonl.gz"))).unwrap();
    let mut unchanged = 0;
    let mut count = 0;
    for line in lines.lines() {
        let vector: TextVector = serde_json::from_str(line).unwrap();
        assert_eq!(tokenizer.encode(&vector.text).unwrap(), vector.ids, "{:?}", vector.text);
        let decoded = tokenizer.decode(&vector.ids).unwrap();
        // The tokenizer composes characters (NFC), so a decomposed text does not decode to itself.
        assert_eq!(tokenizer.encode(&decoded).unwrap(), vector.ids, "{:?}", vector.text);
        if vector.ids.iter().all(|&id| !tokenizer.is_special(id)) {
            assert_eq!(streamed(&tokenizer, &vector.ids), decoded);
        }
        unchanged += usize::from(decoded == vector.text);
        count += 1;
    }
    println!("{count} texts, {unchanged} come back unchanged");
    assert!(count > 0 && unchanged + 2 >= count);
}

#[test]
fn llama_cpp_cases_have_the_recorded_ids() {
    let Some(folder) = folder("llama_cpp_cases_have_the_recorded_ids") else { return };
    let tokenizer = tokenizer(&folder);
    let inputs = std::fs::read_to_string(folder.join("ggml-vocab-qwen2.gguf.inp")).unwrap();
    let outputs = std::fs::read_to_string(folder.join("ggml-vocab-qwen2.gguf.out")).unwrap();
    let inputs: Vec<&str> = inputs.strip_suffix(GGML_SEPARATOR).unwrap_or(&inputs).split(GGML_SEPARATOR).collect();
    let outputs: Vec<&str> = outputs.lines().collect();
    assert_eq!(inputs.len(), outputs.len());
    for (input, output) in inputs.iter().zip(&outputs) {
        let expected: Vec<u32> = output.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(input).unwrap(), expected, "{input:?}");
    }
    println!("{} cases", inputs.len());
}

#[derive(Deserialize)]
struct ChatVector {
    name: String,
    messages: Value,
    tools: Value,
    add_generation_prompt: bool,
    rendered: String,
    ids: Vec<u32>,
}

#[test]
fn conversations_have_the_recorded_prompts() {
    let Some(folder) = folder("conversations_have_the_recorded_prompts") else { return };
    let tokenizer = tokenizer(&folder);
    let template = ChatTemplate::from_directory(&folder).unwrap();
    let from_config = std::fs::read_to_string(folder.join("tokenizer_config.json")).unwrap();
    let from_config = ChatTemplate::from_json("tokenizer_config.json", &from_config).unwrap();
    let vectors = std::fs::read_to_string(folder.join("chat_vectors.json")).unwrap();
    let vectors: Vec<ChatVector> = serde_json::from_str(&vectors).unwrap();
    for vector in &vectors {
        let options = ChatOptions { tools: vector.tools.clone(), add_generation_prompt: vector.add_generation_prompt };
        for template in [&template, &from_config] {
            let prompt = template.render(&vector.messages, &options).unwrap();
            assert_eq!(prompt, vector.rendered, "{}", vector.name);
        }
        assert_eq!(tokenizer.encode(&vector.rendered).unwrap(), vector.ids, "{}", vector.name);
    }
    println!("{} conversations", vectors.len());
    assert!(!vectors.is_empty());
}
