use std::fmt;
use std::sync::Arc;

use sk_core::{BoxError, DraftModel, Drafting, Engine, Generation, InstructionRack, Prior, SpecHandle, TokenId};

use crate::backbone::RemoteBackbone;
use crate::check::Checker;
use crate::drafter::{DrafterConfig, RemoteDrafter};
use crate::fleet::{Answered, Fleet, Lease, Request};
use crate::http::agent;
use crate::reader::Reader;
use crate::vocabulary::RemoteVocabulary;
use crate::wire::{load_body, load_path, sglang};
use crate::{AdapterRack, CheckReport, Fault, Kind, Meter, Probe, RemoteError, Retry, Role, TimeLeft, Tolerance, Traffic};

/// The modules of an adapter that servers ignore when they score a prompt.
const LEFT_OUT: [&str; 2] = ["lm_head", "embed_tokens"];

/// The servers and the properties of their models.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The servers of the backbone.
    pub backbone: Role,
    /// The servers of the drafter. Without them, the backbone drafts.
    pub drafter: Option<Role>,
    /// The tokens that end a response.
    pub end_of_text: Vec<TokenId>,
    /// The bytes of each token of the vocabulary, by id.
    pub token_bytes: Arc<[Box<[u8]>]>,
    /// The retry policy of requests.
    pub retry: Retry,
    /// The most that two scorings of the same tokens may differ.
    pub tolerance: Tolerance,
}

impl RemoteOptions {
    /// Creates the options of a backbone that drafts for itself.
    #[must_use]
    pub fn new(backbone: Role, token_bytes: Arc<[Box<[u8]>]>, end_of_text: Vec<TokenId>) -> Self {
        Self { backbone, drafter: None, end_of_text, token_bytes, retry: Retry::default(), tolerance: Tolerance::default() }
    }
}

/// What to do if a server already has an adapter with the given name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfLoaded {
    /// Keep it, since no other adapter has this name.
    Keep,
    /// Return an error, since it may be another adapter.
    Refuse,
}

/// An [`Engine`] for models behind servers.
///
/// Clones share the servers, their connections and their state. A clone can have its own adapters
/// and instructions.
#[derive(Clone)]
pub struct RemoteEngine {
    backbone: Arc<Fleet>,
    drafter: Arc<Fleet>,
    adapters: AdapterRack,
    instructions: InstructionRack,
    end_of_text: Arc<[TokenId]>,
    token_bytes: Arc<[Box<[u8]>]>,
    meter: Arc<Meter>,
    left: Option<TimeLeft>,
}

impl fmt::Debug for RemoteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEngine")
            .field("adapters", &self.adapters)
            .field("instructions", &self.instructions)
            .finish_non_exhaustive()
    }
}

