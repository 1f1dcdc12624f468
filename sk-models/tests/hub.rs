//! Downloads from a small hub on loopback that behaves like the real one: a listing, an etag and a
//! length in a redirection, contents from another host, ranges, and broken connections.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use sha2::{Digest, Sha256};
use sk_models::hf::{CheckpointError, Hub, HubError, Progress, check_adapter, check_settings};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ID: &str = "owner/model";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id that git gives a file: the SHA-1 of its blob.
fn git_blob(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    sha1::Sha1::digest([header.as_bytes(), bytes].concat()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request that the server received.
#[derive(Debug, Clone)]
struct Request {
    path: String,
    authorization: Option<String>,
    range: Option<usize>,
}

/// The state of both servers: the files, the requests so far, and the faults to inject.
#[derive(Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    requests: Mutex<Vec<Request>>,
    /// How many more responses are cut after half of the body.
    cuts: AtomicUsize,
    /// How many more requests for the listing fail.
    outages: AtomicUsize,
    /// Whether the content of a large file differs from its announced hash.
    corrupt: bool,
    /// Whether the content of a small file differs from its announced hash.
    corrupt_small: bool,
    /// Whether all small files share one etag, which is not a hash.
    opaque: bool,
    /// Whether hashes are announced in capital digits.
    capitals: bool,
    /// Whether range requests are answered with the whole file.
    ignore_ranges: bool,
    /// Whether the redirection leaves out the scheme of the storage host.
    without_scheme: bool,
    /// Whether the redirection of a large file leads to the hub itself.
    stores: bool,
    /// Bytes of padding in the listing.
    padding: usize,
    /// The error in the announced length of a large file, in bytes.
    off_by: i64,
    /// Whether small files have no announced length and never end.
    endless: bool,
    /// The token that every request to the hub must carry.
    token: Option<&'static str>,
}

/// A hub, and on another port the host that stores its large files.
struct FakeHub {
    endpoint: String,
    state: Arc<State>,
    cache: tempfile::TempDir,
}

impl FakeHub {
    fn start(state: State) -> Self {
        let state = Arc::new(state);
        let storage = serve(Arc::clone(&state), |state, request, stream| {
            let name = request.path.trim_start_matches("/blob/");
            send_file(state, name, request.range, stream);
        });
        let endpoint = serve(Arc::clone(&state), move |state, request, stream| {
            if state.token.is_some_and(|token| request.authorization.as_deref() != Some(&format!("Bearer {token}"))) {
                respond(stream, "401 Unauthorized", &[], b"");
                return;
            }
            let announced = |hash: String| if state.capitals { hash.to_uppercase() } else { hash };
            let listings = ["models", "datasets"].map(|kind| format!("/api/{kind}/{ID}/revision/"));
            let listed = |path: &str| {
                let revision = listings.iter().find_map(|listing| path.strip_prefix(listing));
                revision.is_some_and(|revision| ["main", "refs%2Fpr%2F1"].contains(&revision))
            };
            let path = request.path.strip_prefix("/datasets").unwrap_or(&request.path);
            let file = path.strip_prefix(&format!("/{ID}/resolve/{COMMIT}/"));
            if listed(&request.path) && uses(&state.outages) {
                respond(stream, "503 Service Unavailable", &[], b"");
            } else if listed(&request.path) {
                let siblings: Vec<_> = state.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
                let body = " ".repeat(state.padding) + &serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
                respond(stream, "200 OK", &[("content-type", "application/json")], body.as_bytes());
            } else if let Some((name, bytes)) = file.and_then(|name| Some((name, state.files.get(name)?))) {
                if name.ends_with(".safetensors") {
                    let storage = if state.stores {
                        ""
                    } else if state.without_scheme {
                        storage.trim_start_matches("http:")
                    } else {
                        &storage
                    };
                    let headers = [
                        ("location", format!("{storage}/blob/{name}")),
                        ("x-linked-etag", format!("\"{}\"", announced(sha256(bytes)))),
                        ("x-linked-size", (bytes.len() as i64 + state.off_by).to_string()),
                    ];
                    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    respond(stream, "302 Found", &headers, b"");
                } else {
                    let etag = format!("\"{}\"", if state.opaque { "v1".to_owned() } else { announced(git_blob(bytes)) });
                    let mut bytes = bytes.clone();
                    if state.corrupt_small {
                        bytes[0] ^= 1;
                    }
                    if state.endless {
                        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\netag: {etag}\r\n\r\n");
                        let _ = stream.write_all(head.as_bytes());
                        // Sends until the client closes the connection.
                        while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
                        return;
                    }
                    respond(stream, "200 OK", &[("etag", &etag)], &bytes);
                }
            } else if let Some(name) = request.path.strip_prefix("/blob/").filter(|_| state.stores) {
                send_file(state, name, request.range, stream);
            } else {
                respond(stream, "404 Not Found", &[], b"");
            }
        });
        Self { endpoint, state, cache: tempfile::tempdir().unwrap() }
    }

    fn hub(&self) -> Hub {
        Hub::new(&self.endpoint, self.cache.path().to_owned())
    }

    fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }
}

