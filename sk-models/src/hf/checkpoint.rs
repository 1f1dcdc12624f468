//! Model directories.

use std::path::{Path, PathBuf};

use burn::tensor::Device;

use super::{
    error::CheckpointError,
    head::load_head,
    hub::{Hub, Progress},
    peft::{AdapterConfig, CONFIG_FILE as ADAPTER_CONFIG, adapter_bytes, check_adapter, load_adapter},
    safetensors::TensorFiles,
    text_files::{CONFIG_FILE, TextFiles},
    weights::CheckpointParts,
};
use crate::{
    config::Qwen2Config,
    decoder::{Decoder, Precision},
    device::block_recording,
    files,
    head::Head,
    lora::LoraAdapter,
    memory::{check_room, free_memory},
    model::Qwen2,
    text::{ChatTemplate, TextError, Tokenizer, one_line},
    whole_file::folder,
};

/// A checkpoint that has been opened and checked. Its weights are still on disk.
///
/// The files stay open, so adapters can be checked against them at any time.
#[derive(Debug)]
pub struct Checkpoint {
    config: Qwen2Config,
    text: TextFiles,
    tensors: TensorFiles,
}

/// Reads the files of a model directory other than weights.
fn settings(directory: &Path) -> Result<(Qwen2Config, TextFiles), CheckpointError> {
    let config = directory.join(CONFIG_FILE);
    if !files::is_file(&config) && files::is_file(&directory.join(ADAPTER_CONFIG)) {
        return Err(CheckpointError::NotAModel { directory: directory.to_owned() });
    }
    let config = Qwen2Config::from_file(&config)?;
    let text = TextFiles::from_directory(directory)?;
    if text.tokenizer.vocab_size() > config.vocab_size {
        return Err(CheckpointError::Vocabulary {
            directory: directory.to_owned(),
            tokens: text.tokenizer.vocab_size(),
            vocab_size: config.vocab_size,
        });
    }
    Ok((config, text))
}

/// Checks the files of a model or an adapter other than weights. A directory with both
/// configurations is not checked, since only its use decides which one matters.
///
/// # Errors
///
/// If a file is missing, malformed or not supported.
pub fn check_settings(directory: &Path) -> Result<(), CheckpointError> {
    let adapter = directory.join(ADAPTER_CONFIG);
    match (files::is_file(&directory.join(CONFIG_FILE)), files::is_file(&adapter)) {
        (true, true) => Ok(()),
        (false, true) => AdapterConfig::from_file(&adapter).map(drop),
        (_, false) => settings(directory).map(drop),
    }
}

impl Checkpoint {
    /// Opens a model given by directory or hub id. Hub ids are resolved by the hub of the
    /// environment.
    ///
    /// # Errors
    ///
    /// If the model cannot be found or downloaded, or one of its files is missing, malformed or not
    /// supported.
    pub fn open(source: &str, progress: &mut dyn Progress) -> Result<Self, CheckpointError> {
        Self::from_directory(&resolve_checked(source, |directory| settings(directory).map(drop), progress)?)
    }

    /// Opens a model directory.
    ///
    /// # Errors
    ///
    /// If a file is missing, malformed or not supported.
    pub fn from_directory(directory: &Path) -> Result<Self, CheckpointError> {
        let (config, text) = settings(directory)?;
        Ok(Self { config, text, tensors: TensorFiles::open(directory)? })
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.text.directory
    }

    /// Returns the tensors on disk.
    pub(crate) fn tensors(&self) -> &TensorFiles {
        &self.tensors
    }

    /// Returns the shape of the model.
    #[must_use]
    pub fn config(&self) -> &Qwen2Config {
        &self.config
    }

