//! Shared by the tests on real weights: the device to run on, and the fixtures.

#![allow(dead_code)] // each test program uses a part

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::Device;
use sk_models::{
    Qwen2Config,
    device::DeviceName,
    hf::{TensorFiles, load_adapter, load_model},
    lora::LoraAdapter,
    model::Qwen2,
};

/// The environment variable that names the device; the CPU if it is not set.
const VARIABLE: &str = "SWISS_KNIFE_TEST_DEVICE";

fn device_name() -> DeviceName {
    let name = std::env::var(VARIABLE).unwrap_or_else(|_| "cpu".to_owned());
    name.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
}

/// The device under test. On a GPU no other test uses it meanwhile, since nothing else may while a
/// decoder records a pass.
pub(crate) struct Turn {
    device: Device,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Deref for Turn {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

/// Waits for the device under test.
pub(crate) fn device() -> Turn {
    static TURNS: Mutex<()> = Mutex::new(());
    let name = device_name();
    // A test that failed leaves nothing that the next one could see.
    let turn = (name != DeviceName::Cpu).then(|| TURNS.lock().unwrap_or_else(PoisonError::into_inner));
    Turn { device: name.open().unwrap_or_else(|error| panic!("{VARIABLE}: {error}")), _turn: turn }
}

/// Whether Burn multiplies f32 in TF32 on the device under test. The trained module then does too;
/// the decoder does not.
pub(crate) fn has_tf32() -> bool {
    matches!(device_name(), DeviceName::Cuda(_))
}

/// The directory of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The weights of a fixture and their shape.
pub(crate) fn open(name: &str) -> (Qwen2Config, TensorFiles) {
    let directory = fixture(name).join("model");
    (Qwen2Config::from_file(&directory.join("config.json")).unwrap(), TensorFiles::open(&directory).unwrap())
}

/// The backbone of a fixture.
pub(crate) fn backbone(name: &str, device: &Device) -> Qwen2 {
    let (config, files) = open(name);
    load_model(&config, &files, device).unwrap()
}

/// An adapter of a fixture.
pub(crate) fn adapter(name: &str, adapter: &str, device: &Device) -> LoraAdapter {
    let (config, files) = open(name);
    load_adapter(&fixture(name).join("adapters").join(adapter), &config, &files, device).unwrap()
}
