//! The state that all requests share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use sk_core::{AlignmentSpec, Instruction};
use sk_models::decoder::PassSize;
use sk_models::dialogue::{Framing, encode_messages};
use sk_models::head::HeadKind;
use sk_models::local::{Claim, Extent};
use sk_models::text::TextError;
use sk_scheme::{
    FieldEdit, GranularitySpec, NamedWeights, Parameter, Preset, ProposalSpec, SHIPPED, SchemeError, SchemeSpec, Shipped,
    Steering, suggest,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, watch};

use crate::ApiError;
use crate::admission::{Admission, Counted, Ticket};
use crate::host::{Adapters, Host, HostError};
use crate::id::RequestId;
use crate::live::Lives;
use crate::request::{Asked, Job, Prompt, SteeringBody, check_name, instruction_of};

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of answers that are generated at the same time. Further answers wait.
    pub concurrent: usize,
    /// Maximum number of requests that wait for their first answer to begin. Further requests are
    /// refused, and so are those beyond `concurrent` + `waiting` unfinished ones.
    pub waiting: usize,
    /// Maximum memory of all answers in progress and of the adapters that clients have loaded, in
    /// bytes, without the other weights. The memory that the models leave free is a limit too.
    pub memory: u64,
    /// Maximum number of tokens of an answer. A request for more is refused.
    pub max_new_tokens: usize,
    /// Maximum number of candidates per step; for a scheme over a vocabulary, of those that `explain`
    /// lists.
    pub candidates: usize,
    /// Maximum number of blades of an answer.
    pub blades: usize,
    /// Maximum time from the arrival of a request to the end of its answers. An answer that takes
    /// longer ends with the text generated so far, after the step in progress. A request that still
    /// waits then is refused.
    pub time: Duration,
    /// Maximum number of tokens of a prompt.
    pub prompt_tokens: usize,
    /// Maximum size of a request body in bytes.
    pub body: usize,
    /// Maximum size of a request head in bytes.
    pub header: usize,
    /// Maximum nesting depth of arrays and objects in a JSON body.
    pub depth: usize,
    /// Maximum time that a client may take to send the head of a request or its body, or may go
    /// without reading from an answer.
    pub patience: Duration,
    /// Interval of the keep-alive comments that a stream sends during a step; `None` sends none.
    pub keep_alive: Option<Duration>,
    /// Time that answers in progress get to finish when the server shuts down. Requests that take
    /// longer end with an error.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrent: 16,
            waiting: 64,
            memory: 4 << 30,
            max_new_tokens: 1024,
            candidates: 64,
            blades: 16,
            time: Duration::from_mins(10),
            // Limited only by the context length of the model.
            prompt_tokens: usize::MAX,
            body: 1 << 20,
            header: 32 << 10,
            depth: 32,
            patience: Duration::from_secs(30),
            keep_alive: Some(Duration::from_secs(10)),
            // The same as `time`, so that every answer can finish.
            drain: Duration::from_mins(10),
        }
    }
}

/// The models, their default steering, and the answers in progress.
pub(crate) struct Service {
    pub(crate) parts: Parts,
    pub(crate) limits: Limits,
    /// The names of the loaded adapters.
    adapters: RwLock<Vec<String>>,
    /// The names of the adapters that were loaded at the start. Clients cannot unload them.
    given: Vec<String>,
    /// Held while an adapter is loaded, so that two requests cannot load the same name.
    pub(crate) loading: Arc<Mutex<()>>,
    pub(crate) admission: Admission,
    draining: AtomicBool,
    /// Whether requests in progress end with an error.
    pub(crate) cut_off: watch::Sender<bool>,
    pub(crate) lives: Lives,
}

/// The models of a server, and their default steering. Only the contents of the rack change.
pub struct Parts {
    /// The models.
    pub host: Host,
    /// The adapters, by blade name.
    pub rack: Adapters,
    /// The folder of adapters that clients may load and unload, if any.
    pub adapter_folder: Option<PathBuf>,
    /// The instruction blades: name and text.
    pub instructions: Vec<(String, String)>,
    /// The names of all blades of the default scheme, in order: those that it lists and those that
    /// options add.
    pub seats: Vec<String>,
    /// The default steering, which requests can override.
    pub steering: Steering,
    /// Whether the bundled models are used.
    pub shipped: bool,
    /// How a dialogue is turned into a text.
    pub framing: Framing,
    /// The name of the model in the API.
    pub name: String,
}

