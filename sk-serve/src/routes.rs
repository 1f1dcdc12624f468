//! The endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header::AUTHORIZATION};
use axum::middleware::{self, Next};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream};
use metrics_exporter_prometheus::PrometheusHandle;
use rand::RngExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sk_models::dialogue::tokens_of;
use sk_scheme::{NamedWeights, SHIPPED};
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;

use crate::ApiError;
use crate::generation::{Answer, Event, KEEP_ALIVE, StopOnDrop, Summary};
use crate::request::{Job, Prompt, SteeringBody};
use crate::response::{Choice, Head, Shape, now, usage};
use crate::service::{Admitted, Service, new_id};

/// The header that steers where a body does not.
const STEERING_HEADER: &str = "x-swiss-knife";

/// Chunks that wait for a slow reader before its answer does.
const BUFFERED: usize = 16;

/// What handlers share.
#[derive(Clone)]
struct App {
    service: Arc<Service>,
    metrics: PrometheusHandle,
    key: Option<Arc<str>>,
}

/// The endpoints of a service. With a key, all of them but `/health` and `/ready` want it as
/// `Authorization: Bearer KEY`.
pub fn router(service: Arc<Service>, key: Option<&str>, metrics: PrometheusHandle) -> Router {
    let limit = RequestBodyLimitLayer::new(service.limits.body);
    let app = App { service, metrics, key: key.map(Arc::from) };
    let cors = CorsLayer::new().allow_origin(Any).allow_methods(Any).allow_headers(AllowHeaders::mirror_request());
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(model))
        .route("/swiss-knife/generations/{id}", get(generation).patch(edit))
        .route("/metrics", get(|State(app): State<App>| async move { app.metrics.render() }))
        .layer(middleware::from_fn_with_state(app.clone(), authorize));
    Router::new()
        .merge(guarded)
        .route("/health", get(|| async { "ok" }))
        .route("/ready", get(ready))
        .fallback(|| async { ApiError::not_found("there is nothing at this path".to_owned()) })
        .layer(limit)
        .layer(cors)
        .with_state(app)
}

async fn authorize(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(key) = &app.key else { return next.run(request).await };
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(key.as_bytes())) {
        next.run(request).await
    } else {
        ApiError::unauthorized().into_response()
    }
}

async fn ready(State(app): State<App>) -> Response {
    if app.service.is_draining() { ApiError::draining().into_response() } else { "ready".into_response() }
}

async fn chat(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Result<Response, ApiError> {
    let job = Job::chat(object(&body)?, of_header(&headers)?)?;
    answer(&app.service, job, Shape::Chat).await
}

async fn completions(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Result<Response, ApiError> {
    let job = Job::completion(object(&body)?, of_header(&headers)?)?;
    answer(&app.service, job, Shape::Text).await
}

/// Reads a body as a JSON object, whatever type it says it has.
fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid("body", format!("the body is not a JSON object: {error}")))
}

fn of_header(headers: &HeaderMap) -> Result<Option<SteeringBody>, ApiError> {
    let Some(value) = headers.get(STEERING_HEADER) else { return Ok(None) };
    let body = serde_json::from_slice(value.as_bytes());
    body.map(Some).map_err(|error| ApiError::invalid(STEERING_HEADER, format!("`{STEERING_HEADER}`: {error}")))
}

/// Answers under way, and who listens to them.
struct Listener {
    events: mpsc::Receiver<Event>,
    /// Stops the answers when nobody listens any more.
    _stop: StopOnDrop,
    prompt: usize,
    choices: usize,
}

