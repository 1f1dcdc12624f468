//! The server as clients of OpenAI's API use it.

mod access;
mod answers;
mod limits;
mod steering;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::common::{model_args, program};

/// A time-out that only a hanging server exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Receive buffer of the clients, in bytes. Systems differ in how far they let a buffer grow whose
/// size is not set; some hold a whole answer that nobody reads.
const RECEIVE_BUFFER: usize = 128 << 10;

/// Options that allow [`long_answer`].
const LONG_ANSWERS: [&str; 4] = ["--span-tokens", "1", "--max-candidates", "300"];

/// A running server; it ends with the test.
pub(crate) struct Server {
    process: Child,
    address: String,
    /// Its log so far.
    pub(crate) log: Arc<Mutex<String>>,
}

/// A reply: status, headers and body.
pub(crate) struct Reply(pub(crate) u16, String, pub(crate) String);

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap_or_else(|error| panic!("{error}: {}", self.2))
    }
}

impl Server {
    /// Starts a server of the tiny model, or of the model that ships if `args` asks for it.
    fn start(args: &[&str]) -> Self {
        Self::of(program().arg("serve").args(["--port", "0"]).args(model_args()).args(args))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut is_first = true;
        let address = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            // The server binds its address before it loads the models, and says "loading" first.
            assert!(!is_first || line.starts_with("loading") || line.starts_with("warning"), "{line}");
            is_first = false;
            if let Some((_, rest)) = line.split_once("listening at http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| *kept.lock().unwrap() += &(line + "\n")));
        Self { process, address, log }
    }

    /// Sends a request and leaves the connection open.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        self.send_from(RECEIVE_BUFFER, method, path, headers, body)
    }

    /// As [`send`](Self::send), from a client with a receive buffer of this many bytes.
    fn send_from(&self, buffer: usize, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        socket.connect(&self.address.parse::<SocketAddr>().unwrap().into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        // The server may refuse a request by its length and not read the rest of it.
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut text = String::new();
        self.send(method, path, headers, &body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Reply(status, head.to_owned(), body)
    }

    pub(crate) fn chat(&self, body: &Value) -> Reply {
        self.ask("POST", "/v1/chat/completions", "", body)
    }

    /// Asks the server to shut down.
    pub(crate) fn terminate(&self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for the process to end. Returns the exit status and the time that it took.
    pub(crate) fn wait(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status.code(), start.elapsed());
            }
            assert!(start.elapsed() < PATIENCE, "the server goes on");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Requests a stream larger than the socket buffers and reads nothing of it.
    fn send_and_take_nothing(&self) -> TcpStream {
        let stream = self.send("POST", "/v1/chat/completions", "", &long_answer().to_string());
        self.until(|server| server.metric("swiss_knife_first_span_seconds_count") > 0.0);
        stream
    }

    pub(crate) fn until(&self, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "it does not come to that");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The value of a metric; 0 if it is absent.
    fn metric(&self, name: &str) -> f64 {
        let Reply(_, _, text) = self.ask("GET", "/metrics", "", &Value::Null);
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Joins the pieces of a chunked body.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// The events of a stream, without the final `[DONE]`.
fn chunks(body: &str) -> Vec<Value> {
    let mut data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{body}");
    assert!(!body.contains("event:"), "a named event is not a chunk");
    data.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hello(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hello there"}], "seed": 7, "max_tokens": 40});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The body of a request for a stream several times as large as the socket buffers, so that the
/// answer waits for its reader. At this temperature, the tiny model does not draw a stop token.
fn long_answer() -> Value {
    hello(&json!({"stream": true, "max_tokens": 440, "temperature": 0.1,
        "swiss_knife": {"explain": true, "set": ["proposal.candidates=300"]}}))
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.0, 200, "{}", reply.2);
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}