impl Service {
    /// Returns a service with loaded models. `adapters` are the names of the loaded adapters.
    pub(crate) fn new(parts: Parts, adapters: Vec<String>, mut limits: Limits) -> Self {
        limits.memory = parts.host.room().map_or(limits.memory, |room| room.min(limits.memory));
        parts.host.scheduler().observe(|PassSize { requests, positions }| {
            metrics::histogram!("swiss_knife_pass_requests").record(requests as f64);
            metrics::histogram!("swiss_knife_pass_positions").record(positions as f64);
        });
        Self {
            admission: Admission::new(limits.memory, limits.concurrent, limits.waiting),
            draining: AtomicBool::new(false),
            cut_off: watch::Sender::new(false),
            lives: Lives::default(),
            given: adapters.clone(),
            adapters: RwLock::new(adapters),
            loading: Arc::default(),
            parts,
            limits,
        }
    }

    /// Returns the scheme of a request.
    pub(crate) fn scheme(&self, job: &Job) -> Result<SchemeSpec, ApiError> {
        let asked = &job.steering;
        // Before any work is done for them.
        self.check_blades("swiss_knife.blades", asked.blades.len())?;
        self.check_blades("swiss_knife.weights", asked.weights.as_ref().map_or(0, BTreeMap::len))?;
        let mut steering = self.parts.steering.clone();
        let named = self.named_scheme(job)?;
        let is_named = named.is_some();
        steering.scheme = named.map(PathBuf::from).or(steering.scheme);
        if let Some(preset) = &asked.preset {
            steering.preset = Some(
                suggest::choice("preset", preset, &Preset::ALL)
                    .map_err(|error| ApiError::invalid("swiss_knife.preset", error))?,
            );
        }
        let edits = asked.set.iter().map(|text| field_edit(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(weights) = &asked.weights {
            steering.weights = vec![weights.iter().map(|(name, weight)| (name.clone(), *weight)).collect::<NamedWeights>()];
        }
        let numbers = std::mem::take(&mut steering.numbers);
        // The operator chose fields, numbers and weights for another scheme than the request names.
        let set = if is_named { std::mem::take(&mut steering.set) } else { Vec::new() };
        let of_scheme = |error| ApiError::of_scheme(&error);
        let mut config = steering.spec(self.parts.shipped).map_err(of_scheme)?;
        set_known(set, &mut config);
        for (parameter, value) in numbers {
            match parameter.set(&mut config, value) {
                Err(SchemeError::Inapplicable { .. }) if is_named => {}
                set => set.map_err(of_scheme)?,
            }
        }
        // The fields of a request take precedence over all options of the server.
        FieldEdit::apply(&edits, &mut config, "set").map_err(wrong_set)?;
        for (field, name, value) in [("temperature", "draft_temperature", job.temperature), ("top_p", "top_p", job.top_p)] {
            let Some(value) = value else { continue };
            let parameter = Parameter::named(name).ok_or_else(|| ApiError::unsupported(field))?;
            parameter.set(&mut config, value).or_else(|error| match error {
                // At 1, both leave the distribution unchanged.
                SchemeError::Inapplicable { .. } if value == 1.0 => Ok(()),
                SchemeError::Inapplicable { slot, kind, .. } => {
                    let message = format!("`{field}` does not apply: the {slot} is \"{kind}\"; leave it out");
                    Err(ApiError::invalid(field, message))
                }
                error => Err(ApiError::invalid(field, error.to_string())),
            })?;
        }
        if job.ignore_eos {
            let Some(draft) = config.proposal.draft_mut() else {
                let message = "`ignore_eos` does not apply to a scheme over the vocabulary; leave the field out";
                return Err(ApiError::invalid("ignore_eos", message));
            };
            draft.keep_end_of_text = false;
        }
        config.check().map_err(wrong_set)?;
        if !is_named {
            self.seat_default(&mut config, &asked.blades);
        }
        self.seat(&mut config, asked)?;
        let is_seated = |name: &str| config.blades.iter().any(|blade| blade.name == name);
        if is_named && asked.weights.is_none() && !config.weights.iter().flat_map(NamedWeights::names).all(is_seated) {
            config.weights = None;
        }
        if config.template.is_none() && !asked.blades.is_empty() {
            return Err(ApiError::fixed_blades("swiss_knife.blades"));
        }
        config.check_start().map_err(wrong_alignment)?;
        self.check_blades("swiss_knife.blades", config.blades.len())?;
        let candidates = config.proposal.draft().map_or(0, |draft| draft.candidates);
        if candidates > self.limits.candidates {
            let most = self.limits.candidates;
            let message = format!("{candidates} candidates are asked for, and this server drafts at most {most}; ask for fewer");
            return Err(ApiError::invalid("swiss_knife.set", message));
        }
        Ok(config)
    }

    /// Returns the bundled scheme that a request names, in `scheme` or in `model`.
    fn named_scheme<'a>(&self, job: &'a Job) -> Result<Option<&'a str>, ApiError> {
        let wrong = |message| ApiError::invalid("swiss_knife.scheme", message);
        let (field, model) = (job.steering.scheme.as_deref(), self.scheme_of(job.model.as_deref()));
        if let (Some(field), Some(model)) = (field, model)
            && field != model
        {
            return Err(wrong(format!("`scheme` is \"{field}\" and `model` names \"{model}\"; give one of them")));
        }
        let name = field.or(model);
        if let Some(name) = name.filter(|name| Shipped::named(name).is_none()) {
            let hint = suggest::hint(name, SHIPPED.iter().map(|shipped| shipped.name));
            return Err(wrong(format!("no scheme is called \"{name}\"; {hint}")));
        }
        Ok(name)
    }

