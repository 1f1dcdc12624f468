use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use sk_models::decoder::Precision;
use sk_models::device::DeviceName;

use crate::scheme::SchemeSpec;

/// Which models run, and where.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Models")]
pub struct ModelArgs {
    /// Backbone: a directory in Hugging Face format, or a hub id.
    ///
    /// Without it, the model that ships with the program is used, with its drafter and blades. A hub id, such as
    /// Qwen/Qwen2.5-7B-Instruct, is looked up in the hub's cache and downloaded into it.
    #[arg(long, value_name = "DIR|ID")]
    pub backbone: Option<String>,
    /// Drafter: a directory or a hub id.
    ///
    /// It must share the backbone's tokenizer. Without it, a backbone that is given drafts for itself.
    #[arg(long, value_name = "DIR|ID")]
    pub drafter: Option<String>,
    /// A blade: a LoRA adapter in PEFT format; repeat for more.
    ///
    /// NAME is what --weights calls it.
    #[arg(long = "blade", value_name = "NAME=DIR|ID")]
    pub blades: Vec<BladeArg>,
    /// A head on the backbone: a directory that `train discriminator` or `train reward-head` wrote; repeat for more.
    ///
    /// NAME is what --weights calls it, or the blade of a scheme that reads it.
    #[arg(long = "head", value_name = "NAME=DIR")]
    pub heads: Vec<BladeArg>,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N].
    ///
    /// Of those that the program was built with; `auto` is a CUDA GPU if there is one, else the CPU.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceName,
    /// Weights of backbone and drafter: f32, bf16 or int8.
    ///
    /// bf16 takes half the memory, and log-probabilities are off by some thousandths of a nat, or by nothing of note where the checkpoint is in
    /// bf16. int8 takes a quarter of the memory and, on a CPU with AVX-512 VNNI, half the time or less; log-probabilities are then off by some
    /// hundredths of a nat. int8 runs on the CPU only. Blades stay in f32.
    #[arg(long, value_name = "PRECISION", default_value_t = Precision::F32)]
    pub precision: Precision,
}

impl ModelArgs {
    /// The same with the adapters that are for `config`: those that it names, or all where it seats whatever there is.
    #[must_use]
    pub(crate) fn for_scheme(&self, config: &SchemeSpec) -> Self {
        let named = |name: &str| config.blades.iter().any(|blade| blade.name == name);
        let reads_heads = config.template.as_ref().is_some_and(|template| template.rule.head_kind().is_some());
        let mut args = self.clone();
        args.blades.retain(|given| (config.template.is_some() && !reads_heads) || named(&given.name));
        args
    }

    /// Whether backbone and drafter are those that ship with the program.
    pub fn are_shipped(&self) -> bool {
        self.backbone.is_none() && self.drafter.is_none()
    }
}

/// `NAME=DIR`: an adapter or head and the name it is seated under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BladeArg {
    /// The name.
    pub name: String,
    /// Directory or hub id.
    pub source: String,
}

impl FromStr for BladeArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, source)) if !name.trim().is_empty() && !source.is_empty() => {
                Ok(Self { name: name.trim().to_owned(), source: source.to_owned() })
            }
            _ => Err("a blade is given as NAME=DIR, such as helpful=adapters/helpful".to_owned()),
        }
    }
}

impl From<(String, PathBuf)> for BladeArg {
    fn from((name, path): (String, PathBuf)) -> Self {
        Self { name, source: path.to_string_lossy().into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blade_has_a_name_and_a_source() {
        let blade: BladeArg = "helpful=a=b/c".parse().unwrap();
        assert_eq!((blade.name.as_str(), blade.source.as_str()), ("helpful", "a=b/c"));
        for wrong in ["helpful", "=dir", "helpful=", " =x"] {
            assert!(wrong.parse::<BladeArg>().is_err(), "{wrong}");
        }
    }
}
