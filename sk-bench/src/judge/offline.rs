//! A judge that needs no server: a preference model per rubric, and the perplexity of a small
//! language model.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use sk_models::assets;
use sk_models::device::DeviceName;
use sk_models::judge::{PreferenceModel, Ruler};
use sk_report::objectives::Better;

use super::{FLUENCY, Identity, Judge, JudgeError, Objectives, Question, Rubric, Score, Verdict};

/// The rubric that the language model scores.
static FLUENT: LazyLock<Rubric> = LazyLock::new(|| Rubric {
    name: FLUENCY.to_owned(),
    version: 101,
    better: Better::More,
    column: false,
    scale: None,
    model: Some(FLUENCY.to_owned()),
    criterion: "1 / perplexity of the response after its prompt, under a language model that neither drafts nor steers."
        .to_owned(),
    low: "every token is a surprise".to_owned(),
    middle: "a perplexity of two".to_owned(),
    high: "every token is foreseen".to_owned(),
});

/// A preference model for each rubric that names one, and a language model for fluency.
///
/// Its scores are preference probabilities, sigmoid(s − s̄), and 1/perplexity. They are comparable
/// across schemes, but not with the scores of other judges. They are deterministic: every pass
/// gives the same scores.
pub struct OfflineJudge {
    models: Vec<(Rubric, PreferenceModel)>,
    // A Burn module is `Send` and not `Sync`.
    ruler: Mutex<Ruler>,
    identity: Identity,
}

impl OfflineJudge {
    /// Returns the folder of the bundled judge, if this build has one.
    pub fn embedded() -> Option<PathBuf> {
        assets::embedded().map(assets::Embedded::judge)
    }

    /// Returns the rubrics of `objectives` that an offline judge can score, and fluency.
    pub fn rubrics(objectives: &Objectives) -> Vec<&Rubric> {
        let answered = objectives.rubrics.iter().filter(|rubric| rubric.model.is_some());
        answered.chain(std::iter::once(&*FLUENT)).collect()
    }

    /// Loads a judge from a folder: for each rubric of `objectives` the folder of its `model`, as
    /// `train judge` writes it, and `fluency`, as `train lm` does.
    ///
    /// # Errors
    /// If no rubric names a model, or one of the folders cannot be loaded.
    pub fn load(folder: &Path, objectives: &Objectives) -> Result<Self, JudgeError> {
        let mut models = Vec::new();
        for rubric in &objectives.rubrics {
            if let Some(name) = &rubric.model {
                let model = PreferenceModel::load(&folder.join(name)).map_err(unusable)?;
                models.push((rubric.clone(), model));
            }
        }
        if models.is_empty() {
            return Err(unusable(
                "no rubric of the objectives names a preference model; add model = \"FOLDER\" to those it answers",
            ));
        }
        // The language model is so small that the CPU is faster than the transfers to and from a
        // GPU.
        let device = DeviceName::Cpu.open().map_err(unusable)?;
        let ruler = Ruler::load(&folder.join(FLUENCY), &device).map_err(unusable)?;
        // The identity depends on the weights of the models, not on their location. If less of a
        // rubric is better, the scores of its model are turned around.
        let digests = models.iter().map(|(rubric, model)| {
            let turned = if rubric.better == Better::Less { " less" } else { "" };
            format!("{} {}{turned}", model.attribute(), model.digest())
        });
        let settings = digests.chain([format!("{FLUENCY} {}", ruler.digest())]).collect::<Vec<_>>().join(", ");
        let identity = Identity { model: "offline".to_owned(), scoring: "bradley-terry".to_owned(), scale: None, settings };
        Ok(Self { models, ruler: Mutex::new(ruler), identity })
    }

    fn fluency(&self, question: &Question<'_>) -> Result<Option<f64>, JudgeError> {
        let ruler = self.ruler.lock().unwrap_or_else(PoisonError::into_inner);
        let perplexity = ruler.perplexity(question.prompt, question.response);
        let perplexity = perplexity.map_err(unusable)?;
        Ok(perplexity.map(f64::recip))
    }
}

/// Returns the error of a judge that cannot be loaded or cannot read a response.
fn unusable(reason: impl Display) -> JudgeError {
    JudgeError::Invalid(format!("offline judge: {reason}"))
}

impl Judge for OfflineJudge {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn judge(&self, question: &Question<'_>) -> Result<Verdict, JudgeError> {
        let rubric = question.rubric;
        let value = if *rubric == *FLUENT {
            self.fluency(question)?
        } else {
            let Some((_, model)) = self.models.iter().find(|(own, _)| own == rubric) else {
                let Rubric { name, version, .. } = rubric;
                return Ok(Verdict::Abstention(format!("an offline judge does not answer {name} version {version}")));
            };
            let p = model.win_probability(question.prompt, question.response);
            p.map(|p| if rubric.better == Better::Less { 1.0 - p } else { p })
        };
        Ok(match value {
            Some(value) => Verdict::Score(Score { value, reason: None, mass: None }),
            None => Verdict::Abstention("the response holds no word".to_owned()),
        })
    }
}
