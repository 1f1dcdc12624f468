//! The fuzz targets: parsers of external files and answers, each as a function of bytes.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use burn::tensor::Device;
use sk_bench::judge::run::{Panel, judge_all};
use sk_bench::judge::{
    ChatJudge, ChatSettings, Endpoint, Identity, Judge, JudgeError, Objectives, Question, Retry, Scale, Scoring, Verdict,
    read_judged, read_responses,
};
use sk_bench::pool::Recording;
use sk_bench::scheme::SchemeSpec;
use sk_bench::{sweep, tune};
use sk_models::Qwen2Config;
use sk_models::hf::{TensorFiles, load_adapter};
use sk_models::text::{ChatTemplate, Message, Role, Tokenizer};
use sk_report::record::read_records;
use sk_report::report::Recorded;

use crate::answer;
use crate::mutate::Syntax;

/// A parser that must accept or refuse any bytes without a panic, in bounded time and memory.
pub(crate) struct Target {
    /// Its name, which is also the name of its corpus folder.
    pub(crate) name: &'static str,
    pub(crate) syntax: Syntax,
    /// Words that occur in its inputs.
    pub(crate) words: &'static [&'static str],
    pub(crate) run: fn(&Scratch, &[u8]),
}

/// Every target.
pub(crate) const TARGETS: [Target; 12] = [
    Target { name: "config", syntax: Syntax::Json, words: CONFIG, run: config },
    Target { name: "tokenizer", syntax: Syntax::Json, words: TOKENIZER, run: tokenizer },
    Target { name: "template", syntax: Syntax::Text, words: TEMPLATE, run: template },
    Target { name: "safetensors", syntax: Syntax::Safetensors, words: SAFETENSORS, run: safetensors },
    Target { name: "index", syntax: Syntax::Json, words: &["weight_map", "model.safetensors", "t", "u"], run: index },
    Target { name: "adapter", syntax: Syntax::Json, words: ADAPTER, run: adapter },
    Target { name: "scheme", syntax: Syntax::Toml, words: SCHEME, run: scheme },
    Target { name: "scheme-json", syntax: Syntax::Json, words: SCHEME, run: scheme_json },
    Target { name: "plan", syntax: Syntax::Toml, words: PLAN, run: plan },
    Target { name: "record", syntax: Syntax::Json, words: RECORD, run: record },
    Target { name: "reply", syntax: Syntax::Json, words: REPLY, run: reply },
    Target { name: "trace", syntax: Syntax::Json, words: RECORD, run: trace },
];

const CONFIG: &[&str] =
    &["qwen2", "silu", "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "default", "linear", "factor", "type"];
const TOKENIZER: &[&str] = &[
    "BPE",
    "ByteLevel",
    "Sequence",
    "Split",
    "Regex",
    "NFC",
    "Replace",
    "Precompiled",
    "WordPiece",
    "Unigram",
    "Metaspace",
    "TemplateProcessing",
    "normalizers",
    "pretokenizers",
    "decoders",
    "processors",
    "dropout",
    "unk_token",
    "byte_fallback",
    "fuse_unk",
    "ignore_merges",
    "special",
    "lstrip",
    "rstrip",
    "normalized",
    "single_word",
    "truncation",
    "padding",
    "Fixed",
    "BatchLongest",
    "Ġ",
    "a b",
];
const TEMPLATE: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "{% for i in range(9999) %}",
    "{% endfor %}",
    "{% if x %}",
    "{% else %}",
    "{% endif %}",
    "{% set x = x ~ x %}",
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set x %}",
    "{% endset %}",
    "{% macro m(a) %}",
    "{% endmacro %}",
    "{{ m(m) }}",
    "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}",
    " ~ ",
    " + ",
    " * ",
    " ** ",
    " * 99999999",
    "|join(x)",
    "|join",
    "|replace('a', x)",
    "|list",
    "|string",
    "|length",
    "|tojson",
    "|tojson(indent=200)",
    "|indent(9999)",
    "|format(1)",
    "|map('upper')",
    "|sort",
    "|unique",
    "|groupby('role')",
    "|batch(99999999, x)",
    "|slice(99999999)",
    "|dictsort",
    "|sum",
    "|pprint",
    "|round(99)",
    "|title",
    "|trim",
    "|first",
    "|last",
    "|reverse",
    "|zip(x)",
    "|chain(x)",
    "|default(x)",
    ".split('')",
    ".join(x)",
    ".replace('', x)",
    ".format(x)",
    ".strip()",
    ".items()",
    "[::-1]",
    "[0]",
    "[1:]",
    "messages",
    "message.content",
    "loop.index0",
    "loop(x)",
    " recursive",
    "{% raw %}",
    "{% endraw %}",
    "{% call m() %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% break %}",
    "{% continue %}",
    "{% include 'chat' %}",
    "{% extends 'chat' %}",
    "{% block x %}",
    "{% endblock %}",
    "{{ self.x() }}",
    "{{ super() }}",
    "{% import 'chat' as c %}",
    "strftime_now('%9999Y')",
    "raise_exception('x')",
    "range(0, 99999999)",
    "namespace(x=1)",
    "dict(a=1)",
    "debug()",
    "lipsum(999)",
    "cycler(1)",
    "joiner(1)",
    " is divisibleby 0",
    " // 0",
    " % 0",
    " is string",
    " in x",
    " if x else y",
    "not ",
    "-",
];
const SAFETENSORS: &[&str] =
    &["F32", "F16", "BF16", "I8", "F64", "BOOL", "F8_E4M3", "F4", "dtype", "shape", "data_offsets", "__metadata__", "t"];
