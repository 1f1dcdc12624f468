//! Builds a scheme from a specification, seats the blades that ship, and answers one question under
//! two weightings.

use std::error::Error;
use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::Context;
use sk_models::assets;
use sk_models::engine::AdapterRack;
use sk_models::local::{ModelOptions, Models};
use sk_scheme::{SchemeSpec, Shipped};

/// The changes to the shipped scheme `swiss-knife`.
const CHANGES: &str = r#"
[proposal]
candidates = 5

[selector]
temperature = 1
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let shipped = assets::embedded().ok_or("this build holds no model")?;
    // Without a directory or hub id, this opens the model that ships.
    let models = Models::open(&ModelOptions::default(), &mut ())?;
    let adapters = AdapterRack::default();
    for name in shipped.blades() {
        adapters.insert(name, models.adapter(name, &shipped.blade(name).display().to_string(), None, &mut ())?);
    }
    for favourite in ["helpful", "harmless"] {
        let mut spec: SchemeSpec = Shipped::named("swiss-knife").ok_or("no such scheme")?.spec()?;
        spec.overlay("steer.toml", CHANGES, Path::new(""))?;
        shipped.blades().into_iter().for_each(|name| spec.seat(name));
        spec.overlay("steer.toml", &format!("[blades.{favourite}]\nweight = 1\n"), Path::new(""))?;

        let mut scheme = spec.build(&models.engine(&adapters, &[]))?;
        let prompt = models.tokenizer.encode("\n\nHuman: How do I apologise to a friend?\n\nAssistant:")?;
        let mut context = Context::new(prompt.as_slice())?;
        let mut steps = 0;
        let mut rng = ChaCha8Rng::seed_from_u64(42);
        scheme.generate(&mut context, 48, &mut rng, |step| {
            assert_eq!(step.candidates.len(), 5);
            steps += 1;
            true
        })?;
        let answer = models.tokenizer.decode(&context.tokens()[prompt.len()..])?;
        println!("{favourite}, {steps} steps:{answer}\n");
    }
    Ok(())
}
