//! The endpoints and their access control.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, FromRef, FromRequestParts, Path, Request, State};
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, RETRY_AFTER},
    request::Parts,
    uri::Authority,
};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tower::{Layer, ServiceExt};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::body::{self, Body};
use crate::completions::answer;
use crate::edit::Edit;
use crate::error::{DISCONNECTED, excerpt};
use crate::id::{RequestId, new_id};
use crate::live;
use crate::request::{Fields, Job, SteeringBody};
use crate::response::Shape;
use crate::service::Service;
use crate::{ApiError, playground};

/// The header with the steering of a request whose body has none.
const STEERING_HEADER: &str = "x-swiss-knife";

/// The response header with the identifier of the request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The OpenAPI description of the API.
const DESCRIPTION: &str = include_str!("openapi.json");

/// The access rules of a server.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The key that requests must send as `Authorization: Bearer KEY`, if any.
    pub key: Option<String>,
    /// The origins of web pages that may use the server (CORS); `*` allows any.
    pub origins: Vec<HeaderValue>,
    /// Whether `/` serves the playground page.
    pub playground: bool,
}

/// The state that handlers share.
#[derive(Clone)]
struct App {
    service: Arc<Service>,
    metrics: PrometheusHandle,
    key: Option<Arc<str>>,
}

impl FromRef<App> for Arc<Service> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.service)
    }
}

/// The parameter of a path.
struct PathText(String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let text = Path::from_request_parts(parts, state).await;
        let message = "the path is not UTF-8; percent-encode the UTF-8 bytes of the name";
        text.map(|Path(text)| Self(text)).map_err(|_| ApiError::invalid("path", message))
    }
}

/// Returns the endpoints of a service. If there is a key, all endpoints require it except the
/// health checks, the API description, `/swiss-knife` and the playground.
pub(crate) fn router(service: Arc<Service>, access: Access, metrics: PrometheusHandle) -> Router {
    let body = DefaultBodyLimit::max(service.limits.body);
    let rules = Arc::new(access.clone());
    let app = App { service, metrics, key: access.key.map(Arc::from) };
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        // The name of a model may hold a slash.
        .route("/v1/models/{*id}", get(model))
        .route("/swiss-knife/generations/{id}", get(generation).patch(edit))
        .route("/swiss-knife/blades", get(blades).post(load))
        .route("/swiss-knife/blades/{name}", delete(unload))
        .route("/metrics", get(render))
        .layer(middleware::from_fn_with_state(app.clone(), authorize));
    let open = Router::new()
        // The health checks of some load balancers are OPTIONS requests.
        .route("/health", get(health).options(health))
        .route("/ready", get(ready).options(ready))
        .route("/openapi.json", get(async || ([("content-type", "application/json")], DESCRIPTION)))
        .route("/swiss-knife", get(about));
    let open = if access.playground { open.merge(playground::router()) } else { open };
    open.merge(guarded)
        .fallback(async || {
            let message = "there is nothing at this path; of OpenAI's API, this server has /v1/chat/completions, \
                           /v1/completions and /v1/models; /openapi.json lists all paths";
            ApiError::not_found(message.to_owned())
        })
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(body)
        .layer(middleware::from_fn_with_state(Arc::clone(&rules), refuse_other_origins))
        .layer(middleware::from_fn_with_state(rules, refuse_other_hosts))
        .layer(CatchPanicLayer::custom(|_| ApiError::fault().into_response()))
        .layer(middleware::from_fn_with_state(cors(access.origins), share))
        .layer(middleware::from_fn(count))
        .with_state(app)
}

/// Returns the endpoints of a server that is loading its models.
pub(crate) fn loading(access: &Access) -> Router {
    Router::new()
        .route("/health", get(health).options(health))
        .fallback(async || ApiError::loading())
        .layer(middleware::from_fn_with_state(cors(access.origins.clone()), share))
        .layer(middleware::from_fn(count))
}

async fn health() -> &'static str {
    "ok"
}

/// Allows web pages of `origins` to use the server, and no others.
fn cors(origins: Vec<HeaderValue>) -> CorsLayer {
    if origins.is_empty() {
        return CorsLayer::new();
    }
    let origin = if origins.iter().any(|origin| origin == "*") { AllowOrigin::any() } else { AllowOrigin::list(origins) };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods(Any)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([REQUEST_ID, RETRY_AFTER])
}