    /// Returns the tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.text.tokenizer
    }

    /// Returns the chat template.
    ///
    /// # Errors
    ///
    /// If there is none, or it has a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, TextError> {
        self.text.chat_template()
    }

    /// Returns the tokens that end a response: those of the generation settings and of the
    /// configuration, `<|im_end|>` and `<|endoftext|>`.
    #[must_use]
    pub fn end_of_text(&self) -> &[u32] {
        &self.text.end_of_text
    }

    /// Loads the model to a device, in the device's float type.
    ///
    /// # Errors
    ///
    /// As [`load_model`](super::load_model), or if there is no room for the weights.
    pub fn model(&self, device: &Device) -> Result<Qwen2, CheckpointError> {
        self.load(device, Precision::F32, Precision::F32.module_bytes(&self.config), |parts| {
            let _blocked = block_recording(device);
            Qwen2::assemble(&self.config, parts)
        })
    }

    /// Loads the model as the frozen part of a training run. With bf16, its matrices are rounded to
    /// bf16 as they are read.
    ///
    /// # Errors
    ///
    /// As [`model`](Self::model), or if the device has no weights of that precision.
    pub(crate) fn frozen(&self, device: &Device, precision: Precision) -> Result<Qwen2, CheckpointError> {
        if precision != Precision::Bf16 {
            return self.model(device);
        }
        self.load(device, precision, precision.loading_bytes(&self.config), |parts| {
            let _blocked = block_recording(device);
            Qwen2::assemble(&self.config, parts.rounded())
        })
    }

    /// Returns a decoder of the model on a device.
    ///
    /// On a CPU, loading takes the memory of the weights in that precision and of one more layer, or of
    /// a head that is not tied, since parts are packed as they are read.
    ///
    /// # Errors
    ///
    /// As [`model`](Self::model), or if the device has no weights of that precision.
    pub fn decoder(&self, device: &Device, precision: Precision) -> Result<Decoder, CheckpointError> {
        let needed = precision.loading_bytes(&self.config);
        self.load(device, precision, needed, |parts| Decoder::assemble(&self.config, parts, precision, device))
    }

    /// Assembles the weights on a device. Checks first that it supports the precision and has room for
    /// the `needed` bytes.
    fn load<T>(
        &self,
        device: &Device,
        precision: Precision,
        needed: u64,
        assemble: impl FnOnce(CheckpointParts<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        precision.check(device)?;
        check_memory(self.directory(), device, needed, free_memory())?;
        let assembled = assemble(CheckpointParts::new(&self.config, &self.tensors, device)?)?;
        self.wait(device)?;
        Ok(assembled)
    }

    /// Waits for the device, which reports a lack of memory only then.
    fn wait(&self, device: &Device) -> Result<(), CheckpointError> {
        device
            .sync()
            .map_err(|error| CheckpointError::Device { directory: self.directory().to_owned(), message: one_line(&error) })
    }

    /// Returns the most bytes that an adapter for this model takes, given by directory. Does not read
    /// its weights.
    ///
    /// # Errors
    ///
    /// If the directory is not that of an adapter, or the adapter uses an unsupported feature.
    pub fn adapter_bytes(&self, directory: &Path) -> Result<u64, CheckpointError> {
        adapter_bytes(directory, &self.config)
    }

    /// Loads an adapter for this model, given by directory or hub id, to a device.
    ///
    /// # Errors
    ///
    /// If it cannot be found, does not fit into memory, uses an unsupported feature, or was made for
    /// another model.
    pub fn adapter(&self, source: &str, device: &Device, progress: &mut dyn Progress) -> Result<LoraAdapter, CheckpointError> {
        let directory = resolve_checked(source, check_adapter, progress)?;
        check_memory(&directory, device, self.adapter_bytes(&directory)?, free_memory())?;
        let _blocked = block_recording(device);
        load_adapter(&directory, &self.config, &self.tensors, device)
    }

    /// Reads a head for this model from a directory.
    ///
    /// # Errors
    ///
    /// If a file is missing or malformed, the kind is unknown, or the head was made for hidden
    /// states of another width.
    pub fn head(&self, directory: &Path) -> Result<Head, CheckpointError> {
        load_head(directory, &self.config)
    }
}