/// Admits a job and starts its answers.
async fn start(service: &Arc<Service>, job: &Job, head: &Head) -> Result<Listener, ApiError> {
    service.check_model(job.model.as_deref())?;
    let config = service.scheme(job)?;
    let tokenizer = &service.models.tokenizer;
    let text = |error: sk_models::text::TextError| ApiError::invalid("messages", error.to_string());
    let prompt = match &job.prompt {
        Prompt::Messages(messages) => tokens_of(&service.framing, tokenizer, messages, None).map_err(text)?,
        Prompt::Text(prompt) => tokenizer.encode(prompt).map_err(text)?,
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    let vocabulary = service.models.backbone.config().vocab_size;
    if let Some(token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
        return Err(ApiError::invalid("prompt", format!("token {token} is outside the vocabulary of {vocabulary}")));
    }
    if prompt.is_empty() {
        return Err(ApiError::invalid("prompt", "the prompt is empty"));
    }
    let limit = service.models.context_limit();
    if prompt.len() >= limit {
        let error = sk_models::dialogue::SessionError::PromptTooLong { tokens: prompt.len(), limit };
        return Err(ApiError::of_session(&error));
    }
    let new = job.max_new_tokens.unwrap_or(service.limits.max_new_tokens).min(limit - prompt.len());
    let bytes = service.bytes(&config, prompt.len(), new);
    let seed = job.seed.unwrap_or_else(|| rand::rng().random());
    let stop = StopOnDrop::default();
    let (sender, events) = mpsc::channel(BUFFERED);
    let (prompt, asked, config): (Arc<[u32]>, _, _) = (prompt.into(), Arc::new(job.prompt.clone()), Arc::new(config));
    let stop_texts: Arc<[String]> = job.stop.clone().into();
    for choice in 0..job.choices {
        let admitted = service.admit(bytes).await?;
        let answer = Answer {
            id: head.id.clone(),
            choice,
            prompt: Arc::clone(&prompt),
            asked: Arc::clone(&asked),
            config: Arc::clone(&config),
            max_new_tokens: new,
            seed: seed.wrapping_add(choice as u64),
            stop_texts: Arc::clone(&stop_texts),
            explain: job.steering.explain,
            stop: stop.0.clone(),
        };
        spawn(Arc::clone(service), answer, sender.clone(), admitted);
    }
    Ok(Listener { events, _stop: stop, prompt: prompt.len(), choices: job.choices })
}

fn spawn(service: Arc<Service>, answer: Answer, sender: mpsc::Sender<Event>, admitted: Admitted) {
    tokio::task::spawn_blocking(move || {
        let _admitted = admitted;
        metrics::counter!("swiss_knife_answers_total").increment(1);
        metrics::gauge!("swiss_knife_answers_under_way").increment(1.0);
        answer.run(&service, &sender);
        metrics::gauge!("swiss_knife_answers_under_way").decrement(1.0);
    });
}

fn count(summary: &Summary) {
    metrics::counter!("swiss_knife_tokens_total").increment(summary.tokens as u64);
    metrics::counter!("swiss_knife_drafted_tokens_total").increment(summary.drafted_tokens as u64);
    metrics::counter!("swiss_knife_steps_total").increment(summary.steps as u64);
    metrics::histogram!("swiss_knife_answer_seconds").record(summary.seconds.total());
}

async fn answer(service: &Arc<Service>, job: Job, shape: Shape) -> Result<Response, ApiError> {
    let model = job.model.clone().unwrap_or_else(|| service.name.clone());
    let head = Head { shape, id: new_id(shape.id_prefix()), created: now(), model };
    let mut listener = start(service, &job, &head).await?;
    if job.stream {
        return Ok(streamed(listener, head, job.include_usage).into_response());
    }
    let mut choices: Vec<Choice> = (0..listener.choices).map(|_| Choice::default()).collect();
    let mut left = listener.choices;
    while left > 0 {
        match listener.events.recv().await {
            Some(Event::Started { .. }) => {}
            Some(Event::Span { choice, text, step }) => {
                choices[choice].text.push_str(&text);
                choices[choice].steps.extend(step.map(|step| *step));
            }
            Some(Event::Done { choice, summary }) => {
                count(&summary);
                choices[choice].summary = summary;
                left -= 1;
            }
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(ApiError::internal("an answer ended without a result")),
        }
    }
    let summaries: Vec<Summary> = choices.iter().map(|choice| choice.summary).collect();
    Ok(Json(head.whole(&choices, &usage(listener.prompt, &summaries))).into_response())
}

/// A stream of chunks. If it is dropped, the answers stop.
fn streamed(listener: Listener, head: Head, include_usage: bool) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let state = (listener, head, VecDeque::<Value>::new(), Vec::new(), false);
    let chunks = stream::unfold(state, move |(mut listener, head, mut ready, mut done, mut ended)| async move {
        loop {
            if let Some(chunk) = ready.pop_front() {
                let data = sse::Event::default().data(chunk.to_string());
                return Some((Ok(data), (listener, head, ready, done, ended)));
            }
            if ended {
                return None;
            }
            match listener.events.recv().await {
                Some(Event::Started { choice }) => ready.extend(head.opening(choice)),
                Some(Event::Span { choice, text, step }) => ready.push_back(head.span(choice, &text, step.as_deref())),
                Some(Event::Done { choice, summary }) => {
                    count(&summary);
                    ready.push_back(head.closing(choice, summary.ended));
                    done.push(summary);
                    if done.len() == listener.choices {
                        if include_usage {
                            ready.push_back(head.usage_chunk(&usage(listener.prompt, &done)));
                        }
                        ended = true;
                    }
                }
                Some(Event::Failed(error)) => {
                    ready.push_back(error.body());
                    ended = true;
                }
                None => ended = true,
            }
        }
    });
    let end = stream::iter([Ok(sse::Event::default().data("[DONE]"))]);
    Sse::new(futures_util::StreamExt::chain(chunks, end)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

async fn models(State(app): State<App>) -> Json<Value> {
    let name = &app.service.name;
    let names = std::iter::once(name.clone()).chain(SHIPPED.iter().map(|scheme| format!("{name}:{}", scheme.name)));
    let data: Vec<Value> = names.map(|id| model_body(&id)).collect();
    Json(json!({"object": "list", "data": data}))
}

fn model_body(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "swiss-knife"})
}

async fn model(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    app.service.check_model(Some(&id))?;
    Ok(Json(model_body(&id)))
}

async fn generation(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let live = app.service.live().get(&id).cloned();
    let live = live.ok_or_else(|| ApiError::not_found(format!("no answer called \"{id}\" is under way")))?;
    let spec = live.spec.snapshot();
    let weights: BTreeMap<&str, f64> =
        spec.seats().iter().map(|seat| &**seat.name()).zip(spec.weights().as_slice().iter().copied()).collect();
    let progress = live.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Json(json!({"id": id, "weights": weights, "steps": progress.steps, "tokens": progress.tokens, "text": progress.text})))
}

/// An edit of Ω.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    weights: BTreeMap<String, f64>,
}

async fn edit(state: State<App>, Path(id): Path<String>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let edit: Edit = serde_json::from_slice(&body).map_err(|error| ApiError::invalid("weights", error.to_string()))?;
    let live = state.service.live().get(&id).cloned();
    let live = live.ok_or_else(|| ApiError::not_found(format!("no answer called \"{id}\" is under way")))?;
    let weights: NamedWeights = edit.weights.into_iter().collect();
    let edited = live.spec.edit(|spec| weights.apply(spec));
    edited.map_err(|error| ApiError::invalid("weights", error.to_string()))?;
    generation(state, Path(id)).await
}