const ADAPTER: &[&str] = &[
    "LORA",
    "q_proj",
    "k_proj",
    "embed_tokens",
    "lm_head",
    "all-linear",
    ".*",
    "(a|a)*b",
    "(?=a)*",
    "(.*)\\1*x",
    "layers",
    "rank_pattern",
    "alpha_pattern",
    "layers_to_transform",
    "layers_pattern",
    "exclude_modules",
    "^model\\.layers\\.0",
    "(?:.*\\.)?",
    "(",
    "\\",
    "use_rslora",
];
const SCHEME: &[&str] = &[
    "blades",
    "selector",
    "aggregator",
    "normalizer",
    "proposal",
    "granularity",
    "stability",
    "base",
    "weights",
    "kind",
    "softmax",
    "champion",
    "temperature",
    "candidates",
    "tokens",
    "beta",
    "helpful",
    "honest",
    "harmless",
    "fluency",
    "implicit_reward",
    "reward_head",
    "instruction",
    "std",
    "none",
    "argmax",
    "bradley_terry",
    "thurstone",
    "elo",
    "nan",
    "inf",
    "-inf",
    "1_000",
    "0x7fffffffffffffff",
    "[[",
    "]]",
    " = ",
];
const PLAN: &[&str] = &[
    "sweep",
    "tune",
    "model",
    "schemes",
    "prompts",
    "weights",
    "generation",
    "seeds",
    "kind",
    "listed",
    "grid",
    "lattice",
    "corners",
    "steps",
    "list",
    "sources",
    "limit",
    "share",
    "max_new_tokens",
    "output",
    "traces",
    "backbone",
    "drafter",
    "blades",
    "device",
    "scheme",
    "set",
    "file",
    "objective",
    "judge",
    "search",
    "trials",
    "startup",
    "dimensions",
    "low",
    "high",
    "nan",
    "inf",
    "9223372036854775807",
    "[[",
    "]]",
    " = ",
];
const RECORD: &[&str] = &[
    "id",
    "scheme",
    "weights",
    "prompt_id",
    "seed",
    "draws",
    "response",
    "ended",
    "limit",
    "tokens",
    "steps",
    "seconds",
    "trace",
    "offset",
    "bytes",
    "a",
    "turn",
    "step",
    "candidates",
    "blades",
    "mu",
    "sigma",
    "weight",
    "probabilities",
    "chosen",
    "uniform",
    "n",
    "\n",
    "{\"id\":\"a\"",
];
const REPLY: &[&str] = &[
    "choices",
    "message",
    "content",
    "refusal",
    "finish_reason",
    "length",
    "content_filter",
    "logprobs",
    "top_logprobs",
    "token",
    "logprob",
    "score",
    "reason",
    "{\"score\": 3}",
    "</think>",
    "{\"reason\": \"",
    "```json",
    "\\\"",
    "{",
    "error",
    "1",
    "5",
];

/// The state that targets keep between inputs.
pub(crate) struct Scratch {
    folder: PathBuf,
    backbone: (Qwen2Config, TensorFiles),
    device: Device,
    server: Server,
}