impl RemoteEngine {
    /// Creates an engine without adapters and without checking the servers. Sends no requests.
    ///
    /// # Errors
    /// If an address is invalid.
    pub fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        let RemoteOptions { backbone, drafter, end_of_text, token_bytes, retry, tolerance } = options;
        let agent = agent();
        let fleet = |role, name| Fleet::new(&agent, role, name, retry, tolerance).map(Arc::new);
        let backbone = fleet(backbone, "backbone")?;
        let drafter = drafter.map_or_else(|| Ok(Arc::clone(&backbone)), |role| fleet(role, "drafter"))?;
        Ok(Self {
            backbone,
            drafter,
            adapters: AdapterRack::default(),
            instructions: InstructionRack::default(),
            end_of_text: end_of_text.into(),
            token_bytes,
            meter: Arc::default(),
            left: None,
        })
    }

    /// Checks every server of both roles. The second half of the probe, or tokens 25 to 48 of a
    /// long one, must have the same log-probabilities alone, in a batch of all policies, and at
    /// each server of a role. Each adapter must differ from the base model. Tokens drafted at
    /// temperature 1 must come with the log-probabilities with which they are read. The tokenizers
    /// must agree.
    ///
    /// The check also determines whether drafted tokens come with these log-probabilities at other
    /// temperatures. If not, candidates are read again.
    ///
    /// Afterwards, each request that reads has a control row for the base model and each adapter
    /// that it reads under. Their log-probabilities must equal those of the check. Check again after
    /// adding an adapter.
    ///
    /// Cost: 9 + K requests per server on SGLang and 9 + 3K on vLLM, for K adapters.
    ///
    /// # Errors
    /// If the probe has fewer than eight tokens, a server does not answer, or one fails the check; the
    /// error then has both values. If the time of [`with_time_left`](Self::with_time_left) is over.
    pub fn check(&self, probe: &Probe<'_>) -> Result<CheckReport, RemoteError> {
        let mut names: Vec<Arc<str>> = self.adapters.names().iter().filter_map(|blade| self.adapters.get(blade)).collect();
        names.sort_unstable();
        names.dedup();
        let meter = self.meter();
        let checker = |fleet, adapters| Checker { fleet, adapters, probe: *probe, meter: &meter };
        let mut report = checker(&self.backbone, &names).run()?;
        if !Arc::ptr_eq(&self.backbone, &self.drafter) {
            report.servers.extend(checker(&self.drafter, &[]).run()?.servers);
        }
        Ok(report)
    }

    /// Loads an adapter as `name` on every server of the backbone, for the blade of the same name.
    /// SGLang must be started with `--enable-lora`; vLLM also needs
    /// `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`.
    ///
    /// `directory` is on the machine of each server. `modules` are those that the adapter changes,
    /// such as `q_proj`; empty if unknown.
    ///
    /// # Errors
    /// If the adapter changes a module that servers ignore, if a server already has an adapter with
    /// this name and `if_loaded` is [`Refuse`](IfLoaded::Refuse), or if a server fails to load it.
    pub fn load_adapter(&self, name: &str, directory: &str, modules: &[String], if_loaded: IfLoaded) -> Result<(), RemoteError> {
        // A module may be a pattern, such as `.*(q_proj|lm_head)`.
        let left_out = |module: &&String| LEFT_OUT.iter().any(|known| module.contains(known));
        if let Some(module) = modules.iter().find(left_out) {
            return Err(RemoteError::AdapterModule { blade: name.to_owned(), module: module.clone() });
        }
        let kind = self.backbone.kind;
        let parse = move |body: &[u8]| match kind {
            Kind::Sglang => sglang::load_answer(body),
            // vLLM reports success as plain text.
            Kind::Vllm => Ok::<_, Fault>(None),
        };
        let request = |home| Request {
            home,
            pinned: true,
            task: format!("loading adapter \"{name}\""),
            path: load_path(kind),
            body: Some(load_body(name, directory)),
            parse: Box::new(parse),
        };
        let requests: Vec<Request<'_, Option<String>>> = (0..self.backbone.len()).map(request).collect();
        let adapter = || name.to_owned();
        // A name or a directory that the message quotes may contain the word.
        let is_known = |message: &str| message.split_whitespace().any(|word| word == "already");
        for answer in self.backbone.each(&requests, &self.meter()) {
            match answer {
                Ok(Answered { value: None, .. }) => {}
                Ok(Answered { value: Some(reason), .. }) if if_loaded == IfLoaded::Keep && is_known(&reason) => {}
                Ok(Answered { value: Some(reason), server }) => {
                    let message = self.backbone.gist(server, reason.as_bytes());
                    let server = self.backbone.address(server).to_owned();
                    return Err(RemoteError::AdapterRefused { server, adapter: adapter(), message });
                }
                // The server has loaded it, before or in an attempt whose answer was lost.
                Err(RemoteError::Refused { message, repeated, .. })
                    if (repeated || if_loaded == IfLoaded::Keep) && is_known(&message) => {}
                Err(RemoteError::Refused { server, message, .. }) if is_known(&message) => {
                    return Err(RemoteError::AdapterKnown { server, adapter: adapter(), message });
                }
                Err(RemoteError::Refused { server, status: 404, message, .. }) if message == "Not Found" => {
                    let cure = match kind {
                        Kind::Vllm => "; start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
                        Kind::Sglang => "",
                    };
                    return Err(RemoteError::AdapterRefused { server, adapter: adapter(), message: message + cure });
                }
                Err(error) => return Err(error),
            }
        }
        self.adapters.insert(name, name);
        Ok(())
    }

    /// Returns the adapters of the backbone, by the names of their blades.
    #[must_use]
    pub fn adapters(&self) -> &AdapterRack {
        &self.adapters
    }

    /// Returns the instructions of the policies.
    #[must_use]
    pub fn instructions(&self) -> &InstructionRack {
        &self.instructions
    }

    /// Replaces the adapters.
    #[must_use]
    pub fn with_adapters(self, rack: &AdapterRack) -> Self {
        Self { adapters: rack.clone(), ..self }
    }

    /// Replaces the instructions.
    #[must_use]
    pub fn with_instructions(self, rack: &InstructionRack) -> Self {
        Self { instructions: rack.clone(), ..self }
    }

    /// Limits the time of later checks and generations. A request waits at most for the time that
    /// `left` returns when it is sent. Once `left` returns zero, none is sent, and calls return
    /// [`RemoteError::Stopped`].
    #[must_use]
    pub fn with_time_left(self, left: TimeLeft) -> Self {
        Self { left: Some(left), ..self }
    }

    /// Returns the most tokens of a context with its continuation, if a server reported it during
    /// the check.
    #[must_use]
    pub fn context_limit(&self) -> Option<usize> {
        self.backbone.room(0).into_iter().chain(self.drafter.room(0)).min()
    }

    /// Returns a meter of a part of the traffic, with the time limit.
    fn meter(&self) -> Meter {
        Meter::part_of(&self.meter, self.left.clone())
    }

    /// Returns the traffic of all generations and checks so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.meter.read()
    }

    /// As [`start`](Engine::start), without Ω, since no drafting behind servers depends on it.
    ///
    /// # Errors
    /// As [`start`](Engine::start).
    pub fn generation(&self, drafting: &Drafting) -> Result<Generation, RemoteError> {
        let meter = Arc::new(self.meter());
        let backbone_reader = || Reader::new(&self.backbone, &meter);
        let drafter_reader = || Reader::new(&self.drafter, &meter);
        let end_of_text = Arc::clone(&self.end_of_text);
        let proposal: Box<dyn sk_core::Proposal> = match *drafting {
            Drafting::Sampled { model, candidates, sampling, keep_end_of_text, span_tokens } => {
                let reader = match model {
                    DraftModel::Drafter => drafter_reader(),
                    DraftModel::Backbone => backbone_reader(),
                    DraftModel::Soup(_) => {
                        return Err(RemoteError::Unsupported {
                            what: "drafting by a soup of adapters".to_owned(),
                            reason: "servers do not average adapters; draft by the drafter or the backbone",
                        });
                    }
                };
                match reader.fleet.kind {
                    // It would penalise the tokens of a piece of a span, and no token before it.
                    Kind::Sglang if sampling.repetition_penalty() != 1.0 => {
                        return Err(RemoteError::Unsupported {
                            what: format!("a repetition penalty of {}", sampling.repetition_penalty()),
                            reason: "SGLang penalises only what it has drafted in the same request, and not the context; \
                                     set repetition_penalty to 1, or draft with vLLM",
                        });
                    }
                    Kind::Sglang | Kind::Vllm => {}
                }
                let config = DrafterConfig { candidates, sampling, end_of_text, keep_end_of_text, span_tokens };
                Box::new(RemoteDrafter::new(reader, config))
            }
            Drafting::Vocabulary { prior, head } => {
                let (backbone, amateur) = (backbone_reader(), (prior == Prior::Drafter).then(drafter_reader));
                let home = Lease::new(&backbone.fleet);
                Box::new(RemoteVocabulary { backbone, prior, amateur, head, end_of_text, home })
            }
        };
        let (adapters, instructions) = (self.adapters.clone(), self.instructions.clone());
        let backbone = RemoteBackbone { reader: backbone_reader(), adapters, instructions };
        Ok(Generation { backbone: Box::new(backbone), proposal })
    }
}

impl Engine for RemoteEngine {
    fn start(&self, drafting: &Drafting, _: &SpecHandle) -> Result<Generation, BoxError> {
        Ok(self.generation(drafting)?)
    }

    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        Arc::clone(&self.token_bytes)
    }
}
