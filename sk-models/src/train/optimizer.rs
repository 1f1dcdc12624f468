//! AdamW and Muon over a module's named parameters.

use std::collections::BTreeMap;

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{Device, Tensor, TensorData},
};

/// Which rule changes the matrices inside the layers. Everything else always goes by AdamW.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// AdamW (Loshchilov and Hutter 2019).
    Adamw,
    /// Muon (Jordan et al. 2024): momentum, orthogonalised; scaled to AdamW's update size as by Liu et al. 2025, so one
    /// learning rate serves both rules.
    #[default]
    Muon,
}

/// The settings of an [`Optimizer`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerSettings {
    /// The rule of the layers' matrices.
    pub rule: Rule,
    /// Decay of AdamW's first moment.
    pub beta1: f64,
    /// Decay of AdamW's second moment.
    pub beta2: f64,
    /// Added to the root of AdamW's second moment.
    pub epsilon: f64,
    /// Decay of Muon's momentum.
    pub momentum: f64,
    /// Decoupled decay of matrices, per step and unit of learning rate. Norms and biases do not decay.
    pub weight_decay: f64,
    /// Largest global gradient norm; a larger gradient is scaled down to it. Zero means no limit.
    pub clip: f64,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self { rule: Rule::default(), beta1: 0.9, beta2: 0.95, epsilon: 1e-8, momentum: 0.95, weight_decay: 0.1, clip: 1.0 }
    }
}

/// What is remembered of one parameter, flattened.
#[derive(Debug, Clone)]
struct Moments {
    first: Tensor<1>,
    /// Not kept under Muon.
    second: Option<Tensor<1>>,
}

/// An optimiser's memory, by parameter name.
#[derive(Debug)]
pub struct Optimizer {
    settings: OptimizerSettings,
    moments: BTreeMap<String, Moments>,
    steps: u64,
}

impl Optimizer {
    /// An optimiser that has seen nothing.
    #[must_use]
    pub fn new(settings: OptimizerSettings) -> Self {
        Self { settings, moments: BTreeMap::new(), steps: 0 }
    }

    /// Changes every parameter that has a gradient; returns the module and the global gradient norm before clipping.
    pub fn step<M: Module>(&mut self, module: M, grads: GradientsParams, rate: f64) -> (M, f64) {
        let mut norm = SquaredNorm { grads: &grads, sum: 0.0 };
        module.visit(&mut norm);
        let norm = norm.sum.sqrt();
        let clip = self.settings.clip;
        let scale = if clip > 0.0 && norm > clip { clip / norm } else { 1.0 };
        self.steps += 1;
        let mut update = Update { optimizer: self, grads, rate, scale, path: Vec::new() };
        (module.map(&mut update), norm)
    }

    /// The memory as named vectors, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> Vec<(String, TensorData)> {
        let mut state = Vec::new();
        for (name, moments) in &self.moments {
            state.push((format!("first.{name}"), moments.first.to_data()));
            if let Some(second) = &moments.second {
                state.push((format!("second.{name}"), second.to_data()));
            }
        }
        state
    }

    /// Restores what [`state`](Self::state) gave after `steps` steps.
    pub fn restore(&mut self, steps: u64, mut state: BTreeMap<String, TensorData>, device: &Device) {
        self.steps = steps;
        self.moments.clear();
        let names: Vec<String> = state.keys().filter_map(|key| key.strip_prefix("first.")).map(str::to_owned).collect();
        for name in names {
            let mut take = |kind: &str| state.remove(&format!("{kind}.{name}")).map(|data| Tensor::<1>::from_data(data, device));
            if let Some(first) = take("first") {
                let second = take("second");
                self.moments.insert(name, Moments { first, second });
            }
        }
    }

    fn change<const D: usize>(&mut self, name: String, value: Tensor<D>, grad: Tensor<D>, rate: f64) -> Tensor<D> {
        let shape = value.dims();
        let count = shape.iter().product::<usize>();
        let matrix = D == 2;
        let muon = matrix && self.settings.rule == Rule::Muon && name.starts_with("layers.");
        let grad = grad.reshape([count]);
        let settings = self.settings;
        let kept = self.moments.remove(&name);
        let (direction, moments) = if muon {
            let first = match kept {
                None => grad.clone(),
                Some(kept) => kept.first.mul_scalar(settings.momentum) + grad.clone(),
            };
            // Nesterov: look one step ahead along the momentum.
            let ahead = grad + first.clone().mul_scalar(settings.momentum);
            let [rows, columns] = [shape[0], shape[1]];
            let direction = orthogonalise(ahead.reshape([rows, columns]))
                .mul_scalar(0.2 * (rows.max(columns) as f64).sqrt())
                .reshape([count]);
            (direction, Moments { first, second: None })
        } else {
            let (first, second) = match kept {
                Some(Moments { first, second: Some(second) }) => (
                    first.mul_scalar(settings.beta1) + grad.clone().mul_scalar(1.0 - settings.beta1),
                    second.mul_scalar(settings.beta2) + grad.square().mul_scalar(1.0 - settings.beta2),
                ),
                _ => (grad.clone().mul_scalar(1.0 - settings.beta1), grad.square().mul_scalar(1.0 - settings.beta2)),
            };
            let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
            let correction1 = 1.0 - settings.beta1.powi(steps);
            let correction2 = 1.0 - settings.beta2.powi(steps);
            // m̂ / (√v̂ + ε), the corrections pulled out of the element-wise work.
            let root = second.clone().sqrt().div_scalar(correction2.sqrt()).add_scalar(settings.epsilon);
            let direction = first.clone().div_scalar(correction1) / root;
            (direction, Moments { first, second: Some(second) })
        };
        self.moments.insert(name, moments);
        let decay = if matrix { settings.weight_decay * rate } else { 0.0 };
        let value = if decay > 0.0 { value.mul_scalar(1.0 - decay) } else { value };
        value - direction.mul_scalar(rate).reshape(shape)
    }
}