impl Scratch {
    /// Writes the files that the targets read in addition to their inputs to a folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sk-models/tests/fixtures/tied");
        for part in ["shards", "adapter"] {
            fs::create_dir_all(folder.join(part)).expect("the folder can be written to");
        }
        let copy = |from: PathBuf, to: &str| fs::copy(from, folder.join(to)).map(|_| ()).expect("the fixture is there");
        copy(corpus("safetensors").join("f32.safetensors"), "shards/model.safetensors");
        copy(fixtures.join("adapters/list/adapter_model.safetensors"), "adapter/adapter_model.safetensors");
        let model = fixtures.join("model");
        let config = Qwen2Config::from_file(&model.join("config.json")).expect("the fixture is a model");
        let tensors = TensorFiles::open(&model).expect("the fixture is a model");
        Self { folder: folder.to_owned(), backbone: (config, tensors), device: Device::flex(), server: Server::start() }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, bytes).expect("the folder can be written to");
        path
    }
}

/// Returns the corpus folder of a target.
pub(crate) fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// Formats the message of an error, as the program would.
fn see<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| error.to_string()).ok()
}

fn config(_: &Scratch, bytes: &[u8]) {
    if let Some(config) = see(Qwen2Config::from_json("config.json", &String::from_utf8_lossy(bytes))) {
        assert!(config.parameters() > 0);
        let again = Qwen2Config::from_json("again", &config.to_json("float32")).expect("what is written can be read");
        assert_eq!(again.parameters(), config.parameters());
    }
}

fn tokenizer(_: &Scratch, bytes: &[u8]) {
    let Some(tokenizer) = see(Tokenizer::from_json("tokenizer.json", bytes)) else { return };
    for text in ["", "How do I clean my bicycle?", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "é\u{301} \u{0}💥\r\n <|im_start|>a"]
    {
        if let Some(ids) = see(tokenizer.encode(text)) {
            tokenizer.decode(&ids).expect("ids of the tokenizer's own");
        }
    }
}

fn template(_: &Scratch, bytes: &[u8]) {
    let config = serde_json::json!({"chat_template": String::from_utf8_lossy(bytes), "eos_token": "<end>"});
    let Some(template) = see(ChatTemplate::from_json("tokenizer_config.json", &config.to_string())) else { return };
    let dialogue =
        [Message::new(Role::User, "Hello."), Message::new(Role::Assistant, "é"), Message::new(Role::User, "aaaa b {x}")];
    see(template.prompt(&dialogue));
}

fn read_all(files: &TensorFiles) {
    let mut values = 0;
    for name in files.names() {
        let shape = files.shape(name).expect("it is there").to_vec();
        if let [rows, columns] = shape[..] {
            see(files.read_transposed(name, [rows, columns]));
        }
        see(files.read(name, &shape));
        values += shape.iter().map(|&size| size as u64).product::<u64>();
    }
    assert!(values < 1 << 32);
}

fn safetensors(scratch: &Scratch, bytes: &[u8]) {
    let path = scratch.write("file.safetensors", bytes);
    if let Some(files) = see(TensorFiles::open_file(&path, "hint")) {
        read_all(&files);
    }
}

fn index(scratch: &Scratch, bytes: &[u8]) {
    scratch.write("shards/model.safetensors.index.json", bytes);
    if let Some(files) = see(TensorFiles::open(&scratch.folder.join("shards"))) {
        read_all(&files);
    }
}

fn adapter(scratch: &Scratch, bytes: &[u8]) {
    scratch.write("adapter/adapter_config.json", bytes);
    let (config, tensors) = &scratch.backbone;
    see(load_adapter(&scratch.folder.join("adapter"), config, tensors, &scratch.device));
}

fn scheme(_: &Scratch, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(spec) = see(SchemeSpec::from_toml("scheme.toml", &text)) {
        built(&spec);
    }
    let mut spec = SchemeSpec::default();
    see(spec.overlay("scheme.toml", &text, Path::new("")));
    see(spec.amend("--set", &text));
}

fn scheme_json(_: &Scratch, bytes: &[u8]) {
    if let Some(spec) = see(serde_json::from_slice::<SchemeSpec>(bytes)) {
        built(&spec);
        let text = serde_json::to_string(&spec).expect("a scheme can be written");
        let again: SchemeSpec = serde_json::from_str(&text).expect("what is written can be read");
        assert_eq!(again.digest(), spec.digest());
    }
}

