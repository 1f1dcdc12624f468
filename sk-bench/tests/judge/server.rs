//! A chat server that answers as a test tells it to, correctly or not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_bench::judge::Objectives;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

impl Request {
    /// The rubric in question.
    pub(crate) fn rubric(&self) -> &'static str {
        let text = self.body["messages"][1]["content"].as_str().unwrap();
        Objectives::hhh().rubrics.iter().find(|rubric| text.contains(&rubric.criterion)).unwrap().name.as_str()
    }

    /// The response format: `json_schema`, `json_object`, or `None`.
    pub(crate) fn format(&self) -> Option<&str> {
        self.body["response_format"]["type"].as_str()
    }
}

/// How the server handles a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A status with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// Close the connection without an answer.
    Hang,
    /// Announce the whole body, send half of it, and close.
    Half(String),
    /// A status with headers and a body that is not text.
    Bytes(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Wait, then handle the request as the inner reply says.
    Slow(Duration, Box<Reply>),
}

impl Reply {
    /// A completion with the given text.
    pub(crate) fn says(text: &str) -> Self {
        Self::completion(&json!({"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}))
    }

    /// A completion with the given choice.
    pub(crate) fn completion(choice: &Value) -> Self {
        Self::Status(200, Vec::new(), json!({"object": "chat.completion", "choices": [choice]}).to_string())
    }

    /// A well-formed score.
    pub(crate) fn score(score: u64) -> Self {
        Self::says(&json!({"reason": "because", "score": score}).to_string())
    }

    /// An error in OpenAI's format.
    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self::Status(status, Vec::new(), json!({"error": {"message": message, "type": "x"}}).to_string())
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Self::Status(status, headers, body) => respond(stream, *status, headers, body.as_bytes()),
            Self::Hang => Ok(()),
            Self::Half(body) => {
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{}", &body[..body.len() / 2]).as_bytes())
            }
            Self::Bytes(status, headers, body) => respond(stream, *status, headers, body),
            Self::Slow(pause, reply) => {
                thread::sleep(*pause);
                reply.send(stream)
            }
        }
    }
}

fn respond(stream: &mut TcpStream, status: u16, headers: &[(&str, String)], body: &[u8]) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}content-type: application/json\r\n\r\n").as_bytes())?;
    stream.write_all(body)
}

/// A running server. Its threads run until the test process ends.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    most_at_once: Arc<AtomicUsize>,
}

impl Server {
    /// Serves on a free port. `answer` receives each request and its number, from 0.
    pub(crate) fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let most_at_once = Arc::new(AtomicUsize::new(0));
        let (seen, most, answer, now) =
            (Arc::clone(&requests), Arc::clone(&most_at_once), Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, most, answer, now) = (Arc::clone(&seen), Arc::clone(&most), Arc::clone(&answer), Arc::clone(&now));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let Some(request) = read(&stream) else { return };
                    let number = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(request.clone());
                        seen.len() - 1
                    };
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let reply = answer(&request, number);
                    // The request stops counting before its answer is sent, because the client may
                    // send the next one at once.
                    if let Reply::Slow(pause, reply) = reply {
                        thread::sleep(pause);
                        now.fetch_sub(1, Ordering::SeqCst);
                        let _ = reply.send(&mut stream);
                    } else {
                        now.fetch_sub(1, Ordering::SeqCst);
                        // Some tests make the client close the connection first.
                        let _ = reply.send(&mut stream);
                    }
                });
            }
        });
        Self { url, requests, most_at_once }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The most requests under way at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }
}

/// An address where no process listens. An open connection holds the port, so no process can bind
/// it while this value lives.
pub(crate) struct Deserted {
    pub(crate) url: String,
    _ends: [TcpStream; 2],
}

impl Deserted {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let from = TcpStream::connect(address).unwrap();
        let (to, _) = listener.accept().unwrap();
        Self { url: format!("http://{address}/v1"), _ends: [from, to] }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Request { path, authorization, body, at: Instant::now() })
}