/// Serves on a free port of loopback and returns its address. The thread runs until the test
/// process ends.
fn serve(state: Arc<State>, answer: impl Fn(&State, &Request, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else { continue };
            let headers: Vec<(String, String)> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .filter_map(|line| line.split_once(": ").map(|(k, v)| (k.to_ascii_lowercase(), v.to_owned())))
                .collect();
            let header = |name: &str| headers.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
            let request = Request {
                path: first.split(' ').nth(1).unwrap().to_owned(),
                authorization: header("authorization"),
                range: header("range").map(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap()),
            };
            state.requests.lock().unwrap().push(request.clone());
            answer(&state, &request, &mut stream);
        }
    });
    address
}

fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    // Some tests make the client close the connection first.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
}

/// Returns whether a fault is left to inject, and uses it.
fn uses(faults: &AtomicUsize) -> bool {
    faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn send_file(state: &State, name: &str, range: Option<usize>, stream: &mut TcpStream) {
    let mut bytes = state.files[name].clone();
    if state.corrupt {
        bytes[0] ^= 1;
    }
    let from = range.filter(|_| !state.ignore_ranges).unwrap_or(0);
    if from >= bytes.len() {
        respond(stream, "416 Range Not Satisfiable", &[], b"");
        return;
    }
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let body = &bytes[from..];
    if uses(&state.cuts) {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..body.len() / 2]));
        return;
    }
    respond(stream, status, &[], body);
}

const CONFIG: &str = r#"{"model_type": "qwen2", "vocab_size": 1, "hidden_size": 8, "intermediate_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 1}"#;

const TOKENIZER: &str = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;

/// A model in two shards, and files that a download must skip.
fn sharded() -> HashMap<String, Vec<u8>> {
    let index = serde_json::json!({
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    });
    let large = |seed: u8| (0..300_000_u32).map(|i| (i % 251) as u8 ^ seed).collect();
    HashMap::from([
        ("config.json".to_owned(), CONFIG.into()),
        ("tokenizer.json".to_owned(), TOKENIZER.into()),
        ("model.safetensors.index.json".to_owned(), index.to_string().into_bytes()),
        ("model-00001-of-00002.safetensors".to_owned(), large(1)),
        ("model-00002-of-00002.safetensors".to_owned(), large(2)),
        ("unused.safetensors".to_owned(), large(3)),
        ("pytorch_model.bin".to_owned(), vec![0; 10]),
        ("README.md".to_owned(), b"hello".to_vec()),
    ])
}

/// Sums what a progress bar would show.
#[derive(Default)]
struct Count {
    files: Vec<String>,
    bytes: u64,
    resumed: u64,
    ended: usize,
}

impl Progress for Count {
    fn begin(&mut self, file: &str, _length: Option<u64>, present: u64) {
        self.files.push(file.to_owned());
        self.resumed += present;
    }

    fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    fn end(&mut self) {
        self.ended += 1;
    }
}

/// Sends the warnings of a download.
#[cfg(unix)]
struct Warnings(std::sync::mpsc::Sender<String>);

#[cfg(unix)]
impl Progress for Warnings {
    fn warn(&mut self, warning: &str) {
        self.0.send(warning.to_owned()).unwrap();
    }
}

/// Resolves a model whatever its settings.
fn resolve(hub: &Hub, source: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
    hub.resolve(source, |_| Ok(()), progress)
}

#[test]
fn a_model_is_downloaded_once_and_only_what_is_needed() {
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let mut count = Count::default();
    let snapshot = resolve(&fake.hub(), ID, &mut count).unwrap();

    assert_eq!(snapshot, fake.cache.path().join(format!("models--owner--model/snapshots/{COMMIT}")));
    for name in ["config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), fake.state.files[name], "{name}");
    }
    for name in ["unused.safetensors", "pytorch_model.bin", "README.md"] {
        assert!(!snapshot.join(name).exists(), "{name}");
    }
    assert_eq!(count.files.len(), 5);
    assert_eq!(count.ended, 5);
    assert!(count.bytes > 600_000);
    let reference = std::fs::read_to_string(fake.cache.path().join("models--owner--model/refs/main")).unwrap();
    assert_eq!(reference, COMMIT);

    let before = fake.requests().len();
    let again = resolve(&fake.hub().with_offline(true), ID, &mut ()).unwrap();
    assert_eq!(again, snapshot);
    assert_eq!(fake.requests().len(), before, "a complete snapshot needs no hub");
}

