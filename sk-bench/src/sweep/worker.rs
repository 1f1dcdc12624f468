//! Workers, which generate the responses of cells.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Serialize;
use sk_core::{Ended, Instruction, TokenId};
use sk_models::decoder::Stop;
use sk_models::head::Head;
use sk_serve::host::{Adapter, Adapters, Host};

use sk_report::record::SweepRecord;

use super::{Arm, Cell, Digests, Grid};
use crate::certificates::{Certificates, TOLERANCE};
use crate::models::{load_adapters, load_heads, on};
use crate::progress::Loading;
use crate::prompt_sets::Prompt;
use crate::scheme::NamedWeights;
use crate::trace::{StepRecord, kept};
use crate::{Error, interrupt, session};
use sk_models::dialogue::{Framing, SessionError, encode_dialogue, instructed};

/// The models of a plan and the adapters of its schemes.
pub(crate) struct Loaded {
    host: Host,
    /// The adapters by their model (`None` for the backbone) and their source. They are shared
    /// between schemes, so that cells can share their KV caches.
    adapters: HashMap<(Option<String>, String), Adapter>,
    /// The heads of each arm.
    heads: Vec<Vec<(String, Head)>>,
}

impl Loaded {
    /// Loads the models, adapters and heads of a grid whose settings hold `digests`.
    ///
    /// # Errors
    /// If one of them cannot be loaded, or has changed since its digest was computed.
    pub(crate) fn new(grid: &Grid, digests: &Digests, loading: &mut Loading) -> Result<Self, Error> {
        let mut host = grid.plan.models.open(loading)?;
        for (lane, on) in grid.arms.iter().flat_map(|arm| arm.config.readers()) {
            host.open_reader(&lane, on, loading)?;
        }
        let load = |arm: &Arm| load_heads(&host, &arm.parts.heads, [&arm.config]);
        let heads = grid.arms.iter().map(load).collect::<Result<_, _>>()?;
        let mut sources: Vec<(String, String, Option<String>)> = Vec::new();
        for arm in &grid.arms {
            for (name, source) in &arm.parts.adapters {
                let on = on(name, [&arm.config]);
                if !sources.iter().any(|(_, known, other)| known == source && *other == on) {
                    sources.push((name.clone(), source.clone(), on));
                }
            }
        }
        let loaded = load_adapters(&host, sources.clone(), loading)?;
        let adapters = sources.into_iter().zip(loaded).map(|((_, source, on), (_, adapter))| ((on, source), adapter)).collect();
        digests.check(loading)?;
        Ok(Self { host, adapters, heads })
    }
}

/// A grid with its loaded models, ready to run cells.
pub(crate) struct Worker<'g> {
    grid: &'g Grid,
    loaded: &'g Loaded,
    framings: Vec<Framing>,
}

/// A step in the trace file.
#[derive(Serialize)]
struct CellStep<'a> {
    id: &'a str,
    #[serde(flatten)]
    step: StepRecord<'a>,
}

impl<'g> Worker<'g> {
    /// Returns a worker for a grid, and checks that every prompt fits the models, until Ctrl-C is
    /// pressed.
    pub(crate) fn new(grid: &'g Grid, loaded: &'g Loaded) -> Result<Self, Error> {
        let framing = |arm: &Arm| grid.plan.generation.framing.of(&loaded.host, arm.convention);
        let framings = grid.arms.iter().map(framing).collect::<Result<_, Error>>()?;
        let worker = Self { grid, loaded, framings };
        let reads = |arm: usize| {
            let Arm { convention, config, .. } = &grid.arms[arm];
            (convention, config.instructions().map(|(_, text)| text).collect::<Vec<_>>())
        };
        // Arms of the same convention and instructions read the same tokens.
        let distinct: Vec<usize> =
            (0..grid.arms.len()).filter(|&arm| !(0..arm).any(|earlier| reads(earlier) == reads(arm))).collect();
        for prompt in (0..grid.prompts.len()).take_while(|_| !interrupt::requested()) {
            distinct.iter().try_for_each(|&arm| worker.check_prompt(arm, prompt))?;
        }
        Ok(worker)
    }

    /// Runs a cell. Returns its record, whose position in the trace file is not set yet, and its
    /// steps as lines. Returns `None` if `go_on` returns `false` before its last step.
    ///
    /// The forward passes of concurrent cells are batched. KV caches are reused only where the
    /// result is bit-identical to a new prefill.
    pub(crate) fn answer(&self, cell: &Cell, go_on: impl Fn() -> bool) -> Result<Option<(SweepRecord, Vec<u8>)>, Error> {
        self.try_answer(cell, go_on).map_err(|error| error.within(format!("cell {}", cell.id)))
    }