    /// Seats the blades that the options of the server add to those of its own scheme, except those
    /// that a request brings.
    fn seat_default(&self, config: &mut SchemeSpec, own: &BTreeMap<String, String>) {
        let Parts { host, instructions, seats, .. } = &self.parts;
        for name in seats.iter().filter(|name| !own.contains_key(*name)) {
            let head = host.heads().iter().find(|(head, _)| head == name);
            let instruction = instructions.iter().find(|(instruction, _)| instruction == name);
            match (head, instruction) {
                (Some((_, head)), _) => config.seat_head(name, head.kind),
                // This does not fail: the scheme took the same instruction at the start.
                (_, Some((_, text))) => drop(config.seat_instruction(name, text)),
                _ => config.seat(name),
            }
        }
    }

    /// Seats the blades of the server and those of a request. A blade of the request replaces a blade
    /// of the server with the same name. An adapter that a client has loaded is seated if the request
    /// gives it a weight, so that it changes no other request.
    fn seat(&self, config: &mut SchemeSpec, asked: &SteeringBody) -> Result<(), ApiError> {
        let own = &asked.blades;
        let is_weighed = |name: &String| asked.weights.as_ref().is_some_and(|weights| weights.contains_key(name));
        let adapters = self.adapters();
        if let Some(kind) = reads_heads(config) {
            let heads = self.parts.host.heads().iter().filter(|(_, head)| head.kind == kind);
            heads.for_each(|(name, _)| config.seat_head(name, kind));
        } else if config.template.is_some() {
            let ours = adapters.iter().filter(|name| self.is_given(name) || is_weighed(name));
            ours.filter(|name| !own.contains_key(*name)).for_each(|name| config.seat(name));
        }
        let seated = own.iter().map(|(name, source)| Ok((name, instruction_of("swiss_knife.blades", name, source)?)));
        let seated = seated.collect::<Result<Vec<(&String, &str)>, ApiError>>()?;
        if config.template.is_some() {
            let ours = self.parts.instructions.iter().filter(|(name, _)| !own.contains_key(name));
            for (name, text) in ours {
                // The scheme of a request may not take instructions. The default scheme took them at
                // the start.
                let _ = config.seat_instruction(name, text);
            }
            for (name, text) in seated {
                config
                    .seat_instruction(name, text)
                    .map_err(|error| ApiError::invalid("swiss_knife.blades", error.to_string()))?;
            }
        }
        let Some((name, _)) = config.adapters().find(|(name, _)| !self.parts.rack.contains(name)) else { return Ok(()) };
        Err(ApiError::no_adapter("swiss_knife.scheme", &name, &adapters))
    }

