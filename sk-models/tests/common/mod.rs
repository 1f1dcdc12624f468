//! Shared by the tests on real weights: the device to run on, and the fixtures.

#![allow(dead_code)] // each test program uses a part

use std::path::{Path, PathBuf};

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

/// The device under test.
pub(crate) fn device() -> Device {
    device_name().open().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
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