    fn try_answer(&self, cell: &Cell, go_on: impl Fn() -> bool) -> Result<Option<(SweepRecord, Vec<u8>)>, Error> {
        let (grid, arm, prompt) = (self.grid, &self.grid.arms[cell.arm], &self.grid.prompts[cell.prompt]);
        let Loaded { host, adapters, heads } = self.loaded;
        let weights = grid.weights(cell).map(|weights| weights.by_name().clone()).unwrap_or_default();
        let mut config = arm.config.clone();
        if arm.steered {
            config.weights = Some(weights.iter().map(|(name, weight)| (name.clone(), *weight)).collect::<NamedWeights>());
        }
        let adapter = |(name, source): &(String, String)| {
            let key = (on(name, [&arm.config]), source.clone());
            Some((name.clone(), adapters.get(&key)?.clone()))
        };
        let own = arm.parts.adapters.iter().filter_map(adapter).collect::<Adapters>();
        let framing = &self.framings[cell.arm];
        let mut session = session::open(host, &config, framing, &heads[cell.arm], &own, cell.draws())?;
        let certificates = Certificates::new(&config, TOLERANCE);
        let mut steps = Vec::new();
        let (tokens, stop) = (self.tokens(cell.arm, cell.prompt)?, framing.stops());
        session.instruct(|text| self.instruction(cell.arm, cell.prompt, tokens.len(), text))?;
        let request = host.scheduler().join(&Stop::new());
        let answered = session.answer(&tokens, stop, grid.plan.generation.max_new_tokens, |step, _| -> Result<_, Error> {
            if let Some(step) = step.filter(|_| grid.plan.traces) {
                let (n, kept) = (step.candidates.len(), kept(step, &config));
                let record = StepRecord { n, ..StepRecord::new(0, &kept, certificates.of(step), host.tokenizer()) };
                serde_json::to_writer(&mut steps, &CellStep { id: &cell.id, step: record })
                    .map_err(|error| Error::Write { path: grid.plan.traces_file(), source: error.into() })?;
                steps.push(b'\n');
            }
            Ok(if go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        let (reply, claim) = match answered {
            // The error of another cell ends the sweep.
            Err(_) if !go_on() => return Ok(None),
            answered => answered?,
        };
        drop((request, claim));
        if reply.ended == Ended::Interrupted {
            return Ok(None);
        }
        let record = SweepRecord {
            id: cell.id.clone(),
            scheme: arm.name.clone(),
            weights,
            prompt_id: prompt.id.clone(),
            axis: prompt.labels.get("axis").cloned(),
            prompt: prompt.prompt.clone(),
            seed: cell.seed,
            draws: cell.draws(),
            response: reply.text,
            ended: reply.ended,
            tokens: reply.tokens.len(),
            steps: reply.steps,
            settings: arm.settings.settings.clone(),
            device: host.place(),
            seconds: reply.seconds,
            elapsed: reply.elapsed,
            trace: None,
        };
        Ok(Some((record, steps)))
    }

    fn tokens(&self, arm: usize, prompt: usize) -> Result<Vec<TokenId>, Error> {
        self.tokens_under(arm, prompt, self.grid.plan.generation.system.as_deref())
    }

    fn tokens_under(&self, arm: usize, prompt: usize, system: Option<&str>) -> Result<Vec<TokenId>, Error> {
        let text = &self.grid.prompts[prompt].prompt;
        Ok(encode_dialogue(&self.framings[arm], system, self.loaded.host.tokenizer(), text)?)
    }

    /// Returns the beginning of the context under an instruction, for a prompt of `tokens` tokens
    /// without it.
    fn instruction(&self, arm: usize, prompt: usize, tokens: usize, text: &str) -> Result<Instruction, Error> {
        let system = instructed(self.grid.plan.generation.system.as_deref(), text);
        Ok(Instruction::new(tokens, self.tokens_under(arm, prompt, Some(&system))?))
    }

    fn check_prompt(&self, arm: usize, prompt: usize) -> Result<(), Error> {
        let limit = self.loaded.host.context_limit();
        let checked = self.tokens(arm, prompt).and_then(|tokens| {
            if tokens.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            let mut instruction = 0;
            for (_, text) in self.grid.arms[arm].config.instructions() {
                instruction = instruction.max(self.instruction(arm, prompt, tokens.len(), text)?.extra());
            }
            if tokens.len() + instruction >= limit {
                return Err(SessionError::PromptTooLong { tokens: tokens.len(), instruction, limit }.into());
            }
            Ok(())
        });
        let Prompt { id, source: file, row, .. } = &self.grid.prompts[prompt];
        // Rows are counted from 1, without the header.
        checked.map_err(|error| error.within(format!("prompt \"{id}\" ({file}, row {})", row + 1)))
    }
}