#[test]
fn of_whole_weights_and_an_index_the_whole_weights_are_fetched() {
    let mut files = sharded();
    files.insert("model.safetensors".to_owned(), vec![4; 100]);
    let fake = FakeHub::start(State { files, ..State::default() });
    let snapshot = resolve(&fake.hub(), ID, &mut ()).unwrap();
    assert!(snapshot.join("model.safetensors").exists());
    assert!(!snapshot.join("model-00001-of-00002.safetensors").exists());
    assert_eq!(resolve(&fake.hub().with_offline(true), ID, &mut ()).unwrap(), snapshot);
}

#[test]
fn a_data_set_gives_the_requested_files() {
    let files = ["good/train.jsonl.gz", "good/test.jsonl.gz", "bad/train.jsonl.gz"];
    let files = files.map(|name| (name.to_owned(), name.as_bytes().to_vec()));
    let fake = FakeHub::start(State { files: HashMap::from(files), ..State::default() });
    let id = ID.parse().unwrap();
    let name = "good/train.jsonl.gz";
    let snapshot = fake.hub().data(&id, &[name], &mut ()).unwrap();
    assert_eq!(snapshot, fake.cache.path().join(format!("datasets--owner--model/snapshots/{COMMIT}")));
    assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), name.as_bytes());
    assert!(!snapshot.join("good/test.jsonl.gz").exists() && !snapshot.join("bad").exists());
    let paths: Vec<String> = fake.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/api/datasets/owner/model/revision/main".to_owned(), format!("/datasets/{ID}/resolve/{COMMIT}/{name}")]);

    let offline = fake.hub().with_offline(true);
    assert_eq!(offline.data(&id, &[name], &mut ()).unwrap(), snapshot);
    let missing = offline.data(&id, &["good/test.jsonl.gz"], &mut ()).unwrap_err();
    assert!(matches!(missing, HubError::Offline { .. }), "{missing}");
    assert_eq!(fake.requests().len(), 2);
    let absent = fake.hub().data(&id, &["ugly.jsonl"], &mut ()).unwrap_err().to_string();
    assert!(absent.contains("owner/model has no file ugly.jsonl"), "{absent}");
}

#[test]
fn a_download_is_resumed_after_a_broken_connection() {
    let fake = FakeHub::start(State { files: sharded(), cuts: AtomicUsize::new(2), ..State::default() });
    let mut count = Count::default();
    let snapshot = resolve(&fake.hub(), ID, &mut count).unwrap();
    let name = "model-00001-of-00002.safetensors";
    assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), fake.state.files[name]);
    assert!(count.resumed > 0);
    assert!(fake.requests().iter().any(|request| request.range.is_some()));
}

#[test]
fn a_model_arrives_whole_from_a_hub_with_faults_and_habits() {
    let name = "model-00001-of-00002.safetensors";
    for (what, state) in [
        // An attempt to continue meets two cuts, so more attempts fail than may fail without progress.
        ("cuts", State { cuts: AtomicUsize::new(16), ..State::default() }),
        ("outages", State { outages: AtomicUsize::new(2), ..State::default() }),
        ("no scheme", State { without_scheme: true, ..State::default() }),
        ("no ranges", State { cuts: AtomicUsize::new(1), ignore_ranges: true, ..State::default() }),
        ("capital digits", State { capitals: true, ..State::default() }),
        ("contents at the hub", State { stores: true, ..State::default() }),
    ] {
        let fake = FakeHub::start(State { files: sharded(), ..state });
        let snapshot = resolve(&fake.hub(), ID, &mut ()).unwrap();
        assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), fake.state.files[name], "{what}");
        assert!(snapshot.join("config.json").exists(), "{what}");
    }
}

