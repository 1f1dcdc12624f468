//! Scores of the responses of a trial.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use sk_core::ScoreTrace;

use super::{JudgePlan, Objective, ScoreSource, ServerPlan, TunePlan};
use crate::Error;
use crate::judge::run::{Answer, Panel, judge_all};
use crate::judge::{
    Cached, ChatJudge, ChatSettings, Endpoint, Judge, JudgeError, Objectives, OfflineJudge, Response, Retry, Rubric,
};
use sk_report::record::{SweepRecord, TraceSpan};

/// A scorer of responses.
pub enum Scorer {
    /// The blades that steered the responses. The score is computed from the traces: Σ_t L_t μ_t /
    /// Σ_t L_t over the steps t of a response, where μ_t is the blade's score of the chosen
    /// candidate and L_t its number of tokens. For an implicit reward this is
    /// β/L·log(π_k(y)/π_B(y)).
    ///
    /// This score is circular: it measures how strongly the blade steered, not whether the text is
    /// good. A search with it finds strong steering at any cost to the text.
    Blades,
    /// A judge.
    Judge {
        /// The judge.
        judge: Box<dyn Judge>,
        /// The objectives, with only the rubrics that are needed.
        objectives: Objectives,
        /// Number of concurrent requests.
        concurrency: usize,
        /// Whether its scores are cached, beside the journals.
        is_cached: bool,
    },
}

impl Scorer {
    /// Returns the scorer of a plan, with the rubrics of the axes that the plan's objectives use.
    ///
    /// # Errors
    /// If the judge endpoint is not a valid URL, the server does not report its model, the models
    /// of an offline judge cannot be loaded, or it has none for an axis.
    pub fn of(plan: &TunePlan) -> Result<Self, Error> {
        let ScoreSource::Judge { judge, objectives } = &plan.scoring else { return Ok(Self::Blades) };
        let mut objectives = objectives.clone();
        let searched: BTreeSet<&str> = plan
            .searches
            .iter()
            .flat_map(|search| &search.objectives)
            .filter_map(|objective| objective.axis.as_deref())
            .collect();
        let all = objectives.clone();
        objectives
            .rubrics
            .retain(|rubric| all.of_rubric(&rubric.name).any(|objective| searched.contains(objective.name.as_str())));
        match judge {
            JudgePlan::Offline(folder) => {
                let folder = folder.clone().or_else(OfflineJudge::embedded);
                let nothing = || Error::Input("this build of the program holds no judge; name its models in [judge]".to_owned());
                let judge = OfflineJudge::load(&folder.ok_or_else(nothing)?, &all)?;
                objectives.rubrics.retain(|rubric| rubric.model.is_some());
                let has = |rubric: &Rubric, axis: &str| all.of_rubric(&rubric.name).any(|objective| objective.name == axis);
                let is_scored = |axis: &str| objectives.rubrics.iter().any(|rubric| has(rubric, axis));
                if let Some(axis) = searched.into_iter().find(|axis| !is_scored(axis)) {
                    return Err(Error::Input(format!(
                        "axis \"{axis}\": the offline judge cannot score it, because no rubric of it names a preference model; give one \
                         of them a model, or use an endpoint"
                    )));
                }
                Ok(Self::Judge { judge: Box::new(judge), objectives, concurrency: 1, is_cached: false })
            }
            JudgePlan::Server(server) => {
                let ServerPlan { endpoint, api_key_env, timeout, model, .. } = server;
                let retry = Retry { attempts: server.attempts, ..Retry::default() };
                let (endpoint, model) = Endpoint::open(endpoint, api_key_env, *timeout, model.as_deref(), retry)?;
                let settings = ChatSettings { retry, ..ChatSettings::new(model, server.scoring) };
                let judge = Box::new(ChatJudge::new(endpoint, settings)?);
                Ok(Self::Judge { judge, objectives, concurrency: server.concurrency, is_cached: true })
            }
        }
    }

