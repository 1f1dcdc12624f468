//! Burn's AdamW and Muon over a module's named parameters, with a global clip and exact
//! checkpoints.

use std::collections::BTreeMap;

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::{
        AdamW, AdamWConfig, AdjustLrFn, DynOptimizer, DynState, GradientsParams, Muon, MuonConfig, StateSink, StateSource,
        decay::WeightDecayConfig, momentum::MomentumConfig,
    },
    tensor::{Device, Tensor, TensorData},
};

/// The rule for the matrices inside the layers. All other parameters use AdamW.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// AdamW (Loshchilov and Hutter 2019).
    Adamw,
    /// Muon (Jordan et al. 2024): orthogonalised momentum, scaled to AdamW's update size as in Liu
    /// et al. 2025, so that one learning rate serves both rules.
    #[default]
    Muon,
}

/// Decay of AdamW's first moment.
pub(super) const BETA_1: f64 = 0.9;
/// Added to the root of AdamW's second moment.
pub(super) const EPSILON: f64 = 1e-8;
/// Decay of Muon's momentum.
pub(super) const MOMENTUM: f64 = 0.95;

/// An optimizer and its state by parameter name.
///
/// Burn's `ModuleOptimizer` keys the state by ids that differ between processes and clips each
/// parameter on its own. This one can be resumed in another process and clips the global norm.
pub(super) struct Optimizer {
    /// The rule of the layers' matrices; `None` for AdamW.
    muon: Option<Muon>,
    /// The rule of other matrices.
    decayed: AdamW,
    /// The rule of norms and biases.
    plain: AdamW,
    clip: f64,
    memory: BTreeMap<String, DynState>,
}

/// Prefixes of tensors and scalars in a checkpoint.
const TENSOR: &str = "tensor.";
const SCALAR: &str = "scalar.";

impl Optimizer {
    /// Creates an optimizer without state. `rule` updates the matrices of the layers, `beta2` is the
    /// decay of AdamW's second moment, and matrices decay by `weight_decay` per step and unit of
    /// learning rate. Gradients whose global norm exceeds `clip` are scaled down to it; zero means
    /// no limit.
    pub(super) fn new(rule: Rule, beta2: f64, weight_decay: f64, clip: f64) -> Self {
        let decay = weight_decay as f32;
        let adamw = AdamWConfig::new().with_beta_1(BETA_1 as f32).with_beta_2(beta2 as f32).with_epsilon(EPSILON as f32);
        let muon = MuonConfig::new()
            .with_momentum(MomentumConfig { momentum: MOMENTUM, dampening: 0.0, nesterov: true })
            .with_weight_decay(Some(WeightDecayConfig { penalty: decay }))
            .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
        Self {
            muon: (rule == Rule::Muon).then(|| muon.build()),
            decayed: adamw.clone().with_weight_decay(decay).build(),
            plain: adamw.with_weight_decay(0.0).build(),
            clip,
            memory: BTreeMap::new(),
        }
    }

    /// Updates every parameter that has a gradient. Returns the module and the global gradient norm
    /// before clipping.
    pub(super) fn step<M: Module>(&mut self, module: M, grads: GradientsParams, rate: f64) -> (M, f64) {
        let mut norm = SquaredNorm { grads: &grads, sum: 0.0 };
        module.visit(&mut norm);
        let norm = norm.sum.sqrt();
        let scale = if self.clip > 0.0 && norm > self.clip { self.clip / norm } else { 1.0 };
        (module.map(&mut Update { optimizer: self, grads, rate, scale, path: Vec::new() }), norm)
    }

    /// Returns the rule of a parameter of rank `rank`.
    fn rule(&self, name: &str, rank: usize) -> &dyn DynOptimizer {
        match &self.muon {
            Some(muon) if rank == 2 && name.starts_with("layers.") => muon,
            _ if rank == 2 => &self.decayed,
            _ => &self.plain,
        }
    }

    /// Returns the state as named values, for a checkpoint.
    pub(super) fn state(&self) -> Vec<(String, TensorData)> {
        let mut sink = StateSink::default();
        for (name, state) in &self.memory {
            self.rule(name, state.rank()).state_flatten(name, state, &mut sink);
        }
        let tensors = sink.tensors.into_iter().map(|(name, data)| (format!("{TENSOR}{name}"), data));
        // Step counts, exact in f32 up to 2²⁴.
        let scalars = sink.scalars.into_iter().map(|(name, value)| {
            let value = u32::try_from(value).unwrap_or(u32::MAX);
            (format!("{SCALAR}{name}"), TensorData::from([value as f32]))
        });
        tensors.chain(scalars).collect()
    }