#[test]
fn contents_that_differ_from_what_was_announced_are_refused() {
    assert_eq!(git_blob(b"what is up, doc?"), "bd9dbf5aae1a3862dd1526723246b20206e5fc37");
    for (part, state) in [
        ("model-00001-of-00002.safetensors", State { corrupt: true, ..State::default() }),
        ("model-00001-of-00002.safetensors", State { corrupt: true, stores: true, ..State::default() }),
        ("SHA-1", State { corrupt_small: true, ..State::default() }),
        ("no length was announced", State { endless: true, ..State::default() }),
    ] {
        let fake = FakeHub::start(State { files: sharded(), ..state });
        let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
        assert!(matches!(error, HubError::Corrupt { .. }) && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn an_interrupted_download_leaves_nothing_under_the_final_name() {
    let mut files = sharded();
    // Few bytes, since an attempt that receives some is followed by others.
    files.insert("model-00001-of-00002.safetensors".to_owned(), vec![1; 4]);
    let fake = FakeHub::start(State { files, cuts: AtomicUsize::new(usize::MAX), ..State::default() });
    let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
    assert!(matches!(error, HubError::Interrupted { .. }), "{error}");
    assert!(error.to_string().contains("run again to continue"), "{error}");
    let repository = fake.cache.path().join("models--owner--model");
    assert!(!repository.join(format!("snapshots/{COMMIT}/model-00001-of-00002.safetensors")).exists());
    assert!(!repository.join("refs/main").exists());
    let hash = sha256(&fake.state.files["model-00001-of-00002.safetensors"]);
    assert!(!repository.join("blobs").join(&hash).exists());
    assert!(repository.join("blobs").join(format!("{hash}.incomplete")).exists());
    assert!(resolve(&fake.hub().with_offline(true), ID, &mut ()).is_err());
}

#[cfg(unix)]
#[test]
fn a_link_to_contents_that_are_gone_is_replaced() {
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let file = resolve(&fake.hub(), ID, &mut ()).unwrap().join("model-00001-of-00002.safetensors");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/nowhere/blob", &file).unwrap();
    resolve(&fake.hub(), ID, &mut ()).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), fake.state.files["model-00001-of-00002.safetensors"]);
}

/// Some hubs give all files of a revision one etag.
#[test]
fn files_with_one_etag_are_kept_apart() {
    let fake = FakeHub::start(State { files: sharded(), opaque: true, ..State::default() });
    let snapshot = resolve(&fake.hub(), ID, &mut ()).unwrap();
    for (name, bytes) in sharded().iter().filter(|(name, _)| snapshot.join(name).exists()) {
        assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), *bytes, "{name}");
    }
    assert!(snapshot.join("config.json").exists() && snapshot.join("tokenizer.json").exists());
}

#[test]
fn a_listing_has_an_end() {
    let fake = FakeHub::start(State { files: sharded(), padding: 65 << 20, ..State::default() });
    let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
    assert!(matches!(error, HubError::Answer { .. }), "{error}");
}

#[test]
fn lengths_that_differ_from_what_was_announced_are_refused() {
    for (off_by, says) in [(-1, "299999 were announced"), (1, "300000 of 300001 bytes")] {
        let fake = FakeHub::start(State { files: sharded(), off_by, ..State::default() });
        let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error} {source}").contains(says), "{error} {source}");
        assert!(
            !fake.cache.path().join(format!("models--owner--model/snapshots/{COMMIT}/model-00001-of-00002.safetensors")).exists()
        );
    }
}