    /// Returns the identity of the scorer, for the digest of settings.
    pub fn identity(&self) -> String {
        match self {
            Self::Blades => "blades".to_owned(),
            Self::Judge { judge, objectives, .. } => {
                // The texts count even if their version is the same. The digests of the models of
                // an offline judge are part of its identity, and a column of a table changes no
                // score.
                let scored = |rubric: &Rubric| Rubric { column: false, model: None, ..rubric.clone() };
                let rubrics: Vec<Rubric> = objectives.rubrics.iter().map(scored).collect();
                serde_json::json!([judge.identity(), rubrics, objectives.objectives]).to_string()
            }
        }
    }

    /// Returns the score of each record on each objective; `None` if the judge abstained or rejects
    /// the response. Only responses that count for an objective are judged. Judgements are stored
    /// in `journal` and reused from there. Scores of a server are also cached beside it, so that a
    /// response that several trials give is judged once.
    ///
    /// # Errors
    /// If traces cannot be read, a response to be scored by the blades has none, or the judge
    /// fails.
    pub(super) fn score(
        &self,
        records: &[SweepRecord],
        objectives: &[Objective],
        traces: &Path,
        journal: &Path,
    ) -> Result<Vec<Vec<Option<f64>>>, Error> {
        match self {
            Self::Blades => {
                // The responses of a judge's trials have no traces.
                let span = |record: &SweepRecord| record.trace.ok_or_else(|| untraced(traces, record));
                let spans: Vec<TraceSpan> = records.iter().map(span).collect::<Result<_, _>>()?;
                let failed = Error::reading(traces);
                let mut file = File::open(traces).map_err(&failed)?;
                let scored = spans.into_iter().map(|span| {
                    let means = blade_means(&mut file, span).map_err(&failed)?;
                    Ok(objectives.iter().map(|objective| means.get(&objective.blade).copied()).collect())
                });
                scored.collect()
            }
            Self::Judge { judge, objectives: by, concurrency, is_cached } => {
                let questions = questions(records, objectives, by);
                let cache = journal.with_file_name("judge-cache");
                let cached = is_cached.then(|| Cached::new(judge.as_ref(), &cache)).transpose()?;
                let judge: &dyn Judge = cached.as_ref().map_or(judge.as_ref(), |cached| cached);
                let judged = ask(&questions, by, judge, *concurrency, journal)?;
                let score = |record: &SweepRecord, objective: &Objective| {
                    let scores = judged.get(record.id.as_str())?;
                    let rubrics = by.rubrics.iter().map(|rubric| scores.get(rubric.name.as_str()).copied()).collect();
                    let place = by.names().iter().position(|name| Some(*name) == objective.axis.as_deref())?;
                    Some(by.scores(rubrics).objectives[place]).filter(|score| !score.is_nan())
                };
                Ok(records.iter().map(|record| objectives.iter().map(|objective| score(record, objective)).collect()).collect())
            }
        }
    }
}

/// The scores of one response by rubric.
type RubricScores<'a> = BTreeMap<&'a str, f64>;

/// Responses, grouped by the rubrics to judge them on: the rubrics of the objectives that they
/// count for.
type QuestionsByRubrics<'a> = Vec<(Vec<&'a Rubric>, Vec<Response>)>;

fn questions<'a>(records: &[SweepRecord], objectives: &[Objective], by: &'a Objectives) -> QuestionsByRubrics<'a> {
    let mut questions: BTreeMap<BTreeSet<&str>, Vec<Response>> = BTreeMap::new();
    for record in records {
        let counted = objectives.iter().filter(|objective| objective.counts(record.axis.as_deref()));
        questions.entry(counted.filter_map(|objective| objective.axis.as_deref()).collect()).or_default().push(record.into());
    }
    let of = |axes: BTreeSet<&str>| {
        let counts = |rubric: &&Rubric| by.of_rubric(&rubric.name).any(|objective| axes.contains(objective.name.as_str()));
        by.rubrics.iter().filter(counts).collect()
    };
    questions.into_iter().map(|(axes, responses)| (of(axes), responses)).collect()
}