    /// Restores the result of [`state`](Self::state) for `module`, on `device`. The error names a
    /// parameter without state.
    pub(super) fn restore<M: Module>(
        &mut self,
        module: &M,
        state: BTreeMap<String, TensorData>,
        device: &Device,
    ) -> Result<(), String> {
        let scalars = state.iter().filter_map(|(name, data)| {
            let value = data.iter::<f32>().next()?;
            Some((name.strip_prefix(SCALAR)?.to_owned(), (value as u32).into()))
        });
        let mut source = StateSource::new(scalars.collect());
        for (name, data) in state {
            if let Some(name) = name.strip_prefix(TENSOR) {
                source.insert_tensor(name.to_owned(), data);
            }
        }
        self.memory.clear();
        for (name, data) in named_parameters(module) {
            let rank = data.shape().num_dims();
            let state = self.rule(&name, rank).state_unflatten(rank, &name, &mut source, device);
            let state =
                state.ok_or_else(|| format!("holds no optimizer state for `{name}`; delete it, or give another --output"))?;
            self.memory.insert(name, state);
        }
        Ok(())
    }
}

/// Returns every float parameter of a module by its path, in f32.
pub(super) fn named_parameters<M: Module>(module: &M) -> BTreeMap<String, TensorData> {
    #[derive(Default)]
    struct Collect {
        path: Vec<String>,
        found: BTreeMap<String, TensorData>,
    }
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let value = if value.is_autodiff() { value.inner() } else { value };
            self.found.insert(self.path.join("."), value.into_data());
        }
    }
    let mut collect = Collect::default();
    module.visit(&mut collect);
    collect.found
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
        // Gradients and updates are outside the graph.
        let grad = if grad.is_autodiff() { grad.inner() } else { grad };
        let grad = if self.scale == 1.0 { grad } else { grad.mul_scalar(self.scale) };
        let name = self.path.join(".");
        let kept = self.optimizer.memory.remove(&name);
        let (value, grad) = (value.inner().into_bridge(), grad.into_bridge());
        let (value, state) = self.optimizer.rule(&name, D).step_dyn(D, self.rate, value, grad, kept);
        self.optimizer.memory.extend(state.map(|state| (name, state)));
        Param::from_mapped_value(id, Tensor::from_inner(Tensor::<D>::from_bridge(value)).require_grad(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;

    #[derive(Module, Debug)]
    struct Toy {
        layers: Vec<Param<Tensor<2>>>,
        bias: Param<Tensor<1>>,
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
        let (toy, norm) = Optimizer::new(Rule::Adamw, 0.95, 0.5, 0.0).step(toy, grads, 0.1);
        // Six gradients of size one.
        assert!((norm - 6.0_f64.sqrt()).abs() < 1e-6);
        let weight = toy.layers[0].val().inner().into_data();
        let bias = toy.bias.val().inner().into_data();
        // 2·(1 − 0.1·0.5) − 0.1 and 2 + 0.1; the first Adam step is the sign of the gradient.
        assert!(weight.iter::<f32>().all(|value| (value - 1.8).abs() < 1e-5), "{weight:?}");
        assert!(bias.iter::<f32>().all(|value| (value - 2.1).abs() < 1e-5), "{bias:?}");
    }

    #[test]
    fn a_restored_optimizer_takes_the_same_step() {
        let graph = Device::flex().autodiff();
        let toy = Toy {
            layers: vec![Param::from_tensor(Tensor::full([2, 3], 2.0, &graph))],
            bias: Param::from_tensor(Tensor::full([2], 2.0, &graph)),
        };
        let step = |optimizer: &mut Optimizer, toy: &Toy| {
            let loss = toy.layers[0].val().square().sum() + toy.bias.val().exp().sum();
            let (toy, _) = optimizer.step(toy.clone(), GradientsParams::from_grads(loss.backward(), toy), 0.1);
            (named_parameters(&toy), toy)
        };
        let mut optimizer = Optimizer::new(Rule::Muon, 0.95, 0.1, 1.0);
        let (_, toy) = step(&mut optimizer, &toy);
        let state: BTreeMap<String, TensorData> = optimizer.state().into_iter().collect();
        let mut restored = Optimizer::new(Rule::Muon, 0.95, 0.1, 1.0);
        let error = restored.restore(&toy, BTreeMap::new(), &Device::flex()).unwrap_err();
        assert!(error.contains("no optimizer state for `bias`"), "{error}");
        restored.restore(&toy, state, &Device::flex()).unwrap();
        assert_eq!(step(&mut restored, &toy).0, step(&mut optimizer, &toy).0);
    }

    #[test]
    fn a_large_gradient_is_scaled_to_the_limit() {
        let graph = Device::flex().autodiff();
        let toy = || Toy { layers: Vec::new(), bias: Param::from_tensor(Tensor::full([2], 0.0, &graph)) };
        let step = |factor: f64| {
            let toy = toy();
            let grads = GradientsParams::from_grads((toy.bias.val().sum() * factor).backward(), &toy);
            let mut optimizer = Optimizer::new(Rule::Muon, 0.95, 0.1, 1.0);
            let _ = optimizer.step(toy, grads, 0.1);
            optimizer.state()[0].1.iter::<f32>().collect::<Vec<_>>()
        };
        // Beyond the limit only the direction counts.
        for (a, b) in step(100.0).into_iter().zip(step(1e6)) {
            assert!((a - b).abs() < 1e-6 * a.abs(), "{a} {b}");
        }
    }
}