    /// Returns an error, which names the field `param`, if an answer may not have this many blades.
    pub(crate) fn check_blades(&self, param: &str, blades: usize) -> Result<(), ApiError> {
        if blades <= self.limits.blades {
            return Ok(());
        }
        let message = format!("{blades} blades are asked for, and an answer of this server has at most {}", self.limits.blades);
        Err(ApiError::invalid(param, message))
    }

    /// Returns whether an adapter was loaded at the start.
    fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// Returns the names of the blades with a loaded adapter of their own.
    pub(crate) fn adapters(&self) -> Vec<String> {
        self.adapters.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads an adapter from a subfolder of the adapter folder, as a blade for later requests.
    /// Blocks while it reads the files. Callers hold `loading`.
    pub(crate) fn load(&self, request: &RequestId, name: &str, folder: &str) -> Result<(), ApiError> {
        let path = self.folder(folder)?;
        check_name("name", name)?;
        let is_known = self.parts.instructions.iter().any(|(known, _)| known == name);
        if is_known || self.parts.rack.contains(name) || self.default_scheme().is_some_and(|(scheme, _)| scheme.is_named(name)) {
            return Err(ApiError::invalid("name", format!("a blade called \"{name}\" is here already; use another name")));
        }
        let host = &self.parts.host;
        let refuse = |error: &HostError| {
            host.check_only(&self.parts.rack);
            let error = ApiError::of_adapter(error, &path, folder);
            tracing::warn!(request = %request.0, blade = name, error = error.cause(), "adapter not loaded");
            error
        };
        // Before its weights are read.
        let bytes = host.adapter_bytes(name, &path).map_err(|error| refuse(&error))?;
        let reserved = self.admission.reserve_adapter(bytes)?;
        let adapter = host.adapter(name, &path, None, &mut ());
        let adapter = adapter.and_then(|adapter| host.check().map(|()| adapter)).map_err(|error| refuse(&error))?;
        self.parts.rack.insert_reserved(name, adapter, reserved);
        // Others may have been unloaded in the meantime.
        host.check_only(&self.parts.rack);
        self.adapters.write().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        Ok(())
    }

    /// Unloads the adapter of a blade that a client has loaded. Answers in progress that use it keep
    /// it and its memory.
    pub(crate) fn unload(&self, name: &str) -> Result<(), ApiError> {
        if self.parts.adapter_folder.is_none() {
            return Err(ApiError::forbidden("this server does not let clients unload blades; start it with --adapters DIR"));
        }
        if self.is_given(name) {
            let message =
                format!("blade \"{name}\" is one of the server's own; clients unload only those that clients have loaded");
            return Err(ApiError::forbidden(&message));
        }
        let mut adapters = self.adapters.write().unwrap_or_else(PoisonError::into_inner);
        let place = adapters.iter().position(|loaded| loaded == name);
        let place = place.ok_or_else(|| ApiError::not_found(format!("no adapter is loaded for blade \"{name}\"")))?;
        adapters.remove(place);
        self.parts.rack.remove(name);
        // A load that is under way does this at its end.
        if let Ok(_turn) = self.loading.try_lock() {
            self.parts.host.check_only(&self.parts.rack);
        }
        Ok(())
    }

    /// Returns the path of a direct subfolder of the adapter folder.
    fn folder(&self, name: &str) -> Result<String, ApiError> {
        let Some(allowed) = &self.parts.adapter_folder else {
            return Err(ApiError::forbidden("this server does not let clients load blades; start it with --adapters DIR"));
        };
        let mut parts = Path::new(name).components();
        let (Some(Component::Normal(part)), None) = (parts.next(), parts.next()) else {
            return Err(ApiError::invalid(
                "adapter",
                "`adapter` is the name of a folder of the server's --adapters DIR, not a path",
            ));
        };
        let path = allowed.join(part);
        if !path.is_dir() {
            return Err(ApiError::not_found(format!("the server's --adapters DIR has no folder \"{name}\"")));
        }
        Ok(path.to_string_lossy().into_owned())
    }

    /// Returns the `SCHEME` of a model name `NAME:SCHEME`.
    fn scheme_of<'a>(&self, model: Option<&'a str>) -> Option<&'a str> {
        model?.strip_prefix(self.parts.name.as_str())?.strip_prefix(':')
    }

    /// Returns an error if the model is not one of this server.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        let is_here = |name: &str| match self.scheme_of(Some(name)) {
            Some(scheme) => Shipped::named(scheme).is_some(),
            None => name == self.parts.name,
        };
        let Some(name) = model.filter(|name| !is_here(name)) else { return Ok(()) };
        let own = &self.parts.name;
        let schemes = self.schemes().map(|(scheme, _)| scheme).collect::<Vec<_>>().join(", ");
        let message = format!("the model \"{name}\" is not here; use \"{own}\", or \"{own}:SCHEME\" with one of {schemes}");
        Err(ApiError::not_found(message))
    }

    /// Returns the maximum number of tokens of an answer: the number requested, or else the
    /// server's limit. `asked` also holds the name of the request's field.
    pub(crate) fn max_new_tokens(&self, asked: Option<(&'static str, usize)>) -> Result<usize, ApiError> {
        let most = self.limits.max_new_tokens;
        match asked {
            Some((field, tokens)) if tokens > most => {
                let message = format!("`{field}` is {tokens}, and an answer of this server has at most {most} tokens");
                Err(ApiError::invalid(field, message))
            }
            asked => Ok(asked.map_or(most, |(_, tokens)| tokens)),
        }
    }

    /// Returns the context of a lane that reads the prompt under an instruction.
    pub(crate) fn instruction(&self, asked: &Asked, text: &str) -> Result<Instruction, TextError> {
        let tokenizer = self.parts.host.tokenizer();
        let tokens = match &asked.prompt {
            Prompt::Messages(messages) => encode_messages(&self.parts.framing, tokenizer, messages, Some(text))?,
            Prompt::Text(_) | Prompt::Tokens(_) => [tokenizer.encode(text)?, asked.tokens[..asked.opening].to_vec()].concat(),
        };
        Ok(Instruction::new(asked.opening, tokens))
    }

    /// Returns the maximum memory, in bytes, of an answer whose longest context, with its
    /// instruction, has `reach` tokens, of which `new` are generated. `adapters` are those of the
    /// scheme.
    pub(crate) fn bytes(&self, config: &SchemeSpec, adapters: &Adapters, reach: usize, new: usize) -> u64 {
        self.parts.host.footprint(self.extent(config, reach, new)).saturating_add(merged(config, adapters))
    }

    /// Returns the sizes of an answer whose context has at most `reach` tokens, of which `new` are
    /// generated.
    fn extent(&self, config: &SchemeSpec, reach: usize, new: usize) -> Extent {
        let extent = self.parts.host.extent(config);
        Extent { context: reach, span: extent.span.min(new), ..extent }
    }

    /// Queues a request as [`Admission::queue`] does, unless the server is shutting down.
    pub(crate) fn queue(&self, bytes: u64, answers: usize, field: &str) -> Result<(Ticket, Arc<Counted>), ApiError> {
        if self.is_draining() {
            return Err(ApiError::draining());
        }
        self.admission.queue(bytes, answers, field)
    }

    /// Counts how long an answer took.
    pub(crate) fn ended(&self, seconds: f64) {
        metrics::histogram!("swiss_knife_answer_seconds").record(seconds);
        self.admission.ended(seconds);
    }

    /// Reserves memory for the lanes of one more blade of an answer, whose context has at most
    /// `reach` tokens, of which `new` are generated. `adapters` are those of the blade. Fails
    /// immediately if there is not enough.
    pub(crate) fn reserve(
        &self,
        config: &SchemeSpec,
        adapters: &Adapters,
        blade: &str,
        reach: usize,
        new: usize,
    ) -> Result<Reserved, ApiError> {
        let lanes = config.blades.iter().find(|other| other.name == blade).map_or(1, |blade| blade.lanes().len());
        let extent = Extent { lanes, drafter: false, ahead: 0, ..self.extent(config, reach, new) };
        let bytes = self.parts.host.footprint(extent).saturating_add(merged(config, adapters));
        let share = self.admission.reserve(bytes).ok_or_else(ApiError::no_room_for_blade)?;
        let Some(models) = self.parts.host.local() else { return Ok(Reserved { _share: share, _claim: None }) };
        let claim = models.claim_more(bytes).ok_or_else(ApiError::no_room_for_blade)?;
        Ok(Reserved { _share: share, _claim: Some(claim) })
    }

    /// Returns how many of a request's answers run or wait at the same time, if each needs at most
    /// `bytes`.
    pub(crate) fn at_once(&self, answers: usize, bytes: u64) -> usize {
        let fit = usize::try_from(self.admission.memory() / bytes.max(1)).unwrap_or(usize::MAX);
        answers.min(self.limits.concurrent).min(fit).max(1)
    }

    /// Refuses all further requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the shipped schemes, without those that need a head that is not loaded and, behind
    /// servers, those that draft by a soup or end spans by entropy.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = (&'static str, SchemeSpec)> {
        let is_local = self.parts.host.local().is_some();
        let has = |kind| self.parts.host.heads().iter().any(|(_, head)| head.kind == kind);
        let shipped = SHIPPED.iter().filter_map(|shipped| Some((shipped.name, shipped.spec().ok()?)));
        let needs_local = |scheme: &SchemeSpec| {
            matches!(scheme.proposal, ProposalSpec::Soup(_)) || matches!(scheme.granularity, GranularitySpec::Entropy { .. })
        };
        let drafts = move |scheme: &SchemeSpec| is_local || !needs_local(scheme);
        shipped.filter(move |(_, scheme)| drafts(scheme) && reads_heads(scheme).is_none_or(has))
    }

    /// Returns the default scheme of requests with its weights, if it is complete.
    fn default_scheme(&self) -> Option<(SchemeSpec, AlignmentSpec)> {
        let mut config = self.parts.steering.spec(self.parts.shipped).ok()?;
        self.seat_default(&mut config, &BTreeMap::new());
        self.seat(&mut config, &SteeringBody::default()).ok()?;
        let spec = config.check_start().ok()?;
        Some((config, spec))
    }

    /// Returns the blades that requests can weight, with their default weights.
    pub(crate) fn blades(&self) -> Vec<Value> {
        let scheme = self.default_scheme();
        let weight = |name: &str| scheme.as_ref().and_then(|(_, spec)| spec.weight(name)).unwrap_or(0.0);
        let adapter = |name: &String| json!({"name": name, "kind": "adapter", "weight": weight(name)});
        let instruction = |(name, text): &(String, String)| json!({"name": name, "kind": "instruction", "instruction": text, "weight": weight(name)});
        let mut blades: Vec<Value> =
            self.adapters().iter().map(adapter).chain(self.parts.instructions.iter().map(instruction)).collect();
        for blade in scheme.iter().flat_map(|(config, _)| &config.blades) {
            if !blades.iter().any(|listed| listed["name"] == *blade.name) {
                blades.push(json!({"name": blade.name, "kind": blade.rule.kind(), "weight": weight(&blade.name)}));
            }
        }
        blades
    }

    /// Returns what clients can request from the server. A default is null if the scheme does not
    /// have it.
    pub(crate) fn about(&self) -> Value {
        let scheme = self.default_scheme();
        // The texts of instructions are for those who have the key.
        let mut blades = self.blades();
        blades.iter_mut().filter_map(Value::as_object_mut).for_each(|blade| drop(blade.remove("instruction")));
        let number = |name| Parameter::named(name).and_then(|parameter| parameter.get(&scheme.as_ref()?.0));
        json!({
            "model": self.parts.name,
            "version": env!("CARGO_PKG_VERSION"),
            "context_limit": self.parts.host.context_limit(),
            "max_new_tokens": self.limits.max_new_tokens,
            "blades": blades,
            "schemes": self.schemes().map(|(name, scheme)| json!({"name": name, "summary": scheme.summary().method})).collect::<Vec<_>>(),
            "presets": Preset::ALL.map(|(name, _)| name),
            "defaults": {
                "candidates": number("candidates").map(|candidates| candidates as usize),
                "temperature": number("draft_temperature"),
            },
        })
    }
}

