//! A decoder that is packed as each part is read equals one that is packed from a whole model.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use sk_core::TokenId;
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Precision};
use sk_models::hf::Checkpoint;
use sk_models::model::Qwen2;
use tempfile::TempDir;

const TOKENS: [TokenId; 5] = [3, 1, 4, 1, 5];

/// One with an untied head, one with a tied head, and one with an odd head width.
const FIXTURES: [&str; 3] = ["untied_sharded", "tied", "odd_head_dim"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).join("model")
}

/// The logits after [`TOKENS`].
fn logits(decoder: &Decoder) -> Vec<f32> {
    let seats = decoder.alone();
    let mut prefix = decoder.prefix(seats.count());
    decoder.prefill(&TOKENS[..4], &seats, &mut prefix);
    let hidden = decoder.advance(TOKENS[4], &seats, &mut prefix);
    decoder.logits(&hidden, &seats).unwrap()
}

/// A minimal tokenizer. The fixtures have none, because tests give them token ids.
const TOKENIZER: &str = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;

/// A copy of a fixture, completed with the tokenizer.
fn checkpoint(name: &str) -> (TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
    let checkpoint = Checkpoint::from_directory(folder.path()).unwrap();
    (folder, checkpoint)
}

#[test]
fn a_checkpoint_read_part_by_part_is_the_checkpoint() {
    let device = Device::flex();
    for name in FIXTURES {
        let (_folder, checkpoint) = checkpoint(name);
        for precision in [Precision::F32, Precision::Int8] {
            let whole = Decoder::new(checkpoint.model(&device).unwrap(), precision).unwrap();
            // Twice, because the first read releases pages of the file that the second must read
            // again.
            for _ in 0..2 {
                let decoder = checkpoint.decoder(&device, precision).unwrap();
                assert_eq!(decoder.precision(), precision);
                assert_eq!((decoder.config(), decoder.bytes()), (whole.config(), whole.bytes()), "{name}");
                assert_eq!(logits(&decoder), logits(&whole), "{name}, {precision}");
            }
        }
    }
}

#[test]
fn random_weights_do_not_depend_on_what_holds_them() {
    let device = Device::flex();
    for name in FIXTURES {
        let config = Qwen2Config::from_file(&fixture(name).join("config.json")).unwrap();
        for precision in [Precision::F32, Precision::Int8] {
            let decoder = Decoder::random(&config, 5, &device, precision).unwrap();
            let whole = Decoder::new(Qwen2::random(&config, 5, &device), precision).unwrap();
            assert_eq!(logits(&decoder), logits(&whole), "{name}, {precision}");
            let other = Decoder::random(&config, 6, &device, precision).unwrap();
            assert_ne!(logits(&decoder), logits(&other), "{name}, {precision}");
        }
    }
}