/// The nearest semi-orthogonal matrix, roughly, by five steps of the quintic Newton–Schulz iteration.
///
/// Takes the singular values to within [0.7, 1.2]; `O(min(m, n)²·max(m, n))` a step.
fn orthogonalise(matrix: Tensor<2>) -> Tensor<2> {
    const STEPS: usize = 5;
    /// Steepest at zero among the quintics that stay bounded (Jordan et al. 2024).
    const A: f64 = 3.4445;
    const B: f64 = -4.7750;
    const C: f64 = 2.0315;
    /// Keeps an all-zero gradient at zero.
    const FLOOR: f64 = 1e-7;

    let [rows, columns] = matrix.dims();
    let tall = rows > columns;
    let x = if tall { matrix.transpose() } else { matrix };
    let norm = x.clone().square().sum().sqrt().add_scalar(FLOOR);
    let mut x = x / norm.unsqueeze::<2>();
    for _ in 0..STEPS {
        let gram = x.clone().matmul(x.clone().transpose());
        let poly = gram.clone().mul_scalar(B) + gram.clone().matmul(gram).mul_scalar(C);
        x = x.clone().mul_scalar(A) + poly.matmul(x);
    }
    if tall { x.transpose() } else { x }
}

/// Sums the squares of all gradients.
struct SquaredNorm<'a> {
    grads: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for SquaredNorm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.grads.get::<D>(param.id) {
            self.sum += f64::from(grad.square().sum().into_scalar::<f32>());
        }
    }
}

struct Update<'a> {
    optimizer: &'a mut Optimizer,
    grads: GradientsParams,
    rate: f64,
    scale: f64,
    path: Vec<String>,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(grad) = self.grads.remove::<D>(param.id) else {
            return param;
        };
        let (id, value, mapper) = param.consume();
        // Gradients and the update itself are outside the graph.
        let grad = if grad.is_autodiff() { grad.inner() } else { grad };
        let grad = if self.scale == 1.0 { grad } else { grad.mul_scalar(self.scale) };
        let value = self.optimizer.change(self.path.join("."), value.inner(), grad, self.rate);
        Param::from_mapped_value(id, Tensor::from_inner(value).require_grad(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::{module::Module, tensor::Distribution};

    use super::*;

    #[derive(Module, Debug)]
    struct Toy {
        layers: Vec<Param<Tensor<2>>>,
        bias: Param<Tensor<1>>,
    }

    #[test]
    fn orthogonalised_matrices_have_singular_values_near_one() {
        let device = Device::flex();
        for shape in [[12, 12], [8, 40], [40, 8]] {
            let x = orthogonalise(Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device));
            let gram = if shape[0] < shape[1] { x.clone().matmul(x.transpose()) } else { x.clone().transpose().matmul(x) };
            // The mean of the squared singular values; the iteration leaves each in about [0.7, 1.2].
            let side = gram.dims()[0];
            let eye = Tensor::<2>::eye(side, &device);
            let mean = (gram * eye).sum().into_scalar::<f32>() / side as f32;
            assert!((0.5..1.45).contains(&mean), "{shape:?}: {mean}");
        }
    }

    #[test]
    fn adamw_takes_a_signed_first_step_and_decays_matrices_only() {
        let graph = Device::flex().autodiff();
        let toy = Toy {
            layers: vec![Param::from_tensor(Tensor::full([2, 2], 2.0, &graph))],
            bias: Param::from_tensor(Tensor::full([2], 2.0, &graph)),
        };
        let loss = toy.layers[0].val().sum() - toy.bias.val().sum();
        let grads = GradientsParams::from_grads(loss.backward(), &toy);
        let settings = OptimizerSettings { rule: Rule::Adamw, weight_decay: 0.5, clip: 0.0, ..Default::default() };
        let (toy, norm) = Optimizer::new(settings).step(toy, grads, 0.1);
        // Six gradients of size one.
        assert!((norm - 6.0_f64.sqrt()).abs() < 1e-6);
        let weight = toy.layers[0].val().inner().into_data();
        let bias = toy.bias.val().inner().into_data();
        // 2·(1 − 0.1·0.5) − 0.1 and 2 + 0.1; the first Adam step is the sign of the gradient.
        assert!(weight.iter::<f32>().all(|value| (value - 1.8).abs() < 1e-5), "{weight:?}");
        assert!(bias.iter::<f32>().all(|value| (value - 2.1).abs() < 1e-5), "{bias:?}");
    }

    #[test]
    fn a_large_gradient_is_scaled_to_the_limit() {
        let graph = Device::flex().autodiff();
        let toy = || Toy { layers: Vec::new(), bias: Param::from_tensor(Tensor::full([2], 0.0, &graph)) };
        let step = |factor: f64| {
            let toy = toy();
            let grads = GradientsParams::from_grads((toy.bias.val().sum() * factor).backward(), &toy);
            let mut optimizer = Optimizer::new(OptimizerSettings { clip: 1.0, ..Default::default() });
            let _ = optimizer.step(toy, grads, 0.1);
            optimizer.state()[0].1.iter::<f32>().collect::<Vec<_>>()
        };
        // Beyond the limit only the direction counts.
        for (a, b) in step(100.0).into_iter().zip(step(1e6)) {
            assert!((a - b).abs() < 1e-6 * a.abs(), "{a} {b}");
        }
    }
}