/// An interrupted run may leave a partial file as long as the whole file, if it was killed while it
/// checked the hash, or longer. No range request can continue either.
#[test]
fn the_rest_of_an_earlier_download_blocks_no_other() {
    let name = "model-00001-of-00002.safetensors";
    for (beyond, asked) in [(0, false), (1, true), (300_000, true)] {
        let fake = FakeHub::start(State { files: sharded(), ..State::default() });
        let bytes = &fake.state.files[name];
        let blobs = fake.cache.path().join("models--owner--model/blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        let left: Vec<u8> = bytes.iter().copied().chain(vec![7; beyond]).collect();
        std::fs::write(blobs.join(format!("{}.incomplete", sha256(bytes))), left).unwrap();
        let snapshot = resolve(&fake.hub(), ID, &mut ()).unwrap();
        assert_eq!(&std::fs::read(snapshot.join(name)).unwrap(), bytes);
        assert_eq!(fake.requests().iter().any(|request| request.range.is_some()), asked, "{beyond} bytes too many");
    }
}

/// When two programs want one file, the second waits for the first. The first may then remove its
/// partial file because the content is corrupt.
#[cfg(unix)]
#[test]
fn a_download_that_waited_for_a_corrupt_one_begins_anew() {
    let name = "model-00001-of-00002.safetensors";
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let bytes = &fake.state.files[name];
    let blobs = fake.cache.path().join("models--owner--model/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let partial = blobs.join(format!("{}.incomplete", sha256(bytes)));
    // The partial file has the full length.
    std::fs::write(&partial, vec![7; bytes.len()]).unwrap();
    let first = std::fs::File::open(&partial).unwrap();
    first.lock().unwrap();
    let (warns, warnings) = std::sync::mpsc::channel();
    let snapshot = std::thread::scope(|scope| {
        let second = scope.spawn(|| resolve(&fake.hub(), ID, &mut Warnings(warns)));
        assert_eq!(warnings.recv().unwrap(), format!("another process downloads {name}; waiting for it"));
        std::fs::remove_file(&partial).unwrap();
        first.unlock().unwrap();
        second.join().unwrap().unwrap()
    });
    assert_eq!(&std::fs::read(snapshot.join(name)).unwrap(), bytes);
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let fake = FakeHub::start(State { files: sharded(), token: Some("secret"), ..State::default() });
    let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
    assert!(matches!(error, HubError::Status { status: 401, .. }), "{error}");
    assert!(error.to_string().contains("check the id") && error.to_string().contains("HF_TOKEN"), "{error}");

    resolve(&fake.hub().with_token(Some("secret".to_owned())), ID, &mut ()).unwrap();
    let storage: Vec<_> = fake.requests().into_iter().filter(|request| request.path.starts_with("/blob/")).collect();
    assert!(!storage.is_empty());
    assert!(storage.iter().all(|request| request.authorization.is_none()));
}

#[test]
fn unknown_models_and_missing_weights_are_named() {
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let error = resolve(&fake.hub(), "owner/other", &mut ()).unwrap_err();
    assert!(matches!(error, HubError::Status { status: 404, .. }), "{error}");
    assert!(error.to_string().contains("owner/other"), "{error}");

    let mut files = sharded();
    files.retain(|name, _| !name.contains("safetensors"));
    let fake = FakeHub::start(State { files, ..State::default() });
    let error = resolve(&fake.hub(), ID, &mut ()).unwrap_err();
    assert!(matches!(error, HubError::NoWeights { .. }), "{error}");
}

#[test]
fn a_revision_may_have_slashes() {
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let id = format!("{ID}@refs/pr/1");
    let snapshot = resolve(&fake.hub(), &id, &mut ()).unwrap();
    let reference = std::fs::read_to_string(fake.cache.path().join("models--owner--model/refs/refs/pr/1")).unwrap();
    assert_eq!(reference, COMMIT);
    assert_eq!(resolve(&fake.hub().with_offline(true), &id, &mut ()).unwrap(), snapshot);
}

#[test]
fn weights_of_an_unsupported_model_or_adapter_are_not_downloaded() {
    let refused = |files: HashMap<String, Vec<u8>>, file: &str, field: &str| {
        let fake = FakeHub::start(State { files, ..State::default() });
        let error = fake.hub().resolve(ID, check_settings, &mut ()).unwrap_err();
        assert!(error.to_string().contains(file) && error.to_string().contains(field), "{error}");
        assert!(fake.requests().iter().all(|request| !request.path.contains("/blob/")), "{field}");
    };
    let with = |name: &str, text: String| {
        let mut files = sharded();
        files.insert(name.to_owned(), text.into_bytes());
        files
    };
    refused(with("config.json", CONFIG.replace("qwen2", "llama")), "config.json", "`model_type`");
    let quantized = CONFIG.replace('{', r#"{"quantization_config": {"quant_method": "awq"}, "#);
    refused(with("config.json", quantized), "config.json", "`quantization_config`");
    refused(with("tokenizer.json", TOKENIZER.replace("BPE", "Unigram")), "tokenizer.json", "");
    let adapter = r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "use_dora": true}"#;
    let files = [("adapter_config.json", adapter), ("adapter_model.safetensors", "weights")];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    refused(HashMap::from(files), "adapter_config.json", "`use_dora`");
}

#[test]
fn weights_of_a_model_are_not_downloaded_as_an_adapter() {
    let fake = FakeHub::start(State { files: sharded(), ..State::default() });
    let error = fake.hub().resolve(ID, check_adapter, &mut ()).unwrap_err();
    assert!(matches!(error, CheckpointError::NotAnAdapter { .. }), "{error}");
    assert!(fake.requests().iter().all(|request| !request.path.contains("/blob/")));
}

#[test]
fn a_directory_wins_and_offline_forbids_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let hub = Hub::new("http://127.0.0.1:9", directory.path().join("cache")).with_offline(true);
    let path = directory.path().to_str().unwrap();
    assert_eq!(resolve(&hub, path, &mut ()).unwrap(), directory.path());
    let error = resolve(&hub, ID, &mut ()).unwrap_err();
    assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
}