/// Adds the headers of `cors`, and answers preflight requests. The layer takes every OPTIONS request
/// for one.
async fn share(State(cors): State<CorsLayer>, request: Request, next: Next) -> Response {
    if request.method() == Method::OPTIONS && !request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return next.run(request).await;
    }
    match cors.layer(next).oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Refuses requests from web pages of other origins than those of `--origin` (CSRF). A browser hides
/// the response from such a page, but sends a plain-text `POST` without a preflight request.
/// `Origin` is the origin of the page. `Sec-Fetch-Site` tells whether it differs from the server's;
/// browsers send it to their own machine and over TLS only.
async fn refuse_other_origins(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let [site, origin, host] = ["sec-fetch-site", "origin", "host"].map(|name| request.headers().get(name));
    let is_own = |origin: &HeaderValue| {
        let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else { return false };
        let Some((scheme, own)) = origin.split_once("://") else { return false };
        // An origin lacks the default port of its scheme.
        let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        own.eq_ignore_ascii_case(host.strip_suffix(port).unwrap_or(host))
    };
    let is_foreign = match site {
        Some(site) => site == "cross-site" || site == "same-site",
        None => origin.is_some_and(|origin| !is_own(origin)),
    };
    let is_allowed = || access.origins.iter().any(|allowed| allowed == "*" || Some(allowed) == origin);
    if is_foreign && !request.method().is_safe() && !is_allowed() {
        let origin = origin.map_or("ORIGIN".into(), |origin| String::from_utf8_lossy(origin.as_bytes()));
        let message = format!("pages of this origin may not use the server; start it with --origin {origin}");
        return ApiError::forbidden(&message).into_response();
    }
    next.run(request).await
}

/// Marks a request to a server that listens at a loopback address.
#[derive(Clone)]
pub(crate) struct OwnMachine;

/// If the server listens at a loopback address and has no key, refuses requests whose `Host` is
/// neither `localhost`, an IP address, nor the host of an allowed origin. Otherwise a page could
/// resolve its own domain to this machine (DNS rebinding), and its requests would be same-origin.
async fn refuse_other_hosts(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).filter(|_| access.key.is_none() && request.extensions().get::<OwnMachine>().is_some());
    let name = |authority: &str| authority.parse().map(|authority: Authority| authority.host().to_ascii_lowercase());
    let is_allowed = |host: &HeaderValue| {
        let Some(host) = host.to_str().ok().and_then(|host| name(host).ok()) else { return false };
        let origins = access.origins.iter().filter_map(|origin| origin.to_str().ok());
        let is_named = |origin: &str| {
            origin == "*" || origin.split_once("://").is_some_and(|(_, own)| name(own).is_ok_and(|own| own == host))
        };
        host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || origins.into_iter().any(is_named)
    };
    if host.is_some_and(|host| !is_allowed(host)) {
        let message =
            "this server answers only to localhost and to IP addresses; start it with a key, or with --origin http://HOST";
        return ApiError::forbidden(message).into_response();
    }
    next.run(request).await
}