fn built(spec: &SchemeSpec) {
    see(spec.normalizer.build());
    see(spec.aggregator.build());
    see(spec.selector.build());
    spec.digest();
}

fn plan(scratch: &Scratch, bytes: &[u8]) {
    let (path, text) = (scratch.folder.join("plan.toml"), String::from_utf8_lossy(bytes));
    see(sweep::Plan::parse(&path, &text));
    see(tune::TunePlan::parse(&path, &text));
}

fn record(scratch: &Scratch, bytes: &[u8]) {
    let path = scratch.write("records.jsonl", bytes);
    see(read_records(&path));
    see(read_responses(&path));
    see(read_judged(&path));
    // A file of judgements that was taken up once can be taken up again, and does not change.
    let panel = Panel { responses: &[], objectives: Objectives::hhh(), rubrics: &[], passes: 1, concurrency: 1 };
    let judge = Idle(Identity { model: String::new(), scoring: String::new(), scale: None, settings: String::new() });
    let take_up = || judge_all(&panel, &judge, &path, &|_| ());
    if see(take_up()).is_some() {
        let judged = fs::read(&path).expect("it is there");
        take_up().expect("it was taken up before");
        assert!(fs::read(&path).expect("it is there") == judged, "the judgements have changed");
    }
}

/// A judge that is asked nothing.
struct Idle(Identity);

impl Judge for Idle {
    fn identity(&self) -> &Identity {
        &self.0
    }

    fn judge(&self, _: &Question<'_>) -> Result<Verdict, JudgeError> {
        Ok(Verdict::Abstention("idle".to_owned()))
    }
}

fn trace(scratch: &Scratch, bytes: &[u8]) {
    let path = scratch.write("steps.jsonl", bytes);
    see(Recording::read(&path));
    let record = fs::read_to_string(corpus("record").join("traced.jsonl")).expect("it is in the corpus");
    let mut record: serde_json::Value = serde_json::from_str(record.lines().next().unwrap_or_default()).expect("it is a record");
    record["trace"] = serde_json::json!({"offset": 0, "bytes": bytes.len()});
    let id = record["id"].as_str().expect("it has an id").to_owned();
    let records = scratch.write("traced.jsonl", format!("{record}\n").as_bytes());
    scratch.write("traced.traces.jsonl", bytes);
    see(Recorded::read(&records, &HashSet::from([id.as_str()])));
}

fn reply(scratch: &Scratch, bytes: &[u8]) {
    for scale in [Scale::TENTHS, Scale::ONE_TO_FIVE] {
        see(answer::score(&String::from_utf8_lossy(bytes), scale));
    }
    // Use the server rarely, since it takes a hundred times as long.
    if bytes.len().is_multiple_of(32) {
        scratch.server.answer(bytes);
    }
}

/// A server for judges that answers with the input.
struct Server {
    body: Arc<Mutex<Vec<u8>>>,
    judges: OnceLock<Vec<ChatJudge>>,
}

impl Server {
    fn start() -> Self {
        Self { body: Arc::default(), judges: OnceLock::new() }
    }

    fn listen(&self) -> Vec<ChatJudge> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let body = Arc::clone(&self.body);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let body = Arc::clone(&body);
                std::thread::spawn(move || serve(&stream, &body));
            }
        });
        let once = Retry { attempts: 1, first: Duration::ZERO, longest: Duration::ZERO, patience: Duration::ZERO };
        let judge = |scoring| {
            let endpoint = Endpoint::new(&url, None, Duration::from_secs(60)).expect("it is an address");
            ChatJudge::new(endpoint, ChatSettings { retry: once, ..ChatSettings::new("judge", scoring) }).expect("the scales fit")
        };
        vec![judge(Scoring::Integer), judge(Scoring::Logprob)]
    }

    fn answer(&self, bytes: &[u8]) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        let rubric = &Objectives::hhh().rubrics[0];
        for judge in self.judges.get_or_init(|| self.listen()) {
            see(judge.judge(&Question { rubric, prompt: "\n\nHuman: Hi\n\nAssistant:", response: " Hello.", pass: 0 }));
        }
    }
}

/// Answers the requests of a connection until it is closed.
fn serve(stream: &std::net::TcpStream, body: &Mutex<Vec<u8>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        let body = body.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    }
}