fn ask<'a>(
    questions: &'a QuestionsByRubrics<'_>,
    objectives: &'a Objectives,
    judge: &dyn Judge,
    concurrency: usize,
    journal: &Path,
) -> Result<BTreeMap<&'a str, RubricScores<'a>>, JudgeError> {
    let mut scores: BTreeMap<&str, RubricScores<'_>> = BTreeMap::new();
    let (mut unanswered, mut rejected, mut trouble) = (0, 0, None);
    for (rubrics, responses) in questions {
        let panel = Panel { responses, objectives, rubrics, passes: 1, concurrency };
        let outcome = judge_all(&panel, judge, journal, &|_| ())?;
        unanswered += outcome.unanswered;
        rejected += outcome.rejected;
        trouble = trouble.or(outcome.trouble);
        for Answer { response, rubric, score, .. } in outcome.answers {
            if let Some(score) = score {
                scores.entry(&response.id).or_default().insert(&rubric.name, score);
            }
        }
    }
    let total = questions.iter().map(|(rubrics, responses)| rubrics.len() * responses.len()).sum();
    match trouble {
        // A server that answers others and rejects these will reject them again.
        _ if unanswered == rejected && !scores.is_empty() => Ok(scores),
        Some(first) => Err(JudgeError::Incomplete { unanswered, total, first: Box::new(first) }),
        None => Ok(scores),
    }
}

#[derive(Deserialize)]
struct ScoredStep {
    candidates: Vec<ScoredCandidate>,
    blades: Vec<ScoreTrace>,
    chosen: usize,
}

#[derive(Deserialize)]
struct ScoredCandidate {
    tokens: Vec<u32>,
}

/// Returns the error of a response without a trace, which the blades cannot score.
fn untraced(traces: &Path, record: &SweepRecord) -> Error {
    let (traces, id) = (traces.display(), &record.id);
    Error::Input(format!("{traces} has no steps of response \"{id}\", which was made for a judge; give [tune] another output"))
}

/// Returns the mean score per token that each blade gave to the chosen candidates.
fn blade_means(traces: &mut (impl Read + Seek), span: TraceSpan) -> io::Result<BTreeMap<String, f64>> {
    traces.seek(SeekFrom::Start(span.offset))?;
    let mut text = String::new();
    traces.take(span.bytes).read_to_string(&mut text)?;
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in text.lines() {
        let step: ScoredStep = serde_json::from_str(line)?;
        let torn = || io::Error::new(io::ErrorKind::InvalidData, "a step whose choice is none of its candidates");
        let tokens = step.candidates.get(step.chosen).ok_or_else(torn)?.tokens.len() as f64;
        for blade in step.blades {
            let mu = blade.mu.get(step.chosen).ok_or_else(torn)?;
            let sum = sums.entry(blade.name).or_default();
            *sum = (sum.0 + tokens * mu, sum.1 + tokens);
        }
    }
    Ok(sums.into_iter().filter(|(_, (_, tokens))| *tokens > 0.0).map(|(name, (sum, tokens))| (name, sum / tokens)).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_blade_is_worth_its_score_per_token() {
        let step = |tokens: &str, mu: &str, chosen: usize| {
            format!(
                r#"{{"candidates":[{{"tokens":[1]}},{{"tokens":{tokens}}}],"blades":[{{"name":"calm","weight":1,"mu":{mu},"sigma":[0,0]}}],"chosen":{chosen}}}"#
            )
        };
        let lines = format!("{}\n{}\n", step("[1,2,3]", "[9, 0.5]", 1), step("[1,2]", "[2.5, 9]", 0));
        let text = format!("other steps\n{lines}and more");
        let span = |bytes| TraceSpan { offset: 12, bytes };
        let means = blade_means(&mut Cursor::new(&text), span(lines.len() as u64)).unwrap();
        // (3·0.5 + 1·2.5)/4
        assert_eq!(means, BTreeMap::from([("calm".to_owned(), 1.0)]));
        assert!(blade_means(&mut Cursor::new(&text), span(5)).is_err(), "half a step");
        let torn = step("[1]", "[1]", 1);
        assert!(blade_means(&mut Cursor::new(&torn), TraceSpan { offset: 0, bytes: torn.len() as u64 }).is_err());
    }
}