/// Gives each request an identifier, and counts and logs its status.
async fn count(mut request: Request, next: Next) -> Response {
    let id = RequestId(new_id("req").into());
    request.extensions_mut().insert(id.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut entry = RequestEntry { id: id.clone(), method, path, since: Instant::now(), status: DISCONNECTED };
    let mut response = next.run(request).await;
    entry.status = response.status().as_u16();
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Maximum length of a path in the log, in bytes.
const LOGGED_PATH: usize = 500;

/// The entry of a request in metrics and log, written when it is dropped. If the client disconnects,
/// it is dropped before there is a response.
struct RequestEntry {
    id: RequestId,
    method: Method,
    path: String,
    since: Instant,
    status: u16,
}

impl Drop for RequestEntry {
    fn drop(&mut self) {
        let Self { id, method, path, since, status } = self;
        metrics::counter!("swiss_knife_requests_total", "status" => status.to_string()).increment(1);
        let path = &*excerpt(path, LOGGED_PATH);
        tracing::info!(request = %id.0, %method, path, status, seconds = since.elapsed().as_secs_f64(), "request");
    }
}

async fn authorize(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(key) = &app.key else { return next.run(request).await };
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let given = bearer.map(|(_, key)| key).unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(key.as_bytes())) {
        next.run(request).await
    } else {
        ApiError::unauthorized().into_response()
    }
}

fn of_header(headers: &HeaderMap, app: &App) -> Result<Option<SteeringBody>, ApiError> {
    let Some(value) = headers.get(STEERING_HEADER) else { return Ok(None) };
    let body = body::read(value.as_bytes(), app.service.limits.depth);
    let body = body.map_err(|error| ApiError::invalid(STEERING_HEADER, format!("`{STEERING_HEADER}`: {error}")))?;
    SteeringBody::read("x-swiss-knife.", body).map(Some)
}

async fn chat(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    answer(&app.service, id, Job::chat(body, of_header(&headers, &app)?)?, Shape::Chat).await
}

async fn completions(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    answer(&app.service, id, Job::completion(body, of_header(&headers, &app)?)?, Shape::Text).await
}

async fn ready(State(app): State<App>) -> Response {
    if app.service.is_draining() { ApiError::draining().into_response() } else { "ready".into_response() }
}

async fn render(State(app): State<App>) -> String {
    let (reserved, waiting) = app.service.admission.load();
    metrics::gauge!("swiss_knife_reserved_bytes").set(reserved as f64);
    metrics::gauge!("swiss_knife_shared_prefix_bytes").set(app.service.parts.host.shared_bytes() as f64);
    metrics::gauge!("swiss_knife_kv_bytes").set(app.service.parts.host.held_bytes() as f64);
    metrics::gauge!("swiss_knife_waiting").set(waiting as f64);
    app.metrics.render()
}

async fn about(State(app): State<App>) -> Json<Value> {
    let mut about = app.service.about();
    about["key_required"] = app.key.is_some().into();
    Json(about)
}

async fn models(State(app): State<App>) -> Json<Value> {
    let data: Vec<Value> = model_ids(&app.service).map(|id| model_body(&id)).collect();
    Json(json!({"object": "list", "data": data}))
}

/// Returns the names under which clients can use the model.
fn model_ids(service: &Service) -> impl Iterator<Item = String> {
    let name = &service.parts.name;
    let schemes = service.schemes().map(move |(scheme, _)| format!("{name}:{scheme}"));
    std::iter::once(name.clone()).chain(schemes)
}

fn model_body(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "swiss-knife"})
}

async fn model(State(app): State<App>, PathText(id): PathText) -> Result<Json<Value>, ApiError> {
    app.service.check_model(Some(&id))?;
    if !model_ids(&app.service).any(|known| known == id) {
        let message = format!("the models of this server cannot run the scheme of \"{id}\"; /v1/models lists what they can run");
        return Err(ApiError::not_found(message));
    }
    Ok(Json(model_body(&id)))
}

async fn generation(State(app): State<App>, PathText(id): PathText) -> Result<Json<Value>, ApiError> {
    Ok(Json(live::find(&app.service.lives, &id)?.view(&id)))
}

async fn edit(State(app): State<App>, PathText(id): PathText, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let edit = Edit::read(body)?;
    // An instruction may take a while to tokenize.
    let edited = tokio::task::spawn_blocking(move || {
        let live = live::find(&app.service.lives, &id)?;
        live.edit(edit, &app.service)?;
        Ok(Json(live.view(&id)))
    });
    edited.await.unwrap_or_else(|_| Err(ApiError::fault()))
}

async fn blades(State(app): State<App>) -> Json<Value> {
    Json(json!({"object": "list", "data": app.service.blades()}))
}

async fn load(State(app): State<App>, Extension(id): Extension<RequestId>, Body(body): Body) -> Result<Response, ApiError> {
    let mut fields = Fields::new("", body);
    let (name, adapter): (String, String) = (fields.require("name")?, fields.require("adapter")?);
    fields.end()?;
    let (service, blade) = (Arc::clone(&app.service), name.clone());
    let turn = Arc::clone(&app.service.loading).lock_owned().await;
    let loaded = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        service.load(&id, &name, &adapter)
    });
    loaded.await.map_err(ApiError::internal)??;
    Ok((StatusCode::CREATED, Json(json!({"name": blade, "kind": "adapter"}))).into_response())
}

async fn unload(State(app): State<App>, PathText(name): PathText) -> Result<StatusCode, ApiError> {
    app.service.unload(&name)?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::DESCRIPTION;

    #[test]
    fn every_route_is_described() {
        let source = include_str!("routes.rs");
        let (router, _) = source.split_once("pub(crate) fn loading").unwrap();
        let routes = router.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("{*", "{"));
        let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
        let described = description["paths"].as_object().unwrap().keys().cloned();
        assert_eq!(routes.collect::<BTreeSet<_>>(), described.chain(["/openapi.json".to_owned()]).collect());
    }
}