/// The memory of a blade that an edit seats: its share of the server's memory, and of what the models
/// leave free.
pub(crate) struct Reserved {
    _share: OwnedSemaphorePermit,
    _claim: Option<Claim>,
}

/// Returns an upper bound of the bytes that `adapters` add to a soup's merged adapter, whose rank is
/// at most the sum of theirs; 0 for other proposals. The second copy that the first step after an
/// edit of the weights holds is not counted.
fn merged(config: &SchemeSpec, adapters: &Adapters) -> u64 {
    if matches!(config.proposal, ProposalSpec::Soup(_)) { adapters.bytes() } else { 0 }
}

/// Returns the kind of heads that the template of a scheme reads.
fn reads_heads(config: &SchemeSpec) -> Option<HeadKind> {
    config.template.as_ref()?.rule.head_kind()
}

/// Parses an entry of `set`.
fn field_edit(text: &str) -> Result<FieldEdit, ApiError> {
    let edit = text.parse().map_err(|error: String| ApiError::invalid("swiss_knife.set", error))?;
    // The sections of blades contain file paths, which clients must not set.
    if text.trim_start().starts_with("blades") {
        return Err(ApiError::invalid("swiss_knife.set", "`set` edits no blades; give them as `blades`"));
    }
    Ok(edit)
}

