use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sk_models::decoder::Precision;
use sk_models::device::DeviceName;

use crate::models::Source;

/// Which models run, and where.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Models")]
pub struct Sources {
    /// Backbone: a directory in Hugging Face format, a hub id, or addresses of servers.
    ///
    /// Without it, the model that ships with the program is used, with its drafter and blades. A
    /// hub id, such as Qwen/Qwen2.5-7B-Instruct, is looked up in the hub's cache and downloaded
    /// into it. sglang+http://HOST:PORT and vllm+http://HOST:PORT#NAME are models behind servers,
    /// several of them separated by commas; SWISS_KNIFE_REMOTE_KEY is the key that they want.
    #[arg(long, value_name = "DIR|ID|URL")]
    pub backbone: Option<String>,
    /// Drafter: a directory, a hub id, or addresses of servers.
    ///
    /// It must share the backbone's tokenizer. Without it, a backbone that is given drafts for
    /// itself.
    #[arg(long, value_name = "DIR|ID|URL")]
    pub drafter: Option<String>,
    /// The directory with the tokenizer.json of models behind servers.
    ///
    /// Beside it, config.json says how many tokens they hold, and a chat template is read if
    /// --framing asks for one.
    #[arg(long, value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,
    /// A blade: a LoRA adapter in PEFT format, or an instruction to the backbone; repeat for more.
    ///
    /// NAME is what --weights calls it. For models behind servers, lora:NAME is an adapter that they
    /// have loaded, and a directory is a path on their machines that they load.
    #[arg(long = "blade", value_name = "NAME=DIR|ID|lora:NAME|instruction:TEXT")]
    pub blades: Vec<Source>,
    /// A head on the backbone: a directory that `train discriminator` or `train reward-head` wrote;
    /// repeat for more.
    ///
    /// NAME is what --weights calls it, or the blade of a scheme that reads it.
    #[arg(long = "head", value_name = "NAME=DIR")]
    pub heads: Vec<Source>,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N].
    ///
    /// `auto` selects a CUDA GPU if there is one, else the CPU. CUDA and WGPU are features of the
    /// build.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceName,
    /// Weights of backbone and drafter: f32, bf16 or int8.
    ///
    /// bf16 takes half the memory, and a checkpoint in bf16 keeps its weights exactly. int8 takes a
    /// little more than a quarter of the memory and runs on the CPU only. The page "Performance" of
    /// the book has the speed and the loss of precision of each.
    #[arg(long, value_name = "PRECISION", default_value_t = Precision::F32)]
    pub precision: Precision,
}

impl Sources {
    /// Returns the files of models, tokenizers, blades and heads.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let named = self.blades.iter().chain(&self.heads).map(|named| &named.source);
        let given = self.backbone.iter().chain(&self.drafter).chain(named).map(Path::new);
        files_in(given.chain(self.tokenizer.as_deref()))
    }
}

/// Returns the files of models and adapters in directories. What is no directory, such as a hub id,
/// has none.
pub(crate) fn files_in<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    let entries = directories.into_iter().filter_map(|directory| fs::read_dir(directory).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let is_of_model =
        |path: &PathBuf| path.extension().is_some_and(|kind| ["json", "jinja", "safetensors"].map(OsStr::new).contains(&kind));
    paths.filter(is_of_model).collect()
}