/// Checks that the CPU's memory has room for weights of `needed` bytes. Without the check, the system
/// would kill the program.
fn check_memory(directory: &Path, device: &Device, needed: u64, free: Option<u64>) -> Result<(), CheckpointError> {
    check_room(device, needed, free).map_err(|shortage| CheckpointError::Memory { directory: directory.to_owned(), shortage })
}

/// Returns the directory of a model or adapter that is given by directory or hub id.
///
/// If there is such a directory, even an embedded one, the hub of the environment is not used.
///
/// # Errors
///
/// If there is neither such a directory nor such an id, it cannot be downloaded, or a model or an
/// adapter that is not here yet is not supported.
pub fn resolve(source: &str, progress: &mut dyn Progress) -> Result<PathBuf, CheckpointError> {
    resolve_checked(source, check_settings, progress)
}

/// As [`resolve`], but `check` examines the other files before weights are downloaded.
fn resolve_checked(
    source: &str,
    check: impl FnOnce(&Path) -> Result<(), CheckpointError>,
    progress: &mut dyn Progress,
) -> Result<PathBuf, CheckpointError> {
    let local = Path::new(source);
    if files::is_dir(local) {
        return Ok(local.to_owned());
    }
    if files::is_file(local) {
        return Err(CheckpointError::NotADirectory { path: local.to_owned(), directory: folder(local).to_owned() });
    }
    // Do not look up a local path on the hub because the user may not read it.
    if let Err(error) = local.metadata()
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        return Err(CheckpointError::Io { action: "read", path: local.to_owned(), source: error });
    }
    ask(&Hub::from_env()?, source, check, progress)
}

/// Returns the snapshot of a hub id. If there is none, the error also says that no such directory
/// exists.
fn ask(
    hub: &Hub,
    source: &str,
    check: impl FnOnce(&Path) -> Result<(), CheckpointError>,
    progress: &mut dyn Progress,
) -> Result<PathBuf, CheckpointError> {
    hub.resolve(source, check, progress).map_err(|error| match error {
        CheckpointError::Hub(absence) if absence.is_absence() => {
            CheckpointError::Nowhere { name: source.to_owned(), source: absence }
        }
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    #[test]
    fn weights_larger_than_memory_are_refused() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tied/model");
        let checkpoint = Checkpoint {
            config: Qwen2Config::from_file(&fixture.join("config.json")).unwrap(),
            tensors: TensorFiles::open(&fixture).unwrap(),
            text: TextFiles {
                directory: fixture,
                tokenizer: Tokenizer::bytes(),
                end_of_text: Vec::new(),
                vocab_size: 0,
                context_limit: None,
            },
        };
        let device = Device::flex();
        let needed = 1000;
        let check = |free| check_memory(checkpoint.directory(), &device, needed, free);
        assert!(check(Some(needed)).is_ok());
        assert!(check(None).is_ok());
        let message = check(Some(needed - 1)).unwrap_err().to_string();
        assert!(message.contains("memory") && message.contains("tied"), "{message}");
    }

    #[test]
    fn a_missing_model_is_looked_up_on_disk_and_on_the_hub() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
            head
        });
        let cache = tempfile::tempdir().unwrap();
        let hub = Hub::new(&endpoint, cache.path().to_owned());
        let says = |hub: &Hub, part: &str| {
            let message = ask(hub, "models/mine", check_settings, &mut ()).unwrap_err().to_string();
            assert!(message.starts_with("there is no directory `models/mine` here"), "{message}");
            assert!(message.contains(part) && !message.contains('\n'), "{message}");
        };
        says(&hub, "the hub answers 404");
        assert!(server.join().unwrap() > 0);
        // The server has stopped.
        says(&hub, &endpoint);
        says(&hub.with_offline(true), "HF_HUB_OFFLINE");
        // A name that cannot be an id is not looked up on the hub.
        let message =
            ask(&Hub::new(&endpoint, cache.path().to_owned()), "./mine", check_settings, &mut ()).unwrap_err().to_string();
        assert!(message.contains("neither a directory nor a hub id"), "{message}");
    }
}