/// Returns the error for a scheme that `set` makes invalid.
fn wrong_set(error: impl Display) -> ApiError {
    ApiError::invalid("swiss_knife.set", error.to_string())
}

/// Returns the error for a scheme whose blades, weights or slots do not fit together.
fn wrong_alignment(error: SchemeError) -> ApiError {
    match error {
        SchemeError::NoHead { .. } => {
            let message = "this scheme needs a head; start the server with --head NAME=DIR, or choose another scheme";
            ApiError::invalid("swiss_knife.scheme", message)
        }
        SchemeError::NoBlade => {
            let message =
                "no blade is seated; give an instruction, such as `\"blades\": {\"calm\": \"instruction:Answer calmly.\"}`";
            ApiError::invalid("swiss_knife.blades", message)
        }
        SchemeError::SharedLane { .. } => ApiError::invalid("swiss_knife.blades", error.to_string()),
        SchemeError::Gate { .. } | SchemeError::FluencyGate { .. } | SchemeError::Parameter { .. } => wrong_set(error),
        error => ApiError::invalid("swiss_knife.weights", error.to_string()),
    }
}

/// Sets the fields that the scheme has, and leaves out the others.
fn set_known(mut fields: Vec<FieldEdit>, config: &mut SchemeSpec) {
    let unset = config.clone();
    let mut set = |fields: &[FieldEdit]| {
        let mut tried = unset.clone();
        let is_valid = FieldEdit::apply(fields, &mut tried, "--set").and_then(|()| tried.check()).is_ok();
        if is_valid {
            *config = tried;
        }
        is_valid
    };
    if set(&fields) {
        return;
    }
    let mut known = Vec::new();
    // A field may need a later one, such as the kind of its slot.
    while let Some(place) = fields.iter().position(|field| set(&[&known[..], slice::from_ref(field)].concat())) {
        known.push(fields.remove(place));
    }
}
